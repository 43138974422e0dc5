"""Real MCP servers from npm behind the bridge: `make mcp-servers`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.conftest import Bridged, Mcp, call, has_failed, said
from tests.support.machine import accepts, free_port
from tests.support.views import health_when

BIN = Path(os.environ.get("MCP_SERVERS_DIR", ".mcp-servers")).resolve() / "node_modules" / ".bin"
EVERYTHING = str(BIN / "mcp-server-everything")
FILES = str(BIN / "mcp-server-filesystem")


@asynccontextmanager
async def everything(port: int, transport: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        EVERYTHING, transport, env=os.environ | {"PORT": str(port)}
    )
    try:
        while not await accepts(port):
            assert process.returncode is None
            await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def behind(mcp: Mcp, bridged: Bridged, kind: str) -> AsyncIterator[Any]:
    """A client whose gateway has server-everything over this transport."""
    if kind == "stdio":
        mcp.write("every", {"type": "local", "command": [EVERYTHING, "stdio"], "timeout": 1000})
        async with bridged() as client:
            yield client
        return
    port, path = free_port(), "mcp" if kind == "streamableHttp" else "sse"
    url = f"http://127.0.0.1:{port}/{path}"
    mcp.write("every", {"type": "remote", "url": url, "timeout": 1000})
    async with everything(port, kind), bridged() as client:
        yield client


@pytest.mark.parametrize("kind", ["stdio", "streamableHttp", "sse"])
async def test_server_everything(mcp: Mcp, bridged: Bridged, kind: str) -> None:
    async with behind(mcp, bridged, kind) as client:
        assert await said(client, "mcp__every__echo", message="hello") == "Echo: hello"
        _, image = await call(client, "mcp__every__get-tiny-image")
        assert "image" in {block["type"] for block in image["content"]}
        _, weather = await call(client, "mcp__every__get-structured-content", location="New York")
        assert weather["structuredContent"]["temperature"]
        _, links = await call(client, "mcp__every__get-resource-links", count=3)
        assert "resource_link" in {block["type"] for block in links["content"]}
        long = "mcp__every__trigger-long-running-operation"
        # Two seconds in all, but never a second of silence.
        assert "completed" in await said(client, long, duration=2, steps=8)
        assert "did not answer within 1 s" in await said(client, long, duration=60, steps=1)
        answers = await asyncio.gather(
            *(said(client, "mcp__every__echo", message=str(n)) for n in range(50))
        )
        assert answers == [f"Echo: {n}" for n in range(50)]


async def test_server_everything_is_killed_and_back(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("every", command=[EVERYTHING, "stdio"])
    async with bridged() as client:
        for pid in mcp.processes():
            os.kill(pid, signal.SIGKILL)
        await health_when(client, lambda health: has_failed(health, "every"))
        assert await said(client, "mcp__every__echo", message="back") == "Echo: back"


async def test_server_filesystem(mcp: Mcp, bridged: Bridged, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "note.txt").write_text("hello from a file")
    mcp.write("files", {"type": "local", "command": [FILES, str(folder)]})
    async with bridged() as client:
        path = str(folder / "note.txt")
        assert await said(client, "mcp__files__read_text_file", path=path) == "hello from a file"
        written = str(folder / "new.txt")
        await said(client, "mcp__files__write_file", path=written, content="new")
        assert (folder / "new.txt").read_text() == "new"
        _, refused = await call(client, "mcp__files__read_text_file", path="/etc/passwd")
        assert refused["isError"] is True
