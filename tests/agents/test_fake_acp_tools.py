"""The tools of the fake `cursor-agent acp`: the client's over MCP, its own, and who is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.conftest import FakeAgent, eventually
from tests.support.acp_client import ALLOW, REJECT, AcpClient, Json, started

LS = '[[relay:bash {"command": "ls"}]]'
PWD = '[[announce:bash {"command": "pwd"}]]'
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ALWAYS = {"outcome": {"outcome": "selected", "optionId": "allow-always"}}


@pytest.fixture
def agent_kind() -> str:
    return "acp"


@dataclass(slots=True)
class Tools:
    """An MCP server with one tool, and what it was asked."""

    url: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    lets_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers)
        if request.method == "GET":
            self.asked.append(("GET", None))
            return web.Response(status=405)
        message = await request.json()
        self.asked.append((message["method"], message["params"].get("arguments")))
        if message["method"] == "tools/call":
            await self.lets_go.wait()
        tools = [{"name": "bash", "inputSchema": {"type": "object"}}]
        result = {"tools": tools, "content": [{"type": "text", "text": "a.txt"}]}
        body = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        lines = "".join(f"data: {json.dumps(each)}\n\n" for each in (CHANGED, body))
        return web.Response(text=lines, content_type="text/event-stream")

    @property
    def methods(self) -> list[str]:
        return [method.rpartition("/")[2] for method, _ in self.asked]

    @property
    def commands(self) -> list[str]:
        return [asked["command"] for method, asked in self.asked if method == "tools/call"]

    @property
    def server(self) -> Json:
        headers = [{"name": "Authorization", "value": "Bearer T"}]
        return {"type": "http", "name": "client", "url": self.url, "headers": headers}


@pytest.fixture
async def tools() -> AsyncIterator[Tools]:
    tools = Tools()
    tools.lets_go.set()
    app = web.Application()
    app.router.add_route("*", "/", tools.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tools.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield tools
    tools.lets_go.set()
    await runner.cleanup()


@pytest.fixture
async def acp(fake: FakeAgent) -> AsyncIterator[AcpClient]:
    async with started(fake.env) as acp:
        yield acp


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / ".cursor").mkdir(parents=True)
    return folder


@pytest.fixture
async def session(acp: AcpClient, tools: Tools, here: Path) -> str:
    """One that has its list of tools."""
    session = await acp.session(here, tools.server)
    await eventually(lambda: "list" in tools.methods)
    return session


# Its connection


async def test_it_looks_at_a_server_while_a_session_is_made(tools: Tools, session: str) -> None:
    await eventually(lambda: len(tools.asked) == 4)
    assert tools.methods[:2] == ["initialize", "initialized"]
    assert sorted(tools.methods[2:]) == ["GET", "list"]
    assert {headers["Authorization"] for headers in tools.headers} == {"Bearer T"}
    assert tools.headers[0]["User-Agent"] == "Cursor/1.0.0"


async def test_a_list_may_come_late_or_never(
    fake: FakeAgent, acp: AcpClient, tools: Tools, here: Path
) -> None:
    fake.put("late-list", "0.05")
    late = await acp.session(here, tools.server)
    assert "list" not in tools.methods
    await eventually(lambda: "list" in tools.methods)
    await acp.prompt(late, f"{LS}[[say-result]]")
    fake.put("never-lists")
    await acp.prompt(await acp.session(here, tools.server), f"{LS}[[say-result]]")
    assert acp.text().startswith("a.txt{") and tools.methods.count("list") == 1


async def test_a_server_may_be_looked_at_late_or_never_or_be_gone(
    fake: FakeAgent, acp: AcpClient, tools: Tools, here: Path
) -> None:
    await acp.session(here, tools.server | {"url": "http://127.0.0.1:1/"})
    fake.put("no-mcp")
    await acp.session(here, tools.server)
    assert tools.asked == []
    (fake.home / "no-mcp").unlink()
    fake.put("late-mcp", "0.05")
    await acp.session(here, tools.server)
    await eventually(lambda: "list" in tools.methods)


# Calls


async def test_a_call_asks_for_permission_and_shows_nothing_else(
    acp: AcpClient, tools: Tools, session: str
) -> None:
    await acp.prompt(session, f"{LS}[[say-result]]")
    told = [each for each in acp.updates() if "toolCallId" in each]
    assert [(each["sessionUpdate"], each["status"]) for each in told] == [
        ("tool_call", "pending"),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed"),
    ]
    assert (told[0]["title"], told[0]["kind"], told[0]["rawInput"]) == ("MCP: bash", "other", {})
    assert told[2]["rawOutput"] == {"success": True} and "\n" in told[0]["toolCallId"]
    (asked,) = acp.requests()
    assert asked["id"] == 0 and asked["params"]["toolCall"]["title"] == "client-bash: bash"
    assert [(each["optionId"], each["kind"]) for each in asked["params"]["options"]] == [
        ("allow-once", "allow_once"),
        ("allow-always", "allow_always"),
        ("reject-once", "reject_once"),
    ]
    assert '{"command": "ls"}' in str(asked["params"]["toolCall"]["content"])
    assert tools.commands == ["ls"] and acp.text() == "a.txt"


async def test_a_call_that_the_client_rejects_is_completed_without_output(
    acp: AcpClient, tools: Tools, session: str
) -> None:
    for refusal in (REJECT, {"outcome": {"outcome": "cancelled"}}, {"error": {"code": -32601}}):
        acp.permits = lambda _, refusal=refusal: refusal  # type: ignore[misc]
        assert await acp.prompt(session, LS) == "end_turn"
        assert acp.updates("tool_call_update")[-1].keys() & {"status", "rawOutput"} == {"status"}
    assert tools.commands == []


async def test_without_an_answer_a_call_waits_until_it_is_cancelled(
    acp: AcpClient, tools: Tools, session: str
) -> None:
    acp.permits = lambda _: None
    asked = acp.begin_prompt(session, LS)
    await eventually(acp.requests)
    acp.tell("session/cancel", sessionId=session)
    async with asyncio.timeout(40):
        assert (await asked)["result"] == {"stopReason": "cancelled"}
    assert tools.commands == []


async def test_a_server_may_be_told_of_a_cancellation(
    fake: FakeAgent, acp: AcpClient, tools: Tools, session: str
) -> None:
    fake.put("cancel-tells-servers")
    tools.lets_go.clear()
    asked = acp.begin_prompt(session, LS)
    await eventually(lambda: tools.commands)
    acp.tell("session/cancel", sessionId=session)
    async with asyncio.timeout(40):
        assert (await asked)["result"] == {"stopReason": "cancelled"}
    await eventually(lambda: "cancelled" in tools.methods)


async def test_a_list_that_changed_is_not_fetched_again(
    acp: AcpClient, tools: Tools, session: str
) -> None:
    await acp.prompt(session, f"{LS}{LS}")
    assert tools.methods.count("list") == 1
    await acp.prompt(session, '[[relay:grep {"pattern": "x"}]]')
    assert "-32601" in acp.updates("tool_call_update")[-1]["rawOutput"]["error"]


async def test_one_call_at_a_time_is_on_its_way_unless_it_is_told_otherwise(
    fake: FakeAgent, acp: AcpClient, tools: Tools, session: str
) -> None:
    tools.lets_go.clear()
    first = acp.begin_prompt(session, f"{PWD}{LS}[[say-results]]")
    await eventually(lambda: len(acp.requests()) == 2 and tools.commands)
    assert tools.commands == ["pwd"]
    tools.lets_go.set()
    async with asyncio.timeout(40):
        await first
    assert tools.commands == ["pwd", "ls"] and acp.text() == "a.txt a.txt"


async def test_calls_may_be_on_their_way_together(
    fake: FakeAgent, acp: AcpClient, tools: Tools, here: Path
) -> None:
    fake.put("many-in-flight")
    session = await acp.session(here, tools.server)
    await eventually(lambda: "list" in tools.methods)
    tools.lets_go.clear()
    asked = acp.begin_prompt(session, f"{PWD}{LS}")
    await eventually(lambda: len(tools.commands) == 2)
    tools.lets_go.set()
    async with asyncio.timeout(40):
        await asked


async def test_permission_may_be_asked_for_one_by_one_or_not_at_all(
    fake: FakeAgent, acp: AcpClient, tools: Tools, session: str
) -> None:
    fake.put("permissions-one-by-one")
    tools.lets_go.clear()
    asked = acp.begin_prompt(session, f"{PWD}{LS}")
    await eventually(lambda: tools.commands)
    assert len(acp.requests()) == 1
    tools.lets_go.set()
    async with asyncio.timeout(40):
        await asked
    fake.put("asks-nothing")
    await acp.prompt(session, LS)
    assert len(acp.requests()) == 2 and tools.commands == ["pwd", "ls", "ls"]


async def test_a_call_is_given_up_when_its_patience_ends(
    acp: AcpClient, tools: Tools, session: str
) -> None:
    tools.lets_go.clear()
    await acp.prompt(session, f"[[patience:0.05]]{LS}")
    output = acp.updates("tool_call_update")[-1]["rawOutput"]
    assert output == {"error": "MCP error -32001: Request timed out"}
    assert "cancelled" in tools.methods


async def test_calls_may_come_silently_twice_or_be_refused_elsewhere(
    fake: FakeAgent, acp: AcpClient, tools: Tools, session: str
) -> None:
    await acp.prompt(session, LS.replace("relay", "relay-silently"))
    assert tools.commands == ["ls"] and acp.updates("tool_call") == []
    await acp.prompt(session, LS.replace("relay", "relay-twice"))
    assert tools.commands == ["ls"] * 3 and len(acp.updates("tool_call")) == 1
    await acp.prompt(session, LS.replace("relay", "relay-refused"))
    assert len(tools.commands) == 3 and len(acp.requests()) == 1


async def test_a_hook_rewrites_what_was_permitted(
    fake: FakeAgent, acp: AcpClient, tools: Tools, session: str
) -> None:
    fake.put("rewrites.json", '[["^ls", "rtk ls"]]')
    await acp.prompt(session, LS)
    assert tools.commands == ["rtk ls"]


async def test_servers_of_the_users_own_are_asked_about_as_well(
    acp: AcpClient, session: str
) -> None:
    await acp.prompt(session, "[[own-server:notes find {}]]")
    assert acp.requests()[0]["params"]["toolCall"]["title"] == "notes-find: find"


# Its own tools


async def test_it_asks_before_a_shell_and_the_web_and_not_before_files(
    acp: AcpClient, session: str, here: Path
) -> None:
    (here / "inside").write_text("in")
    read, edit = '{"path": "inside"}', '{"path": "made", "streamContent": "x"}'
    await acp.prompt(session, f"[[try:read {read}]][[try:edit {edit}]]")
    assert acp.requests() == [] and (here / "made").read_text() == "x"
    steps = '[[try:shell {"command": "touch ran"}]][[own:webFetch {}]][[query:webSearch]]'
    await acp.prompt(session, steps)
    kinds = [each["params"]["toolCall"]["kind"] for each in acp.requests()]
    assert kinds == ["execute", "fetch", "search"] and (here / "ran").exists()
    assert "Not in allowlist: touch" in str(acp.requests()[0])
    outputs = [each for each in acp.updates("tool_call_update") if each["status"] == "completed"]
    assert outputs[0]["rawOutput"] == {"content": "in"}
    assert outputs[1]["content"][0]["oldText"] == "-- /dev/null"
    assert outputs[2]["rawOutput"]["exitCode"] == 0


@pytest.mark.parametrize("step", ["native", "own", "try"])
async def test_what_the_client_rejects_is_not_done(
    acp: AcpClient, session: str, here: Path, step: str
) -> None:
    acp.permits = lambda _: REJECT
    await acp.prompt(session, f'[[{step}:shell {{"command": "touch ran"}}]]')
    assert not (here / "ran").exists()
    assert "rawOutput" not in acp.updates("tool_call_update")[-1]


async def test_what_the_directory_denies_is_refused_without_a_word(
    fake: FakeAgent, acp: AcpClient, session: str, here: Path
) -> None:
    denied = {"permissions": {"allow": [], "deny": ["Read(**)", "Write(**)"]}}
    (here / ".cursor" / "cli.json").write_text(json.dumps(denied))
    edit = '[[try:edit {"path": "made", "streamContent": "x"}]]'
    await acp.prompt(session, edit)
    assert acp.updates("tool_call_update")[-1].keys() & {"rawOutput", "content"} == set()
    assert not (here / "made").exists()
    fake.put("ignores-deny")
    await acp.prompt(session, edit)
    assert (here / "made").exists()


async def test_by_force_a_shell_is_not_asked_about_but_calls_are(
    fake: FakeAgent, tools: Tools, here: Path
) -> None:
    async with started(fake.env, "--force") as acp:
        session = await acp.session(here, tools.server)
        await eventually(lambda: "list" in tools.methods)
        await acp.prompt(session, f'[[try:shell {{"command": "touch ran"}}]]{LS}')
        (asked,) = acp.requests()
    assert asked["params"]["toolCall"]["title"] == "client-bash: bash" and (here / "ran").exists()


async def test_allowed_once_is_once_and_always_is_for_every_program(
    fake: FakeAgent, acp: AcpClient, session: str
) -> None:
    config = fake.cursor / "cli-config.json"
    for answer, exists in ((ALLOW, False), (ALWAYS, True)):
        acp.permits = lambda _, answer=answer: answer  # type: ignore[misc]
        await acp.prompt(session, '[[own:shell {"command": "touch a"}]]')
        assert config.exists() is exists
    assert "Shell(touch)" in config.read_text()
