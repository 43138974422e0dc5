"""The body of a request: one JSON object."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from cursor_gateway.errors import BodyTooSlow, InvalidJson, InvalidRequest

# Enough for the largest body over a poor line; who needs longer holds a connection for nothing.
BODY_SECONDS = 120.0


async def read_json(request: web.Request) -> Mapping[str, Any]:
    return parse_body(await read_body(request))


async def read_body(request: web.Request) -> bytes:
    try:
        if request.content.is_eof():
            return await request.read()  # all of it has come already
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise BodyTooSlow(f"The body did not come within {BODY_SECONDS:g} seconds.") from None
    except web.RequestPayloadError:
        raise InvalidRequest("The body is not in the encoding that it names.") from None


def parse_body(data: bytes) -> Mapping[str, Any]:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        body = _body_with_half_characters(data)
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return body


def _body_with_half_characters(data: bytes) -> object:
    """A client may have cut a text inside an emoji; JSON can carry the half, UTF-8 cannot."""
    try:
        return orjson.loads(_ESCAPES.sub(_whole_character, data))
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"The body is not valid JSON: {error}.") from None


# All escapes, so that the two bytes of an escaped backslash are never taken for half of one.
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rb"(?:%b%b)|(%b|%b)|\\." % (_HIGH, _LOW, _HIGH, _LOW), re.DOTALL)


def _whole_character(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape[1] else escape[0]
