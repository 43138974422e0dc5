"""Remote MCP servers: across HTTP, by one of two transports.

What they send is bounded: no message is larger than `bounded_stream` allows, none is compressed,
and no answer goes on after its question is over.

The transport for the older SSE is our own, because that of `mcp` accepts no answer above 1 MB.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import anyio
import httpx2
import mcp_types as types
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from cursor_gateway.mcp_bridge.bounded_stream import (
    AnswerRefused,
    ConnectionLost,
    Pace,
    TransportState,
    meter,
)
from cursor_gateway.mcp_bridge.config import RemoteServer
from cursor_gateway.mcp_bridge.message_meter import EVENTS, WHOLE, MessageMeter, MessageTooLarge

T = TypeVar("T")

HTTP_TIMEOUT = 30.0
# A server may make `mcp` open its stream of events again and again.
LISTENS_PER_SECOND = 5
# How long the gateway waits for the answer to the DELETE that ends a session.
DELETE_SECONDS = 2.0
# To read all certificates takes a fifth of a second: it is done in the thread that imports this.
_TLS = httpx2.create_ssl_context()
_asking: ContextVar[Question | None] = ContextVar("asking", default=None)


class Question:
    """One question to a server, and everything that the server sends back for it."""

    def __init__(self) -> None:
        # Why there is no answer, if the transport knows it.
        self.failure: Exception | None = None
        self.is_over = False
        self._waits: set[anyio.CancelScope] = set()

    def end(self) -> None:
        self.is_over = True
        for wait in self._waits:
            wait.cancel()

    async def unless_over(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `work`; None once the question is over."""
        if self.is_over:
            return None
        with anyio.CancelScope() as wait:
            self._waits.add(wait)
            try:
                return await work()
            finally:
                self._waits.discard(wait)
        return None


@contextmanager
def asking() -> Iterator[Question]:
    """All requests that are sent within this are one question. `mcp` sends them from a task of its
    own, but in the context of the caller."""
    question = Question()
    token = _asking.set(question)
    try:
        yield question
    finally:
        _asking.reset(token)
        question.end()


@asynccontextmanager
async def streamable_http(server: RemoteServer, state: TransportState) -> AsyncIterator[Any]:
    async with (
        _Http(server, state) as http,
        # `_Bounded` limits the size of events, as of all other answers.
        streamable_http_client(server.url, http_client=http, max_sse_event_size=None) as streams,
    ):
        yield streams


class _Http(httpx2.AsyncClient):
    def __init__(self, server: RemoteServer, state: TransportState) -> None:
        async def note_status(response: httpx2.Response) -> None:
            state.status = 0 if response.is_success else response.status_code

        super().__init__(
            headers=dict(server.headers),
            verify=_TLS,
            # The caller decides how long a call may be silent.
            timeout=httpx2.Timeout(HTTP_TIMEOUT, read=None),
            event_hooks={"response": [note_status]},
        )
        self._listens = Pace(LISTENS_PER_SECOND)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        question = _asking.get() or Question()
        if request.method == "GET":
            await self._listens.step()
        if request.method == "DELETE":
            asyncio.get_running_loop().call_later(DELETE_SECONDS, question.end)
        # A compressed kilobyte could become a gigabyte.
        request.headers["Accept-Encoding"] = "identity"
        send = partial(super().send, request, stream=True, **options)
        try:
            response = await question.unless_over(send)
        except httpx2.HTTPError as error:
            question.failure = error
            raise
        if response is None:
            # For `mcp`, a 202 means that no answer will come, which ends only this one exchange.
            return httpx2.Response(202, request=request)
        response.stream = _Bounded(response, question)
        if not stream:
            await response.aread()
        return response


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, which raises once it is too large or nobody waits for it."""

    def __init__(self, response: httpx2.Response, question: Question) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._question = question
        self._encoding = response.headers.get("content-encoding", "identity").lower()
        self._has_events = response.headers.get("content-type", "").startswith("text/event-stream")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding != "identity":
            raise self._refused("it sent a compressed answer, which it was asked not to do")
        size: MessageMeter = meter(EVENTS if self._has_events else WHOLE)
        pieces = aiter(self._stream)
        while piece := await self._question.unless_over(partial(anext, pieces, b"")):
            try:
                size.feed(piece)
            except MessageTooLarge as error:
                raise self._refused(f"it sent {error}") from None
            yield piece
        if self._question.is_over:
            raise self._refused("nobody waits for the answer any more")

    def _refused(self, why: str) -> Exception:
        """Only errors of these types make `mcp` end one exchange instead of the connection."""
        self._question.failure = AnswerRefused(why)
        return httpx2.SSEError(why) if self._has_events else httpx2.StreamError(why)

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def sse(server: RemoteServer, state: TransportState) -> AsyncIterator[Any]:
    """The transport before streamable HTTP: the server sends one stream of events, the first of
    which names the address for our messages."""
    async with _Http(server, state) as http, _events(http, server.url) as events:
        events.response.raise_for_status()
        arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        async with arriving, incoming, outgoing, leaving, anyio.create_task_group() as tasks:
            address = await tasks.start(_listen, events, arriving, state)
            tasks.start_soon(_post, http, address, leaving, state)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _events(http: httpx2.AsyncClient, url: str) -> AsyncIterator[httpx2.EventSource]:
    """The stream of events. The server may redirect to its address with or without a final
    slash."""
    async with http.sse(url, max_event_size=None) as events:
        again = events.response.next_request
        if again is None:
            yield events
            return
    redirected = _same_origin(events.response.url, str(again.url))
    async with http.sse(redirected, max_event_size=None) as events:
        yield events


async def _listen(
    events: httpx2.EventSource,
    arriving: MemoryObjectSendStream[SessionMessage | Exception],
    state: TransportState,
    task_status: TaskStatus[httpx2.URL],
) -> None:
    own = events.response.url
    async with arriving:
        try:
            async for event in events:
                if event.event == "endpoint":
                    task_status.started(_same_origin(own, event.data))
                else:
                    await _pass_on(event.data, arriving, state)
        except httpx2.HTTPError as error:
            state.lose(str(error) or type(error).__name__)
        except anyio.BrokenResourceError:
            return  # nobody listens any more
        state.lose("it closed its stream")


async def _pass_on(
    data: str, arriving: MemoryObjectSendStream[SessionMessage | Exception], state: TransportState
) -> None:
    try:
        message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        await state.unsolicited.step()
    else:
        await arriving.send(SessionMessage(message))


def _same_origin(own: httpx2.URL, address: str) -> httpx2.URL:
    found = own.join(address)
    if (found.scheme, found.host, found.port) != (own.scheme, own.host, own.port):
        raise ConnectionLost("it names an address on another host")
    return found


async def _post(
    http: httpx2.AsyncClient,
    address: httpx2.URL,
    leaving: MemoryObjectReceiveStream[SessionMessage],
    state: TransportState,
) -> None:
    async with leaving:
        async for sent in leaving:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                response = await http.post(
                    address, content=text, headers={"Content-Type": "application/json"}
                )
                response.raise_for_status()
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                state.lose(str(error) or type(error).__name__)
                return
