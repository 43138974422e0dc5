"""The line to one MCP server: what its transport and its connection know of each other, and how
much of what the server sends gets to `mcp`.

That library believes what a server says. So no message is parsed that would take long to parse, and
none reaches it that would keep it busy.
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

# A screenshot is a few megabytes in base64; nothing that fits a conversation is longer. The list of
# two thousand tools is a hundred thousand values; so many more take half a second in all.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_MESSAGE_VALUES = 400_000
# Messages that answer nothing. More than anybody can use; the rest waits at the server.
UNASKED_PER_SECOND = 500
# Answers of ours that a server does not take. Then it gets no more of them.
MAX_UNSENT = 100


def meter(ends: Any) -> MessageMeter:
    return MessageMeter(ends, MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES)


class ConnectionLost(Exception):
    """The server is gone; the text says why."""


class AnswerRefused(Exception):
    """The server is there, but what it sent cannot be taken; the text says why."""


class Pace:
    """Lets so many pass in a second, and has the others wait."""

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
class Line:
    lost: str = ""
    # The first line that was no message, for people whose server prints a banner.
    garbage: str = ""
    # The last HTTP status that was none of success.
    status: int = 0
    # A dead line, or a list of tools that changed.
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    changed: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    unasked: Pace = field(default_factory=lambda: Pace(UNASKED_PER_SECOND))

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        self.gone.set()
        self.stirred.set()


@asynccontextmanager
async def guarded(
    transport: AbstractAsyncContextManager[Any], line: Line
) -> AsyncIterator[tuple[_Incoming, _Outgoing]]:
    async with transport as (incoming, outgoing):
        sent = _Outgoing(outgoing)
        yield _Incoming(incoming, line, sent), sent


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


_NOTHING = types.JSONRPCNotification(jsonrpc="2.0", method="")


class _Incoming(_Stream):
    def __init__(self, stream: Any, line: Line, sent: _Outgoing) -> None:
        super().__init__(stream)
        self._line = line
        self._sent = sent
        self._answer = SessionMessage(_NOTHING)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        # Whoever asks for the next has dealt with the last one, but goes on holding it while there
        # is none: megabytes, perhaps for days.
        self._answer.message = _NOTHING
        while (item := await self._taken(await anext(self._stream))) is None:
            pass
        return item

    async def receive(self) -> SessionMessage | Exception:
        return await anext(self)

    async def _taken(self, item: SessionMessage | Exception) -> SessionMessage | Exception | None:
        message = None if isinstance(item, Exception) else item.message
        if isinstance(message, types.JSONRPCResponse):
            self._answer = SessionMessage(_answer(message))
            return self._answer
        if not isinstance(message, types.JSONRPCError):
            await self._line.unasked.step()
        # Each would become a task that waits to send its answer.
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
