"""Three things on a connection, outside of any handler, that aiohttp would do otherwise.

What is not valid HTTP gets an error in our own shape; aiohttp's is plain text without a request id.
aiohttp answers an `Expect` header before admission could check the request, so the header is taken
away from it. And a client that does not read its answer within `total_timeout`, and holds an agent
and its slot all the while, is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from aiohttp import web

from cursor_gateway import connections
from cursor_gateway.dialects.openai_errors import render_error
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.web.delivery import RECORD, json_response

log = logging.getLogger(__name__)

# The request's `Expect` header.
EXPECTED = web.RequestKey("expected", str)


class _Connection(connections.Connection):
    # How many seconds one answer may take, including the time in which the client reads it.
    total_timeout: float
    # Runs while the client does not read what was written.
    _unread: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting_for_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._loop.call_later(self._may_take(), self._cut_off)

    def resume_writing(self) -> None:
        self._stop_waiting_for_reader()
        super().resume_writing()

    def _may_take(self) -> float:
        """How many seconds are left for the answer that is under way."""
        record = self._current_request.get(RECORD) if self._current_request else None
        return record.left_of(self.total_timeout) if record else self.total_timeout

    def _cut_off(self) -> None:
        """Disconnect without an error frame, since the client reads nothing. This cancels the
        handler that writes."""
        if (request := self._current_request) is not None and (record := request.get(RECORD)):
            record.left()
            log.info("request %s: its client stopped reading (total_timeout)", record.id)
        if self.transport is not None:
            self.transport.abort()

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        request_id = secrets.token_hex(12)
        log.info("request %s is not valid HTTP (%d)", request_id, status)
        body: dict[str, Any] = render_error(
            InvalidRequest("The request is not valid HTTP."), request_id
        )
        response = json_response(body, status)
        response.headers["X-Request-Id"] = request_id
        response.force_close()
        return response


class Runner(connections.Runner):
    def __init__(self, app: web.Application, *, total_timeout: float, **options: Any) -> None:
        super().__init__(app, **options)
        self._total_timeout = total_timeout

    def connection(self, server: web.Server, **options: Any) -> _Connection:
        made = _Connection(server, **options)
        made.total_timeout = self._total_timeout
        return made

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.request_factory = _without_expectation(server.request_factory)
        return server


def _without_expectation(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(message: Any, *others: Any) -> Any:
        expected = message.headers.get("Expect")
        if expected is None:
            return make(message, *others)
        headers = message.headers.copy()
        del headers["Expect"]
        request = make(message._replace(headers=type(message.headers)(headers)), *others)
        request[EXPECTED] = expected
        return request

    return made
