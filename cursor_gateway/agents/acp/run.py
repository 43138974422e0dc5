"""AcpRun: one prompt in a session, for one answer or, over the relay, for several.

A run is read, not listened to (`peer.py`): while the client executes a call nobody reads, and what
the agent writes or asks stays in its pipe.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from cursor_gateway.agents import AgentProcess, RunObserver, RunSpec, StartOver
from cursor_gateway.agents.acp.requests import prompt_blocks, reading
from cursor_gateway.agents.acp.session import AcpSession
from cursor_gateway.agents.acp.stream import AcpStream
from cursor_gateway.agents.acp.wire import Message
from cursor_gateway.agents.cursor.native_tools import with_client_call
from cursor_gateway.agents.cursor.relayed import noticed
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
from cursor_gateway.errors import (
    AgentFailed,
    AgentTimedOut,
    ContextTooLong,
    CursorUnreachable,
    GatewayError,
)
from cursor_gateway.settings import Settings

_SAYS_SOMETHING = (TextDelta, ThinkingDelta, AgentCall, ClientCall)
# What another process may not meet.
_MAY_PASS = (AgentFailed, CursorUnreachable)


class Lender(Protocol):
    """The run's agent, as far as a run knows it."""

    settings: Settings

    async def lend(self, spec: RunSpec) -> tuple[AcpSession, bool]:
        """A session for `spec`, and whether it was there before anybody asked."""
        ...

    def give_back(self, session: AcpSession) -> None:
        """A session that cannot be used."""
        ...

    def relay_ignored(self) -> None:
        """A session was made, and had not fetched the relay's tools."""
        ...


@dataclass(slots=True)
class _AnswerState:
    """What the run does for one request."""

    limits: TimeLimits
    # Whether the client came back with results for it.
    is_continued: bool = False
    has_spoken: bool = False


class AcpRun:
    def __init__(self, spec: RunSpec, observer: RunObserver, lender: Lender) -> None:
        self.spec = spec
        self.reported_usage = ZERO_USAGE
        # Once it has started.
        self.session: AcpSession | None = None
        self._stream: AcpStream | None = None
        self._is_warm = False
        self._tools: Sequence[ToolSpec] = spec.conversation.callable_tools
        self._observer = observer
        self._lender = lender
        self._answer = _AnswerState(TimeLimits(lender.settings))
        self._unread: list[AgentEvent] = []

    # What is known of it

    @property
    def process(self) -> AgentProcess | None:
        peer = self.session.peer if self.session else None
        return AgentProcess(peer.child.pid, peer.child.mark, peer.child.exited) if peer else None

    @property
    def channel(self) -> Literal["relay", "text"]:
        return "relay" if self.spec.calls_back else "text"

    @property
    def session_id(self) -> str:
        return self.session.session_id if self.session else ""

    @property
    def has_finished(self) -> bool:
        return self._stream is not None and self._stream.finished

    @property
    def is_waiting(self) -> bool:
        session = self.session
        if session is None or session.relay is None or session.relay.lost:
            return False
        return session.is_at_work

    def when_over(self, call: Callable[[], object]) -> None:
        if process := self.process:
            process.exited.add_done_callback(lambda _: call())

    # Reading

    async def read(self, *, burst_open: bool) -> Sequence[AgentEvent] | Quiet:
        while not self._unread:
            try:
                if await self._is_silent(*await self._started(), burst_open=burst_open):
                    return SILENCE
            except GatewayError as error:
                self._recover_from(error)
        events, self._unread = self._unread, []
        self._answer.has_spoken |= any(isinstance(event, _SAYS_SOMETHING) for event in events)
        return events

    async def _is_silent(self, session: AcpSession, stream: AcpStream, *, burst_open: bool) -> bool:
        """Take in what it does next; whether that was nothing, for the moment in which the other
        calls of a burst come."""
        if stream.failure is not None:
            raise stream.failure
        limits, now = self._answer.limits, asyncio.get_running_loop().time()
        if now > limits.end:
            raise limits.too_long
        limit = limits.next(tool_is_running=stream.tool_is_running)
        quiet = now + MOMENT if burst_open else math.inf
        assert session.peer is not None
        try:
            self._take_in(await session.peer.read(min(limit.until, quiet)), session, stream)
        except TimeoutError:
            if limit.until < quiet:
                raise limit.error from None
            return True
        return False

    def _take_in(self, messages: Sequence[Message], session: AcpSession, stream: AcpStream) -> None:
        for message in messages:
            self._unread += self._events(stream.feed(message), session)
        if stream.heard and not self._answer.limits.heard:
            self._answer.limits.heard = True
            self._observer.spoke()
        if session.relay is not None:
            self._unread += session.relay.calls_for_client()

    def _events(self, told: Sequence[AgentEvent], session: AcpSession) -> Iterator[AgentEvent]:
        """What is left of it for others: what belongs to the relay goes there."""
        for event in told:
            left = noticed(event, session.relay) if session.relay else event
            if left is not None:
                yield self._translated(left)

    def _translated(self, event: AgentEvent) -> AgentEvent:
        return with_client_call(event, self._tools) if isinstance(event, AgentCall) else event

    # Its start

    async def _started(self) -> tuple[AcpSession, AcpStream]:
        if self.session is not None and self._stream is not None:
            return self.session, self._stream
        limit = self._answer.limits.next(tool_is_running=False)
        try:
            async with asyncio.timeout_at(limit.until):
                self.session, self._is_warm = await self._lender.lend(self.spec)
                self._stream = await self._prompted(self.session)
        except TimeoutError:
            raise limit.error from None
        how: Literal["fresh", "resumed"] = "resumed" if self.spec.chat else "fresh"
        self._observer.started(how, self.process, is_warm=self._is_warm)
        return self.session, self._stream

    async def _prompted(self, session: AcpSession) -> AcpStream:
        if session.relay is not None:
            session.relay.one_at_a_time = not self.spec.conversation.parallel_calls
            if not await session.has_tools():
                self._lender.relay_ignored()
                raise StartOver("calls")
        return await session.prompt(self._blocks(session))

    def _blocks(self, session: AcpSession) -> list[dict[str, Any]]:
        spec, tools = self.spec, session.relay.tools if session.relay else None
        prompt = render(spec.conversation, reading(spec.known, tools))
        size = len(prompt.text.encode("utf-8", "surrogatepass"))
        if size > self._lender.settings.max_prompt_mb * 1024 * 1024:
            raise ContextTooLong(f"The conversation has {size} bytes.")
        return prompt_blocks(prompt)

    # The answer's end, and the next answer

    def deliver(self, results: Sequence[ToolResult]) -> None:
        if self.session is not None and self.session.relay is not None:
            self.session.relay.deliver(results)

    def park(self, unread: Sequence[AgentEvent], usage: Usage) -> None:
        self._unread = [*unread, *self._unread]
        self.reported_usage += usage
        # It may wait for long, and nobody needs the transcript any more.
        self.spec = replace(self.spec, conversation=replace(self.spec.conversation, messages=()))

    def resume(
        self, results: Sequence[ToolResult], tools: Sequence[ToolSpec], *, parallel_calls: bool
    ) -> str:
        if not self.is_waiting:
            return "it waits no longer"
        assert self.session is not None and self.session.relay is not None
        relay = self.session.relay
        if not relay.tools.are_all_in(tools):
            return "other tools"
        if relay.tools.lacks(tools):
            return "new tools, which a session gets only when it is made"
        self._tools = tools
        relay.one_at_a_time = not parallel_calls
        limits = TimeLimits(self._lender.settings, heard=True)
        self._answer = _AnswerState(limits, is_continued=True)
        relay.deliver(results)
        return ""

    def _recover_from(self, error: GatewayError) -> None:
        """A chat that is gone is no failure, nor is an agent that did not live to see its results,
        as long as nothing was said; one that died while it waited for a prompt has a successor."""
        is_late = isinstance(error, AgentTimedOut) and self._stream is None
        if (type(error) in _MAY_PASS or is_late) and not self._answer.has_spoken:
            if self._answer.is_continued:
                raise StartOver("run") from error
            if self.spec.chat is not None:
                raise StartOver("chat") from error
            if self._is_warm and self.session is not None and not self._has_begun:
                self._lender.give_back(self.session)
                self.session, self._stream, self._is_warm = None, None, False
                return
        raise error

    @property
    def _has_begun(self) -> bool:
        return self._stream is not None and self._stream.heard
