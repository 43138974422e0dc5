"""The HTTP server: its parts put together, its start, its reload and its shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from cursor_gateway.agents import chosen
from cursor_gateway.gateway import Gateway
from cursor_gateway.journal.ring import Journal
from cursor_gateway.running_gateways import holder, url_of
from cursor_gateway.settings import Settings, SettingsError
from cursor_gateway.settings_sources import load, reloaded
from cursor_gateway.web.active_requests import ActiveRequests
from cursor_gateway.web.admission import Admission
from cursor_gateway.web.body import BODIES_AT_ONCE, Bodies
from cursor_gateway.web.chat_socket import PATH as SOCKET_PATH
from cursor_gateway.web.chat_socket import ChatSockets
from cursor_gateway.web.delivery import Delivery
from cursor_gateway.web.live_events import LiveEvents
from cursor_gateway.web.middleware import Middleware, add_headers
from cursor_gateway.web.protocol import Runner
from cursor_gateway.web.response_store import ResponseStore
from cursor_gateway.web.routes.answers import Answers
from cursor_gateway.web.routes.health import health_routes
from cursor_gateway.web.routes.journal import journal_routes
from cursor_gateway.web.routes.models import model_routes
from cursor_gateway.web.routes.page import page_routes
from cursor_gateway.web.routes.responses import response_routes
from cursor_gateway.web.routes.tools import tool_routes

log = logging.getLogger(__name__)

# Answers that the shutdown breaks off need a moment to send their error frame.
_ERROR_FRAME_SECONDS = 2.0


class Server:
    def __init__(
        self, settings: Settings, env: Mapping[str, str], gateway: Gateway, journal: Journal
    ) -> None:
        self._settings = settings
        self._env = env
        self._gateway = gateway
        self._journal = journal
        self._admission = Admission(settings)
        self._responses = ResponseStore(settings.kept_responses_mb * 1024 * 1024)
        # Done when the shutdown waits no longer for answers to finish.
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._delivery = Delivery(settings, self._stopping)
        self._bodies = Bodies(BODIES_AT_ONCE * settings.max_body_mb * 1024 * 1024)
        self._active = ActiveRequests()
        self._answers = Answers(
            gateway, journal, self._delivery, self._bodies, self._responses, self._active
        )
        self._sockets = ChatSockets(journal, self._delivery, self._bodies, self._answers.begin)
        self._is_draining = False
        # A handler is cancelled when its client leaves: that is what stops the agent.
        self._runner = Runner(
            self._application(),
            total_timeout=settings.total_timeout,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=_ERROR_FRAME_SECONDS,
        )
        self._sites: Sequence[web.BaseSite] = ()
        self.port = settings.port
        # Whether the user asked twice for the end: then agents are killed without a grace.
        self.in_a_hurry = False

    @property
    def base_url(self) -> str:
        """What clients are configured with."""
        return url_of(self._settings.host, self.port)

    async def start(self) -> None:
        await self._runner.setup()
        try:
            self._sites = await self._runner.listen(self._settings.host, self._settings.port)
        except OSError as error:
            raise SettingsError(_cannot_listen(self._settings, error)) from error
        self.port = self._runner.addresses[0][1]

    def reload(self, load_again: Callable[[], Settings]) -> None:
        """Take over the settings that may change while answers run; invalid ones change nothing."""
        try:
            self._settings, late = reloaded(self._settings, load_again())
        except SettingsError as error:
            log.error("the settings were not reloaded: %s", error)  # noqa: TRY400 - says it all
            return
        self._admission.adopt(self._settings)
        self._delivery.adopt(self._settings)
        self._journal.adopt(self._settings)
        self._gateway.account.adopt(self._settings)
        rest = f"; only a restart changes {', '.join(late)}" if late else ""
        log.info("the settings were reloaded%s", rest)

    async def drain(self) -> None:
        """Report `draining` at first, so that load balancers turn away; then take nothing new, and
        let what is running finish within `shutdown_grace`."""
        self._is_draining = True
        await asyncio.sleep(self._settings.shutdown_delay)
        self._active.refuse_new()
        self._sockets.go_away()
        for site in self._sites:
            await site.stop()
        try:
            async with asyncio.timeout(self._settings.shutdown_grace):
                await self._active.finished()
        except TimeoutError:
            log.info("%d answers did not finish within shutdown_grace", self._active.count)

    async def close(self) -> None:
        self._active.refuse_new()
        if not self._stopping.done():
            self._stopping.set_result(None)
        self._sockets.go_away()
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        app = web.Application(
            client_max_size=self._settings.max_body_mb * 1024 * 1024,
            middlewares=[Middleware(self._admission, self._journal).around],
        )
        app.on_response_prepare.append(add_headers)
        may_call = self._settings.mcp_call_endpoint
        for prefix in ("/v1", ""):
            app.router.add_routes(self._answers.routes(prefix))
            app.router.add_get(prefix + SOCKET_PATH, self._sockets.serve, allow_head=False)
            app.router.add_routes(response_routes(prefix, self._responses))
            app.router.add_routes(model_routes(prefix, self._gateway.account))
            app.router.add_routes(
                tool_routes(
                    prefix, self._gateway.bridge, self._bodies, self._active, may_call=may_call
                )
            )
        events = LiveEvents(self._journal, self._state, self._gateway.look_at_disk, self._stopping)
        app.router.add_routes(health_routes(self._gateway, self._admission, self._state, events))
        app.router.add_routes(journal_routes(self._journal, self._gateway, self._admission))
        app.router.add_routes(page_routes(self._gateway.account, self._env, self._admission))
        return app

    def _state(self) -> dict[str, Any]:
        health = self._gateway.health()
        if self._is_draining:
            health["status"] = "draining"
        return health


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Server]:
    """A gateway inside this event loop: on a free port unless `port` names one, and without a
    journal file unless `journal_mb` gives it a size.

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
    chosen(settings).check(settings, env)
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
