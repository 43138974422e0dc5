"""The body of a request: one JSON object.

A body is read piece by piece, and the pieces of all requests that are being served are counted:
together they stay below a limit, which holds the gateway's memory below one. The event loop stands
still while a body is understood, so the number of values in it is limited before, and large bodies
take turns, between which everybody else is served.
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

# Enough for the largest body over a poor line; who needs longer holds a connection for nothing.
BODY_SECONDS = 120.0

# Of the largest size that is allowed, as many bodies may be held at once.
BODIES_AT_ONCE = 4
# What is smaller takes so little time that nobody needs a turn.
SMALL = 16 * 1024
# Three of a hundred bytes that coding agents send begin a value, so theirs may have 16 MB. What has
# more is no conversation that a model could read; it would only take seconds to look at.
MAX_VALUES = 500_000
# No text is cut so often.
MAX_HALF_CHARACTERS = 10_000

# Between large bodies that come at once.
_BREATH = 0.01

# What the parser may need of memory for each byte of a body: it takes twelve at once for itself,
# and four for the text. Where that is not to be had, it ends the whole process.
_MEMORY_PER_BYTE = 16

Body = bytes | bytearray
T = TypeVar("T")


class Bodies:
    """The bodies of all requests that are being served."""

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes
        self._one_at_a_time = asyncio.Lock()

    def hold(self, size: int = 0) -> Held:
        """Within it a request is served: what it reads counts until then."""
        held = Held(self)
        held.add(size)
        return held

    def take(self, size: int) -> None:
        if size > self._free:
            raise NoMemory("Too much is being read and answered at once.")
        self._free -= size

    def give_back(self, size: int) -> None:
        self._free += size

    async def in_turn(self, body: Body, understand: Callable[[Body], T]) -> T:
        """What `understand` makes of a body, which nothing can interrupt."""
        if len(body) <= SMALL:
            return understand(body)
        others_wait = self._one_at_a_time.locked()
        async with self._one_at_a_time:
            # Time for everybody else, who may need several steps of the event loop.
            await asyncio.sleep(_BREATH if others_wait else 0)
            return understand(body)


class Held:
    """What one request holds of the bodies' bytes."""

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
                return await request.read()  # all of it has come already, so it is not much
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
        _look_for_memory(_MEMORY_PER_BYTE * len(data))
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _with_half_characters(data)


def _look_for_memory(size: int) -> None:
    try:
        bytes(size)  # asked for and given back without being touched
    except MemoryError:
        raise NoMemory("There is no memory left for a request of this size.") from None


def _with_half_characters(data: Body) -> object:
    """A client may have cut a text inside an emoji; JSON can carry the half, UTF-8 cannot. The
    backslashes of the text itself are hidden meanwhile, behind bytes that no JSON can contain, so
    that what follows them is not taken for an escape."""
    mended = data
    if b"\0" not in data:
        hidden = data.replace(b"\\\\", b"\0\0")
        mended = _HALF.sub(rb"\\ufffd", hidden, count=MAX_HALF_CHARACTERS)
        mended = mended.replace(b"\0\0", b"\\\\")
    try:
        return orjson.loads(mended)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"The body is not valid JSON: {error}.") from None


# The first half of a character without the second, or the second without the first. They begin
# alike, so that the search passes over all other bytes quickly.
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
