"""SdkRun: one message to an agent of the bridge, for one answer or, with calls, for several.

While the client executes a call, the bridge waits for its result, and the run costs a connection
and some memory. What comes meanwhile is kept (`sending.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from cursor_gateway.agents import AgentProcess, RunObserver, RunSpec, StartOver
from cursor_gateway.agents.cursor.native_tools import with_client_call
from cursor_gateway.agents.sdk.bridge_agent import BridgeAgent
from cursor_gateway.agents.sdk.requests import reading, user_message
from cursor_gateway.agents.sdk.sending import Sending
from cursor_gateway.agents.sdk.texts import BridgeFault, Refusal, error_for, fault
from cursor_gateway.agents.time_limits import MOMENT, TimeLimits
from cursor_gateway.core.conversation import ToolResult, ToolSpec
from cursor_gateway.core.events import (
    SILENCE,
    ZERO_USAGE,
    AgentCall,
    AgentEvent,
    ClientCall,
    Quiet,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.prompt import render
from cursor_gateway.errors import AgentFailed, ContextTooLong, CursorUnreachable
from cursor_gateway.settings import Settings

# How long the stream's word of a call and the call itself wait for each other: they come by two
# connections.
MEETING_SECONDS = 2.0

_SAYS_SOMETHING = (TextDelta, ThinkingDelta, AgentCall, ClientCall)
# What another agent may not meet.
_MAY_PASS = (AgentFailed, CursorUnreachable)


class Lender(Protocol):
    """The run's agent, as far as a run knows it."""

    settings: Settings

    async def lend(self, spec: RunSpec) -> tuple[BridgeAgent, bool]:
        """An agent of the bridge for `spec`, and whether it was there before anybody asked."""
        ...


@dataclass(slots=True)
class _AnswerState:
    """What the run does for one request."""

    limits: TimeLimits
    # Whether the client came back with results for it.
    is_continued: bool = False
    has_spoken: bool = False
    # Whether a call came of which the stream has told nothing, for long enough.
    waited_in_vain: bool = False


class SdkRun:
    process: AgentProcess | None = None

    def __init__(self, spec: RunSpec, observer: RunObserver, lender: Lender) -> None:
        self.spec = spec
        self.reported_usage = ZERO_USAGE
        # Once it has started.
        self.agent: BridgeAgent | None = None
        self.session_id = ""
        self._sending: Sending | None = None
        self._tools: Sequence[ToolSpec] = spec.conversation.callable_tools
        self._observer = observer
        self._lender = lender
        self._answer = _AnswerState(TimeLimits(lender.settings))
        self._unread: list[AgentEvent] = []

    # What is known of it

    @property
    def channel(self) -> Literal["relay", "text"]:
        return "relay" if self.spec.calls_back else "text"

    @property
    def has_finished(self) -> bool:
        return self._sending is not None and self._sending.stream.finished

    @property
    def is_waiting(self) -> bool:
        sending, agent = self._sending, self.agent
        if sending is None or agent is None or sending.over.done() or sending.stream.finished:
            return False
        return bool(agent.calls.are_open) and not agent.calls.lost

    def when_over(self, call: Callable[[], object]) -> None:
        if self._sending is not None:
            self._sending.over.add_done_callback(lambda _: call())

    # Reading

    async def read(self, *, burst_open: bool) -> Sequence[AgentEvent] | Quiet:
        agent, sending = await self._started()
        while not (events := self._next(agent, sending)):
            if sending.failure is not None:
                raise self._failed(sending.failure)
            if await self._is_silent(agent, sending, burst_open=burst_open):
                return SILENCE
        self._answer.has_spoken |= any(isinstance(event, _SAYS_SOMETHING) for event in events)
        return events

    def _next(self, agent: BridgeAgent, sending: Sending) -> list[AgentEvent]:
        """What it has done since the last look, for whoever reads it."""
        unread, self._unread = self._unread, []
        told = [self._translated(event, agent) for event in sending.take()]
        calls = [] if self._calls_are_early(agent, sending) else agent.calls.for_client()
        return [*unread, *told, *calls]

    def _translated(self, event: AgentEvent, agent: BridgeAgent) -> AgentEvent:
        if not isinstance(event, AgentCall):
            return event
        return with_client_call(replace(event, workspace=str(agent.workspace.path)), self._tools)

    async def _is_silent(self, agent: BridgeAgent, sending: Sending, *, burst_open: bool) -> bool:
        """Wait for what it does next; whether that was nothing, for the moment in which the other
        calls of a burst come."""
        now = asyncio.get_running_loop().time()
        limit = self._answer.limits.next(tool_is_running=sending.stream.tool_is_running)
        met = now + MOMENT if self._calls_are_early(agent, sending) else math.inf
        quiet = now + self._burst_gap(agent, sending) if burst_open else math.inf
        try:
            await sending.news(min(limit.until, quiet, met))
        except TimeoutError:
            if met <= quiet and met < math.inf:
                self._answer.waited_in_vain = True
                return False
            if quiet == math.inf:
                raise limit.error from None
            return True
        if sending.stream.heard and not self._answer.limits.heard:
            self._answer.limits.heard = True
            self._observer.spoke()
        return False

    def _calls_are_early(self, agent: BridgeAgent, sending: Sending) -> bool:
        """Whether calls have come that the stream has not told of yet, nor of the words before
        them."""
        waits = not self._answer.waited_in_vain and not sending.over.done()
        return waits and agent.calls.are_new and sending.stream.calls < agent.calls.count

    def _burst_gap(self, agent: BridgeAgent, sending: Sending) -> float:
        """After how much silence no other call follows that was made at once. One that the stream
        has told of surely does."""
        is_coming = len(sending.stream.announced) > agent.calls.are_open
        return MEETING_SECONDS if is_coming else MOMENT

    # Its start

    async def _started(self) -> tuple[BridgeAgent, Sending]:
        if self.agent is not None and self._sending is not None:
            return self.agent, self._sending
        limit = self._answer.limits.next(tool_is_running=False)
        try:
            async with asyncio.timeout_at(limit.until):
                self.agent, is_warm = await self._lender.lend(self.spec)
                self.session_id = self.agent.session_id
                self._sending = await self.agent.send(self._message(self.agent))
        except (Refusal, BridgeFault) as error:
            raise self._failed(error) from error
        except TimeoutError:
            raise limit.error from None
        how: Literal["fresh", "resumed"] = "resumed" if self.spec.chat else "fresh"
        self._observer.started(how, None, is_warm=is_warm)
        return self.agent, self._sending

    def _message(self, agent: BridgeAgent) -> dict[str, Any]:
        spec, calls = self.spec, agent.calls
        calls.one_at_a_time = not spec.conversation.parallel_calls
        names = calls.tools.aliases
        prompt = render(spec.conversation, reading(spec.known, names, calls_back=spec.calls_back))
        size = len(prompt.text.encode("utf-8", "surrogatepass"))
        if size > self._lender.settings.max_prompt_mb * 1024 * 1024:
            raise ContextTooLong(f"The conversation has {size} bytes.")
        return user_message(prompt)

    # The answer's end, and the next answer

    def deliver(self, results: Sequence[ToolResult]) -> None:
        if self.agent is not None:
            self.agent.calls.deliver(results)

    def park(self, unread: Sequence[AgentEvent], usage: Usage) -> None:
        self._unread = [*unread, *self._unread]
        self.reported_usage += usage
        # It may wait for long, and nobody needs the transcript any more.
        self.spec = replace(self.spec, conversation=replace(self.spec.conversation, messages=()))

    def resume(
        self, results: Sequence[ToolResult], tools: Sequence[ToolSpec], *, parallel_calls: bool
    ) -> str:
        if self.agent is None or not self.is_waiting:
            return "it waits no longer"
        calls = self.agent.calls
        if not calls.tools.are_all_in(tools):
            return "other tools"
        if calls.tools.lacks(tools):
            return "new tools, which an agent gets only when it is created"
        self._tools = tools
        calls.one_at_a_time = not parallel_calls
        limits = TimeLimits(self._lender.settings, heard=True)
        self._answer = _AnswerState(limits, is_continued=True)
        calls.deliver(results)
        return ""

    def _failed(self, error: Exception) -> Exception:
        """A chat that is gone is no failure, nor is an agent that did not live to see its results,
        as long as nothing was said."""
        if isinstance(error, Refusal):
            is_gone = error.is_busy or error.is_unknown_agent
            error = error_for(error)
        else:
            is_gone = isinstance(error, BridgeFault)
            error = fault(error) if isinstance(error, BridgeFault) else error
        if (is_gone or type(error) in _MAY_PASS) and not self._answer.has_spoken:
            if self._answer.is_continued:
                return StartOver("run")
            if self.spec.chat is not None:
                return StartOver("chat")
        return error
