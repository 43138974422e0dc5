"""Callbacks: the server at which the bridge calls the client's tools.

It is the one service of `sdk.v1` that is ours, with one method, `CallCustomTool`. It listens on
loopback, and nobody but the bridge has its token, which changes with each bridge.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from dataclasses import dataclass

import orjson
from aiohttp import web

from cursor_gateway.agents.sdk.frames import LARGEST_FRAME
from cursor_gateway.agents.sdk.tool_calls import ToolCalls
from cursor_gateway.connections import Runner
from cursor_gateway.core.conversation import ToolResult
from cursor_gateway.core.json_text import MAX_DEPTH, is_too_deep, to_json
from cursor_gateway.core.relayed_tools import to_mcp
from cursor_gateway.settings import is_loopback

log = logging.getLogger(__name__)

_PATH = "/sdk.v1.SdkCustomToolCallbackService/CallCustomTool"


class Callbacks:
    def __init__(self) -> None:
        self._agents: dict[str, ToolCalls] = {}
        self._runner: Runner | None = None
        self._token = ""
        self._port = 0

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post(_PATH, self._call)
        # A handler is cancelled when the bridge hangs up: that is how we know.
        self._runner = Runner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        await self._runner.listen("127.0.0.1", 0)
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def endpoint(self) -> dict[str, str]:
        """Where a bridge that has just started finds it. One before it has no access any more."""
        if self._runner is None:
            await self._start()
        self._token = secrets.token_urlsafe(32)
        return {"url": f"http://127.0.0.1:{self._port}", "authToken": self._token}

    def serve(self, agent_id: str, calls: ToolCalls) -> None:
        self._agents[agent_id] = calls

    def leave(self, agent_id: str) -> None:
        """The agent is gone; whoever still waits for a result gets none."""
        if calls := self._agents.pop(agent_id, None):
            calls.close()

    async def _call(self, request: web.Request) -> web.StreamResponse:
        if not self._may_ask(request):
            return _refusal(401, "unauthenticated", "Unauthorized")
        body = await _body(request)
        if body is None:
            return _refusal(413, "resource_exhausted", "This is too large.")
        try:
            calls, future = self._begun(body)
        except _NotUnderstood as error:
            return _refusal(error.status, error.code, error.words)
        # It may take long, in which nothing of the call is kept here.
        del body
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            calls.lost = True
            calls.on_arrival()
            raise
        if future.cancelled():
            return _refusal(499, "canceled", "The run has ended.")
        return web.json_response({"result": to_mcp(future.result())}, dumps=to_json)

    def _begun(self, body: bytes) -> tuple[ToolCalls, asyncio.Future[ToolResult]]:
        try:
            asked = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise _NotUnderstood(400, "invalid_argument", "This is not JSON.") from None
        if not isinstance(asked, dict) or is_too_deep(asked):
            words = f"This is no object, or nested more than {MAX_DEPTH} levels deep."
            raise _NotUnderstood(400, "invalid_argument", words)
        calls = self._agents.get(str(asked.get("agentId")))
        if calls is None:
            raise _NotUnderstood(404, "not_found", "There is no such agent.")
        arguments = asked.get("args")
        # A call without an id cannot be asked for twice.
        call_id = str(asked.get("toolCallId") or secrets.token_hex(8))
        given = arguments if isinstance(arguments, dict) else {}
        return calls, calls.arrive(call_id, str(asked.get("toolName")), given)

    def _may_ask(self, request: web.Request) -> bool:
        offered = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        is_known = hmac.compare_digest(offered, f"Bearer {self._token}".encode())
        # A browser that a page has led here sends an Origin, the bridge none.
        is_browser = "Origin" in request.headers or not is_loopback(request.url.host or "")
        return bool(self._token) and is_known and not is_browser


@dataclass(eq=False)
class _NotUnderstood(Exception):
    status: int
    code: str
    words: str


async def _body(request: web.Request) -> bytes | None:
    """All of it; None where that is too much. `request.read` would keep it."""
    body = bytearray()
    async for data in request.content.iter_any():
        body += data
        if len(body) > LARGEST_FRAME:
            return None
    return bytes(body)


def _refusal(status: int, code: str, words: str) -> web.Response:
    return web.json_response({"code": code, "message": words}, status=status)
