"""One connection to one MCP server, by stdio, streamable HTTP or SSE.

`mcp` takes a second to import, so only the bridge loads this module, in a thread, and only where
servers are configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, Literal

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from cursor_gateway import __version__
from cursor_gateway.mcp_bridge.bounded_stream import ConnectionLost, TransportState, guarded
from cursor_gateway.mcp_bridge.config import LocalServer, RemoteServer, Server
from cursor_gateway.mcp_bridge.http import asking, sse, streamable_http
from cursor_gateway.mcp_bridge.intake import MAX_TOOLS, RemoteTool, ToolList, usable
from cursor_gateway.mcp_bridge.stdio import Launch, stdio
from cursor_gateway.processes.children import Children

Mode = Literal["legacy", "auto"]

# A server may page its list without end, by mistake or not.
MAX_PAGES = 100
# A dead stdio server is noticed at once. One across HTTP is not, so the gateway asks it.
CHECK_EVERY = 10.0
CHECK_TIMEOUT = 10.0


class Connection:
    def __init__(
        self, client: Client, state: TransportState, check_every: float | None, is_modern: bool
    ) -> None:
        self._client = client
        self._state = state
        self._check_every = check_every
        self._is_modern = is_modern

    @property
    def protocol_version(self) -> str:
        return self._client.protocol_version

    @property
    def server_info(self) -> str:
        info = self._client.server_info
        return f"{info.name} {info.version}" if info else ""

    async def tools(self) -> ToolList:
        found: list[RemoteTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                with self._question():
                    page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            except MCPError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    raise
                break
            found += (_remote_tool(tool) for tool in page.tools)
            cursor = page.next_cursor
            if not cursor or len(found) > MAX_TOOLS:
                break
        return usable(found, has_more=bool(cursor))

    async def call(
        self, tool: str, arguments: Mapping[str, Any], progressed: Callable[[], None]
    ) -> dict[str, Any]:
        """The result in MCP's own shape. Raises if there is none."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            progressed()

        with self._question():
            result = await self._client.call_tool(
                tool, dict(arguments), progress_callback=on_progress
            )
        said = result.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return said | {"isError": result.is_error}

    async def changes(self) -> bool:
        """Waits until the tools may have changed (True) or the server must be asked whether it is
        still there. Raises `ConnectionLost` when it is not."""
        try:
            async with asyncio.timeout(self._check_every):
                await self._state.wake.wait()
        except TimeoutError:
            pass
        self._state.wake.clear()
        if self._state.lost:
            raise ConnectionLost(self._state.lost)
        changed, self._state.changed = self._state.changed, False
        # The stateless protocol has no ping, and reports changes only to clients that listen. To
        # list the tools does both.
        return changed or self._is_modern

    async def rest(self, seconds: float) -> None:
        """Wait so long before the next question, or until the connection is lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._state.gone.wait()

    async def check(self) -> None:
        """Ping a server across HTTP. Raises if it is gone; of other servers the transport knows
        it."""
        if self._check_every is not None:
            with self._question():
                async with asyncio.timeout(CHECK_TIMEOUT):
                    await self._client.session.send_ping()

    @contextmanager
    def _question(self) -> Iterator[None]:
        """Requests within this fail with the reason that the transport knows."""
        with asking() as question:
            try:
                yield
            except MCPError as error:
                if question.failure is not None:
                    raise question.failure from error
                if self._state.lost:
                    raise ConnectionLost(self._state.lost) from error
                raise

    def check_soon(self) -> None:
        """A call has failed: check at once whether the server is still there."""
        self._state.wake.set()


def _remote_tool(tool: types.Tool) -> RemoteTool:
    return RemoteTool(tool.name, tool.description or tool.title or "", tool.input_schema)


@asynccontextmanager
async def connected(
    server: Server, launch: Launch, children: Children, within: float
) -> AsyncIterator[Connection]:
    """A connection that is ready for calls. The task that enters this context must also leave
    it."""
    async with AsyncExitStack() as stack:
        state = TransportState()
        try:
            async with asyncio.timeout(within):
                client = await _first_that_works(stack, server, state, launch, children)
        except TimeoutError:
            raise ConnectionLost(_not_ready(state, within)) from None
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        is_silent = is_modern or isinstance(server, RemoteServer)
        yield Connection(client, state, CHECK_EVERY if is_silent else None, is_modern)


def _not_ready(state: TransportState, within: float) -> str:
    said = f"; it wrote {state.garbage!r}, which is no MCP message" if state.garbage else ""
    return f"not ready within {within:g} s{said}"


async def _first_that_works(
    stack: AsyncExitStack,
    server: Server,
    state: TransportState,
    launch: Launch,
    children: Children,
) -> Client:
    first: Exception | None = None
    for transport, mode in _ways(server, state, launch, children):
        try:
            return await stack.enter_async_context(_client(guarded(transport, state), mode, state))
        except Exception as error:
            first = first or error
            if not _has_answered(error, state):
                break
    assert first is not None
    raise ConnectionLost(state.lost or reason(first, state.status)) from first


def _ways(
    server: Server, state: TransportState, launch: Launch, children: Children
) -> Iterator[tuple[AbstractAsyncContextManager[Any], Mode]]:
    """The old handshake comes first, because some servers exit at any other first message. The
    probe for the stateless protocol follows if the server refused the handshake, and SSE follows if
    it does not know streamable HTTP."""
    if isinstance(server, LocalServer):
        yield stdio(server, state, launch, children), "legacy"
        yield stdio(server, state, launch, children), "auto"
        return
    if server.transport != "sse":
        yield streamable_http(server, state), "legacy"
        yield streamable_http(server, state), "auto"
    if server.transport != "http":
        yield sse(server, state), "legacy"


def _client(
    transport: AbstractAsyncContextManager[Any], mode: Mode, state: TransportState
) -> Client:
    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            state.changed = True
            state.wake.set()

    return Client(
        transport,
        mode=mode,
        message_handler=on_message,
        client_info=types.Implementation(name="cursor-gateway", version=__version__),
    )


def _has_answered(error: Exception, state: TransportState) -> bool:
    """Whether the server has answered, so that another way may work."""
    if state.lost or state.status in (401, 403):
        return False
    found = _innermost(error)
    return isinstance(found, MCPError) and found.code != types.CONNECTION_CLOSED


def reason(error: BaseException, status: int = 0) -> str:
    """Why something failed, in one line for users."""
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
