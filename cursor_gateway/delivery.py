"""An answer on its way to the client: streamed or whole, kept alive, never with half an end."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

import orjson
from aiohttp import web

from cursor_gateway.core.events import Event
from cursor_gateway.dialects import Exchange
from cursor_gateway.errors import GatewayError, ShuttingDown
from cursor_gateway.settings import Settings

log = logging.getLogger(__name__)

Batches = AsyncGenerator[list[Event], None]

REQUEST_ID = web.RequestKey("request_id", str)

_SSE_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class Delivery:
    def __init__(self, settings: Settings, stopping: asyncio.Future[None]) -> None:
        self._settings = settings
        # Done when the gateway can wait no longer for answers to finish.
        self._stopping = stopping

    def adopt(self, settings: Settings) -> None:
        self._settings = settings

    async def deliver(
        self, request: web.Request, exchange: Exchange, answer: Batches
    ) -> web.StreamResponse:
        async with aclosing(self._timed(answer, request[REQUEST_ID])) as events:
            if exchange.stream:
                return await self._stream(request, exchange, events)
            return await self._fold(exchange, events)

    async def _timed(self, events: Batches, request_id: str) -> Batches:
        began, first = time.monotonic(), 0.0
        async with aclosing(events):
            try:
                async for batch in events:
                    first = first or time.monotonic()
                    yield batch
            finally:
                if self._settings.timing:
                    until_first, until_end = (first or began) - began, time.monotonic() - began
                    log.info(
                        "timing %s: first event %.1f ms, end %.1f ms",
                        request_id,
                        until_first * 1000,
                        until_end * 1000,
                    )

    async def _fold(self, exchange: Exchange, events: Batches) -> web.Response:
        fold = exchange.fold(_answer_id(), int(time.time()))
        async with aclosing(self._heard(events)) as batches:
            async for batch in batches:
                if batch is not None:
                    fold.feed(batch)
        return json_response(fold.body())

    async def _stream(
        self, request: web.Request, exchange: Exchange, events: Batches
    ) -> web.StreamResponse:
        """Write the answer as it comes. Until the first event the status is still open."""
        encoder = exchange.encoder(_answer_id(), int(time.time()))
        response = web.StreamResponse(headers=_SSE_HEADERS)
        silent = 0.0
        try:
            async with aclosing(self._heard(events)) as batches:
                async for batch in batches:
                    if not response.prepared:
                        await response.prepare(request)
                    if batch is not None:
                        silent = 0.0
                        await response.write(encoder.feed(batch))
                        continue
                    silent += self._settings.keep_alive
                    if silent >= self._settings.heartbeat:
                        silent = 0.0
                        await response.write(encoder.heartbeat())
                    else:
                        await response.write(encoder.keep_alive())
        except ConnectionError:
            log.debug("request %s: the client left", request[REQUEST_ID])
        except Exception as error:
            if not response.prepared:
                raise
            await self._break_off(request, response, encoder.fail, error)
        return response

    async def _break_off(
        self,
        request: web.Request,
        response: web.StreamResponse,
        fail: Callable[[GatewayError, str], bytes],
        error: Exception,
    ) -> None:
        """Say what went wrong, then end the connection uncleanly: many clients take a clean end
        for a complete answer, whatever was written before it."""
        if not isinstance(error, GatewayError):
            log.exception("request %s failed", request[REQUEST_ID])
            error = GatewayError("Something went wrong in the gateway.")
        log.info("request %s broke off: %s", request[REQUEST_ID], error.code)
        with suppress(ConnectionError):
            await response.write(fail(error, request[REQUEST_ID]))
        if request.transport is not None:
            request.transport.close()

    async def _heard(self, events: Batches) -> AsyncGenerator[list[Event] | None, None]:
        """The batches of `events`, and None for each stretch of silence."""
        coming: asyncio.Task[list[Event] | None] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(_next(events))
                watched: set[asyncio.Future[Any]] = {coming, self._stopping}
                await asyncio.wait(
                    watched,
                    timeout=self._settings.keep_alive,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if coming.done():
                    batch, coming = coming.result(), None
                    if batch is None:
                        return
                    yield batch
                elif self._stopping.done():
                    raise ShuttingDown("The gateway is shutting down.")
                else:
                    yield None
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait({coming})


async def _next(events: Batches) -> list[Event] | None:
    return await anext(events, None)


def _answer_id() -> str:
    return secrets.token_hex(12)


def json_response(body: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
