"""The body of a request: one JSON object.

A body is read piece by piece. The bytes of all requests that are being served are counted and
stay below one limit, so the gateway's memory is bounded. The event loop stands still while a body
is parsed, so the number of values in it is limited first, and large bodies take turns, between
which other requests are served.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import orjson
from aiohttp import web

from cursor_gateway.core.json_text import MAX_DEPTH, is_too_deep
from cursor_gateway.errors import (
    BodyTooLarge,
    BodyTooSlow,
    ContextTooLong,
    InvalidJson,
    InvalidRequest,
    NoMemory,
)

# Enough for the largest body over a poor network.
BODY_SECONDS = 120.0

# How many bodies of the largest allowed size may be held at once.
BODIES_AT_ONCE = 4
# A smaller body is parsed so quickly that it does not wait for its turn.
SMALL = 16 * 1024
# Of the bytes that coding agents send, three in a hundred begin a value, so their bodies may have
# 16 MB. No model could read a conversation with more values, and parsing it would take seconds.
MAX_VALUES = 500_000
# Clients cut texts far less often than this.
MAX_HALF_CHARACTERS = 10_000

# The pause before a large body that had to wait for its turn.
_PAUSE = 0.01

# orjson may need sixteen bytes for each byte of a body, twelve for itself and four for the text. It
# aborts the whole process where it cannot get them.
_MEMORY_PER_BYTE = 16

Body = bytes | bytearray
T = TypeVar("T")


class Bodies:
    """The bodies of all requests that are being served."""

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        self._one_at_a_time = asyncio.Lock()

    def hold(self, size: int = 0) -> Held:
        """A context in which one request is served; what it reads is counted until the end."""
        held = Held(self)
        held.add(size)
        return held

    def take(self, size: int) -> None:
        if size > self._free:
            raise NoMemory("Too much is being read and answered at once.")
        self._free -= size

    def give_back(self, size: int) -> None:
        self._free += size

    async def in_turn(self, body: Body, parse: Callable[[Body], T]) -> T:
        """The result of `parse`, which blocks the event loop: large bodies wait for each other."""
        if len(body) <= SMALL:
            return parse(body)
        others_wait = self._one_at_a_time.locked()
        async with self._one_at_a_time:
            # Other requests may need several steps of the event loop, so they get a moment.
            await asyncio.sleep(_PAUSE if others_wait else 0)
            return parse(body)


class Held:
    """The share of one request in the bytes of all bodies."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._bodies.give_back(self._bytes)

    def add(self, size: int) -> None:
        self._bodies.take(size)
        self._bytes += size

    async def read(self, request: web.Request) -> Body:
        try:
            if request.content.is_eof():
                return await request.read()  # all of it has arrived, so it is small
            async with asyncio.timeout(BODY_SECONDS):
                return await self._read(request)
        except TimeoutError:
            raise BodyTooSlow(f"The body did not come within {BODY_SECONDS:g} seconds.") from None
        except web.RequestPayloadError:
            raise InvalidRequest("The body is not in the encoding that it names.") from None

    async def _read(self, request: web.Request) -> bytearray:
        body = bytearray()
        async for piece in request.content.iter_any():
            self.add(len(piece))
            body += piece
            if len(body) > request.client_max_size:
                raise BodyTooLarge("The request body is too large.")
        return body


def parse_body(data: Body) -> Mapping[str, Any]:
    body = _parsed(data)
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.")
    if is_too_deep(body):
        name = next(name[:80] for name, value in body.items() if is_too_deep([value]))
        raise InvalidRequest(f"`{name}` is nested more than {MAX_DEPTH} levels deep.", param=name)
    return body


def _parsed(data: Body) -> object:
    if len(data) > MAX_VALUES:
        if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
            raise ContextTooLong(f"The body holds more than {MAX_VALUES} values.")
        _check_memory(_MEMORY_PER_BYTE * len(data))
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _with_half_characters(data)


def _check_memory(size: int) -> None:
    try:
        bytes(size)  # allocated and freed at once, without being touched
    except MemoryError:
        raise NoMemory("There is no memory left for a request of this size.") from None


def _with_half_characters(data: Body) -> object:
    """Parse a body whose texts were cut inside an emoji: JSON can carry half a surrogate pair, but
    UTF-8 cannot, so U+FFFD takes its place. Escaped backslashes are replaced meanwhile by bytes
    that no JSON contains, so that a `u` behind them is not taken for an escape."""
    repaired = data
    if b"\0" not in data:
        hidden = data.replace(b"\\\\", b"\0\0")
        repaired = _HALF.sub(rb"\\ufffd", hidden, count=MAX_HALF_CHARACTERS)
        repaired = repaired.replace(b"\0\0", b"\\\\")
    try:
        return orjson.loads(repaired)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"The body is not valid JSON: {error}.") from None


# The first half of a surrogate pair without the second, or the second without the first. Both
# alternatives begin alike, so that the search passes over all other bytes quickly.
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
