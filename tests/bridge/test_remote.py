"""MCP servers across HTTP: both transports, keys, deaths."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cursor_gateway.mcp_bridge import connection
from tests.bridge.conftest import Bridged, Mcp, call, has_failed, said, server_state
from tests.conftest import Start, eventually
from tests.support.machine import accepts, free_port
from tests.support.views import health_when

PROGRAM = Path(__file__).parent / "http_server.py"


@asynccontextmanager
async def remote(
    transport: str, port: int, token: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    words = [sys.executable, str(PROGRAM), transport, str(port), *([token] if token else [])]
    process = await asyncio.create_subprocess_exec(*words)
    try:
        await eventually(lambda: accepts(port))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_headers_carry_keys_and_a_wrong_key_is_told(
    mcp: Mcp, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    mcp.write("right", {"type": "remote", "url": url, "headers": {"Authorization": "right-key"}})
    mcp.write("wrong", {"type": "remote", "url": url, "headers": {"Authorization": "wrong-key"}})
    async with remote("http", port, "right-key"), start() as client:
        health = await health_when(
            client, lambda health: health["mcp"]["servers"] and has_failed(health, "wrong")
        )
        assert server_state(health, "right")["state"] == "connected"
        assert server_state(health, "wrong")["error"] == "it answered with HTTP status 401"
    assert "wrong-key" not in caplog.text and "right-key" not in caplog.text


@pytest.mark.parametrize(
    ("transport", "path", "kind"),
    [("http", "/mcp", "remote"), ("sse", "/sse", "remote"), ("sse", "/sse", "sse")],
)
async def test_a_remote_server_is_reached_and_found_again_after_its_death(
    mcp: Mcp,
    bridged: Bridged,
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
    path: str,
    kind: str,
) -> None:
    monkeypatch.setattr(connection, "CHECK_EVERY", 0.2)
    port = free_port()
    mcp.write("far", {"type": kind, "url": f"http://127.0.0.1:{port}{path}"})
    async with remote(transport, port) as process, bridged() as client:
        answers = await asyncio.gather(
            *(said(client, "mcp__far__echo", text=str(n)) for n in range(20))
        )
        assert answers == [str(n) for n in range(20)]
        process.kill()
        await health_when(client, lambda health: has_failed(health, "far"))
        async with remote(transport, port):
            await health_when(client, lambda health: health["mcp"]["servers"] == 1)
            assert await said(client, "mcp__far__echo", text="hello") == "hello"


async def test_a_lost_session_is_noticed_by_the_next_call(mcp: Mcp, bridged: Bridged) -> None:
    port = free_port()
    mcp.write("far", {"type": "remote", "url": f"http://127.0.0.1:{port}/mcp"})
    async with remote("http", port) as first, bridged() as client:
        first.kill()
        await first.wait()
        async with remote("http", port):
            assert (await call(client, "mcp__far__echo", text="x"))[1]["isError"] is True
            await health_when(client, lambda health: has_failed(health, "far"))
            await health_when(client, lambda health: health["mcp"]["servers"] == 1)
            assert await said(client, "mcp__far__echo", text="hello") == "hello"


async def test_nobody_there_is_told(mcp: Mcp, start: Start) -> None:
    mcp.write("nobody", {"type": "remote", "url": f"http://127.0.0.1:{free_port()}/mcp"})
    async with start() as client:
        health = await health_when(client, lambda health: has_failed(health, "nobody"))
        assert server_state(health, "nobody")["error"].startswith("it cannot be reached: ")
