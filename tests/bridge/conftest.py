"""The user's MCP servers in front of a real gateway: local ones, each with its vice."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.processes import tree
from tests.conftest import Client, FakeAgent, Start
from tests.support.views import health_when

FAKE_SERVER = Path(__file__).parent / "fake_server.py"


class Mcp:
    """The user's opencode.json, and what the operating system knows of the servers in it."""

    def __init__(self, fake: FakeAgent, home: Path) -> None:
        self._file = Path(fake.env["XDG_CONFIG_HOME"]) / "opencode" / "opencode.json"
        self._file.parent.mkdir(parents=True)
        self._entries: dict[str, Any] = {}
        self.home = home
        home.mkdir()

    def add(self, name: str, vice: str = "", **fields: Any) -> None:
        """A local server with this vice; `fields` are written as they are."""
        environment = {"FAKE_MCP_HOME": str(self.home)} | fields.pop("environment", {})
        entry = {"type": "local", "command": [sys.executable, str(FAKE_SERVER), vice]}
        self.write(name, entry | {"environment": environment} | fields)

    def write(self, name: str, entry: Any) -> None:
        self._entries[name] = entry
        self._file.write_text(json.dumps({"mcp": self._entries}))

    def processes(self) -> list[int]:
        return [pid for pid in tree.marked("") if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"FAKE_MCP_HOME={self.home}\0".encode() in environment


@pytest.fixture
def mcp(fake: FakeAgent, tmp_path: Path) -> Mcp:
    return Mcp(fake, tmp_path / "mcp-home")


Bridged = Callable[..., Any]


@pytest.fixture
def bridged(start: Start, mcp: Mcp) -> Bridged:
    """`async with bridged(servers=2) as client`: a gateway, once so many servers are connected."""

    @asynccontextmanager
    async def started(servers: int = 1, **flags: Any) -> AsyncIterator[Client]:
        async with start(mcp_call_endpoint=True, **flags) as client:
            await health_when(client, lambda health: health["mcp"]["servers"] == servers)
            yield client
        assert mcp.processes() == []

    return started


async def call(client: Client, name: str, **arguments: Any) -> tuple[int, Any]:
    async with client.session.post(
        client.url(f"/v1/tools/{name}/call"), json={"arguments": arguments}, headers=client.headers
    ) as response:
        return response.status, await response.json()


async def said(client: Client, name: str, **arguments: Any) -> str:
    status, body = await call(client, name, **arguments)
    assert status == 200, body
    return str(body["content"][0]["text"])


def server_state(health: Any, name: str) -> Any:
    return next(server for server in health["mcp_servers"] if server["name"] == name)


def has_failed(health: Any, name: str) -> Any:
    return any(each["name"] == name and each["error"] for each in health["mcp_servers"])
