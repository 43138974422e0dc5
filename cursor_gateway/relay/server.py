"""The relay: an MCP server that gives an agent the client's tools, and holds each call until the
client has made it.

Theory of operation
-------------------
Every run of an agent has a `RelaySession` of its own: a secret path and a bearer on a listener that
only this machine reaches, written into the run's scratch workspace. It is the smallest server that
the CLI's MCP client needs: streamable HTTP, POST only, without MCP's own sessions.

A `tools/call` is answered as an event stream that begins at once, so that no HTTP client tires of
waiting for headers, and gets comments while it is held. The CLI itself gives up after 60 seconds,
whatever it hears. So before that the call is answered by a ticket, and a tool of our own waits on
for the result, as often as it takes. An agent that gives up all the same tells so: the run is lost
then, and from now on calls are held for a shorter time.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Sequence

import orjson
from aiohttp import web

from cursor_gateway.connections import Runner
from cursor_gateway.core.conversation import Text, ToolResult, ToolSpec
from cursor_gateway.core.json_text import MAX_DEPTH, is_too_deep
from cursor_gateway.core.relayed_tools import SERVER, to_mcp
from cursor_gateway.relay.messages import Json, refusal, success, welcome, write
from cursor_gateway.relay.session import Execute, Habits, RelaySession
from cursor_gateway.settings import is_loopback

log = logging.getLogger(__name__)

_COMMENTS_EVERY = 15.0
# Who gives up sooner was not tired of waiting.
_SHORTEST_PATIENCE = 10.0
_MAX_BODY = 64 * 1024 * 1024


class Relay:
    def __init__(self, hold: float, execute: Execute) -> None:
        self._hold = hold
        self._execute = execute
        self.habits = Habits()
        self._sessions: dict[str, RelaySession] = {}
        self._runner: Runner | None = None
        self._port = 0
        # Other servers that an agent's configuration names.
        self.beside: Json = {}

    def hold_for(self, seconds: float) -> None:
        """Answer calls by a ticket after so long, from now on."""
        self._hold = seconds

    async def start(self) -> None:
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/mcp/{token}", self._respond)
        # A handler is cancelled when the agent hangs up: that is how we know.
        self._runner = Runner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        await self._runner.listen("127.0.0.1", 0)
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            self.close_session(session)
        if self._runner is not None:
            await self._runner.cleanup()

    def open_session(self, tools: Sequence[ToolSpec], new_id: Callable[[], str]) -> RelaySession:
        session = RelaySession(tools, new_id, self._execute, self.habits)
        self._sessions[session.token] = session
        return session

    def close_session(self, session: RelaySession) -> None:
        session.close()
        self._sessions.pop(session.token, None)

    def configuration(self, session: RelaySession) -> Json:
        """What `.cursor/mcp.json` says of it."""
        url = f"http://127.0.0.1:{self._port}/mcp/{session.token}"
        headers = {"Authorization": f"Bearer {session.bearer}"}
        return {"mcpServers": {**self.beside, SERVER: {"url": url, "headers": headers}}}

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        session = self._sessions.get(request.match_info["token"])
        offered = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if session is None or not hmac.compare_digest(offered, f"Bearer {session.bearer}".encode()):
            return web.Response(status=404)
        # A browser that a page has led here. No agent sends an Origin.
        if "Origin" in request.headers or not is_loopback(request.url.host or ""):
            return web.Response(status=403)
        session.contact()
        if request.method == "DELETE":
            return web.Response(status=200)
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST, DELETE"})
        try:
            message = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            return refusal(None, -32700, "This is not JSON.", status=400)
        if not isinstance(message, dict):
            return refusal(None, -32600, "One message at a time.", status=400)
        if is_too_deep(message):
            words = f"The message is nested more than {MAX_DEPTH} levels deep."
            return refusal(None, -32600, words, status=400)
        return await self._answer(request, session, message)

    async def _answer(
        self, request: web.Request, session: RelaySession, message: Json
    ) -> web.StreamResponse:
        method, rpc_id = message.get("method"), message.get("id")
        params = _arguments(message.get("params"))
        if rpc_id is None or method is None:
            if method == "notifications/cancelled":
                self._given_up(session, params.get("requestId"))
            return web.Response(status=202)
        if not isinstance(rpc_id, str | int):
            return refusal(None, -32600, "An id is a text or a number.", status=400)
        if method == "tools/call":
            return await self._call(request, session, rpc_id, params)
        if method == "initialize":
            return success(rpc_id, welcome(params.get("protocolVersion")))
        if method == "tools/list":
            return success(rpc_id, session.list_tools())
        if method == "ping":
            return success(rpc_id, {})
        return refusal(rpc_id, -32601, f"There is no method {method!r}.")

    async def _call(
        self, request: web.Request, session: RelaySession, rpc_id: str | int, params: Json
    ) -> web.StreamResponse:
        name, arguments = str(params.get("name")), _arguments(params.get("arguments"))
        if name != session.tools.wait_tool and session.tools.get(name) is None:
            return refusal(rpc_id, -32602, f"There is no tool {name!r}.")
        call_id = session.arrive(name, arguments)
        if call_id is None:
            return success(
                rpc_id, to_mcp(ToolResult("", (Text("There is no such ticket."),), is_error=True))
            )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        session.hold(rpc_id)
        try:
            await response.prepare(request)
            answer = await self._wait(response, session, call_id)
        except asyncio.CancelledError:
            session.lost = True
            raise
        finally:
            session.let_go(rpc_id)
        if session.owes_notice():
            notice = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            await write(response, notice)
        await write(response, {"jsonrpc": "2.0", "id": rpc_id, "result": answer})
        await response.write_eof()
        return response

    async def _wait(
        self, response: web.StreamResponse, session: RelaySession, call_id: str
    ) -> Json:
        """The result, or the ticket for it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._hold
        while (left := until - loop.time()) > 0:
            result = await session.result(call_id, min(left, _COMMENTS_EVERY))
            if result is not None:
                session.forget(call_id)
                return to_mcp(result)
            await response.write(b": the client is still at work\n\n")
        session.gives_ticket(call_id)
        words = (
            f"ticket {call_id}\nThe client is still at work on this call. Do not repeat it: call "
            f"`{session.tools.wait_tool}` with this ticket to wait for its result."
        )
        return to_mcp(ToolResult(call_id, (Text(words),)))

    def _given_up(self, session: RelaySession, rpc_id: object) -> None:
        waited = session.give_up(rpc_id) if isinstance(rpc_id, str | int) else None
        if waited is not None and _SHORTEST_PATIENCE <= waited < self._hold:
            self._hold = 0.8 * waited
            log.warning(
                "the agent gave up a call after %.0f s; calls are held for %.0f s now",
                waited,
                self._hold,
            )


def _arguments(value: object) -> Json:
    return value if isinstance(value, dict) else {}
