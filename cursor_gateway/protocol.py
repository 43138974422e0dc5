"""What happens before there is a request, which aiohttp decides by itself.

What is not even HTTP is answered in our own shape: aiohttp would answer in plain text, without a
request id, and log the offending header with what is in it, be it a key. And whoever takes for ever
to send headers is shown the door: aiohttp would wait for ever, and each such connection takes a
descriptor that others lack. There is no hook for this, so aiohttp's runner, server and protocol are
each extended by what leads to the next.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from cursor_gateway.delivery import json_response
from cursor_gateway.dialects.openai_errors import render_error
from cursor_gateway.errors import InvalidRequest

log = logging.getLogger(__name__)

HEADERS_SECONDS = 60.0


class Runner(web.AppRunner):
    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server
        return server


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Protocol(RequestHandler):
    _deadline: asyncio.TimerHandle | None = None

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
        super().connection_lost(exc)

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
