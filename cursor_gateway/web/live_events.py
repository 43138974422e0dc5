"""What happens in the gateway, told as it happens, to as many as listen: `GET /v1/events`.

A few times a second what is is compared with what was, once for all listeners. So a request on its
way owes them nothing, and nothing is kept for one that reads slowly: it is told next what has
changed since it was told last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from aiohttp import web

from cursor_gateway.background import in_background
from cursor_gateway.errors import TooManyListeners
from cursor_gateway.journal.record import Record
from cursor_gateway.journal.ring import Journal
from cursor_gateway.web.delivery import SSE_HEADERS

# Each holds a connection, and half a megabyte if it does not read.
MOST_LISTENERS = 100
# How long one may read nothing of what is there for it.
STALLED_AFTER = 60.0

_LOOKS_EVERY = 0.25
# How many looks may pass without a word, before a sign of life.
_SILENT_LOOKS = 60
_SIGN_OF_LIFE = b": \n\n"


class Events:
    def __init__(
        self,
        journal: Journal,
        state: Callable[[], dict[str, Any]],
        prepare: Callable[[], Awaitable[None]],
        stopping: asyncio.Future[None],
    ) -> None:
        self._journal = journal
        self._state = state
        # What must have been done for `state` to be true.
        self._prepare = prepare
        self._stopping = stopping
        self._listeners = 0
        self._looking: asyncio.Task[None] | None = None
        self._changes = _Changes()
        # Set when there is something to tell; then another one takes its place.
        self._word = asyncio.Event()

    async def tell(self, request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD":
            return web.Response(headers=SSE_HEADERS)
        if self._listeners >= MOST_LISTENERS:
            raise TooManyListeners(f"{MOST_LISTENERS} others listen already.")
        self._listeners += 1
        try:
            response = web.StreamResponse(headers=SSE_HEADERS)
            await response.prepare(request)
            await self._tell(request, response)
        finally:
            self._listeners -= 1
        return response

    async def _tell(self, request: web.Request, response: web.StreamResponse) -> None:
        seen = 0
        while not self._stopping.done():
            if self._looking is None or self._looking.done():
                self._look()
                self._looking = in_background(self._keep_looking(), "the look for events")
            word = self._word
            frames, seen = self._changes.since(seen), self._changes.looks
            try:
                async with asyncio.timeout(STALLED_AFTER):
                    await response.write(frames or _SIGN_OF_LIFE)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the listener does not read") from None
            await word.wait()

    async def _keep_looking(self) -> None:
        """For as long as anybody listens."""
        silent = 0
        try:
            while self._listeners:
                await asyncio.wait({self._stopping}, timeout=_LOOKS_EVERY)
                if self._stopping.done():
                    return  # what the state is made of is being taken down
                await self._prepare()
                silent = 0 if self._look() else silent + 1
                if silent % _SILENT_LOOKS == 0:
                    self._say()
        finally:
            self._say()

    def _look(self) -> bool:
        return self._changes.look(self._state(), list(self._journal.listed()))

    def _say(self) -> None:
        self._word.set()
        self._word = asyncio.Event()


class _Changes:
    """What is, and since which look it has been so."""

    def __init__(self) -> None:
        self.looks = 0
        self._health: dict[str, Any] = {}
        self._health_since = 0
        self._records: dict[Record, tuple[tuple[int, str, str], int]] = {}
        # By what the listener has seen, which is the same for nearly all.
        self._frames: dict[int, bytes] = {}

    def look(self, health: dict[str, Any], records: Sequence[Record]) -> bool:
        """Whether anything has changed."""
        self.looks += 1
        self._frames.clear()
        if health != self._health:
            self._health, self._health_since = health, self.looks
        before, self._records = self._records, {}
        for record in records:
            stage, known = record.stage, before.get(record)
            self._records[record] = known if known and known[0] == stage else (stage, self.looks)
        return bool(self.since(self.looks - 1))

    def since(self, look: int) -> bytes:
        """Frames for all that has changed after that look. Records are the oldest first."""
        if look not in self._frames:
            changed = [record for record, (_, since) in self._records.items() if since > look]
            frames = _frame("health", self._health) if self._health_since > look else b""
            if changed:
                frames += _frame("requests", [record.as_json() for record in reversed(changed)])
            self._frames[look] = frames
        return self._frames[look]


def _frame(event: str, data: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.encode(), orjson.dumps(data))
