"""What aiohttp answers by itself, when a request is not even HTTP: in our own shape.

aiohttp would answer in plain text, without a request id, and log the offending header with what is
in it, be it a key. It offers no hook for this, so its runner, server and protocol are each extended
by the one method that leads to the next.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from cursor_gateway.delivery import json_response
from cursor_gateway.dialects.openai_errors import render_error
from cursor_gateway.errors import InvalidRequest

log = logging.getLogger(__name__)


class Runner(web.AppRunner):
    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server
        return server


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Protocol(RequestHandler):
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
