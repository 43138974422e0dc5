"""Run: one process of the agent at work, for one answer or, over the relay, for several.

A run is read, not listened to: nobody reads, and what the agent writes stays in its pipe. That is
how a run is parked while the client executes a call: it holds a process and a few kilobytes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from cursor_gateway.agents.cursor.chats import Chat
from cursor_gateway.agents.cursor.stream import AgentStream
from cursor_gateway.agents.cursor.texts import classify_failure, is_config_race
from cursor_gateway.agents.cursor.timeouts import MOMENT, NoResult, Silence, Timeouts
from cursor_gateway.core.conversation import Conversation, ToolResult
from cursor_gateway.core.events import ZERO_USAGE, AgentCall, Event, RelayedCall, TextDelta, Usage
from cursor_gateway.errors import AgentFailed, CursorUnreachable, GatewayError, OutOfResources
from cursor_gateway.processes.child import Child
from cursor_gateway.processes.children import Children
from cursor_gateway.processes.resources import EXHAUSTED
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspace

log = logging.getLogger(__name__)

# After `result` some versions never exit; a healthy one is gone in well under a second.
LINGER_GRACE = 2.0
# Between the end of its output and its exit code.
LAST_WORDS = 2.0
# How long words are held back, from the first one on, for what the agent must have before they
# count. The CLI connects its MCP servers while it starts, for which it takes 6 to 8 seconds
# (2026.10.01), and one that speaks before that may do it yet. The list of tools it then fetches in
# its own time.
CONTACT_GRACE = 10.0
# And how much: a piece is what one read brought, 64 KB at most.
MOST_HELD = 256
# A notice that the list has changed goes before the result that the model goes on with.
NEWS_GRACE = 2.0
START_ATTEMPTS = 5
# How often it is tried where there is no descriptor, process or memory; before each, another ends.
ROOM_ATTEMPTS = 5
START_SPACING = 0.25
START_SPACING_LASTS = 60.0


@dataclass(frozen=True)
class RunSpec:
    """What an agent is started for."""

    conversation: Conversation
    model: str
    directory: Path | None = None
    # Whose request it is; what is prepared for one is not for another.
    caller: str = ""
    # Whether it calls the client's tools over the relay, or else writes the calls.
    by_relay: bool = False
    # The chat that it goes on with, and how many messages of the conversation are in it.
    chat: Chat | None = None
    known: int = 0

    @cached_property
    def kind(self) -> Hashable:
        """What is on the command line or in the workspace: all but the prompt."""
        tools = tuple(tool.digest for tool in self.conversation.callable_tools)
        session = (self.chat.session_id, self.chat.workspace) if self.chat else None
        looks = self.conversation.has_images
        return self.model, self.directory, self.caller, self.by_relay, session, looks, tools


_SAYS_SOMETHING = (TextDelta, AgentCall, RelayedCall)


class RunObserver(Protocol):
    """Who is told of the processes of a run."""

    def started(self, order: RunSpec, child: Child, *, is_spare: bool) -> None: ...
    def spoke(self) -> None:
        """The first of them has written its first line."""
        ...


class StartOver(Exception):
    """The agent does not know its chat, never came to the relay, overlooks the tools that were
    added, or is gone with its results. Nothing of this answer was passed on yet, so another one can
    give it."""

    def __init__(self, because: Literal["chat", "relay", "tools", "run"]) -> None:
        super().__init__(because)
        self.because = because


class Run:
    def __init__(
        self,
        order: RunSpec,
        workspace: Workspace,
        line: RelaySession | None,
        spare: Child | None,
        watch: RunObserver,
        *,
        launch: Callable[[Run, bytes], Child],
        make_room: Callable[[], Awaitable[bool]],
        compose: Callable[[Run], bytes],
        began: Callable[[float, bool], None],
        children: Children,
        starts: Starts,
        settings: Settings,
    ) -> None:
        self.order = order
        self.workspace = workspace
        self.line = line
        self._spare = spare
        self._watch = watch
        self._launch = launch
        self._make_room = make_room
        self._compose = compose
        self._began = began
        self._children = children
        self._starts = starts
        self._settings = settings
        self._attempts = 0
        self._child: Child | None = None
        self._fed_at: float | None = None
        self._stream = AgentStream()
        self._unread: list[Event] = []
        # Since when its first words are held back.
        self._held_since: float | None = None
        self._is_heard = False
        self._is_continued = False
        self._is_over = False
        # The usage that the client was told of so far.
        self.told = ZERO_USAGE
        self._patience = Timeouts(settings)

    @property
    def child(self) -> Child | None:
        return self._child

    @property
    def session_id(self) -> str:
        return self._stream.session_id

    @property
    def tokens_read(self) -> int | None:
        """By the model, in all steps of the run; None where the CLI does not tell."""
        return self._stream.usage.input if self._stream.usage else None

    @property
    def steps(self) -> int:
        """How often the model was asked, at most."""
        return self._stream.steps

    @property
    def is_resumable(self) -> bool:
        """Whether its chat may be taken up once it has finished: not where it was stopped before
        its `result`, since it may not have written down what it said."""
        return bool(self._stream.session_id) and not self._stream.lacks_result

    @property
    def is_waiting(self) -> bool:
        """Whether the agent lives and a result can still reach it."""
        return (
            self._child is not None
            and not self._child.exited.done()
            and not self._stream.finished
            and self.line is not None
            and not self.line.lost
        )

    def when_over(self, call: Callable[[], object]) -> None:
        """Call back once the process has exited by itself."""
        if self._child is not None:
            self._child.exited.add_done_callback(lambda _: call())

    async def read(self, *, restless: bool) -> list[Event]:
        """What the agent does next; while `restless`, nothing at all for a moment of silence."""
        while not self._may_pass_on():
            if self._stream.failure:
                raise self._failed(self._stream.failure)
            child = self._child or await self._start()
            is_held = bool(self._unread)
            moment = MOMENT if is_held else self._burst_gap if restless else None
            try:
                data = await self._patience.read(child, self._stream, moment)
            except Silence:
                if is_held:
                    continue
                return []
            except NoResult:
                self._unread += self._stream.conclude()
                continue
            self._unread += self._events(data)
            self._note_first_output(data)
            if data == b"" and not self._may_pass_on():
                if self._stream.turn_ended and await child.exit_code(LAST_WORDS) in (0, None):
                    self._unread += self._stream.conclude()
                else:
                    await self._died(child)
        events, self._unread = self._unread, []
        return events

    @property
    def _burst_gap(self) -> float:
        """After how much silence no other call follows that was made at once. With a CLI that was
        seen to make one at a time nobody waits for more; one that comes is in the next answer."""
        is_one = self.line is not None and self.line.is_one_by_one
        return 0.0 if is_one else MOMENT

    def put_back(self, events: Sequence[Event], usage: Usage | None) -> None:
        """What was read and not used, for the next answer; this one told of `usage`."""
        self._unread = [*events, *self._unread]
        self.told += usage or ZERO_USAGE
        # It may wait for long, and nobody needs the transcript any more.
        self.order = replace(self.order, conversation=replace(self.order.conversation, messages=()))

    def go_on(self, results: Sequence[ToolResult]) -> None:
        """The next answer begins: the client brought the results that the agent waits for."""
        assert self.line is not None
        self._is_heard, self._is_continued = False, True
        self._held_since = None
        self._patience = Timeouts(self._settings, heard=True)
        self._stream.goes_on()
        self.line.deliver(results)

    def end(self, then: Callable[[], object]) -> asyncio.Future[None]:
        """Stop the process in the background, then call `then`."""
        child = self._child or self._spare
        if child is None or self._is_over:
            then()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        self._is_over = True
        leaves = self._stream.finished and not self._stream.lacks_result
        patience = LINGER_GRACE if leaves else 0.0
        return self._children.retire(child, patience, then)

    async def _start(self) -> Child:
        if self._spare is None:
            self._attempts += 1
            if self.order.chat is not None:
                await self.order.chat.until_left()
            await self._starts.wait()
        prompt = self._compose(self)
        if self._spare is None:
            self._child = child = await self._launched(prompt)
        else:
            self._child = child = self._spare
            child.feed(prompt)
        self._watch.started(self.order, child, is_spare=child is self._spare)
        self._fed_at = asyncio.get_running_loop().time()
        if self.line is not None:
            self.line.on_arrival = child.wake
        return child

    async def _launched(self, prompt: bytes, attempts: int = ROOM_ATTEMPTS) -> Child:
        """Where something has run out, those who only wait give way, one after the other."""
        try:
            return self._launch(self, prompt)
        except (OutOfResources, OSError) as error:
            if isinstance(error, OSError) and error.errno not in EXHAUSTED:
                raise
            if attempts == 1 or not await self._make_room():
                raise OutOfResources(str(error)) from error
        return await self._launched(prompt, attempts - 1)

    def _note_first_output(self, data: bytes | None) -> None:
        if self._fed_at is not None and data:
            self._watch.spoke()
            # A CLI that refuses to begin may say so sooner than others begin.
            if self._stream.session_id:
                self._began(self._fed_at, self._child is self._spare)
                self._fed_at = None

    def _events(self, data: bytes | None) -> list[Event]:
        events: list[Event] = []
        if data is None:
            self._stream.goes_on()
        else:
            events = self._stream.feed(data) if data else self._stream.close()
        if self.line is None:
            return events
        rest = [left for event in events if (left := self.line.noticed(event)) is not None]
        return [*rest, *self.line.calls_for_client()]

    def _may_pass_on(self) -> bool:
        """Whether anything was read that is for the client now. Before the first words are, the
        agent must know its chat and its tools."""
        if self._is_heard or not self._unread:
            return bool(self._unread)
        chat = self.order.chat
        if chat is not None and self._stream.session_id != chat.session_id:
            raise StartOver("chat")
        if not any(isinstance(event, _SAYS_SOMETHING) for event in self._unread):
            return True
        self._is_heard = self.line is None or not self._must_wait_for(self.line)
        return self._is_heard

    def _must_wait_for(self, line: RelaySession) -> bool:
        """Whether the agent lacks something that may still come to it."""
        missing, now = line.missing, asyncio.get_running_loop().time()
        if not missing:
            return False
        self._held_since = now if self._held_since is None else self._held_since
        grace = CONTACT_GRACE if missing == "relay" else NEWS_GRACE
        is_early = now < self._held_since + grace and len(self._unread) < MOST_HELD
        if is_early and not self._stream.finished:
            return True
        if missing == "tools":
            line.give_up_news()
        raise StartOver(missing)

    async def _died(self, child: Child) -> None:
        """It ended without a result: raises, unless it is worth another start."""
        exit_code = await child.exit_code(LAST_WORDS)
        words = f"{child.stderr}\n{self._stream.noise}"
        # The one failure that is nobody's fault: agents that start together break one file.
        is_race = not self._stream.session_id and is_config_race(words)
        if not (is_race and self._attempts < START_ATTEMPTS) and not self._died_waiting:
            raise self._failed(classify_failure(words, exit_code=exit_code))
        if is_race:
            log.info("agents that started together met in cli-config.json; starting again")
            self._starts.space_out()
        await asyncio.wait({self._children.retire(child)})
        self._child = self._spare = None
        self._unread, self._held_since = [], None
        self._stream = AgentStream()
        self._patience = Timeouts(self._settings)

    @property
    def _died_waiting(self) -> bool:
        """Whether it had been started ahead and did not begin: what it died of may have happened
        while it waited. In a chat nobody knows whether its prompt stands there already."""
        has_begun = self._fed_at is None
        return self._child is self._spare and not has_begun and self.order.chat is None

    def _failed(self, error: GatewayError) -> Exception:
        """A chat that cannot be taken up is no failure, nor is an agent that did not live to see
        its results, as long as nothing was said."""
        if type(error) in (AgentFailed, CursorUnreachable) and not self._is_heard:
            if self._is_continued:
                return StartOver("run")
            if self.order.chat is not None:
                return StartOver("chat")
        return error


class Starts:
    """Starts cost nothing until two agents have met in cli-config.json; then they take turns."""

    def __init__(self) -> None:
        self._spaced_until = 0.0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._spaced_until:
            async with self._turn:
                await asyncio.sleep(random.uniform(0.5, 1.5) * START_SPACING)  # noqa: S311

    def space_out(self) -> None:
        self._spaced_until = asyncio.get_running_loop().time() + START_SPACING_LASTS
