"""The relay as official MCP clients see it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import aiohttp
import httpx2
import pytest
from mcp import Client as McpClient
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client

from cursor_gateway.core.conversation import ImageFile, Text, ToolCall, ToolResult, ToolSpec
from cursor_gateway.relay.server import Relay
from cursor_gateway.relay.session import RelaySession
from tests.conftest import WAIT_SECONDS, eventually

BASH = ToolSpec("bash", "Runs.", {"type": "object", "properties": {"command": {"type": "string"}}})


async def nobody(call: ToolCall) -> ToolResult:
    """There are no tools but the client's."""
    raise AssertionError(call)


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    relay = Relay(50.0, nobody)
    await relay.start()
    yield relay
    await relay.close()


@pytest.fixture
def session(relay: Relay) -> RelaySession:
    ids = itertools.count(1)
    return relay.open_session([BASH], lambda: f"call_{next(ids)}")


@asynccontextmanager
async def connected(
    relay: Relay, session: RelaySession, mode: Literal["auto", "legacy"] = "auto"
) -> AsyncIterator[McpClient]:
    (server,) = relay.configuration(session)["mcpServers"].values()
    async with httpx2.AsyncClient(headers=server["headers"]) as http:
        transport = streamable_http_client(server["url"], http_client=http)
        async with McpClient(transport, mode=mode) as mcp:
            yield mcp


async def waiting(session: RelaySession) -> Any:
    """The call that arrived."""
    (call,) = await eventually(session.calls_for_client)
    return call


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_official_client_lists_and_calls(
    relay: Relay, session: RelaySession, mode: Literal["auto", "legacy"]
) -> None:
    async with connected(relay, session, mode) as mcp:
        bash, wait = (await mcp.list_tools()).tools
        assert (bash.name, wait.name) == ("bash", "wait_for_result")
        assert bash.annotations is not None and bash.annotations.read_only_hint
        asked = asyncio.ensure_future(mcp.call_tool("bash", {"command": "ls"}))
        call = await waiting(session)
        assert not asked.done()
        picture = ImageFile(b"\x89PNG", "png")
        session.deliver([ToolResult(call.id, (Text("a.txt"), picture), is_error=True)])
        result = await asked
        assert [block.type for block in result.content] == ["text", "image"]
        assert result.is_error


async def test_a_cancelled_call_is_given_up(relay: Relay, session: RelaySession) -> None:
    async with connected(relay, session) as mcp:
        asked = asyncio.ensure_future(mcp.call_tool("bash", {"command": "ls"}))
        await waiting(session)
        asked.cancel()
        await eventually(lambda: session.lost)


async def test_an_unknown_tool_and_an_unknown_ticket_are_errors(
    relay: Relay, session: RelaySession
) -> None:
    async with connected(relay, session) as mcp:
        with pytest.raises(MCPError, match="no tool 'rm'"):
            await mcp.call_tool("rm", {})
        nothing = await mcp.call_tool("wait_for_result", {"ticket": "call_99"})
        assert nothing.is_error


async def test_tools_that_were_added_are_told_with_the_next_result(
    relay: Relay, session: RelaySession
) -> None:
    async with connected(relay, session) as mcp:
        asked = asyncio.ensure_future(mcp.call_tool("bash", {"command": "ls"}))
        call = await waiting(session)
        session.offer([BASH, ToolSpec("grep", "", {})])
        session.deliver([ToolResult(call.id, (Text("x"),))])
        await asked
        listed = await mcp.list_tools(cache_mode="refresh")
        assert [tool.name for tool in listed.tools] == ["bash", "grep", "wait_for_result"]


async def test_what_is_not_mcp_is_refused(relay: Relay, session: RelaySession) -> None:
    (server,) = relay.configuration(session)["mcpServers"].values()

    async def answer(method: str, body: str) -> tuple[int, str]:
        async with http.request(
            method, server["url"], data=body, headers=server["headers"]
        ) as response:
            return response.status, await response.text()

    async with aiohttp.ClientSession() as http:
        assert (await answer("GET", ""))[0] == 405
        assert (await answer("DELETE", ""))[0] == 200
        assert (await answer("POST", "{"))[0] == 400
        assert (await answer("POST", "[]"))[0] == 400
        assert (await answer("POST", '{"jsonrpc": "2.0", "method": "notifications/x"}'))[0] == 202
        ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
        assert await answer("POST", ping) == (200, '{"jsonrpc":"2.0","id":1,"result":{}}')
        assert "-32601" in (await answer("POST", ping.replace("ping", "tasks/list")))[1]
        deep = '{"a":' * 700 + "1" + "}" * 700
        call = f'{{"name": "bash", "arguments": {deep}}}'
        sent = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {call}}}'
        status, said = await answer("POST", sent)
        assert status == 400 and "levels deep" in said


async def test_headers_that_never_end_end_a_connection_to_the_relay(
    relay: Relay, session: RelaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.connections.HEADERS_SECONDS", 0.2)
    (server,) = relay.configuration(session)["mcpServers"].values()
    port = int(server["url"].split(":")[2].split("/")[0])
    halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    for _, writer in halves:
        writer.write(b"POST /mcp/x HTTP/1.1\r\nHost: loc")
    async with asyncio.timeout(WAIT_SECONDS):
        for reader, writer in halves:
            assert await reader.read() == b""
            writer.close()


async def test_what_is_not_even_http_is_refused_by_the_relay(
    relay: Relay, session: RelaySession, caplog: pytest.LogCaptureFixture
) -> None:
    (server,) = relay.configuration(session)["mcpServers"].values()
    port = int(server["url"].split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nAuthorization: Bearer canary\x01\r\n\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()
    assert "canary" not in caplog.text


async def test_a_line_that_is_closed_lets_its_calls_go(relay: Relay, session: RelaySession) -> None:
    async with connected(relay, session) as mcp:
        asked = asyncio.ensure_future(mcp.call_tool("bash", {"command": "ls"}))
        await waiting(session)
        relay.close_session(session)
        with pytest.raises(MCPError):
            await asked
