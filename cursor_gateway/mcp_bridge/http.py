"""Remote MCP servers: across HTTP, by one of two transports.

Whatever they send is bounded: no message is larger than `Line` allows, none is compressed, and no
answer goes on after the question it belongs to is over.

The transport for the older SSE is our own, because that of `mcp` takes no answers above 1 MB.
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
    Line,
    Pace,
    meter,
)
from cursor_gateway.mcp_bridge.config import RemoteServer
from cursor_gateway.mcp_bridge.message_meter import EVENTS, WHOLE, MessageMeter, MessageTooLarge

T = TypeVar("T")

HTTP_TIMEOUT = 30.0
# A server may ask us to listen anew at once, again and again.
LISTENS_PER_SECOND = 5
# How long we wait for a server to hear that we leave.
FAREWELL = 2.0
# Reading all certificates takes a fifth of a second: here, in the thread that imports this.
_TLS = httpx2.create_ssl_context()
_asking: ContextVar[Question | None] = ContextVar("asking", default=None)


class Question:
    """One question to a server, and all that is sent back to it."""

    def __init__(self) -> None:
        # Why there is no answer, as far as the transport knows.
        self.failure: Exception | None = None
        self.is_over = False
        self._waits: set[anyio.CancelScope] = set()

    def end(self) -> None:
        self.is_over = True
        for wait in self._waits:
            wait.cancel()

    async def unless_over(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What `work` brings; None once the question is over."""
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
    """What is sent inside is one question. `mcp` sends it from a task of its own, but in the
    context of who asked."""
    question = Question()
    token = _asking.set(question)
    try:
        yield question
    finally:
        _asking.reset(token)
        question.end()


@asynccontextmanager
async def streamable_http(server: RemoteServer, line: Line) -> AsyncIterator[Any]:
    async with (
        _Http(server, line) as http,
        # The events are bounded below, together with all other answers.
        streamable_http_client(server.url, http_client=http, max_sse_event_size=None) as streams,
    ):
        yield streams


class _Http(httpx2.AsyncClient):
    def __init__(self, server: RemoteServer, line: Line) -> None:
        async def note_status(response: httpx2.Response) -> None:
            line.status = 0 if response.is_success else response.status_code

        super().__init__(
            headers=dict(server.headers),
            verify=_TLS,
            # How long a call may be silent is decided by the caller.
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
            asyncio.get_running_loop().call_later(FAREWELL, question.end)
        # A kilobyte may be a gigabyte else.
        request.headers["Accept-Encoding"] = "identity"
        send = partial(super().send, request, stream=True, **options)
        try:
            response = await question.unless_over(send)
        except httpx2.HTTPError as error:
            question.failure = error
            raise
        if response is None:
            # Says that no answer will come, which ends only this one exchange.
            return httpx2.Response(202, request=request)
        response.stream = _Bounded(response, question)
        if not stream:
            await response.aread()
        return response


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, up to where it is refused."""

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
        """The one kind of error that ends one exchange of `mcp` instead of the connection."""
        self._question.failure = AnswerRefused(why)
        return httpx2.SSEError(why) if self._has_events else httpx2.StreamError(why)

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def sse(server: RemoteServer, line: Line) -> AsyncIterator[Any]:
    """The transport that was before streamable HTTP: what the server says is one stream of events,
    the first of which names the address for what we say."""
    async with _Http(server, line) as http, _events(http, server.url) as events:
        events.response.raise_for_status()
        arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        async with arriving, incoming, outgoing, leaving, anyio.create_task_group() as tasks:
            address = await tasks.start(_listen, events, arriving, line)
            tasks.start_soon(_post, http, address, leaving, line)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _events(http: httpx2.AsyncClient, url: str) -> AsyncIterator[httpx2.EventSource]:
    """They may be behind a slash more or less than the address that is configured."""
    async with http.sse(url, max_event_size=None) as events:
        again = events.response.next_request
        if again is None:
            yield events
            return
    elsewhere = _same_origin(events.response.url, str(again.url))
    async with http.sse(elsewhere, max_event_size=None) as events:
        yield events


async def _listen(
    events: httpx2.EventSource,
    arriving: MemoryObjectSendStream[SessionMessage | Exception],
    line: Line,
    task_status: TaskStatus[httpx2.URL],
) -> None:
    own = events.response.url
    async with arriving:
        try:
            async for event in events:
                if event.event == "endpoint":
                    task_status.started(_same_origin(own, event.data))
                else:
                    await _pass_on(event.data, arriving, line)
        except httpx2.HTTPError as error:
            line.lose(str(error) or type(error).__name__)
        except anyio.BrokenResourceError:
            return  # nobody listens any more
        line.lose("it closed its stream")


async def _pass_on(
    data: str, arriving: MemoryObjectSendStream[SessionMessage | Exception], line: Line
) -> None:
    try:
        message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        await line.unasked.step()
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
    line: Line,
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
                line.lose(str(error) or type(error).__name__)
                return
