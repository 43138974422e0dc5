"""One connection to one MCP server, by stdio, streamable HTTP or SSE.

`mcp` takes a second to import, so only the bridge loads this module, in a thread, and only where
servers are configured.

Its own stdio transport is not used. It takes the end of the pipe for the end of the server, so a
grandchild that holds the pipe keeps a dead server alive; it joins long lines in quadratic time; and
its processes would be unknown to `Children`, which ends strangers. `Child` has none of that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import httpx2
import jsonschema  # noqa: F401 - `mcp` would load it in the middle of the first call
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from cursor_gateway import __version__
from cursor_gateway.agents.child import Child
from cursor_gateway.agents.children import Children
from cursor_gateway.core.line_buffer import LineBuffer
from cursor_gateway.core.mcp_config import LocalServer, RemoteServer, Server
from cursor_gateway.errors import GatewayError

log = logging.getLogger(__name__)

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
Mode = Literal["legacy", "auto"]
Launch = Callable[[LocalServer], Child]

# A screenshot is a few megabytes in base64; nothing that fits a conversation is longer.
MAX_LINE_BYTES = 64 * 1024 * 1024
# Lists that never end, by mistake or not.
MAX_PAGES = 100
MAX_TOOLS = 2000
# Messages that answer nothing. More than anybody can use; the rest waits in the server's pipe.
UNASKED_PER_SECOND = 500
# Between the closing of its stdin and SIGTERM.
LEAVING_GRACE = 1.0
LAST_WORDS = 0.5
# A dead stdio server is noticed at once; of one across HTTP nothing is heard, so it is asked.
CHECK_EVERY = 10.0
CHECK_TIMEOUT = 10.0
HTTP_TIMEOUT = 30.0
# Reading all certificates takes a fifth of a second: here, in the thread that imports this.
_TLS = httpx2.create_ssl_context()


class ConnectionLost(Exception):
    """The server is gone; the text says why."""


@dataclass(frozen=True, slots=True)
class RemoteTool:
    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(slots=True)
class _Line:
    """What the transport and the connection know of each other."""

    lost: str = ""
    # The first line that was no message, for people whose server prints a banner.
    garbage: str = ""
    # The last HTTP status that was none of success.
    status: int = 0
    # A dead line, or a list of tools that changed.
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    changed: bool = False

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        self.stirred.set()


class Connection:
    def __init__(
        self, client: Client, line: _Line, check_every: float | None, is_modern: bool
    ) -> None:
        self._client = client
        self._line = line
        self._check_every = check_every
        self._is_modern = is_modern

    @property
    def protocol_version(self) -> str:
        return self._client.protocol_version

    @property
    def server_info(self) -> str:
        info = self._client.server_info
        return f"{info.name} {info.version}" if info else ""

    async def tools(self) -> tuple[RemoteTool, ...]:
        found: list[RemoteTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            except MCPError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    raise
                break
            found += (_remote_tool(tool) for tool in page.tools)
            cursor = page.next_cursor
            if not cursor or len(found) > MAX_TOOLS:
                break
        return tuple(found[:MAX_TOOLS])

    async def call(
        self, tool: str, arguments: Mapping[str, Any], progressed: Callable[[], None]
    ) -> dict[str, Any]:
        """The result in MCP's own shape. Raises where there is none."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            progressed()

        result = await self._client.call_tool(tool, dict(arguments), progress_callback=on_progress)
        said = result.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return said | {"isError": result.is_error}

    async def changes(self) -> bool:
        """Waits until the tools may have changed (True) or the server must be asked whether it is
        still there. Raises `ConnectionLost` when it is not."""
        try:
            async with asyncio.timeout(self._check_every):
                await self._line.stirred.wait()
        except TimeoutError:
            pass
        self._line.stirred.clear()
        if self._line.lost:
            raise ConnectionLost(self._line.lost)
        changed, self._line.changed = self._line.changed, False
        # The stateless protocol has no ping, and no word about changes for who does not listen:
        # asking for the tools is both.
        return changed or self._is_modern

    async def check(self) -> None:
        """Raises where a server across HTTP is gone; of the others we would have heard."""
        if self._check_every is not None:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self._client.session.send_ping()

    def doubt(self) -> None:
        """Something went wrong: look at once whether the server is still there."""
        self._line.stirred.set()


def _remote_tool(tool: types.Tool) -> RemoteTool:
    return RemoteTool(tool.name, tool.description or tool.title or "", tool.input_schema)


@asynccontextmanager
async def connected(
    server: Server, launch: Launch, children: Children, within: float
) -> AsyncIterator[Connection]:
    """A connection that is ready for calls. To be left by the task that entered it."""
    async with AsyncExitStack() as stack:
        line = _Line()
        try:
            async with asyncio.timeout(within):
                client = await _first_that_works(stack, server, line, launch, children)
        except TimeoutError:
            raise ConnectionLost(_not_ready(line, within)) from None
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        is_silent = is_modern or isinstance(server, RemoteServer)
        yield Connection(client, line, CHECK_EVERY if is_silent else None, is_modern)


def _not_ready(line: _Line, within: float) -> str:
    said = f"; it wrote {line.garbage!r}, which is no MCP message" if line.garbage else ""
    return f"not ready within {within:g} s{said}"


async def _first_that_works(
    stack: AsyncExitStack,
    server: Server,
    line: _Line,
    launch: Launch,
    children: Children,
) -> Client:
    first: Exception | None = None
    for transport, mode in _ways(server, line, launch, children):
        try:
            return await stack.enter_async_context(_client(transport, mode, line))
        except Exception as error:
            first = first or error
            if not _has_answered(error, line):
                break
    assert first is not None
    raise ConnectionLost(line.lost or reason(first, line.status)) from first


def _ways(
    server: Server, line: _Line, launch: Launch, children: Children
) -> Iterator[tuple[AbstractAsyncContextManager[Any], Mode]]:
    """The old handshake comes first: servers exist that end when anything else does. The probe for
    the stateless protocol follows where it was refused, and SSE where there is no such thing."""
    if isinstance(server, LocalServer):
        yield _stdio(server, line, launch, children), "legacy"
        yield _stdio(server, line, launch, children), "auto"
        return
    if server.transport != "sse":
        yield _http(server, line), "legacy"
        yield _http(server, line), "auto"
    if server.transport != "http":
        yield sse_client(server.url, httpx_client_factory=_factory(server, line)), "legacy"


def _client(transport: AbstractAsyncContextManager[Any], mode: Mode, line: _Line) -> Client:
    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            line.changed = True
            line.stirred.set()

    return Client(
        transport,
        mode=mode,
        message_handler=on_message,
        client_info=types.Implementation(name="cursor-gateway", version=__version__),
    )


def _has_answered(error: Exception, line: _Line) -> bool:
    """Whether somebody is there who may answer to something else."""
    if line.lost or line.status in (401, 403):
        return False
    found = _innermost(error)
    return isinstance(found, MCPError) and found.code != types.CONNECTION_CLOSED


@asynccontextmanager
async def _http(server: RemoteServer, line: _Line) -> AsyncIterator[Any]:
    async with (
        _factory(server, line)() as http,
        streamable_http_client(server.url, http_client=http) as streams,
    ):
        yield streams


def _factory(server: RemoteServer, line: _Line) -> Callable[..., httpx2.AsyncClient]:
    async def note_status(response: httpx2.Response) -> None:
        line.status = 0 if response.is_success else response.status_code

    def make(**_: object) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=dict(server.headers),
            verify=_TLS,
            # How long a call may be silent is decided by the caller.
            timeout=httpx2.Timeout(HTTP_TIMEOUT, read=None),
            event_hooks={"response": [note_status]},
        )

    return make


@asynccontextmanager
async def _stdio(
    server: LocalServer, line: _Line, launch: Launch, children: Children
) -> AsyncIterator[Streams]:
    child = launch(server)
    arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with arriving, incoming, outgoing, leaving, anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, child, arriving, line)
            tasks.start_soon(_send, child, leaving, line)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
    finally:
        children.retire(child, LEAVING_GRACE)


async def _receive(
    child: Child, arriving: MemoryObjectSendStream[SessionMessage | Exception], line: _Line
) -> None:
    buffer, pace = LineBuffer(MAX_LINE_BYTES), _Pace()
    async with arriving:
        try:
            while data := await child.read():
                for raw in buffer.feed(data).split(b"\n")[:-1]:
                    message = _message(raw, line)
                    if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                        await pace.step()
                    if message is not None:
                        await arriving.send(SessionMessage(message))
        except GatewayError:
            line.lose(f"it wrote a line of more than {MAX_LINE_BYTES // 1024 // 1024} MB")
        except anyio.BrokenResourceError:
            return  # nobody listens any more
        line.lose(await _last_words(child))


def _message(raw: bytes, line: _Line) -> types.JSONRPCMessage | None:
    try:
        return types.jsonrpc_message_adapter.validate_json(raw, by_name=False)
    except ValueError:
        line.garbage = line.garbage or raw[:80].decode("utf-8", "replace").strip()
        return None


async def _send(
    child: Child, leaving: MemoryObjectReceiveStream[SessionMessage], line: _Line
) -> None:
    async with leaving:
        async for sent in leaving:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            if not await child.write(text.encode() + b"\n"):
                line.lose(await _last_words(child))
                return


async def _last_words(child: Child) -> str:
    code = await child.exit_code(LAST_WORDS)
    said = next((line for line in reversed(child.stderr.splitlines()) if line.strip()), "")
    if code is None:
        end = "it closed its pipe"
    else:
        end = f"it exited with code {code}" if code >= 0 else f"it was ended by signal {-code}"
    return f"{end}: {said.strip()}" if said else end


class _Pace:
    """Lets so many pass in a second, and has the others wait."""

    def __init__(self) -> None:
        self._since = asyncio.get_running_loop().time()
        self._passed = 0

    async def step(self) -> None:
        self._passed += 1
        if self._passed < UNASKED_PER_SECOND:
            return
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self._since + 1.0 - now)
        self._since, self._passed = asyncio.get_running_loop().time(), 0


def reason(error: BaseException, status: int = 0) -> str:
    """Why something failed, in one line for people."""
    found = _innermost(error)
    if isinstance(found, httpx2.HTTPStatusError):
        status = found.response.status_code
    if status:
        return f"it answered with HTTP status {status}"
    if isinstance(found, httpx2.TransportError):
        return f"it cannot be reached: {str(found) or type(found).__name__}"
    if isinstance(found, TimeoutError):
        return "it does not answer in time"
    if isinstance(found, ValidationError):
        return "its answer does not fit the protocol"
    if isinstance(found, MCPError):
        return found.message or f"it answered with the error {found.code}"
    return str(found) or type(found).__name__


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
