"""What happens around every request: its id, its record, admission, errors and headers."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable

from aiohttp import HttpVersion11, web

from cursor_gateway import request_ids
from cursor_gateway.dialects import BY_NAME
from cursor_gateway.errors import ExpectationFailed, GatewayError, NoMemory
from cursor_gateway.journal.record import NO_STATUS, Record, client_of
from cursor_gateway.journal.ring import Journal
from cursor_gateway.settings import is_loopback
from cursor_gateway.web.admission import Admission
from cursor_gateway.web.delivery import RECORD, REQUEST_ID
from cursor_gateway.web.error_responses import error_response, gateway_error
from cursor_gateway.web.protocol import EXPECTED
from cursor_gateway.web.routes.page import FILES, SIGN_IN

log = logging.getLogger(__name__)

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CLIENT_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ORIGIN = web.RequestKey("origin", str)

# Requests that an agent answers, with the name of their dialect in the journal.
_CONVERSATIONS = {
    ("POST", prefix + dialect.PATH): name
    for prefix in ("/v1", "")
    for name, dialect in BY_NAME.items()
}
# Probes and pages ask for these every few seconds, so the log mentions them at debug level only.
_POLLED = ("/health", "/metrics", "/v1/requests", "/v1/events", *FILES)


class Middleware:
    def __init__(self, admission: Admission, journal: Journal) -> None:
        self._admission = admission
        self._journal = journal

    @web.middleware
    async def around(self, request: web.Request, handler: Respond) -> web.StreamResponse:
        """Give the request its id, and turn everything that can go wrong into a response."""
        offered = request.headers.get("X-Request-Id", "")
        request_id = offered if _CLIENT_REQUEST_ID.fullmatch(offered) else secrets.token_hex(12)
        request[REQUEST_ID] = request_id
        dialect = _CONVERSATIONS.get((request.method, request.path), "")
        record = Record(request_id, client_of(request.headers.get("User-Agent", "")), dialect)
        request[RECORD] = record
        request_ids.CURRENT.set(request_id)
        try:
            with self._journal.recording(record):
                response = await self._respond(request, handler)
                record.status = response.status
                return response
        finally:
            _log_request(request, record)

    async def _respond(self, request: web.Request, handler: Respond) -> web.StreamResponse:
        try:
            return await self._admit(request, handler)
        except GatewayError as error:
            return error_response(request, error)
        except web.HTTPException as error:
            return error_response(request, gateway_error(request, error))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except MemoryError:
            return error_response(request, NoMemory("There is no memory left for this request."))
        except Exception:
            log.exception("request %s failed", request[REQUEST_ID])
            return error_response(request, GatewayError("Something went wrong in the gateway."))

    async def _admit(self, request: web.Request, handler: Respond) -> web.StreamResponse:
        self._admission.check_host(request.headers.get("Host"))
        if origin := self._admission.check_origin(request.headers.get("Origin")):
            request[_ORIGIN] = origin
        if request.method == "OPTIONS":
            return web.Response(status=204)
        is_file = request.path in FILES and is_loopback(request.remote or "")
        if request.path != "/health" and not is_file:
            self._admission.check_key(request.headers)
        if expected := request.get(EXPECTED):
            await _meet_expectation(request, expected)
        return await handler(request)


def _log_request(request: web.Request, record: Record) -> None:
    status = record.status or NO_STATUS
    log.log(
        logging.DEBUG if request.path in _POLLED and status < 400 else logging.INFO,
        "%s %s %d %.0f ms %s",
        request.method,
        # The path stays encoded: decoded, it could write lines of its own into the log.
        request.rel_url.raw_path if status != 404 else "(unknown path)",
        status,
        record.duration * 1000,
        record.id,
    )


async def _meet_expectation(request: web.Request, expected: str) -> None:
    """Have the body sent by a client that asks first whether it may send it."""
    if request.version < HttpVersion11:
        return
    if expected.lower() != "100-continue":
        raise ExpectationFailed("The gateway does not know what the request expects.")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the response itself has not begun


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    # Anthropic's SDKs look for the id in `request-id`.
    for name in ("X-Request-Id", "request-id"):
        response.headers[name] = request.get(REQUEST_ID, "")
    if origin := request.get(_ORIGIN):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE, OPTIONS"
        response.headers["Access-Control-Allow-Headers"] = (
            request.headers.get("Access-Control-Request-Headers") or "*"
        )
        response.headers["Access-Control-Expose-Headers"] = "X-Request-Id, Retry-After"
    response.headers["Vary"] = "Origin"
    if response.status == 401 and request.path in FILES:
        response.headers["WWW-Authenticate"] = SIGN_IN
