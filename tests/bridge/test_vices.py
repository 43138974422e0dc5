"""Servers that misbehave: whatever they do, nobody else notices, and nothing stays."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from cursor_gateway.mcp_bridge import bounded_stream, server
from tests.bridge.conftest import (
    FAKE_SERVER,
    Bridged,
    Mcp,
    call,
    has_failed,
    said,
    server_state,
)
from tests.conftest import Start, eventually
from tests.support.machine import resident_mb
from tests.support.views import health_when

pytestmark = pytest.mark.processes


async def test_one_dead_server_of_five_costs_the_others_nothing(
    mcp: Mcp, bridged: Bridged, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two", "three", "four"):
        mcp.add(name)
    mcp.write("dead", {"type": "local", "command": ["/nonexistent/server"]})
    mcp.write("strange", {"type": "carrier pigeon"})
    async with bridged(servers=4) as client:
        for name in ("one", "two", "three", "four"):
            assert await said(client, f"mcp__{name}__echo", text=name) == name
        dead = server_state((await client.get("/health"))[1], "dead")
        assert dead["state"] == "failed"
        assert dead["error"] == "/nonexistent/server cannot be started: No such file or directory."
    complaints = [message for message in caplog.messages if "strange" in message]
    assert len(complaints) == 1
    assert complaints[0].endswith("opencode.json: mcp.strange: `type` must be `local` or `remote`")


async def test_a_server_that_never_gets_ready_holds_nobody_up(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("good")
    mcp.add("mute", "mute")
    mcp.add("babbles", "babbles")
    async with bridged(servers=1, mcp_connect_timeout=2.0) as client:
        health = await health_when(
            client,
            lambda health: all(has_failed(health, name) for name in ("mute", "babbles")),
        )
        assert server_state(health, "mute")["error"] == "not ready within 2 s"
        assert (
            "'Welcome to the server!', which is no MCP message"
            in (server_state(health, "babbles")["error"])
        )
        assert await said(client, "mcp__good__echo", text="hello") == "hello"


async def test_a_tool_with_a_huge_schema_is_left_out_and_named_once(
    mcp: Mcp, bridged: Bridged, caplog: pytest.LogCaptureFixture
) -> None:
    mcp.add("odd", "schemas")
    async with bridged() as client:
        assert await said(client, "mcp__odd__endless") == "schemas endless"
        assert (await call(client, "mcp__odd__huge"))[0] == 404
        await said(client, "mcp__odd__grow")
        await health_when(client, lambda health: health["mcp"]["tools"] == 16)
    assert [message for message in caplog.messages if "left out" in message] == [
        "MCP server odd: tools are left out: too large: 'huge' (a tool may have 256 kB and a "
        "schema of 50,000 values, 128 deep; those of a server 8 MB)"
    ]


async def test_a_call_that_takes_too_long_is_cancelled(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("slow", timeout=300)
    async with bridged() as client:
        status, body = await call(client, "mcp__slow__wait")
        assert (status, body["isError"]) == (200, True)
        assert body["content"][0]["text"] == "The MCP server 'slow' did not answer within 0.3 s"
        assert len(json.loads(await said(client, "mcp__slow__cancelled"))) == 1
        # A server that reports progress is not silent.
        assert await said(client, "mcp__slow__progress", n=6) == "progress"


async def test_a_client_that_leaves_cancels_its_call(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("good")
    async with bridged() as client:
        request = asyncio.ensure_future(call(client, "mcp__good__wait"))
        await eventually((mcp.home / "waiting").exists)
        request.cancel()
        await asyncio.wait({request})
        await eventually((mcp.home / "cancelled").exists)
        assert await said(client, "mcp__good__echo", text="still here") == "still here"


async def test_a_killed_server_is_back_soon(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("good")
    async with bridged() as client:
        first = int(await said(client, "mcp__good__pid"))
        os.kill(first, signal.SIGKILL)
        await health_when(client, lambda health: health["mcp"]["servers"] == 0)
        # The call waits for the server; meanwhile the tools stay known.
        second = int(await said(client, "mcp__good__pid"))
        assert second != first
        state = server_state((await client.get("/health"))[1], "good")
        assert (state["state"], state["error"]) == ("connected", "it was ended by signal 9")


async def test_a_server_that_does_not_come_back_says_why_and_takes_its_tools_along(
    mcp: Mcp, bridged: Bridged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server, "RECONNECT_SECONDS", 0.5)
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_SERVER}"\n')
    program.chmod(0o755)
    mcp.add("good", command=[str(program)])
    async with bridged() as client:
        program.unlink()
        await call(client, "mcp__good__die")
        why = f"The MCP server 'good' is not connected: {program} cannot be started"
        while why not in (said_now := await said(client, "mcp__good__echo")):
            assert "is not connected" in said_now
        monkeypatch.setattr(server, "TOOLS_STAY", 0.0)
        await health_when(client, lambda health: health["mcp"]["tools"] == 0)
        assert "its MCP server is not connected" in await said(client, "mcp__good__echo")


async def test_a_server_that_dies_in_a_call_fails_that_call(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("good")
    async with bridged() as client:
        status, body = await call(client, "mcp__good__die")
        assert (status, body["isError"]) == (200, True)
        assert "The MCP server 'good' failed" in body["content"][0]["text"]
        assert await said(client, "mcp__good__echo", text="back") == "back"


async def test_a_grandchild_that_holds_the_pipe_does_not_keep_a_server_alive(
    mcp: Mcp, bridged: Bridged
) -> None:
    mcp.add("good", "grandchild")
    async with bridged() as client:
        before = set(mcp.processes())
        assert len(before) == 2
        assert (await call(client, "mcp__good__die"))[1]["isError"] is True
        assert await said(client, "mcp__good__echo") == "grandchild echo"
        await eventually(lambda: not before & set(mcp.processes()))


async def test_lines_that_are_no_messages_are_passed_over(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("malformed", "malformed")
    async with bridged() as client:
        assert await said(client, "mcp__malformed__echo", text="hello") == "malformed hello"


async def test_a_flood_reaches_neither_the_others_nor_our_memory(
    mcp: Mcp, bridged: Bridged
) -> None:
    mcp.add("floods", "floods")
    mcp.add("good")
    async with bridged(servers=2) as client:
        before = resident_mb()
        for n in range(50):
            assert await said(client, "mcp__good__echo", text=str(n)) == str(n)
        assert await said(client, "mcp__floods__echo", text="hello") == "floods hello"
        assert resident_mb() - before < 50


async def test_a_line_without_end_ends_the_connection(
    mcp: Mcp, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_stream, "MAX_MESSAGE_BYTES", 2 * 1024 * 1024)
    mcp.add("long", "long-line")
    async with start() as client:
        health = await health_when(client, lambda health: has_failed(health, "long"))
        assert server_state(health, "long")["error"] == "it sent more than 2 MB in one message"


async def test_a_server_that_ignores_sigterm_is_ended_too(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("deaf", "deaf")
    async with bridged():
        assert len(mcp.processes()) == 1


async def test_a_thousand_calls_survive_random_kills_and_leave_nothing(
    mcp: Mcp, bridged: Bridged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RETRY_FIRST", 0.05)
    monkeypatch.setattr(server, "RETRY_AFTER_CRASH", 0.2)
    names = [f"server{n}" for n in range(5)]
    for name in names:
        mcp.add(name)
    dice = random.Random(5)
    async with bridged(servers=5) as client:
        await said(client, "mcp__server0__echo")
        before = (len(asyncio.all_tasks()), descriptors())
        outcomes: list[bool] = []

        async def work() -> None:
            for _ in range(50):
                status, body = await call(client, f"mcp__{dice.choice(names)}__echo", text="x")
                assert status == 200 and body["content"][0]["text"]
                outcomes.append(body["isError"])

        async def murder() -> None:
            for _ in range(25):
                os.kill(dice.choice(await eventually(mcp.processes)), signal.SIGKILL)
                await asyncio.sleep(0.1)

        await asyncio.gather(murder(), *(work() for _ in range(20)))
        assert len(outcomes) == 1000
        assert outcomes.count(False) > 500
        await health_when(client, lambda health: health["mcp"]["servers"] == 5)
        await eventually(lambda: len(mcp.processes()) == 5)
        await client.session.connector.close()
        await eventually(lambda: len(asyncio.all_tasks()) <= before[0], "a task is left")
        await eventually(lambda: descriptors() <= before[1], "a descriptor is left open")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
