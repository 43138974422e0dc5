"""The stream of one MCP server: the state that its transport and its connection share, and limits
on what reaches `mcp`.

That library trusts the server. So no message is parsed that would take long to parse, and none
reaches the library that would keep it busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage

from cursor_gateway.mcp_bridge.intake import MAX_PARTS, has_too_many_parts, trim_tools
from cursor_gateway.mcp_bridge.message_meter import MessageMeter

# A screenshot is a few megabytes in base64; nothing that fits a conversation is longer. A list of
# two thousand tools has a hundred thousand values; four times as many take half a second.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_MESSAGE_VALUES = 400_000
# Messages that answer no request of ours. The server has to wait with more than these.
UNSOLICITED_PER_SECOND = 500
# A server that has not read so many of our answers gets no more of them.
MAX_UNSENT = 100


def meter(ends: Any) -> MessageMeter:
    return MessageMeter(ends, MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES)


class ConnectionLost(Exception):
    """The server is gone; the text says why."""


class AnswerRefused(Exception):
    """The server is there, but its answer was refused; the text says why."""


class Pace:
    """Lets a number of steps pass in each second; more steps have to wait."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._since = asyncio.get_running_loop().time()
        self._passed = 0

    async def step(self) -> None:
        self._passed += 1
        if self._passed < self._per_second:
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self._since + 1.0 - now)
        self._since, self._passed = asyncio.get_running_loop().time(), 0


@dataclass(slots=True)
class TransportState:
    """What the transport tells the connection."""

    # Why the connection was lost; empty while it stands.
    lost: str = ""
    # The first line that was no message, for users whose server prints a banner.
    garbage: str = ""
    # The last HTTP status, if it was an error.
    status: int = 0
    # Wakes the connection: it was lost, its tools have changed, or a call has failed.
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    changed: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    unsolicited: Pace = field(default_factory=lambda: Pace(UNSOLICITED_PER_SECOND))

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        self.gone.set()
        self.wake.set()


@asynccontextmanager
async def guarded(
    transport: AbstractAsyncContextManager[Any], state: TransportState
) -> AsyncIterator[tuple[_Incoming, _Outgoing]]:
    async with transport as (incoming, outgoing):
        sent = _Outgoing(outgoing)
        yield _Incoming(incoming, state, sent), sent


class _Stream:
    """One end of a pair of streams, in the shape that `mcp` asks for."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Outgoing(_Stream):
    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.unsent = 0

    async def send(self, message: SessionMessage, /) -> None:
        self.unsent += 1
        try:
            await self._stream.send(message)
        finally:
            self.unsent -= 1


_EMPTY_MESSAGE = types.JSONRPCNotification(jsonrpc="2.0", method="")


class _Incoming(_Stream):
    def __init__(self, stream: Any, state: TransportState, sent: _Outgoing) -> None:
        super().__init__(stream)
        self._state = state
        self._sent = sent
        self._answer = SessionMessage(_EMPTY_MESSAGE)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        # `mcp` has handled the last message when it asks for the next one, but holds it while it
        # waits: megabytes, perhaps for days.
        self._answer.message = _EMPTY_MESSAGE
        while (item := await self._accepted(await anext(self._stream))) is None:
            pass
        return item

    async def receive(self) -> SessionMessage | Exception:
        return await anext(self)

    async def _accepted(
        self, item: SessionMessage | Exception
    ) -> SessionMessage | Exception | None:
        message = None if isinstance(item, Exception) else item.message
        if isinstance(message, types.JSONRPCResponse):
            self._answer = SessionMessage(_answer(message))
            return self._answer
        if not isinstance(message, types.JSONRPCError):
            await self._state.unsolicited.step()
        # `mcp` would start a task for each request, which waits to send its answer.
        if isinstance(message, types.JSONRPCRequest) and self._sent.unsent > MAX_UNSENT:
            return None
        return item


def _answer(message: types.JSONRPCResponse) -> types.JSONRPCMessage:
    if has_too_many_parts(message.result):
        why = f"it sent more than {MAX_PARTS:,} parts in one result"
        error = types.ErrorData(code=types.INTERNAL_ERROR, message=why)
        return types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    trim_tools(message.result)
    return message
