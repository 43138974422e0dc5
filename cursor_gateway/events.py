"""What happens in the gateway, told as it happens, to as many as listen: `GET /v1/events`.

Each listener compares what is with what it was told last, a few times a second. So a request on its
way owes listeners nothing, and nothing is kept for one that reads slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from cursor_gateway.delivery import SSE_HEADERS
from cursor_gateway.journal import Journal, Record

_LOOKS_EVERY = 0.25
# How many looks may pass without a word, before a sign of life.
_SILENT_LOOKS = 60
_SIGN_OF_LIFE = b": \n\n"


class Events:
    def __init__(
        self, journal: Journal, state: Callable[[], dict[str, Any]], stopping: asyncio.Future[None]
    ) -> None:
        self._journal = journal
        self._state = state
        self._stopping = stopping

    async def tell(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=SSE_HEADERS)
        await response.prepare(request)
        listener, silent = _Listener(), 0
        while not self._stopping.done():
            news = listener.news(self._state(), list(self._journal.listed()))
            silent = 0 if news else silent + 1
            if news or silent % _SILENT_LOOKS == 0:
                await response.write(news or _SIGN_OF_LIFE)
            await asyncio.wait({self._stopping}, timeout=_LOOKS_EVERY)
        return response


class _Listener:
    def __init__(self) -> None:
        self._health: dict[str, Any] = {}
        self._stages: dict[Record, tuple[int, str, str]] = {}

    def news(self, health: dict[str, Any], records: list[Record]) -> bytes:
        """Frames for all that has changed. The records of one frame are the oldest first."""
        changed = [record for record in records if self._stages.get(record) != record.stage]
        frames = b""
        if health != self._health:
            frames += _frame("health", health)
        if changed:
            frames += _frame("requests", [record.as_json() for record in reversed(changed)])
        self._health, self._stages = health, {record: record.stage for record in records}
        return frames


def _frame(event: str, data: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.encode(), orjson.dumps(data))
