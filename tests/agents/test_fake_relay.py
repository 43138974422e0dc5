"""The test double's MCP side: its habits are those that were seen of the CLI, or feared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.conftest import FakeAgent

LS = '[[relay:bash {"command": "ls"}]]'
FLAGS = "--print --output-format stream-json --trust --model auto --approve-mcps".split()
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@dataclass(slots=True)
class Served:
    """An MCP server with one tool, and what the agent asked it for and wrote."""

    fake: FakeAgent
    place: Path
    asked: list[tuple[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        method, arguments = message["method"], message["params"].get("arguments")
        self.asked.append((method, arguments))
        tools = [{"name": "bash", "inputSchema": {"type": "object"}}]
        result = {"tools": tools, "content": [{"type": "text", "text": "a.txt"}]}
        body = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        if method != "tools/call":
            return web.json_response(body)
        lines = "".join(f"data: {json.dumps(each)}\n\n" for each in (CHANGED, body))
        return web.Response(text=lines, content_type="text/event-stream")

    @property
    def methods(self) -> list[str]:
        return [method.rpartition("/")[2] for method, _ in self.asked]

    async def run(self, prompt: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *("cursor-agent", *FLAGS, prompt),
            env=self.fake.env,
            cwd=self.place,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        self.events = [json.loads(line) for line in out.split(b"\n") if line]

    def calls(self, subtype: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("subtype") == subtype]


@pytest.fixture
async def served(fake: FakeAgent, tmp_path: Path) -> AsyncIterator[Served]:
    place = tmp_path / "place"
    (place / ".cursor").mkdir(parents=True)
    served = Served(fake, place)
    app = web.Application()
    app.router.add_post("/", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = {"client": {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/"}}
    permissions = {"permissions": {"allow": ["Mcp(client:*)"], "deny": []}}
    (place / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": server}))
    (place / ".cursor" / "cli.json").write_text(json.dumps(permissions))
    yield served
    await runner.cleanup()


async def test_a_list_may_be_fetched_late_or_again_when_it_changed(served: Served) -> None:
    await served.run(f"[[late-list]][[text:Hm.]][[list]]{LS}")
    assert served.methods == ["initialize", "initialized", "list", "call", "list"]


async def test_a_connection_may_be_made_after_the_first_words(served: Served) -> None:
    await served.run(f"[[late-mcp:0.1]][[text:Hm.]]{LS}")
    assert served.methods == ["initialize", "initialized", "list", "call", "list"]


async def test_a_changed_list_may_be_ignored(served: Served) -> None:
    served.fake.put("ignores-list-changed")
    await served.run(LS)
    assert served.methods == ["initialize", "initialized", "list", "call"]


async def test_a_tool_that_is_not_on_the_list_is_not_called(served: Served) -> None:
    await served.run('[[relay:grep {"pattern": "x"}]]')
    assert "call" not in served.methods
    assert "not found" in json.dumps(served.calls("completed"))


async def test_a_hook_rewrites_what_was_announced(served: Served) -> None:
    served.fake.put("rewrites.json", '[["^ls", "rtk ls"]]')
    await served.run(LS)
    (announced,) = served.calls("started")
    assert announced["tool_call"]["mcpToolCall"]["args"]["args"] == {"command": "ls"}
    assert ("tools/call", {"command": "rtk ls"}) in served.asked


async def test_a_refused_call_comes_back_without_its_arguments(served: Served) -> None:
    await served.run('[[relay-refused:bash {"command": "ls"}]]')
    (back,) = served.calls("completed")
    assert back["tool_call"]["mcpToolCall"].keys() == {"result"}


async def test_a_look_up_is_a_call_of_the_agents_own(served: Served) -> None:
    await served.run("[[look-up]]")
    assert "getMcpToolsToolCall" in served.calls("started")[0]["tool_call"]
    assert "call" not in served.methods


async def test_a_call_may_be_on_its_way_before_the_next_is_announced(served: Served) -> None:
    pwd = '[[relay:bash {"command": "pwd"}]]'
    await served.run(f'[[begin:bash {{"command": "ls"}}]][[gap:0.3]]{pwd}')
    assert [event["subtype"] for event in served.events if event["type"] == "tool_call"] == [
        *("started", "started", "completed", "completed")
    ]
    commands = [asked["command"] for method, asked in served.asked if method == "tools/call"]
    assert commands == ["ls", "pwd"]


async def test_calls_may_be_on_their_way_together(served: Served) -> None:
    served.fake.put("many-in-flight")
    await served.run(f'[[announce:bash {{"command": "a"}}]]{LS}')
    commands = [asked["command"] for method, asked in served.asked if method == "tools/call"]
    assert sorted(commands) == ["a", "ls"]


async def test_each_step_and_perhaps_each_call_has_a_model_call_id_of_its_own(
    served: Served,
) -> None:
    burst = f'[[announce:bash {{"command": "a"}}]]{LS}'

    async def ids() -> list[str]:
        await served.run(burst + LS)
        return [event["model_call_id"] for event in served.calls("started")]

    first, second, third = await ids()
    assert first == second != third
    served.fake.put("new-model-call-ids")
    assert len(set(await ids())) == 3
