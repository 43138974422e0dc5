"""The program in one function: `Gateway.answer`."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cursor_gateway import __version__
from cursor_gateway.account import Account
from cursor_gateway.agents.cursor.chats import Chat
from cursor_gateway.agents.cursor.cli import CursorCli
from cursor_gateway.agents.cursor.permissions import agent_reads
from cursor_gateway.agents.cursor.run import Run, RunSpec, StartOver
from cursor_gateway.agents.cursor.tool_channel import ToolChannel
from cursor_gateway.agents.cursor.transcripts import Transcripts
from cursor_gateway.agents.cursor.version_effects import relay_hold, warnings
from cursor_gateway.agents.cursor.version_facts import KnownVersions, VersionFacts, known_facts
from cursor_gateway.background import in_background
from cursor_gateway.core.bridged_calls import BridgedCalls
from cursor_gateway.core.call_ids import CallIds
from cursor_gateway.core.conversation import Conversation, ToolCall
from cursor_gateway.core.events import Event
from cursor_gateway.core.history import Answer
from cursor_gateway.core.loop_guard import Loop
from cursor_gateway.core.turn import Turn
from cursor_gateway.errors import AgentNotFound, GatewayError, NotAuthenticated, TooManyRequests
from cursor_gateway.journal.record import Record
from cursor_gateway.mcp_bridge.bridge import Bridge
from cursor_gateway.processes.child import TERM_GRACE
from cursor_gateway.processes.children import Children
from cursor_gateway.recent_failures import RecentFailures
from cursor_gateway.relay.server import Relay
from cursor_gateway.running_gateways import state_folder, versions_folder
from cursor_gateway.sessions import Sessions, TurnRequest
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspaces

log = logging.getLogger(__name__)


class Gateway:
    """Owns everything that lives longer than a request. Made and used inside one event loop."""

    def __init__(
        self, settings: Settings, env: Mapping[str, str], *, owns_process: bool = False
    ) -> None:
        self._settings = settings
        transcripts = Transcripts(env, state_folder(env), keep=settings.transcripts == "keep")
        self._children = Children(transcripts, owns_process=owns_process)
        self.workspaces = Workspaces(
            self._children.root, settings.workspace, settings.workspace_roots
        )
        self.bridge = Bridge(settings, env, self._children)
        self._relay = Relay(settings.relay_hold, self.bridge.answer)
        self._call_ids = CallIds(secrets.token_bytes(32), lambda: secrets.token_hex(6))
        self.agent = CursorCli(
            settings,
            env,
            self._children,
            self.workspaces,
            self._relay,
            self._call_ids.new,
            KnownVersions(versions_folder(env), self._heed),
        )
        self.account = Account(self.agent, settings)
        self._failures = RecentFailures(lambda: self.account.sign_ins)
        self._sessions = Sessions(
            self.agent,
            self._call_ids,
            settings.session_ttl,
            most=settings.slots * settings.parked_per_slot,
        )
        self._channel = ToolChannel(settings.tool_channel)
        self._bridged_calls = BridgedCalls()
        self._slots = _Slots(settings.slots, settings.queue)
        self._loops_stopped = 0
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._keeping = in_background(
            self._children.root.keep(), "the hold on the scratch directory"
        )
        await asyncio.to_thread(self._children.transcripts.clear_behind_others)
        await self._relay.start()
        self.account.start()
        self.bridge.start()

    async def answer(
        self,
        conversation: Conversation,
        directory: Path | None,
        *,
        caller: str = "",
        may_resume: bool = True,
        may_bridge: bool = True,
        record: Record | None = None,
    ) -> AsyncGenerator[list[Event], None]:
        """The answer to `conversation`, in batches of events; the last event is `Finished`.

        `directory` is a real workspace that was allowed, or None for an empty one.
        """
        record = record or Record()
        ask = await self._ask(conversation, directory, caller, may_resume, may_bridge)
        record.resolved = ask.model
        turn = self._turn(ask.conversation)
        record.mark("queued")
        async with self._failures.attempt(ask), self._slots:
            record.mark("started")
            told = Answer()
            run = self._continued(ask, record) or self._started(ask, record)
            turn.begin(ask.conversation, run.told)
            try:
                while not turn.over:
                    try:
                        batch = await run.read(restless=turn.restless)
                    except StartOver as refusal:
                        run = self._start_over(ask, run, turn, refusal, record)
                        continue
                    events = turn.feed(batch)
                    self._reply(run, turn)
                    if turn.over:
                        await self._run_errands(ask, turn, events)
                    if events:
                        told.feed(events)
                        record.passed_on(events)
                        yield events
                    await self._run_errands(ask, turn)
                    if turn.retry:
                        run = self._ask_again(ask, run, turn, record)
            except BaseException as error:
                self._give_up(run, error)
                raise
            finally:
                record.chat, record.channel = run.session_id, _channel_of(ask, run, turn)
            self._leave(ask, run, turn, told, record.loop)

    async def _ask(
        self,
        conversation: Conversation,
        directory: Path | None,
        caller: str,
        may_resume: bool,
        may_bridge: bool,
    ) -> TurnRequest:
        """What is asked for, if there is anybody to ask."""
        self.agent.locate()
        model = await self.account.resolve(conversation.model)
        await self.account.require_sign_in()
        if may_bridge:
            conversation = self._with_bridged(conversation, directory)
        if conversation.callable_tools:
            # The client acts, on its own files. The agent has no business in any directory.
            directory = None
        may_resume = may_resume and self._settings.session_reuse
        return TurnRequest(conversation, model, directory, caller, may_resume)

    def _turn(self, conversation: Conversation) -> Turn:
        return Turn(
            conversation,
            max_repeat=self._settings.tool_loop_max_repeat,
            new_id=self._call_ids.new,
            show_activity=self._settings.show_activity,
        )

    def _with_bridged(self, conversation: Conversation, directory: Path | None) -> Conversation:
        """The tools of the user's MCP servers beside the client's. Not where the agent works in a
        real directory: it may only read there, and a model that may only read calls nothing."""
        if conversation.tool_choice.kind == "none" or (directory and not conversation.tools):
            return conversation
        known = {tool.name for tool in conversation.tools}
        bridged = tuple(tool for tool in self.bridge.tools if tool.name not in known)
        if not bridged:
            return conversation
        return replace(conversation, tools=conversation.tools + bridged)

    async def _run_errands(
        self, ask: TurnRequest, turn: Turn, events: Sequence[Event] = ()
    ) -> None:
        """If there are any; `events` is what the client gets once they are done."""
        calls = tuple(turn.errands)
        if not calls:
            return
        results = await asyncio.gather(*map(self.bridge.answer, calls))
        turn.executed(results)
        beside = [event.id for event in events if isinstance(event, ToolCall)]
        self._bridged_calls.remember(ask.caller, beside, calls, results)

    def _continued(self, ask: TurnRequest, record: Record) -> Run | None:
        """The agent that waits for what `ask` brings."""
        run = self._sessions.continued(ask)
        if run is not None and run.child is not None:
            record.had("continued", run.child)
        return run

    def _started(self, ask: TurnRequest, record: Record) -> Run:
        """An agent that goes on with a chat, or reads everything."""
        return self.agent.start(self._order(ask, *self._sessions.resumed(ask)), record)

    def _order(self, ask: TurnRequest, chat: Chat | None = None, known: int = 0) -> RunSpec:
        conversation = self._bridged_calls.with_bridged_results(ask.caller, ask.conversation)
        by_relay = self._is_by_relay(ask)
        return RunSpec(conversation, ask.model, ask.directory, ask.caller, by_relay, chat, known)

    def _is_by_relay(self, ask: TurnRequest) -> bool:
        return bool(ask.conversation.callable_tools) and self._channel.is_relay(self.agent.locate())

    def _start_over(
        self, ask: TurnRequest, run: Run, turn: Turn, refusal: StartOver, record: Record
    ) -> Run:
        """The same for an agent that reads everything, by the channel that it knows."""
        order = replace(run.order, chat=None, known=0)
        if refusal.because == "relay":
            self._channel.relay_is_ignored()
            order = replace(order, by_relay=False)
        elif refusal.because in ("run", "tools"):
            log.info("the agent that waited for these results cannot go on; another reads all")
            order = self._order(ask)
        else:
            log.info("the agent did not take up its chat; it gets the whole conversation")
        self.agent.end(run)
        turn.begin(order.conversation)
        return self.agent.start(order, record)

    def _ask_again(self, ask: TurnRequest, run: Run, turn: Turn, record: Record) -> Run:
        """Another agent, which also reads what was wrong with the answer of this one, or what was
        done for it; it goes on from where this one ended, if it did."""
        order = self._order(ask)
        messages = order.conversation.messages + turn.retry
        order = replace(order, conversation=replace(order.conversation, messages=messages))
        if not ask.may_resume or not turn.ended_with_agent:
            self.agent.end(run)
        elif chat := self.agent.keep(run):
            if self.agent.chats.is_there(chat):
                order = replace(order, chat=chat, known=len(messages) - 1)
            else:
                self.agent.forget(chat)
        turn.begin(order.conversation)
        return self.agent.start(order, record)

    def _reply(self, run: Run, turn: Turn) -> None:
        if turn.replies and run.line is not None:
            run.line.deliver(turn.replies)
            turn.replies.clear()

    def _give_up(self, run: Run, error: BaseException) -> None:
        self.agent.end(run)
        if isinstance(error, NotAuthenticated):
            self.account.doubt_sign_in()

    def _leave(
        self, ask: TurnRequest, run: Run, turn: Turn, told: Answer, loop: Loop | None
    ) -> None:
        """What becomes of the agent when its answer is over."""
        self._note_loop(loop)
        self.account.trust_sign_in()
        self._channel.count(_channel_of(ask, run, turn), run)
        seen = told.after(ask.whole)
        can_return = ask.conversation.calls_have_ids
        if can_return and turn.leaves_agent_waiting and run.is_waiting:
            run.put_back(turn.unread, turn.usage)
            self._sessions.park(ask, run, seen, told.calls)
            return
        chat = self._sessions.keep(ask, run, seen) if turn.ended_with_agent else None
        if not turn.ended_with_agent:
            self.agent.end(run)
        self._prepare(ask, chat)

    def _prepare(self, ask: TurnRequest, chat: Chat | None) -> None:
        """Have an agent ready for what comes next: this conversation again, if it looks like one
        that goes on, or else another one like it."""
        goes_on = ask.conversation.tools or ask.past_and_news[0]
        chat = chat if chat and goes_on and self.agent.chats.is_there(chat) else None
        empty = replace(ask.conversation, messages=())
        order = RunSpec(empty, ask.model, ask.directory, ask.caller, self._is_by_relay(ask), chat)
        self.agent.spares.want(order)

    def _note_loop(self, loop: Loop | None) -> None:
        if loop is not None:
            self._loops_stopped += 1
            log.warning("loop guard stopped %s: %s", loop.tool, loop.as_json())

    def _heed(self, facts: VersionFacts) -> None:
        """What runs and `doctor --live` have shown of the version of the CLI that is installed."""
        self._relay.hold_for(relay_hold(self._settings, facts))
        self._relay.habits.calls_one_by_one = facts.calls_at_once == 1
        self._channel.heed(facts)
        for warning in warnings(self._settings, facts):
            log.warning("%s", warning)

    async def look_at_disk(self) -> None:
        """For `health`: whether agents still have a place to work in."""
        await self._children.root.look()

    def health(self) -> dict[str, Any]:
        """What scripts ask: from memory, in no time."""
        problem: GatewayError | None
        facts = self.agent.known.facts
        try:
            located = self.agent.locate()
            agent: dict[str, Any] = {"kind": located.kind, "path": located.path}
            agent["version"] = self.account.version
            problem = self.account.problem() or self._children.root.problem
        except AgentNotFound as missing:
            agent, problem = {"kind": None, "path": None, "version": None}, missing
        is_starting = not problem and self.account.is_starting
        state: dict[str, Any] = {
            "status": "error" if problem else "starting" if is_starting else "ok",
            "version": __version__,
            "auth": "unknown" if is_starting else self.account.auth,
            "account": self.account.name,
            "mcp": self.bridge.summary(),
            "mcp_servers": self.bridge.state(),
            "agent": agent,
            "slots": self._slots.state(),
            "tools": self._channel.state(self.agent.locate()) if agent["kind"] else None,
            "warm": self.agent.spares.state(),
            "sessions": self._sessions.state(),
            "loops_stopped": self._loops_stopped,
            "record_prompts": self._settings.record_prompts,
            "agent_reads": agent_reads(self._settings),
            "transcripts": self._settings.transcripts,
            "version_facts": known_facts(facts),
            "warnings": warnings(self._settings, facts),
        }
        if problem:
            state["error"] = {"code": problem.code, "message": problem.message}
        return state

    async def close(self, *, at_once: bool = False) -> None:
        """Stop every agent. `at_once` gives none of them time to leave by itself."""
        if self._keeping is not None:
            self._keeping.cancel()
        await self.bridge.close()
        await self.account.close()
        await self.agent.known.close()
        self.agent.spares.close()
        self._sessions.close()
        await self._relay.close()
        await self._children.close(0.0 if at_once else TERM_GRACE)


def _channel_of(ask: TurnRequest, run: Run, turn: Turn) -> str:
    if not ask.conversation.callable_tools:
        return "none"
    return turn.channel or ("relay" if run.line else "text")


class _Slots:
    """How many agents run at once. Who comes later waits in line and may leave it at any time."""

    def __init__(self, slots: int, queue: int) -> None:
        self._slots = slots
        self._queue = queue
        self._free = asyncio.Semaphore(slots)
        self._inside = 0

    async def __aenter__(self) -> None:
        if self._inside >= self._slots + self._queue:
            raise TooManyRequests(
                f"{self._slots} agents are running and {self._queue} requests are waiting."
            )
        self._inside += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._inside -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._free.release()
        self._inside -= 1

    def state(self) -> dict[str, int]:
        running = min(self._inside, self._slots)
        return {"total": self._slots, "busy": running, "waiting": self._inside - running}
