"""Live events: `GET /v1/events` streams each change of the health and of the requests.

A few times a second, one task compares the present state with the last one, for all listeners. So
no request does any work for listeners, and nothing is queued for one that reads slowly: its next
frames hold all that has changed since its last ones.
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

# A listener takes a connection, and half a megabyte of buffers if it does not read.
MOST_LISTENERS = 100
# A listener that has read nothing for so long is disconnected.
STALLED_AFTER = 60.0

_LOOKS_EVERY = 0.25
# After so many looks without a change, listeners get a sign of life.
_SILENT_LOOKS = 60
_SIGN_OF_LIFE = b": \n\n"


class LiveEvents:
    def __init__(
        self,
        journal: Journal,
        state: Callable[[], dict[str, Any]],
        refresh: Callable[[], Awaitable[None]],
        stopping: asyncio.Future[None],
    ) -> None:
        self._journal = journal
        self._state = state
        # Refreshes what `state` reports.
        self._refresh = refresh
        self._stopping = stopping
        self._listeners = 0
        self._looking: asyncio.Task[None] | None = None
        self._changes = _Changes()
        # Set to wake all listeners; then a new event takes its place.
        self._wake = asyncio.Event()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD":
            return web.Response(headers=SSE_HEADERS)
        if self._listeners >= MOST_LISTENERS:
            raise TooManyListeners(f"{MOST_LISTENERS} others listen already.")
        self._listeners += 1
        try:
            response = web.StreamResponse(headers=SSE_HEADERS)
            await response.prepare(request)
            await self._write(request, response)
        finally:
            self._listeners -= 1
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse) -> None:
        seen = 0
        while not self._stopping.done():
            if self._looking is None or self._looking.done():
                self._look()
                self._looking = in_background(self._keep_looking(), "the look for events")
            wake = self._wake
            frames, seen = self._changes.since(seen), self._changes.looks
            try:
                async with asyncio.timeout(STALLED_AFTER):
                    await response.write(frames or _SIGN_OF_LIFE)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the listener does not read") from None
            await wake.wait()

    async def _keep_looking(self) -> None:
        """Look for changes for as long as anybody listens."""
        silent = 0
        try:
            while self._listeners:
                await asyncio.wait({self._stopping}, timeout=_LOOKS_EVERY)
                if self._stopping.done():
                    return  # the parts whose state is reported are being closed
                await self._refresh()
                silent = 0 if self._look() else silent + 1
                if silent % _SILENT_LOOKS == 0:
                    self._wake_listeners()
        finally:
            self._wake_listeners()

    def _look(self) -> bool:
        return self._changes.look(self._state(), list(self._journal.listed()))

    def _wake_listeners(self) -> None:
        self._wake.set()
        self._wake = asyncio.Event()


class _Changes:
    """The present state, and the number of the look at which each part of it last changed."""

    def __init__(self) -> None:
        self.looks = 0
        self._health: dict[str, Any] = {}
        self._health_since = 0
        self._records: dict[Record, tuple[tuple[int, str, str], int]] = {}
        # Frames by the last look that a listener has seen; it is the same for nearly all of them.
        self._frames: dict[int, bytes] = {}

    def look(self, health: dict[str, Any], records: Sequence[Record]) -> bool:
        """Take the present state; whether anything has changed."""
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
        """Frames for all that has changed after that look, with the oldest records first."""
        if look not in self._frames:
            changed = [record for record, (_, since) in self._records.items() if since > look]
            frames = _frame("health", self._health) if self._health_since > look else b""
            if changed:
                frames += _frame("requests", [record.as_json() for record in reversed(changed)])
            self._frames[look] = frames
        return self._frames[look]


def _frame(event: str, data: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.encode(), orjson.dumps(data))
