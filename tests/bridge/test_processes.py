"""What becomes of MCP servers' processes: they outlive agents, and nothing outlives the gateway."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cursor_gateway.processes import tree
from tests.bridge.conftest import Mcp, server_state
from tests.conftest import FakeAgent, eventually
from tests.support.programs import gateway_process, streaming


async def asked(url: str, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        return await response.json()


async def ready(url: str, servers: int) -> Any:
    while (health := await asked(url.removesuffix("/v1"), "/health"))["mcp"]["servers"] != servers:
        pass
    return health


async def test_servers_and_their_orphans_outlive_the_agents(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("good", "orphans")
    async with gateway_process(fake, "--no-session-reuse") as (process, url):
        await ready(url, 1)
        before = await eventually(lambda: len(mcp.processes()) == 2 and sorted(mcp.processes()))
        for prompt in ("[[text:one]]", "[[text:two]]"):
            async with streaming(url, prompt) as response:
                await response.read()
        # Its directory is the last that goes, after all processes that are thought to be its own.
        await eventually(lambda: not any(Path(run["cwd"]).exists() for run in fake.runs()))
        health = await ready(url, 1)
        assert sorted(mcp.processes()) == before
        assert server_state(health, "good")["error"] is None
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert mcp.processes() == []


async def test_a_stranger_of_an_agent_dies_though_a_server_lives(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("good")
    async with gateway_process(fake) as (_, url):
        await ready(url, 1)
        async with streaming(url, "[[stranger]][[exit:1]]") as response:
            await response.read()
        stranger = int((fake.home / "stranger").read_text())
        await eventually(lambda: not is_alive(stranger))
        assert len(mcp.processes()) == 1


def is_alive(pid: int) -> bool:
    return tree.is_alive(pid)


@pytest.mark.parametrize("vice", ["deaf", "grandchild", "mute"])
async def test_after_sigkill_of_the_gateway_no_server_lives_on(
    fake: FakeAgent, mcp: Mcp, vice: str
) -> None:
    mcp.add("server", vice)
    async with gateway_process(fake) as (process, _):
        await eventually(mcp.processes)
        process.kill()
        await process.wait()
        await eventually(lambda: not mcp.processes())


async def test_the_gateway_serves_before_its_servers_are_there(fake: FakeAgent, mcp: Mcp) -> None:
    for n in range(5):
        mcp.add(f"mute{n}", "mute")
    async with gateway_process(fake) as (_, url), streaming(url, "[[text:Hello]]") as response:
        assert b"Hello" in await response.read()
        assert (await asked(url, "/tools"))["mcp"] == {"servers": 0, "tools": 0}


def test_without_servers_mcp_is_not_even_imported(fake: FakeAgent) -> None:
    assert "mcp" not in imported_by_a_gateway(fake)


def test_with_servers_it_is(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("good")
    assert "mcp" in imported_by_a_gateway(fake)


def imported_by_a_gateway(fake: FakeAgent) -> list[str]:
    program = (
        "import asyncio, json, sys, cursor_gateway\n"
        "async def main():\n"
        "    async with cursor_gateway.running() as gateway:\n"
        "        await gateway._gateway.bridge.settled()\n"
        "asyncio.run(main())\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=fake.env, capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))
