"""The frames of one run, on their way to whoever listens: the run never waits for its listener."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.fakes.connect import LAST, Failure, Reply
from tests.fakes.steps import setting

Message = dict[str, Any]
# Where the real bridge gives a listener up that does not read.
MOST_UNREAD = 4096
FELL_BEHIND = "Whoever reads this stream fell behind"


class Stream:
    def __init__(self, *, deltas: bool, after: int = 0) -> None:
        self._deltas = deltas
        self._after = after
        self._offset = 0
        self._pending: list[Message | bytes] = []
        self._news = asyncio.Event()
        self._failure: Failure | None = None
        self._over = False
        # Vices of its end: no last frame, or nothing more at all, or no end.
        self.last_frame = True
        self.is_cut = False
        self.lingers = False

    def message(self, kind: str, **fields: Any) -> None:
        """An `sdkMessage`."""
        self._put({"sdkMessage": {"type": kind, "message": {"type": kind, **fields}}})

    def update(self, kind: str, **fields: Any) -> None:
        """An `interactionUpdate`, which only those get who asked for deltas."""
        if self._deltas:
            self._put({"interactionUpdate": {"type": kind, "update": {"type": kind, **fields}}})

    def envelope(self, name: str, content: Message) -> None:
        self._put({name: content})

    def raw(self, content: bytes) -> None:
        """What is no whole frame."""
        self._pending.append(content)
        self._news.set()

    def fail(self, failure: Failure) -> None:
        self._failure = self._failure or failure
        self.close()

    def close(self) -> None:
        self._over = True
        self._news.set()

    def _put(self, message: Message) -> None:
        if self._over or self.is_cut:
            return
        self._offset += 1
        if self._offset <= self._after:
            return
        if len(self._pending) >= MOST_UNREAD:
            self.fail(Failure("resource_exhausted", FELL_BEHIND))
            return
        self._pending.append(message | {"offset": str(self._offset)})
        self._news.set()

    async def send_to(self, reply: Reply) -> None:
        """Until the run is over. A listener that leaves does not end it."""
        idle = float(setting("keep-alive", "15"))
        while not (self._over and not self._pending):
            try:
                async with asyncio.timeout(idle):
                    await self._news.wait()
            except TimeoutError:
                await reply.frame({})
            await self._flush(reply)
        await self._end(reply)

    async def _flush(self, reply: Reply) -> None:
        self._news.clear()
        while self._pending:
            message = self._pending.pop(0)
            if isinstance(message, bytes):
                await reply.raw(message)
            else:
                await reply.frame(message)
        if self._over:
            self._news.set()

    async def _end(self, reply: Reply) -> None:
        if self.lingers:
            await asyncio.Event().wait()
        if self.is_cut:
            reply.abort()
            return
        if self.last_frame:
            await reply.frame({"error": self._failure.body} if self._failure else {}, LAST)
        reply.end()
