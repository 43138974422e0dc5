"""Delivery of an answer to its client: streamed or whole, with signs of life, and always with an
end that the client understands."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import orjson
from aiohttp import web

from cursor_gateway.background import in_background
from cursor_gateway.core.events import AnswerEvent, Finished
from cursor_gateway.dialects import Exchange, StreamEncoder
from cursor_gateway.errors import GatewayError, ShuttingDown
from cursor_gateway.journal.record import Record
from cursor_gateway.settings import Settings

log = logging.getLogger(__name__)

Batches = AsyncGenerator[list[AnswerEvent], None]

REQUEST_ID = web.RequestKey("request_id", str)
RECORD = web.RequestKey("record", Record)

SSE_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class Delivery:
    def __init__(self, settings: Settings, stopping: asyncio.Future[None]) -> None:
        self._settings = settings
        # Done when the shutdown waits no longer for answers to finish.
        self._stopping = stopping
        self._limits: set[asyncio.Timeout] = set()
        self._pulse = _Pulse()
        stopping.add_done_callback(self._end_waiting)

    def adopt(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def keep_alive(self) -> float:
        return self._settings.keep_alive

    async def deliver(
        self, request: web.Request, exchange: Exchange, answer: Batches
    ) -> web.StreamResponse:
        if not exchange.stream:
            return json_response(await self.fold(exchange, answer))
        async with aclosing(answer):
            return await self._stream(request, exchange, answer)

    async def fold(self, exchange: Exchange, answer: Batches) -> dict[str, Any]:
        """The whole answer."""
        fold = exchange.fold(_answer_id(), int(time.time()))
        async with aclosing(answer), self._until_shutdown():
            async for batch in answer:
                fold.feed(batch)
        return fold.body()

    async def pass_on(
        self, exchange: Exchange, answer: Batches, send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Give the frames of a streamed answer to `send`, which is no HTTP response."""
        encoder = exchange.encoder(_answer_id(), int(time.time()))
        async with aclosing(answer), self._until_shutdown():
            async for batch in answer:
                await send(encoder.feed(batch))

    async def _stream(
        self, request: web.Request, exchange: Exchange, answer: Batches
    ) -> web.StreamResponse:
        """Write the answer as it comes. Before the first event, an error still has its status."""
        encoder = exchange.encoder(_answer_id(), int(time.time()))
        stream = _Stream(request, encoder, self._settings)
        self._pulse.add(stream)
        try:
            async with self._until_shutdown():
                async for batch in answer:
                    await stream.write(batch)
        except ConnectionError:
            request[RECORD].left()
            log.debug("request %s: the client left", request[REQUEST_ID])
        except Exception as error:
            if not stream.response.prepared:
                raise
            await self._break_off(request, stream, error)
        finally:
            self._pulse.discard(stream)
        return stream.response

    async def _break_off(self, request: web.Request, stream: _Stream, error: Exception) -> None:
        """Send the error as the last event, and end the stream like any other. Codex, Cline and
        Kilo discard the text before a broken connection, and no client takes an answer for complete
        whose last event is an error."""
        if not isinstance(error, GatewayError):
            log.exception("request %s failed", request[REQUEST_ID])
            error = GatewayError("Something went wrong in the gateway.")
        request[RECORD].failed(error)
        log.info("request %s broke off: %s", request[REQUEST_ID], error.code)
        with suppress(ConnectionError):
            await stream.fail(error)

    def _until_shutdown(self) -> _UntilShutdown:
        return _UntilShutdown(self._limits, is_now=self._stopping.done())

    def _end_waiting(self, _: object) -> None:
        for limit in self._limits:
            limit.reschedule(0)


class _UntilShutdown:
    """A context that raises `ShuttingDown` when the shutdown waits no longer."""

    def __init__(self, limits: set[asyncio.Timeout], *, is_now: bool) -> None:
        self._limits = limits
        self._limit = asyncio.timeout(0 if is_now else None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._limits.add(self._limit)

    async def __aexit__(self, *raised: Any) -> None:
        self._limits.discard(self._limit)
        try:
            await self._limit.__aexit__(*raised)
        except TimeoutError:
            raise ShuttingDown("The gateway is shutting down.") from None


class _EventStream(web.StreamResponse):
    # aiohttp sends the headers with the first frame, which follows at once, in one packet.
    _send_headers_immediately = False


class _Pulse:
    """Sends signs of life in the streams that are silent. One timer serves all streams: few are
    ever silent for so long, and a timer for each would cost every answer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams: set[_Stream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: _Stream) -> None:
        self._streams.add(stream)
        if self._timer is not None and stream.due < self._timer.when():
            self._timer.cancel()  # a reload has shortened the interval
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(stream.due, self._beat)

    def discard(self, stream: _Stream) -> None:
        self._streams.discard(stream)
        stream.stop_sign_of_life()

    def _beat(self) -> None:
        now = self._loop.time()
        for stream in self._streams:
            stream.look_alive(now)
        due = min((stream.due for stream in self._streams), default=None)
        self._timer = None if due is None else self._loop.call_at(due, self._beat)


class _Stream:
    """A streamed answer, which knows since when it is silent."""

    def __init__(self, request: web.Request, encoder: StreamEncoder, settings: Settings) -> None:
        self.response = _EventStream(headers=SSE_HEADERS)
        self._request = request
        self._encoder = encoder
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        # When anything was last written, and when an event was.
        self._wrote_at = self._event_at = self._loop.time()
        self._is_writing = False
        self.due = self._wrote_at + settings.keep_alive
        self._sign_of_life: asyncio.Task[None] | None = None

    async def write(self, batch: list[AnswerEvent]) -> None:
        frames = self._encoder.feed(batch)
        self._event_at = self._loop.time()
        await self._send(frames, last=isinstance(batch[-1], Finished))

    async def fail(self, error: GatewayError) -> None:
        await self._send(self._encoder.fail(error, self._request[REQUEST_ID]), last=True)

    def stop_sign_of_life(self) -> None:
        if self._sign_of_life is not None:
            self._sign_of_life.cancel()

    async def _send(self, frames: bytes, *, last: bool = False) -> None:
        self._is_writing = True
        try:
            if not self.response.prepared:
                await self.response.prepare(self._request)
            await (self.response.write_eof if last else self.response.write)(frames)
        finally:
            self._is_writing = False
            self._wrote_at = self._loop.time()

    def look_alive(self, now: float) -> None:
        """Send a sign of life if one is due, and set when the next is. A client that does not read
        what was written needs none."""
        silent_from = now if self._is_writing else self._wrote_at
        if silent_from + self._settings.keep_alive <= now:
            silent_from = now
            self._sign_of_life = in_background(self._give_sign_of_life(now), "a sign of life")
        self.due = silent_from + self._settings.keep_alive

    async def _give_sign_of_life(self, now: float) -> None:
        with suppress(ConnectionError):  # the next write of the answer raises it, too
            if now - self._event_at >= self._settings.heartbeat:
                self._event_at = now
                await self._send(self._encoder.heartbeat())
            else:
                await self._send(self._encoder.keep_alive())


def _answer_id() -> str:
    return secrets.token_hex(12)


def json_response(body: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
