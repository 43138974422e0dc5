"""What happens on a connection outside of any handler, which aiohttp decides by itself.

What is not even HTTP is answered in our own shape: aiohttp would answer in plain text, without a
request id, and log the offending header with what is in it, be it a key. And whoever takes for ever
to send headers is shown the door: aiohttp would wait for ever, and each such connection takes a
descriptor that others lack. So is who takes for ever to read its answer, which may hold an agent
and its slot. There is no hook for this, so aiohttp's runner, server and protocol are each extended
by what leads to the next.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from cursor_gateway.delivery import RECORD, json_response
from cursor_gateway.dialects.openai_errors import render_error
from cursor_gateway.errors import InvalidRequest

log = logging.getLogger(__name__)

HEADERS_SECONDS = 60.0


class Runner(web.AppRunner):
    def __init__(self, app: web.Application, *, total_timeout: float, **options: Any) -> None:
        super().__init__(app, **options)
        self._total_timeout = total_timeout

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server
        assert isinstance(server, _Server)
        server.total_timeout = self._total_timeout
        return server


class _Server(web.Server):
    # The seconds that one answer may take, its reading included.
    total_timeout: float

    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Protocol(RequestHandler):
    _deadline: asyncio.TimerHandle | None = None
    # Runs while the client does not take what there is for it.
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waiter is not None and not self._waiter.done():
            self._expect_headers()
        else:
            self._expect_nothing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._expect_nothing()
        self._expect_no_reading()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._loop.call_later(self._may_take(), self._cut_off)

    def resume_writing(self) -> None:
        self._expect_no_reading()
        super().resume_writing()

    def _may_take(self) -> float:
        """What is left of the time for the answer, if one is under way."""
        assert isinstance(self._manager, _Server)
        record = self._current_request.get(RECORD) if self._current_request else None
        seconds = self._manager.total_timeout
        return record.left_of(seconds) if record else seconds

    def _cut_off(self) -> None:
        """Without a word, since nobody would read it. Whoever writes is cancelled by this."""
        if (request := self._current_request) is not None and (record := request.get(RECORD)):
            record.left()
            log.info("request %s: its client stopped reading (total_timeout)", record.id)
        if self.transport is not None:
            self.transport.abort()

    def _expect_no_reading(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _expect_headers(self) -> None:
        """In time, which the first byte starts and no further one prolongs."""
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(HEADERS_SECONDS, self.force_close)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

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
