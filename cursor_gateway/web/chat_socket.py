"""Chat over a WebSocket, for browsers and tools that cannot read a stream of events.

A message of the client's is a request, the same as the body of a POST, or `{"type": "cancel"}`. The
answer is the frames of the stream, one message each, and one message that ends it: `done`,
`cancelled` or `error`. A connection carries one answer at a time, so no message needs the id of its
request; a client that wants several at once opens several connections, as with HTTP. A request that
comes during an answer is `refused`.

Two tasks serve a connection. One reads, so that a cancel or a leaving client is noticed at any
time; the other answers. A client that does not read blocks the sending of the answer, and so the
agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import orjson
from aiohttp import WSCloseCode, WSMsgType, web

from cursor_gateway import request_ids
from cursor_gateway.background import in_background
from cursor_gateway.dialects import Exchange, chat
from cursor_gateway.errors import AnswerInProgress, GatewayError, InvalidMessage, WebSocketExpected
from cursor_gateway.journal.record import Record, client_of
from cursor_gateway.journal.ring import Journal
from cursor_gateway.web.body import Bodies, Body, parse_body
from cursor_gateway.web.delivery import RECORD, REQUEST_ID, Batches, Delivery

log = logging.getLogger(__name__)

PATH = f"{chat.PATH}/ws"
# The gateway accepts this protocol; a client may offer its key as another one.
PROTOCOL = "chat-completions"
# How long the gateway waits for the answer to its close frame. The shutdown gives all connections
# more than this.
CLOSE_SECONDS = 1.0

BeginAnswer = Callable[[web.Request, Exchange, Record], AbstractContextManager[Batches]]
Socket = web.WebSocketResponse[Any]


class ChatSockets:
    """The open connections."""

    def __init__(
        self, journal: Journal, delivery: Delivery, bodies: Bodies, begin_answer: BeginAnswer
    ) -> None:
        self._journal = journal
        self._delivery = delivery
        self._bodies = bodies
        self._begin_answer = begin_answer
        self._open: set[_Connection] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket: Socket = web.WebSocketResponse(
            protocols=(PROTOCOL,),
            timeout=CLOSE_SECONDS,
            max_msg_size=request.client_max_size,
            # Between programs of one machine, compression costs each delta more than it saves.
            compress=False,
            decode_text=False,
        )
        if not socket.can_prepare(request).ok:
            raise WebSocketExpected("This path is for WebSockets.")
        await socket.prepare(request)
        connection = _Connection(
            request, socket, self._journal, self._delivery, self._bodies, self._begin_answer
        )
        self._open.add(connection)
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)
        return socket

    def go_away(self) -> None:
        """Close all connections; those with an answer under way close when it has ended."""
        for connection in self._open:
            connection.go_away()


class _Connection:
    def __init__(
        self,
        request: web.Request,
        socket: Socket,
        journal: Journal,
        delivery: Delivery,
        bodies: Bodies,
        begin_answer: BeginAnswer,
    ) -> None:
        self._request = request
        self._socket = socket
        self._journal = journal
        self._delivery = delivery
        self._bodies = bodies
        self._begin_answer = begin_answer
        self._requests = 0
        self._answer: asyncio.Task[None] | None = None
        # Whether the client waits for the end of an answer; the task of the answer ends later.
        self._is_answering = False
        self._is_leaving = False
        self._closing: asyncio.Task[bool] | None = None

    async def serve(self) -> None:
        pinging = in_background(self._ping(), "a sign of life")
        try:
            async for message in self._socket:
                # The client may send a message to another gateway that this one did not answer, so
                # messages that come after the close frame are ignored.
                is_taken = self._is_answering or not self._is_leaving
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY) and is_taken:
                    await self._take(message.type, message.data)
            if self._closing is not None:
                await asyncio.wait({self._closing})
        finally:
            tasks = {task for task in (pinging, self._answer, self._closing) if task is not None}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def go_away(self) -> None:
        self._is_leaving = True
        if not self._is_answering and self._closing is None:
            close = self._socket.close(code=WSCloseCode.GOING_AWAY, message=b"shutting down")
            self._closing = in_background(close, "closing a WebSocket")

    async def _ping(self) -> None:
        """Keep proxies from closing a silent connection. A client that does not answer a ping stays
        connected: one that is slow to read is slow to answer, too."""
        with suppress(ConnectionError):
            while True:
                await asyncio.sleep(self._delivery.keep_alive)
                await self._socket.ping()

    async def _take(self, kind: WSMsgType, data: bytes) -> None:
        try:
            body = await self._bodies.in_turn(data, lambda data: _parsed(kind, data))
            if body is None:
                await self._cancel()
                return
            if self._is_answering:
                raise AnswerInProgress("The previous answer is still in progress.")
        except GatewayError as error:
            await self._refuse(error)
            return
        if self._answer is not None:
            await asyncio.wait({self._answer})
        self._is_answering = True
        self._requests += 1
        self._answer = in_background(self._respond(data, body), "an answer over a WebSocket")

    async def _cancel(self) -> None:
        """Stop the answer. If it has ended meanwhile, its last message is already on its way."""
        if self._answer is None or not self._is_answering:
            return
        self._answer.cancel()
        await asyncio.wait({self._answer})
        if self._is_answering:
            with suppress(ConnectionError):
                await self._end({"type": "cancelled", "request_id": self._request_id})

    async def _refuse(self, error: GatewayError) -> None:
        """Report a message that was not accepted: as `error` if no answer is under way."""
        kind = "refused" if self._is_answering else "error"
        connection = self._request[REQUEST_ID]
        with suppress(ConnectionError):
            await self._send({"type": kind, **chat.render_error(error, connection)})

    @property
    def _request_id(self) -> str:
        """The id of the present request: that of the connection, and a number."""
        return f"{self._request[REQUEST_ID]}-{self._requests}"

    async def _respond(self, data: bytes, body: Mapping[str, Any]) -> None:
        client = client_of(self._request.headers.get("User-Agent", ""))
        record = Record(self._request_id, client, "chat")
        request_ids.CURRENT.set(record.id)
        self._request[RECORD] = record
        try:
            # A client that is gone gets no last message; its record shows that it left.
            with suppress(ConnectionError):
                with self._journal.recording(record):
                    end = await self._outcome(record, data, body)
                await self._end(end)
        finally:
            path, status = self._request.rel_url.raw_path, record.status
            log.info("WS %s %d %.0f ms %s", path, status, record.duration * 1000, record.id)

    async def _outcome(
        self, record: Record, data: bytes, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Send the answer. Returns the message that ends it."""
        error: GatewayError
        try:
            with self._bodies.hold(len(data)):
                await self._deliver(record, data, body)
        except ConnectionError:
            raise
        except GatewayError as known:
            error = known
        except Exception:
            log.exception("request %s failed", record.id)
            error = GatewayError("Something went wrong in the gateway.")
        else:
            record.status = 200
            return {"type": "done", "request_id": record.id}
        record.failed(error)
        record.status = error.status
        return {"type": "error", **chat.render_error(error, record.id)}

    async def _deliver(self, record: Record, data: bytes, body: Mapping[str, Any]) -> None:
        exchange = chat.parse({"stream": True, **body})
        record.model, record.stream = exchange.conversation.model, exchange.stream
        self._journal.note_request(record, data)
        with self._begin_answer(self._request, exchange, record) as answer:
            if exchange.stream:
                await self._delivery.pass_on(exchange, answer, self._send_frames)
            else:
                await self._send(await self._delivery.fold(exchange, answer))

    async def _send_frames(self, frames: bytes) -> None:
        for message in _messages(frames):
            await self._socket.send_frame(message, WSMsgType.TEXT)

    async def _end(self, message: dict[str, Any]) -> None:
        self._is_answering = False
        await self._send(message)
        if self._is_leaving:
            self.go_away()

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send_frame(orjson.dumps(message), WSMsgType.TEXT)


def _parsed(kind: WSMsgType, data: Body) -> Mapping[str, Any] | None:
    """A request, or None for a cancel."""
    if kind is WSMsgType.BINARY:
        raise InvalidMessage("A message must be text, not binary.")
    body = parse_body(data)
    if "type" not in body:
        return body
    if body["type"] == "cancel":
        return None
    raise InvalidMessage("There is no message of that type.", param="type")


def _messages(frames: bytes) -> Iterator[bytes]:
    """The events among SSE frames, without comments and without `[DONE]`, which has a message of
    its own. JSON contains no line breaks, so only the end of a frame looks like one."""
    for frame in frames.split(b"\n\n"):
        if frame.startswith(b"data: {"):
            yield frame.removeprefix(b"data: ")
