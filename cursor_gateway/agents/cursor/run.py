"""CliRun: one process of the CLI at work, for one answer or, over the relay, for several.

A run is read, not listened to: nobody reads, and what the agent writes stays in its pipe. That is
how a run is parked while the client executes a call: it holds a process and a few kilobytes.

What belongs to one process is in an `Attempt`, made new where the CLI has to be started again;
what belongs to one answer is in an `AnswerState`, made new when the client comes back with results.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from cursor_gateway.agents import AgentProcess, RunObserver, RunSpec, StartOver
from cursor_gateway.agents.cursor.chats import StoredChat
from cursor_gateway.agents.cursor.native_tools import with_client_call
from cursor_gateway.agents.cursor.relayed import noticed
from cursor_gateway.agents.cursor.run_state import (
    NEXT_STATES,
    AnswerState,
    Attempt,
    Prepared,
    RunState,
)
from cursor_gateway.agents.cursor.starts import START_ATTEMPTS, Starts
from cursor_gateway.agents.cursor.texts import classify_failure, is_config_race
from cursor_gateway.agents.cursor.timeouts import NoResult, Timeouts
from cursor_gateway.agents.time_limits import MOMENT, Silence
from cursor_gateway.core.conversation import ToolResult, ToolSpec
from cursor_gateway.core.events import (
    SILENCE,
    ZERO_USAGE,
    AgentCall,
    AgentEvent,
    ClientCall,
    Quiet,
    TextDelta,
    Usage,
)
from cursor_gateway.errors import (
    AgentFailed,
    CursorUnreachable,
    GatewayError,
    OutOfResources,
)
from cursor_gateway.processes.child import ENDED, WOKEN, Child, NoOutput
from cursor_gateway.processes.children import Children
from cursor_gateway.processes.resources import EXHAUSTED
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspace

log = logging.getLogger(__name__)

# After `result` some versions never exit; a healthy one is gone in well under a second.
LINGER_GRACE = 2.0
# Between the end of its output and its exit code.
EXIT_CODE_GRACE = 2.0
# How long words are held back, from the first one on, for what the agent must have before they
# count. The CLI connects its MCP servers while it starts, for which it takes 6 to 8 seconds
# (2026.10.01), and one that speaks before that may do it yet. The list of tools it then fetches in
# its own time.
CONTACT_GRACE = 10.0
# And how much: a piece is what one read brought, 64 KB at most.
MOST_HELD = 256
# A notice that the list has changed goes before the result that the model goes on with.
NEW_TOOLS_GRACE = 2.0
# How often it is tried where there is no descriptor, process or memory; before each, another ends.
ROOM_ATTEMPTS = 5

_SAYS_SOMETHING = (TextDelta, AgentCall, ClientCall)


class Launcher(Protocol):
    """The run's agent, as far as a run knows it."""

    settings: Settings
    children: Children
    starts: Starts

    async def make_room_for_start(self) -> bool: ...
    def compose(self, run: CliRun) -> bytes:
        """The prompt of the run."""
        ...

    def launch(
        self,
        spec: RunSpec,
        workspace: Workspace,
        session: RelaySession | None,
        prompt: bytes | None = None,
    ) -> Child: ...

    def relay_ignored(self) -> None:
        """A run spoke, and had never connected to the relay."""
        ...

    def first_output(self, prompted_at: float, born: float | None) -> None:
        """The CLI's output begins; it was `born` before anybody asked, or started for it."""
        ...


class CliRun:
    def __init__(
        self, spec: RunSpec, prepared: Prepared, observer: RunObserver, agent: Launcher
    ) -> None:
        self.spec = spec
        self.workspace = prepared.workspace
        self.session = prepared.session
        self.reported_usage = ZERO_USAGE
        self._tools: Sequence[ToolSpec] = spec.conversation.callable_tools
        self._prepared = prepared
        self._observer = observer
        self._agent = agent
        # How often the CLI was started for it.
        self._starts = 0
        self._attempt = Attempt()
        self._answer = AnswerState(Timeouts(agent.settings))
        self._unread: list[AgentEvent] = []
        self._state = RunState.NEW

    def _become(self, state: RunState) -> None:
        assert state in NEXT_STATES[self._state], (self._state, state)
        self._state = state

    # What is known of it

    @property
    def process(self) -> AgentProcess | None:
        child = self._attempt.child
        return AgentProcess(child.pid, child.mark, child.exited) if child else None

    @property
    def channel(self) -> Literal["relay", "text"]:
        return "relay" if self.session else "text"

    @property
    def session_id(self) -> str:
        return self._attempt.stream.session_id

    @property
    def tokens_read(self) -> int | None:
        """By the model, in all steps of the run; None where the CLI does not tell."""
        usage = self._attempt.stream.usage
        return usage.input if usage else None

    @property
    def steps(self) -> int:
        """How often the model was asked, at most."""
        return self._attempt.stream.steps

    @property
    def is_resumable(self) -> bool:
        """Whether its chat may be resumed once it has finished: not where it was stopped before its
        `result`, since it may not have written down what it said."""
        return bool(self.session_id) and not self._attempt.stream.lacks_result

    @property
    def is_waiting(self) -> bool:
        child = self._attempt.child
        return (
            child is not None
            and not child.exited.done()
            and not self._attempt.stream.finished
            and self.session is not None
            and not self.session.lost
        )

    @property
    def stored_chat(self) -> StoredChat | None:
        assert self.spec.chat is None or isinstance(self.spec.chat, StoredChat)
        return self.spec.chat

    def when_over(self, call: Callable[[], object]) -> None:
        if self._attempt.child is not None:
            self._attempt.child.exited.add_done_callback(lambda _: call())

    # Reading

    async def read(self, *, burst_open: bool) -> Sequence[AgentEvent] | Quiet:
        while not self._may_pass_on():
            if self._attempt.stream.failure:
                raise self._failed(self._attempt.stream.failure)
            child = self._attempt.child or await self._start()
            is_held = bool(self._unread)
            moment = MOMENT if is_held else self._burst_gap if burst_open else None
            try:
                data = await self._answer.timeouts.read(child, self._attempt.stream, moment)
            except Silence:
                if is_held:
                    continue
                return SILENCE
            except NoResult:
                self._unread += self._attempt.stream.conclude()
                continue
            self._unread += self._events(data)
            self._note_first_output(data)
            if data is ENDED and not self._may_pass_on():
                await self._output_ended(child)
        events, self._unread = self._unread, []
        return events

    async def _output_ended(self, child: Child) -> None:
        stream = self._attempt.stream
        if stream.turn_ended and await child.exit_code(EXIT_CODE_GRACE) in (0, None):
            self._unread += stream.conclude()
        else:
            await self._died(child)

    @property
    def _burst_gap(self) -> float:
        """After how much silence no other call follows that was made at once. With a CLI that was
        seen to make one at a time nobody waits for more; one that comes is in the next answer."""
        is_one = self.session is not None and self.session.is_one_by_one
        return 0.0 if is_one else MOMENT

    def _events(self, data: bytes | NoOutput) -> list[AgentEvent]:
        events = self._read_events(data)
        if self.session is None:
            return [self._translated(event) for event in events]
        rest = [left for event in events if (left := noticed(event, self.session)) is not None]
        return [*map(self._translated, rest), *self.session.calls_for_client()]

    def _read_events(self, data: bytes | NoOutput) -> list[AgentEvent]:
        stream = self._attempt.stream
        if data is WOKEN:
            stream.goes_on()
            return []
        return stream.close() if data is ENDED else stream.feed(data)

    def _translated(self, event: AgentEvent) -> AgentEvent:
        return with_client_call(event, self._tools) if isinstance(event, AgentCall) else event

    def _note_first_output(self, data: bytes | NoOutput) -> None:
        attempt = self._attempt
        if attempt.prompted_at is not None and isinstance(data, bytes):
            self._observer.spoke()
            # A CLI that refuses to begin may say so sooner than others begin.
            if attempt.stream.session_id:
                born = self._prepared.born if attempt.is_warm else None
                self._agent.first_output(attempt.prompted_at, born)
                attempt.prompted_at = None

    def _may_pass_on(self) -> bool:
        """Whether anything was read that is for the client now. Before the first words are, the
        agent must know its chat and its tools."""
        if self._answer.has_spoken or not self._unread:
            return bool(self._unread)
        chat = self.spec.chat
        if chat is not None and self.session_id != chat.session_id:
            raise StartOver("chat")
        if not any(isinstance(event, _SAYS_SOMETHING) for event in self._unread):
            return True
        self._answer.has_spoken = self.session is None or not self._must_wait_for(self.session)
        return self._answer.has_spoken

    def _must_wait_for(self, session: RelaySession) -> bool:
        """Whether the agent lacks something that may still come to it."""
        answer, missing = self._answer, session.missing
        if not missing:
            return False
        now = asyncio.get_running_loop().time()
        answer.held_since = now if answer.held_since is None else answer.held_since
        grace = CONTACT_GRACE if missing == "relay" else NEW_TOOLS_GRACE
        is_early = now < answer.held_since + grace and len(self._unread) < MOST_HELD
        if is_early and not self._attempt.stream.finished:
            return True
        if missing == "tools":
            session.give_up_new_tools()
            raise StartOver("tools")
        self._agent.relay_ignored()
        raise StartOver("calls")

    # The answer's end, and the next answer

    def deliver(self, results: Sequence[ToolResult]) -> None:
        if self.session is not None:
            self.session.deliver(results)

    def park(self, unread: Sequence[AgentEvent], usage: Usage) -> None:
        self._become(RunState.PARKED)
        self._unread = [*unread, *self._unread]
        self.reported_usage += usage
        # It may wait for long, and nobody needs the transcript any more.
        self.spec = replace(self.spec, conversation=replace(self.spec.conversation, messages=()))

    def resume(
        self, results: Sequence[ToolResult], tools: Sequence[ToolSpec], *, parallel_calls: bool
    ) -> str:
        session = self.session
        if session is None or not self.is_waiting:
            return "it waits no longer"
        if not session.tools.are_all_in(tools):
            return "other tools"
        if not session.may_offer(tools):
            return "new tools, of which this CLI takes no notice"
        self._become(RunState.WORKING)
        self._tools = tools
        session.offer(tools)
        session.one_at_a_time = not parallel_calls
        timeouts = Timeouts(self._agent.settings, heard=True)
        self._answer = AnswerState(timeouts, is_continued=True)
        self._attempt.stream.goes_on()
        session.deliver(results)
        return ""

    def end(self, then: Callable[[], object]) -> asyncio.Future[None]:
        """Stop the process in the background, then call `then`."""
        child = self._attempt.child or self._prepared.child
        if child is None or self._state is RunState.ENDED:
            then()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        self._become(RunState.ENDED)
        stream = self._attempt.stream
        leaves_by_itself = stream.finished and not stream.lacks_result
        grace = LINGER_GRACE if leaves_by_itself else 0.0
        return self._agent.children.retire(child, grace, then)

    # Its process

    async def _start(self) -> Child:
        warm = self._prepared.child
        if warm is None:
            self._starts += 1
            await self._until_it_may_start()
        prompt = self._agent.compose(self)
        if warm is None:
            child = await self._launched(prompt)
        else:
            child = warm
            child.feed(prompt)
        if self._state is RunState.NEW:
            self._become(RunState.WORKING)
        now = asyncio.get_running_loop().time()
        self._attempt.began_with(child, is_warm=child is warm, now=now)
        self._observer.started(
            "resumed" if self.spec.chat else "fresh", self.process, is_warm=self._attempt.is_warm
        )
        if self.session is not None:
            self.session.on_arrival = child.wake
        return child

    async def _until_it_may_start(self) -> None:
        if self.stored_chat is not None:
            await self.stored_chat.until_left()
        await self._agent.starts.wait()

    async def _launched(self, prompt: bytes, attempts: int = ROOM_ATTEMPTS) -> Child:
        """Where something has run out, those who only wait give way, one after the other."""
        try:
            return self._agent.launch(self.spec, self.workspace, self.session, prompt)
        except (OutOfResources, OSError) as error:
            if isinstance(error, OSError) and error.errno not in EXHAUSTED:
                raise
            if attempts == 1 or not await self._agent.make_room_for_start():
                raise OutOfResources(str(error)) from error
        return await self._launched(prompt, attempts - 1)

    async def _died(self, child: Child) -> None:
        """It ended without a result: raises, unless it is worth another start."""
        stream = self._attempt.stream
        exit_code = await child.exit_code(EXIT_CODE_GRACE)
        words = f"{child.stderr}\n{stream.noise}"
        # The one failure that is nobody's fault: agents that start together break one file.
        is_race = not stream.session_id and is_config_race(words)
        if not (is_race and self._starts < START_ATTEMPTS) and not self._died_warm:
            raise self._failed(classify_failure(words, exit_code=exit_code))
        if is_race:
            log.info("agents that started together met in cli-config.json; starting again")
            self._agent.starts.space_out()
        await asyncio.wait({self._agent.children.retire(child)})
        self._prepared = replace(self._prepared, child=None)
        self._attempt, self._unread = Attempt(), []
        self._answer = AnswerState(Timeouts(self._agent.settings))

    @property
    def _died_warm(self) -> bool:
        """Whether it was warm and did not begin: what it died of may have happened while it waited.
        In a chat nobody knows whether its prompt stands there already."""
        has_begun = self._attempt.prompted_at is None
        return self._attempt.is_warm and not has_begun and self.spec.chat is None

    def _failed(self, error: GatewayError) -> Exception:
        """A chat that cannot be resumed is no failure, nor is an agent that did not live to see its
        results, as long as nothing was said."""
        if type(error) in (AgentFailed, CursorUnreachable) and not self._answer.has_spoken:
            if self._answer.is_continued:
                return StartOver("run")
            if self.spec.chat is not None:
                return StartOver("chat")
        return error
