"""Connections without a request, on each port of the gateway.

aiohttp waits for ever for headers, and each such connection takes a descriptor; so a client that
takes too long is disconnected. aiohttp has no hook for this, so its runner, its server and its
protocol are each extended: the first makes the second, which makes the third.

When descriptors run out, asyncio tries again and again to accept a connection, with a traceback
each time. Here the gateway closes idle connections instead, or tries once a second, and logs one
line a minute.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger(__name__)

HEADERS_SECONDS = 60.0
BACKLOG = 128

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# A little less than the second that asyncio waits before it tries again.
_TRIES_EVERY = 0.9
_LOGS_EVERY = 60.0


class Connection(RequestHandler):
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_idle:
            self._expect_headers()
        else:
            self._expect_nothing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for a request."""
        return self._waiter is not None and not self._waiter.done()

    def _expect_headers(self) -> None:
        """Start the time in which headers must come. Further bytes do not prolong it."""
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
        """Answer what is not HTTP. aiohttp would log its content, which may hold a key."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        response = web.Response(status=status)
        response.force_close()
        return response


class Runner(web.AppRunner):
    def connection(self, server: web.Server, **options: Any) -> Connection:
        return Connection(server, **options)

    async def _make_server(self) -> web.Server:
        """As aiohttp makes it, with connections of ours."""
        plain = await super()._make_server()
        return _Server(plain, self.connection)

    async def listen(self, host: str, port: int) -> Sequence[web.BaseSite]:
        """Listen on each address of `host`."""
        loop, kind = asyncio.get_running_loop(), socket.SOCK_STREAM
        found = await loop.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
        with ExitStack() as unless_all_are_there:
            sites = []
            for family, *_, address in dict.fromkeys(found):
                listening = _listening(family, address, self._make_room)
                unless_all_are_there.callback(listening.close)
                sites.append(web.SockSite(self, listening, backlog=BACKLOG))
            for site in sites:
                await site.start()
            unless_all_are_there.pop_all()
        return sites

    def _make_room(self) -> bool:
        """Close the older half of the connections that wait for a request, if there are any;
        clients that still need theirs open another."""
        assert self.server is not None
        idle = [each for each in self.server.connections if _is_idle(each)]
        for connection in idle[: (len(idle) + 1) // 2]:
            connection.force_close()
        return bool(idle)


class _Server(web.Server):
    def __init__(self, plain: web.Server, connection: Callable[..., Connection]) -> None:
        super().__init__(
            plain.request_handler,
            request_factory=plain.request_factory,
            handler_cancellation=plain.handler_cancellation,
            loop=plain._loop,
            **plain._kwargs,
        )
        self._connection = connection

    def __call__(self) -> RequestHandler:
        return self._connection(self, loop=self._loop, **self._kwargs)


def _is_idle(connection: RequestHandler) -> bool:
    return isinstance(connection, Connection) and connection.is_idle


class _Listening(socket.socket):
    """A listening socket whose `accept` fails at most once a second; asyncio then waits a
    second."""

    make_room: Callable[[], bool]
    _failed_at = _logged_at = float("-inf")

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _OUT_OF_RESOURCES:
                raise
            now = monotonic()
            self._log(error, now)
            # `BlockingIOError` means that no connection waits, so that asyncio does not try again
            # at once.
            if now - self._failed_at < _TRIES_EVERY or self.make_room():
                raise BlockingIOError from None
            self._failed_at = now
            raise

    def _log(self, error: OSError, now: float) -> None:
        if now - self._logged_at >= _LOGS_EVERY:
            self._logged_at = now
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            log.warning(
                "new connections must wait: %s (at most %d); `ulimit -n` before the start of the "
                "gateway, or LimitNOFILE of its service, allows more",
                error.strerror,
                limit,
            )


def _listening(
    family: socket.AddressFamily, address: tuple[Any, ...], make_room: Callable[[], bool]
) -> _Listening:
    plain = socket.create_server(address, family=family, backlog=BACKLOG)
    listening = _Listening(fileno=plain.detach())
    listening.make_room = make_room
    return listening


def ignore_failed_accepts(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler that leaves out failed accepts, which were logged above."""
    error = context.get("exception")
    if not (
        isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES and "socket" in context
    ):
        loop.default_exception_handler(context)
