"""The program in one function: `Gateway.answer`."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from cursor_gateway import __version__
from cursor_gateway.agents import Chat, Run, RunSpec, StartOver
from cursor_gateway.background import in_background
from cursor_gateway.core.bridged_calls import BridgedCalls
from cursor_gateway.core.call_ids import CallIds
from cursor_gateway.core.conversation import Conversation, ToolCall, ToolResult
from cursor_gateway.core.events import AnswerEvent
from cursor_gateway.core.history import Answer
from cursor_gateway.core.instructions import AskAgain, Deliver, Done, Read, Reply, RunTools
from cursor_gateway.core.turn import Turn
from cursor_gateway.errors import (
    GatewayError,
    NotAuthenticated,
    TooManyRequests,
    UnsupportedParameter,
)
from cursor_gateway.journal.record import Record
from cursor_gateway.mcp_bridge.bridge import Bridge
from cursor_gateway.parts import Parts
from cursor_gateway.recent_failures import RecentFailures
from cursor_gateway.sessions import Sessions, TurnRequest
from cursor_gateway.settings import Settings

log = logging.getLogger(__name__)


class Gateway:
    """Owns everything that lives longer than a request. Made and used inside one event loop."""

    def __init__(
        self, settings: Settings, env: Mapping[str, str], *, owns_process: bool = False
    ) -> None:
        self._settings = settings
        self._call_ids = CallIds(secrets.token_bytes(32), lambda: secrets.token_hex(6))
        self._parts = Parts(
            settings, env, self._call_ids.new, self._execute, owns_process=owns_process
        )
        self.workspaces = self._parts.workspaces
        self.agent = self._parts.agent
        self.account = self._parts.account
        self.bridge = Bridge(settings, env, self._parts.children)
        self._failures = RecentFailures(lambda: self.account.sign_ins)
        self._sessions = Sessions(
            self.agent,
            self._call_ids,
            settings.session_ttl,
            most=settings.slots * settings.parked_per_slot,
        )
        self._bridged_calls = BridgedCalls()
        self._slots = _Slots(settings.slots, settings.queue)
        self._loops_stopped = 0
        self._touching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._touching = in_background(
            self._parts.scratch.keep(), "the hold on the scratch directory"
        )
        await self.agent.begin()
        await self._parts.relay.start()
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
    ) -> AsyncGenerator[list[AnswerEvent], None]:
        """The answer to `conversation`, in batches of events; the last event is `Finished`.

        `directory` is a real workspace that was allowed, or None for an empty one.
        """
        record = record or Record()
        request = await self._request(conversation, directory, caller, may_resume, may_bridge)
        record.resolved, record.agent_kind = request.model, self.agent.locate().kind
        record.mark("queued")
        async with self._failures.attempt(request), self._slots:
            record.mark("started")
            async with aclosing(self._turns(request, record)) as batches:
                async for events in batches:
                    yield events

    async def _turns(
        self, request: TurnRequest, record: Record
    ) -> AsyncGenerator[list[AnswerEvent], None]:
        """Do what the turn says, one instruction after the other."""
        turn, answer = self._turn(request.conversation), Answer()
        run = self._continued(request, record) or self._started(request, record)
        turn.begin(request.conversation, run.reported_usage)
        try:
            while not isinstance(instruction := turn.next(), Done):
                match instruction:
                    case Read(burst_open):
                        try:
                            turn.feed(await run.read(burst_open=burst_open))
                        except StartOver as refusal:
                            run = self._start_over(request, run, turn, refusal, record)
                    case Deliver(events):
                        answer.feed(events)
                        record.passed_on(events)
                        yield events
                    case Reply(results):
                        run.deliver(results)
                    case RunTools(calls, beside):
                        turn.executed(await self._run_tools(request, calls, beside))
                    case AskAgain():
                        run = self._ask_again(request, run, turn, instruction, record)
        except BaseException as error:
            self._give_up(run, error)
            raise
        finally:
            record.chat, record.channel = run.session_id, _channel_of(request, run, turn)
        answer.feed(instruction.events)
        record.passed_on(instruction.events)
        self._note_end(run, record)
        # The run is parked before the last frame can reach the client, which may be back with its
        # results as soon as it has read that.
        is_parked = self._let_go(request, run, instruction, answer)
        try:
            yield instruction.events
        except BaseException:
            if is_parked:
                self._sessions.stop(run)
            raise

    async def _request(
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
        if conversation.has_images and not self.agent.capabilities.reads_images:
            raise UnsupportedParameter("Images do not reach this agent.")
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

    async def _execute(self, call: ToolCall) -> ToolResult:
        return await self.bridge.answer(call)

    async def _run_tools(
        self, request: TurnRequest, calls: tuple[ToolCall, ...], beside: tuple[str, ...]
    ) -> list[ToolResult]:
        results = await asyncio.gather(*map(self.bridge.answer, calls))
        self._bridged_calls.remember(request.caller, beside, calls, results)
        return results

    # Runs

    def _continued(self, request: TurnRequest, record: Record) -> Run | None:
        """The run that waits for what `request` brings."""
        run = self._sessions.continued(request)
        if run is not None:
            record.started("continued", run.process)
        return run

    def _started(self, request: TurnRequest, record: Record) -> Run:
        """A run that goes on with a chat, or reads everything."""
        chat, known = self._sessions.resumed(request)
        return self.agent.start(self._spec(request, chat, known), record)

    def _spec(self, request: TurnRequest, chat: Chat | None = None, known: int = 0) -> RunSpec:
        conversation = self._bridged_calls.with_bridged_results(
            request.caller, request.conversation
        )
        return RunSpec(
            conversation,
            request.model,
            request.directory,
            request.caller,
            chat=chat,
            known=known,
        )

    def _start_over(
        self, request: TurnRequest, run: Run, turn: Turn, refusal: StartOver, record: Record
    ) -> Run:
        """The same for a run that reads everything, and does without what this one lacks."""
        spec = replace(run.spec, chat=None, known=0)
        if refusal.because == "calls":
            spec = replace(spec, writes_calls=True)
        elif refusal.because in ("run", "tools"):
            log.info("the run that waited for these results cannot go on; another reads all")
            spec = self._spec(request)
        else:
            log.info("the agent did not take up its chat; it gets the whole conversation")
        self.agent.end(run)
        turn.begin(spec.conversation)
        return self.agent.start(spec, record)

    def _ask_again(
        self, request: TurnRequest, run: Run, turn: Turn, again: AskAgain, record: Record
    ) -> Run:
        """Another run, which also reads what was wrong with the answer of this one, or what was
        done for it; it goes on from where this one ended, if it did."""
        spec = self._spec(request)
        messages = spec.conversation.messages + again.messages
        spec = replace(spec, conversation=replace(spec.conversation, messages=messages))
        if not request.may_resume or not again.run_finished:
            self.agent.end(run)
        elif chat := self.agent.keep(run):
            if self.agent.still_has(chat):
                spec = replace(spec, chat=chat, known=len(messages) - 1)
            else:
                self.agent.forget(chat)
        turn.begin(spec.conversation)
        return self.agent.start(spec, record)

    def _give_up(self, run: Run, error: BaseException) -> None:
        self.agent.end(run)
        if isinstance(error, NotAuthenticated):
            self.account.doubt_sign_in()

    def _note_end(self, run: Run, record: Record) -> None:
        self.account.trust_sign_in()
        self.agent.answered(run, record.channel)
        if record.loop is not None:
            self._loops_stopped += 1
            log.warning("loop guard stopped %s: %s", record.loop.tool, record.loop.as_json())

    def _let_go(self, request: TurnRequest, run: Run, done: Done, answer: Answer) -> bool:
        """What becomes of the run when its answer is over; whether it is parked."""
        seen = answer.after(request.whole)
        can_return = request.conversation.calls_have_ids
        if can_return and done.run_is == "waiting" and run.is_waiting:
            run.park(done.unread, done.usage)
            self._sessions.park(request, run, seen, answer.calls)
            return True
        chat = None
        if done.run_is == "finished":
            chat = self._sessions.keep(request, run, seen)
        else:
            self.agent.end(run)
        self._prepare(request, chat)
        return False

    def _prepare(self, request: TurnRequest, chat: Chat | None) -> None:
        """Have a run ready for what comes next: this conversation again, if it looks like one that
        goes on, or else another one like it."""
        if not self.agent.capabilities.starts_warm:
            return
        goes_on = request.conversation.tools or request.past_and_new[0]
        chat = chat if chat and goes_on and self.agent.still_has(chat) else None
        empty = replace(request.conversation, messages=())
        spec = RunSpec(empty, request.model, request.directory, request.caller, chat=chat)
        self.agent.prepare(spec)

    # Health and end

    async def look_at_disk(self) -> None:
        """For `health`: whether agents still have a place to work in."""
        await self._parts.scratch.look()

    def health(self) -> dict[str, Any]:
        """What scripts ask: from memory, in no time."""
        problem: GatewayError | None
        try:
            located = self.agent.locate()
            agent: dict[str, Any] = {"kind": located.kind, "path": located.path}
            agent["version"] = self.account.version
            problem = self.account.problem() or self._parts.scratch.problem
        except GatewayError as missing:
            agent, problem = {"kind": None, "path": None, "version": None}, missing
        is_starting = not problem and self.account.is_starting
        of_agent = self.agent.state()
        state: dict[str, Any] = {
            "status": "error" if problem else "starting" if is_starting else "ok",
            "version": __version__,
            "auth": "unknown" if is_starting else self.account.auth,
            "account": self.account.name,
            "mcp": self.bridge.summary(),
            "mcp_servers": self.bridge.state(),
            "agent": agent,
            "slots": self._slots.state(),
            "warm": _NOTHING_WARM,
            "warnings": [],
            **of_agent,
            "sessions": {**self._sessions.state(), **of_agent.get("sessions", {})},
            "loops_stopped": self._loops_stopped,
            "record_prompts": self._settings.record_prompts,
        }
        if problem:
            state["error"] = {"code": problem.code, "message": problem.message}
        return state

    async def close(self, *, at_once: bool = False) -> None:
        """Stop every agent. `at_once` gives none of them time to leave by itself."""
        if self._touching is not None:
            self._touching.cancel()
        await self.bridge.close()
        self._sessions.close()
        await self._parts.close(at_once=at_once)


# Of an agent that nobody starts before it is needed.
_NOTHING_WARM = {"most": 0, "spares": 0, "used": 0, "state": "off", "reason": ""}


def _channel_of(request: TurnRequest, run: Run, turn: Turn) -> str:
    if not request.conversation.callable_tools:
        return "none"
    return turn.channel or run.channel


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
