"""The HTTP server: admission, routes, start and shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import HttpVersion11, web

from cursor_gateway import request_ids
from cursor_gateway.agents.cursor import isolation, remote
from cursor_gateway.dialects import BY_NAME, DIALECTS, Dialect, Exchange, messages, responses
from cursor_gateway.errors import (
    ExpectationFailed,
    GatewayError,
    InvalidRequest,
    NoMemory,
    ShuttingDown,
    ToolCallsNotAllowed,
    ToolNotFound,
)
from cursor_gateway.gateway import Gateway
from cursor_gateway.journal.record import NO_STATUS, Record, client_of
from cursor_gateway.journal.ring import Journal
from cursor_gateway.processes import resources
from cursor_gateway.running_gateways import holder
from cursor_gateway.settings import Settings, SettingsError, is_loopback
from cursor_gateway.settings_sources import load, reloaded
from cursor_gateway.web.admission import Admission, caller_of, check_content_type
from cursor_gateway.web.body import BODIES_AT_ONCE, Bodies, Held, parse_body
from cursor_gateway.web.chat_socket import PATH as SOCKET_PATH
from cursor_gateway.web.chat_socket import ChatSockets
from cursor_gateway.web.delivery import RECORD, REQUEST_ID, Batches, Delivery, json_response
from cursor_gateway.web.error_responses import error_response, translated
from cursor_gateway.web.live_events import Events
from cursor_gateway.web.protocol import EXPECTED, Runner
from cursor_gateway.web.response_store import ResponseStore
from cursor_gateway.web.routes.journal import journal_routes
from cursor_gateway.web.routes.models import model_routes
from cursor_gateway.web.routes.page import FILES, SIGN_IN, page_routes
from cursor_gateway.web.routes.responses import kept_routes

log = logging.getLogger(__name__)

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CLIENT_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ORIGIN = web.RequestKey("origin", str)

# Answers that are cut off at shutdown need a moment to send their error frame.
_FAREWELL = 2.0


class Server:
    def __init__(
        self, settings: Settings, env: Mapping[str, str], gateway: Gateway, journal: Journal
    ) -> None:
        self._settings = settings
        self._env = env
        self._gateway = gateway
        self._journal = journal
        self._admission = Admission(settings)
        self._kept = ResponseStore(settings.kept_responses_mb * 1024 * 1024)
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._delivery = Delivery(settings, self._stopping)
        self._bodies = Bodies(BODIES_AT_ONCE * settings.max_body_mb * 1024 * 1024)
        self._sockets = ChatSockets(journal, self._delivery, self._bodies, self._answering)
        # First it only says so, to whoever asks how it is; then it takes nothing new.
        self._is_leaving = False
        self._draining = False
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        # A handler is cancelled when its client leaves: that is what stops the agent.
        self._runner = Runner(
            self._application(),
            total_timeout=settings.total_timeout,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=_FAREWELL,
        )
        self._sites: Sequence[web.BaseSite] = ()
        self.port = settings.port
        # Whether the user could not wait: then no agent is given time to leave by itself.
        self.in_a_hurry = False

    @property
    def base_url(self) -> str:
        """What clients are configured with."""
        host = self._settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    async def start(self) -> None:
        await self._runner.setup()
        try:
            self._sites = await self._runner.listen(self._settings.host, self._settings.port)
        except OSError as error:
            raise SettingsError(_cannot_listen(self._settings, error)) from error
        self.port = self._runner.addresses[0][1]

    def reload(self, load_again: Callable[[], Settings]) -> None:
        """Take over what may change while answers run. What cannot be used changes nothing."""
        try:
            self._settings, late = reloaded(self._settings, load_again())
        except SettingsError as error:
            log.error("not reloaded: %s", error)  # noqa: TRY400 - the message says it all
            return
        self._admission = Admission(self._settings)
        self._delivery.adopt(self._settings)
        self._gateway.account.adopt(self._settings)
        log.info("reloaded%s", f"; only a restart changes {', '.join(late)}" if late else "")

    async def drain(self) -> None:
        """Say that the end is near, then take nothing new, and let what is running finish within
        the grace."""
        self._is_leaving = True
        await asyncio.sleep(self._settings.shutdown_delay)
        self._draining = True
        self._sockets.go_away()
        for site in self._sites:
            await site.stop()
        try:
            async with asyncio.timeout(self._settings.shutdown_grace):
                await self._idle.wait()
        except TimeoutError:
            log.info("%d answers did not finish in time", self._active)

    async def close(self) -> None:
        self._draining = True
        if not self._stopping.done():
            self._stopping.set_result(None)
        self._sockets.go_away()
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        app = web.Application(
            client_max_size=self._settings.max_body_mb * 1024 * 1024,
            middlewares=[self._accompany],
        )
        app.on_response_prepare.append(self._add_headers)
        for prefix in ("/v1", ""):
            for dialect in DIALECTS:
                app.router.add_post(prefix + dialect.PATH, self._converser(dialect))
            app.router.add_get(prefix + SOCKET_PATH, self._sockets.serve, allow_head=False)
            app.router.add_post(prefix + messages.COUNT_PATH, self._count_tokens)
            app.router.add_routes(kept_routes(prefix, self._kept))
            app.router.add_routes(model_routes(prefix, self._gateway.account))
            app.router.add_get(f"{prefix}/tools", self._list_tools)
            app.router.add_post(prefix + "/tools/{id}/call", self._call_tool)
        app.router.add_get("/health", self._health)
        app.router.add_routes(journal_routes(self._journal, self._gateway, self._needs_key))
        app.router.add_routes(page_routes(self._gateway.account, self._env, self._needs_key))
        events = Events(self._journal, self._state, self._gateway.look_at_disk, self._stopping)
        app.router.add_routes(web.get(f"{prefix}/events", events.tell) for prefix in ("/v1", ""))
        return app

    def _needs_key(self) -> bool:
        return self._admission.needs_key

    @web.middleware
    async def _accompany(self, request: web.Request, handler: Respond) -> web.StreamResponse:
        """Give each request its id, and turn everything that can go wrong into an answer."""
        offered = request.headers.get("X-Request-Id", "")
        known = offered if _CLIENT_REQUEST_ID.fullmatch(offered) else secrets.token_hex(12)
        request[REQUEST_ID] = known
        dialect = _CONVERSATIONS.get((request.method, request.path), "")
        record = Record(known, client_of(request.headers.get("User-Agent", "")), dialect)
        request[RECORD] = record
        request_ids.CURRENT.set(known)
        try:
            with self._journal.keeping(record):
                response = await self._respond(request, handler)
                record.status = response.status
                return response
        finally:
            status = record.status or NO_STATUS
            log.log(
                logging.DEBUG if request.path in _ASKED_OFTEN and status < 400 else logging.INFO,
                "%s %s %d %.0f ms %s",
                request.method,
                # Still encoded: a path may not write lines of its own into the log.
                request.rel_url.raw_path if status != 404 else "(unknown path)",
                status,
                record.duration * 1000,
                known,
            )

    async def _respond(self, request: web.Request, handler: Respond) -> web.StreamResponse:
        try:
            return await self._admit(request, handler)
        except GatewayError as error:
            return error_response(request, error)
        except web.HTTPException as error:
            return error_response(request, translated(request, error))
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

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        # The second is where Anthropic's SDKs look for it.
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

    async def _health(self, request: web.Request) -> web.Response:
        """Open to probes without the key, which then see no more than they need."""
        await self._gateway.look_at_disk()
        health = self._state()
        if health["status"] == "starting":
            await self._gateway.account.first_check()
            health = self._state()
        if self._admission.has_key(request.headers):
            # Not in the state, which listeners compare and are told of whenever it changes.
            health["descriptors"] = resources.descriptors()
        else:
            health = {name: health[name] for name in ("status", "version", "auth", "mcp")}
        return json_response(health, 200 if health["status"] == "ok" else 503)

    def _state(self) -> dict[str, Any]:
        health = self._gateway.health()
        if self._is_leaving:
            health["status"] = "draining"
        return health

    async def _count_tokens(self, request: web.Request) -> web.Response:
        check_content_type(request.headers.get("Content-Type", ""))
        bridged = self._gateway.bridge.tools if _wants(request, "X-Cursor-MCP") else ()
        with self._bodies.hold() as held:
            count = await self._bodies.in_turn(
                await held.read(request),
                lambda body: messages.count_tokens(parse_body(body), bridged),
            )
        return json_response(count)

    def _converser(self, dialect: Dialect) -> Respond:
        async def converse(request: web.Request) -> web.StreamResponse:
            check_content_type(request.headers.get("Content-Type", ""))
            with self._bodies.hold() as held:
                exchange = await self._exchange(dialect, request, held)
                with self._answering(request, exchange, request[RECORD]) as answer:
                    return await self._delivery.deliver(request, exchange, answer)

        return converse

    async def _exchange(self, dialect: Dialect, request: web.Request, held: Held) -> Exchange:
        """Nothing of the body itself is left when it is understood."""
        body = await held.read(request)
        exchange = await self._bodies.in_turn(
            body, lambda body: self._parse(dialect, parse_body(body), request)
        )
        record = request[RECORD]
        record.model, record.stream = exchange.conversation.model, exchange.stream
        self._journal.note_request(record, body)
        return exchange

    @contextmanager
    def _answering(
        self, request: web.Request, exchange: Exchange, record: Record
    ) -> Iterator[Batches]:
        directory = self._gateway.workspaces.choose(request.headers.get("X-Cursor-Workspace"))
        with self._working():
            yield self._gateway.answer(
                exchange.conversation,
                directory,
                caller=caller_of(request.headers),
                may_resume=_wants(request, "X-Cursor-Session"),
                may_bridge=_wants(request, "X-Cursor-MCP"),
                record=record,
            )

    def _parse(self, dialect: Dialect, body: Mapping[str, Any], request: web.Request) -> Exchange:
        """Responses is the one dialect whose requests may refer to earlier ones."""
        if dialect is responses:
            return responses.parse(body, self._kept.of(caller_of(request.headers)))
        return dialect.parse(body)

    async def _list_tools(self, request: web.Request) -> web.Response:
        bridge = self._gateway.bridge
        counts = {name: bridge.summary()[name] for name in ("servers", "tools")}
        return json_response({"object": "list", "data": bridge.listing(), "mcp": counts})

    async def _call_tool(self, request: web.Request) -> web.Response:
        if not self._settings.mcp_call_endpoint:
            raise ToolCallsNotAllowed("Tools may not be called directly.")
        check_content_type(request.headers.get("Content-Type", ""))
        with self._bodies.hold() as held:
            arguments = parse_body(await held.read(request)).get("arguments", {})
            if not isinstance(arguments, dict):
                raise InvalidRequest("`arguments` must be an object.", param="arguments")
            name, bridge = request.match_info["id"], self._gateway.bridge
            if not bridge.knows(name):
                raise ToolNotFound(f"There is no tool {name!r}.")
            with self._working():
                return json_response(await bridge.call(name, arguments))

    @contextmanager
    def _working(self) -> Iterator[None]:
        """What the shutdown waits for."""
        if self._draining:
            raise ShuttingDown("The gateway is shutting down.")
        self._active += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Server]:
    """A gateway inside this event loop, on a free port unless one is named, without a journal's
    file unless it gets a size.

    async with cursor_gateway.running(demo="on") as gateway:
        client = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="-")
    """
    loaded = load({"port": 0, "journal_mb": 0, **settings}, os.environ)
    async with serving(loaded.settings, os.environ) as server:
        yield server


@asynccontextmanager
async def serving(
    settings: Settings, env: Mapping[str, str], *, owns_process: bool = False
) -> AsyncIterator[Server]:
    remote.check(settings)
    if settings.isolate:
        isolation.check(env)
    gateway = Gateway(settings, env, owns_process=owns_process)
    journal = Journal(settings, env)
    server = Server(settings, env, gateway, journal)
    try:
        await server.start()
        await gateway.start()
        yield server
    finally:
        await server.close()
        await gateway.close(at_once=server.in_a_hurry)
        await journal.close()


async def _meet_expectation(request: web.Request, expected: str) -> None:
    """Have the body sent by a client that asks first whether it may."""
    if request.version < HttpVersion11:
        return
    if expected.lower() != "100-continue":
        raise ExpectationFailed("The gateway does not know what the request expects.")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer itself has not begun


def _wants(request: web.Request, header: str) -> bool:
    return request.headers.get(header, "").lower() != "off"


# What an agent answers, and the dialect's name in the journal.
_CONVERSATIONS = {
    ("POST", prefix + dialect.PATH): name
    for prefix in ("/v1", "")
    for name, dialect in BY_NAME.items()
}
# By probes and pages, every few seconds.
_ASKED_OFTEN = ("/health", "/metrics", "/v1/requests", "/v1/events", *FILES)


def _cannot_listen(settings: Settings, error: OSError) -> str:
    where = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        by = holder(settings.port, os.environ) or "another program"
        return f"{where} is in use by {by}. Choose another port with --port."
    why = error.strerror or error
    # Shells and package managers set HOST for purposes of their own.
    return (
        f"Cannot listen on {where}: {why}. If that address is not meant (env HOST), "
        "pass --host 127.0.0.1, or `unset HOST`."
    )
