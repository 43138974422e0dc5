"""Servers that attack: by what they declare, by what they send, by how much and for how long."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.mcp_bridge import bounded_stream, connection, http
from tests.bridge.conftest import Bridged, Mcp, call, has_failed, said, server_state
from tests.conftest import Client, Start, eventually
from tests.support.machine import accepts, free_port, resident_mb
from tests.support.views import health_when

PROGRAM = Path(__file__).parent / "rogue_server.py"
MB = 1024 * 1024


@asynccontextmanager
async def rogue(mcp: Mcp, vice: str = "", path: str = "/mcp", **fields: Any) -> AsyncIterator[None]:
    """The server `far` of the user's."""
    port = free_port()
    mcp.write("far", {"type": "remote", "url": f"http://127.0.0.1:{port}{path}"} | fields)
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(port), vice)
    try:
        await eventually(lambda: accepts(port))
        yield
    finally:
        process.kill()
        await process.wait()


async def failure(client: Client, tool: str) -> str:
    """How a call of `tool` fails. Meanwhile the gateway answers."""
    attack = asyncio.ensure_future(call(client, f"mcp__far__{tool}"))
    while not attack.done():
        assert (await client.get("/health"))[0] == 200
    status, body = await attack
    assert (status, body["isError"]) == (200, True)
    return str(body["content"][0]["text"]).removeprefix("The MCP server 'far' ")


async def is_at_rest(client: Client) -> None:
    """Until the server has noticed that nobody reads its answers any more."""

    async def is_idle() -> bool:
        return not json.loads(await said(client, "mcp__far__at_work_now"))

    await eventually(is_idle)


async def test_results_are_passed_on_whatever_schema_is_declared_for_them(
    mcp: Mcp, bridged: Bridged
) -> None:
    mcp.add("traps", "traps")
    async with bridged() as client:
        for name in ("slow", "doubling", "nonsense", "no_schema"):
            _, result = await call(client, f"mcp__traps__{name}")
            assert result == {
                "content": [{"type": "text", "text": name}],
                "structuredContent": {"answer": "a" * 24 + "!"},
                "isError": False,
            }
        assert await said(client, "mcp__traps__bare") == "bare"


async def test_an_answer_without_end_ends_where_it_is_too_large(
    mcp: Mcp, bridged: Bridged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_stream, "MAX_MESSAGE_BYTES", 4 * MB)
    async with rogue(mcp), bridged() as client:
        before = resident_mb()
        for tool in ("endless", "eventful"):
            assert await failure(client, tool) == "failed: it sent more than 4 MB in one message"
        assert await failure(client, "bomb") == (
            "failed: it sent a compressed answer, which it was asked not to do"
        )
        # The same connection goes on, and the server's own side of the others has ended.
        await is_at_rest(client)
        assert resident_mb() - before < 50
        assert server_state((await client.get("/health"))[1], "far")["error"] is None


async def test_an_answer_of_too_many_values_or_parts_is_not_parsed(
    mcp: Mcp, bridged: Bridged
) -> None:
    async with rogue(mcp), bridged() as client:
        assert await failure(client, "values") == (
            "failed: it sent more than 400,000 values in one message"
        )
        assert await failure(client, "parts") == (
            "failed: it sent more than 10,000 parts in one result"
        )
        assert await said(client, "mcp__far__echo", text="still here") == "still here"


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/moved"])
async def test_a_long_answer_in_one_event_arrives(mcp: Mcp, bridged: Bridged, path: str) -> None:
    async with rogue(mcp, path=path, type="http" if path == "/mcp" else "sse"), bridged() as client:
        assert len(await said(client, "mcp__far__event", bytes=3 * MB)) == 3 * MB


async def test_an_answer_that_comes_too_late_is_not_waited_for(mcp: Mcp, bridged: Bridged) -> None:
    async with rogue(mcp, timeout=300), bridged() as client:
        for tool in ("drip", "silence"):
            assert await failure(client, tool) == "did not answer within 0.3 s"
        await is_at_rest(client)


async def test_headers_without_end_and_redirects_in_a_circle_end(
    mcp: Mcp, bridged: Bridged
) -> None:
    async with rogue(mcp), bridged() as client:
        assert "Redirect to " in await failure(client, "circle")
        assert await failure(client, "headers") == (
            "failed: it cannot be reached: Receive buffer too long"
        )
        assert await said(client, "mcp__far__echo", text="back") == "back"


async def test_a_server_that_does_not_let_us_leave_is_left(
    mcp: Mcp, bridged: Bridged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "DELETE_SECONDS", 0.2)
    monkeypatch.setattr(connection, "CHECK_EVERY", 0.1)
    monkeypatch.setattr(connection, "CHECK_TIMEOUT", 0.2)
    async with rogue(mcp, "clings"), bridged() as client:
        health = await health_when(client, lambda health: has_failed(health, "far"))
        assert server_state(health, "far")["error"] == "it does not answer in time"
        await health_when(client, lambda health: health["mcp"]["servers"] == 0)
        await health_when(client, lambda health: health["mcp"]["servers"] == 1)


async def test_a_server_that_names_another_host_is_not_followed(mcp: Mcp, start: Start) -> None:
    async with rogue(mcp, "elsewhere", "/sse", type="sse"), start() as client:
        health = await health_when(client, lambda health: has_failed(health, "far"))
        assert server_state(health, "far")["error"] == "it names an address on another host"


class Counted(bounded_stream.Pace):
    steps = 0

    async def step(self) -> None:
        Counted.steps += 1
        await super().step()


@pytest.fixture
def paces(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    monkeypatch.setattr(bounded_stream, "Pace", Counted)
    Counted.steps = 0
    return Counted


async def test_a_flood_across_http_is_held_up(
    mcp: Mcp, bridged: Bridged, paces: type[Counted]
) -> None:
    mcp.add("good")
    async with rogue(mcp, "logs"), bridged(servers=2) as client:
        await health_when(client, lambda _: paces.steps > 600)
        assert await said(client, "mcp__good__echo", text="hello") == "hello"
        assert await said(client, "mcp__far__echo", text="hello") == "hello"


async def test_a_server_that_asks_and_never_listens_does_not_pile_up_answers(
    mcp: Mcp, bridged: Bridged, paces: type[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_stream, "UNSOLICITED_PER_SECOND", 1_000_000)
    mcp.add("asks", "asks")
    async with bridged() as client:
        before = len(asyncio.all_tasks())
        await health_when(client, lambda _: paces.steps > 5000)
        assert len(asyncio.all_tasks()) - before < 200


async def test_tools_without_number_or_measure_are_left_out_and_the_user_is_told(
    mcp: Mcp, bridged: Bridged, caplog: pytest.LogCaptureFixture
) -> None:
    mcp.add("many", "ten-thousand")
    mcp.add("wordy", "wordy")
    async with bridged(servers=2) as client:
        health = (await client.get("/health"))[1]
        many, wordy = server_state(health, "many"), server_state(health, "wordy")
        assert (many["tools"], many["left_out"]) == (2000, "all after the first 2,000")
        assert wordy["tools"] == 1
        assert wordy["left_out"].startswith("too large: 'long', 'wide' (a tool may have 256 kB")
        assert await said(client, "mcp__many__tool_1999") == "ten-thousand tool_1999"
    told = [message for message in caplog.messages if "left out" in message]
    assert len(told) == 2
    assert "MCP server many: tools are left out: all after the first 2,000" in told
