"""The relay: an MCP server that gives an agent the client's tools, and holds each call until the
client has made it.

Theory of operation
-------------------
Every run of an agent has a `Line` of its own: a secret path and a bearer on a listener that only
this machine reaches, written into the run's scratch workspace. It is the smallest server that the
CLI's MCP client needs: streamable HTTP, POST only, no sessions.

A `tools/call` is answered as an event stream that begins at once, so that no HTTP client tires of
waiting for headers, and gets comments while it is held. The CLI itself gives up after 60 seconds,
whatever it hears. So before that the call is answered by a ticket, and a tool of our own waits on
for the result, as often as it takes. An agent that gives up all the same tells so: the run is lost
then, and from now on calls are held for a shorter time.

What the CLI does otherwise than its protocol or its own stream would have it is learnt from the
first run that shows it, for all later ones (`Habits`).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson
from aiohttp import web

from cursor_gateway.background import in_background
from cursor_gateway.connections import Runner
from cursor_gateway.core.conversation import Text, ToolCall, ToolResult, ToolSpec
from cursor_gateway.core.events import AgentCall, AgentCallDone, Aside, Event, RelayedCall
from cursor_gateway.core.json_text import MAX_DEPTH, is_too_deep, to_json
from cursor_gateway.core.relayed_calls import RelayedCalls
from cursor_gateway.core.relayed_tools import LOOK_UPS, SERVER, RelayedTools, to_mcp
from cursor_gateway.relay_messages import Json, refusal, success, welcome, write
from cursor_gateway.settings import is_loopback

log = logging.getLogger(__name__)

_COMMENTS_EVERY = 15.0
# Who gives up sooner was not tired of waiting.
_SHORTEST_PATIENCE = 10.0
_MAX_BODY = 64 * 1024 * 1024

# Who executes the tools that are not the client's.
Execute = Callable[[ToolCall], Awaitable[ToolResult]]


@dataclass(slots=True)
class Habits:
    """What was seen of the agent's CLI, in any run."""

    # Calls arrive with other arguments than they were announced with: the user's hooks rewrite.
    rewrites_calls: bool = False
    # The list of tools is not fetched again when it has changed.
    ignores_news: bool = False
    # Of calls made at once, each comes only when the one before it has its result.
    calls_one_by_one: bool = False


class Line:
    """The client's tools, as one run of an agent has them."""

    def __init__(
        self,
        tools: Iterable[ToolSpec],
        new_id: Callable[[], str],
        execute: Execute,
        habits: Habits,
    ) -> None:
        self._execute = execute
        self._habits = habits
        self._new_id = new_id
        self._errands: set[asyncio.Task[None]] = set()
        self.token = secrets.token_urlsafe(24)
        self.bearer = secrets.token_urlsafe(24)
        self.tools = RelayedTools(tools)
        self._calls = RelayedCalls(new_id)
        self._results: dict[str, asyncio.Future[ToolResult]] = {}
        # The requests that are waited for: their task, and since when.
        self._held: dict[str | int, tuple[asyncio.Task[Any] | None, float]] = {}
        # Whether the agent was ever here.
        self._has_contact = False
        # Whether tools were added since it fetched the list, and whether it was told so.
        self._has_news = self._told_news = False
        # Whether the agent gave up waiting for a call. Then no result can reach it any more.
        self.lost = False
        self.one_at_a_time = False
        # Called when the agent was here: a call arrived, or it is known now to have the tools.
        self.on_arrival: Callable[[], None] = lambda: None

    @property
    def is_one_by_one(self) -> bool:
        return self._habits.calls_one_by_one

    def may_offer(self, tools: Iterable[ToolSpec]) -> bool:
        """Whether the agent would have these tools, or else only one that is started anew."""
        return not self._habits.ignores_news or not self.tools.lacks(tools)

    def offer(self, tools: Iterable[ToolSpec]) -> None:
        """Add the tools that are new; the agent is told with its next result."""
        if self.tools.add(tools):
            self._has_news, self._told_news = True, False

    @property
    def missing(self) -> Literal["relay", "tools", ""]:
        """What the agent has not got yet: any contact with the relay, or the tools that were
        added. One that has connected fetches the list in its own time."""
        if not self._has_contact:
            return "relay"
        return "tools" if self._has_news else ""

    def give_up_news(self) -> None:
        """The agent has spoken, and has not fetched the list."""
        if self._told_news and not self._habits.ignores_news:
            self._habits.ignores_news = True
            log.warning("the agent ignores that there are new tools; a fresh one gets them now")

    def noticed(self, event: Event) -> Event | None:
        """What is left of an event of the agent's stream for others: calls of the client's tools
        are counted here, those of bridged ones are activity of the agent."""
        if not isinstance(event, AgentCall | AgentCallDone):
            return event
        if event.tool in LOOK_UPS:
            return Aside()
        name = self.tools.called(event.tool, event.arguments)
        if name is None:
            return event
        tool = self.tools.get(name)
        if tool is None:
            return None
        arguments = _arguments(event.arguments.get("args"))
        if tool.bridged:
            return replace(event, tool=tool.name, arguments=arguments)
        if isinstance(event, AgentCallDone):
            self._calls.came_back(event.id)
            return Aside()
        # Some versions leave the arguments out where there are some.
        is_told = bool(arguments) or not tool.schema.get("properties")
        self._calls.announce(event.id, tool.name, arguments if is_told else None)
        self._look_for_rewriting()
        return None

    # Calls and results

    def calls_for_client(self) -> list[RelayedCall]:
        return self._calls.for_client(
            one_at_a_time=self.one_at_a_time, as_announced=not self._habits.rewrites_calls
        )

    def deliver(self, results: Iterable[ToolResult]) -> None:
        for result in results:
            self._calls.answered(result.id)
            future = self._result(result.id)
            if not future.done():
                future.set_result(result)

    def close(self) -> None:
        for task, _ in self._held.values():
            if task is not None:
                task.cancel()
        for errand in self._errands:
            errand.cancel()
        for future in self._results.values():
            future.cancel()

    def _result(self, call_id: str) -> asyncio.Future[ToolResult]:
        if call_id not in self._results:
            self._results[call_id] = asyncio.get_running_loop().create_future()
        return self._results[call_id]

    # What the agent's MCP client asks

    def contact(self) -> None:
        if not self._has_contact:
            self._has_contact = True
            self.on_arrival()

    def list_tools(self) -> Json:
        self._has_news = False
        self.on_arrival()
        return {"tools": self.tools.listing()}

    def arrive(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """The id of the call whose result is asked for; None where there is none."""
        tool = self.tools.get(name)
        if tool is None:
            ticket = str(arguments.get("ticket", "")).removeprefix("ticket").strip()
            return ticket if ticket in self._results else None
        if tool.bridged:
            return self._run_errand(ToolCall(self._new_id(), tool.name, to_json(arguments)))
        call_id = self._calls.arrive(tool.name, arguments)
        self._look_for_rewriting()
        self._result(call_id)
        self.on_arrival()
        return call_id

    def _look_for_rewriting(self) -> None:
        if self._calls.were_rewritten and not self._habits.rewrites_calls:
            self._habits.rewrites_calls = True
            log.warning(
                "a call was rewritten after it was announced (by a hook of the user's?); from now "
                "on calls that are made at once go to the client one by one"
            )

    def _run_errand(self, call: ToolCall) -> str:
        """A call that needs no client."""

        async def run() -> None:
            self.deliver([await self._execute(call)])

        self._result(call.id)
        errand = in_background(run(), "a call of an MCP tool")
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)
        return call.id

    async def result(self, call_id: str, within: float) -> ToolResult | None:
        done, _ = await asyncio.wait({self._result(call_id)}, timeout=within)
        return next(iter(done)).result() if done else None

    def takes_news(self) -> bool:
        """Whether the agent must be told that there are new tools."""
        owes = self._has_news and not self._told_news
        self._told_news |= owes
        return owes

    def gives_ticket(self, call_id: str) -> None:
        self._calls.replied(call_id)

    def forget(self, call_id: str) -> None:
        """Its result has reached the agent."""
        self._results.pop(call_id, None)

    def hold(self, rpc_id: str | int) -> None:
        self._held[rpc_id] = (asyncio.current_task(), asyncio.get_running_loop().time())

    def let_go(self, rpc_id: str | int) -> None:
        self._held.pop(rpc_id, None)

    def give_up(self, rpc_id: str | int) -> float | None:
        """The agent waits no longer for this request; how long it did, if at all."""
        task, since = self._held.pop(rpc_id, (None, 0.0))
        if task is None:
            return None
        self.lost = True
        task.cancel()
        return asyncio.get_running_loop().time() - since


class Relay:
    def __init__(self, hold: float, execute: Execute) -> None:
        self._hold = hold
        self._execute = execute
        self.habits = Habits()
        self._lines: dict[str, Line] = {}
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
        for line in list(self._lines.values()):
            self.close_line(line)
        if self._runner is not None:
            await self._runner.cleanup()

    def open_line(self, tools: Sequence[ToolSpec], new_id: Callable[[], str]) -> Line:
        line = Line(tools, new_id, self._execute, self.habits)
        self._lines[line.token] = line
        return line

    def close_line(self, line: Line) -> None:
        line.close()
        self._lines.pop(line.token, None)

    def configuration(self, line: Line) -> Json:
        """What `.cursor/mcp.json` says of it."""
        url = f"http://127.0.0.1:{self._port}/mcp/{line.token}"
        headers = {"Authorization": f"Bearer {line.bearer}"}
        return {"mcpServers": {**self.beside, SERVER: {"url": url, "headers": headers}}}

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        line = self._lines.get(request.match_info["token"])
        offered = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if line is None or not hmac.compare_digest(offered, f"Bearer {line.bearer}".encode()):
            return web.Response(status=404)
        # A browser that a page has led here. No agent sends an Origin.
        if "Origin" in request.headers or not is_loopback(request.url.host or ""):
            return web.Response(status=403)
        line.contact()
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
        return await self._answer(request, line, message)

    async def _answer(self, request: web.Request, line: Line, message: Json) -> web.StreamResponse:
        method, rpc_id = message.get("method"), message.get("id")
        params = _arguments(message.get("params"))
        if rpc_id is None or method is None:
            if method == "notifications/cancelled":
                self._given_up(line, params.get("requestId"))
            return web.Response(status=202)
        if not isinstance(rpc_id, str | int):
            return refusal(None, -32600, "An id is a text or a number.", status=400)
        if method == "tools/call":
            return await self._call(request, line, rpc_id, params)
        if method == "initialize":
            return success(rpc_id, welcome(params.get("protocolVersion")))
        if method == "tools/list":
            return success(rpc_id, line.list_tools())
        if method == "ping":
            return success(rpc_id, {})
        return refusal(rpc_id, -32601, f"There is no method {method!r}.")

    async def _call(
        self, request: web.Request, line: Line, rpc_id: str | int, params: Json
    ) -> web.StreamResponse:
        name, arguments = str(params.get("name")), _arguments(params.get("arguments"))
        if name != line.tools.wait_tool and line.tools.get(name) is None:
            return refusal(rpc_id, -32602, f"There is no tool {name!r}.")
        call_id = line.arrive(name, arguments)
        if call_id is None:
            return success(
                rpc_id, to_mcp(ToolResult("", (Text("There is no such ticket."),), is_error=True))
            )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        line.hold(rpc_id)
        try:
            await response.prepare(request)
            answer = await self._wait(response, line, call_id)
        except asyncio.CancelledError:
            line.lost = True
            raise
        finally:
            line.let_go(rpc_id)
        if line.takes_news():
            news = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            await write(response, news)
        await write(response, {"jsonrpc": "2.0", "id": rpc_id, "result": answer})
        await response.write_eof()
        return response

    async def _wait(self, response: web.StreamResponse, line: Line, call_id: str) -> Json:
        """The result, or the ticket for it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._hold
        while (left := until - loop.time()) > 0:
            result = await line.result(call_id, min(left, _COMMENTS_EVERY))
            if result is not None:
                line.forget(call_id)
                return to_mcp(result)
            await response.write(b": the client is still at work\n\n")
        line.gives_ticket(call_id)
        words = (
            f"ticket {call_id}\nThe client is still at work on this call. Do not repeat it: call "
            f"`{line.tools.wait_tool}` with this ticket to wait for its result."
        )
        return to_mcp(ToolResult(call_id, (Text(words),)))

    def _given_up(self, line: Line, rpc_id: object) -> None:
        waited = line.give_up(rpc_id) if isinstance(rpc_id, str | int) else None
        if waited is not None and _SHORTEST_PATIENCE <= waited < self._hold:
            self._hold = 0.8 * waited
            log.warning(
                "the agent gave up a call after %.0f s; calls are held for %.0f s now",
                waited,
                self._hold,
            )


def _arguments(value: object) -> Json:
    return value if isinstance(value, dict) else {}
