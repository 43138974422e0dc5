"""Two gateways behind HAProxy, with the very configuration of docs/examples: all real processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import FakeAgent, eventually, frames_of, text_of
from tests.http.dialogue import BASH
from tests.support.programs import gateway_process

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "haproxy.cfg"
# Debian keeps it where the PATH of an ordinary user does not lead.
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
LOAD = 8


@dataclass(slots=True)
class Node:
    process: asyncio.subprocess.Process
    url: str
    fake: FakeAgent

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://").removesuffix("/v1")


@dataclass(slots=True)
class Farm:
    """What a client sees of it is one address."""

    url: str
    nodes: list[Node]
    session: aiohttp.ClientSession

    def post(self, path: str, body: dict[str, Any], **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.session.post(self.url + path, json={"model": "auto"} | body, headers=named)

    async def answer(self, messages: Any, name: str, **body: Any) -> dict[str, Any]:
        request = {"messages": _messages(messages)} | body
        async with self.post("/chat/completions", request, X_Cursor_Session=name) as response:
            assert response.status == 200, await response.text()
            return dict((await response.json())["choices"][0]["message"])

    async def stream(self, prompt: str, name: str) -> str:
        request = {"messages": _messages(prompt), "stream": True}
        async with self.post("/chat/completions", request, X_Cursor_Session=name) as response:
            frames = [frame async for frame in frames_of(response)]
        if response.status != 200 or frames[-1:] != ["[DONE]"]:
            raise aiohttp.ClientPayloadError("broken off")
        return text_of(frames)

    def who_served(self, words: str) -> Node:
        (node,) = [n for n in self.nodes for run in n.fake.runs() if words in run["prompt"]]
        return node

    def other_than(self, node: Node) -> Node:
        (other,) = [each for each in self.nodes if each is not node]
        return other


def _messages(said: Any) -> Any:
    return [{"role": "user", "content": said}] if isinstance(said, str) else said


@pytest.fixture
async def farm(fake: FakeAgent, tmp_path: Path) -> AsyncIterator[Farm]:
    # More than HAProxy needs to notice: two checks, a second apart.
    fake.env["CURSOR_GATEWAY_SHUTDOWN_DELAY"] = "5"
    async with AsyncExitStack() as stack:
        nodes = []
        for name in ("one", "two"):
            own = _agent_of(fake, name, tmp_path)
            process, url = await stack.enter_async_context(gateway_process(own))
            nodes.append(Node(process, url, own))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        for node in nodes:
            await _is_healthy(session, node)
        url = await stack.enter_async_context(balanced(nodes, tmp_path))
        yield Farm(url, nodes, session)


def _agent_of(fake: FakeAgent, name: str, tmp_path: Path) -> FakeAgent:
    home = tmp_path / name
    shutil.copytree(fake.home, home)
    return replace(fake, home=home, env=fake.env | {"FAKE_AGENT_DIR": str(home)})


async def _is_healthy(session: aiohttp.ClientSession, node: Node) -> None:
    while True:
        async with session.get(f"http://{node.address}/health") as response:
            if response.status == 200:
                return


@asynccontextmanager
async def balanced(nodes: list[Node], tmp_path: Path) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        text = EXAMPLE.read_text().replace("bind :32124", f"bind fd@{listener.fileno()}")
        for address, node in zip(("10.0.0.11:32124", "10.0.0.12:32124"), nodes, strict=True):
            assert address in text
            text = text.replace(address, node.address)
        config = tmp_path / "haproxy.cfg"
        config.write_text(text)
        process = await asyncio.create_subprocess_exec(
            *(str(HAPROXY), "-db", "-f", str(config)), pass_fds=[listener.fileno()]
        )
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            process.kill()
            await process.wait()


@dataclass(slots=True)
class Load:
    """Clients that ask again and again, each in a conversation of its own."""

    farm: Farm
    served: int = 0
    failed: list[float] = field(default_factory=list)
    over: bool = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        clients = [asyncio.ensure_future(self._ask(f"client-{n}")) for n in range(LOAD)]
        try:
            yield self
        finally:
            self.over = True
            await asyncio.gather(*clients)

    async def _ask(self, name: str) -> None:
        while not self.over:
            began = asyncio.get_running_loop().time()
            try:
                assert await self.farm.stream("[[text:yes]]", name) == "yes"
                self.served += 1
            except aiohttp.ClientError:
                self.failed.append(began)

    async def has_served(self, more: int) -> None:
        wanted = self.served + more
        await eventually(lambda: self.served >= wanted, f"{self.served} of {wanted}")


async def test_a_conversation_stays_with_its_gateway_and_others_spread(farm: Farm) -> None:
    names = [f"chat-{n}" for n in range(6)]
    for turn in ("first", "second"):
        await asyncio.gather(*(farm.answer(f"[[text:{name} {turn}]]", name) for name in names))
    used = set()
    for name in names:
        first, second = farm.who_served(f"{name} first"), farm.who_served(f"{name} second")
        assert first is second
        used.add(first.url)
    assert len(used) == 2


@pytest.mark.parametrize(
    "header", ["x-session-id", "x-claude-code-session-id", "session_id", "authorization"]
)
async def test_what_clients_send_of_themselves_is_enough(farm: Farm, header: str) -> None:
    for turn in range(4):
        for who in ("ann", "bob"):
            body = {"messages": _messages(f"[[text:{who}-{turn}]]")}
            async with farm.session.post(
                f"{farm.url}/chat/completions",
                json={"model": "auto"} | body,
                headers={header: f"Bearer {who}"},
            ) as response:
                assert response.status == 200
    for who in ("ann", "bob"):
        assert len({farm.who_served(f"{who}-{turn}").url for turn in range(4)}) == 1


async def test_a_stream_and_a_websocket_are_not_held_back(farm: Farm) -> None:
    body = {"messages": _messages("[[text:one]][[await:go]][[text:two]]"), "stream": True}
    async with farm.post("/chat/completions", body) as response:
        frames = frames_of(response)
        while not text_of([await anext(frames)]):
            pass
        for node in farm.nodes:
            node.fake.put("go")
        assert [frame async for frame in frames][-1] == "[DONE]"
    async with farm.session.ws_connect(f"{farm.url}/chat/completions/ws") as talk:
        await talk.send_json({"model": "auto", "messages": _messages("[[text:hi]]")})
        while (await talk.receive_json()).get("type") != "done":
            pass


async def test_after_a_gateway_was_killed_under_load_every_new_request_succeeds(
    farm: Farm,
) -> None:
    async with Load(farm).running() as load:
        await load.has_served(2 * LOAD)
        assert load.failed == []
        farm.nodes[0].process.kill()
        await farm.nodes[0].process.wait()
        killed_at = asyncio.get_running_loop().time()
        await load.has_served(6 * LOAD)
    # What was under way there is lost, and said so: none of them came to a clean end.
    assert [began for began in load.failed if began > killed_at] == []
    assert len(load.failed) <= 2 * LOAD


async def test_a_conversation_goes_on_by_replay_when_its_gateway_is_killed(farm: Farm) -> None:
    script = '[[relay:bash {"command": "ls"}]][[say-result]][[then]][[text:replayed]]'
    messages: list[dict[str, Any]] = [{"role": "user", "content": script}]
    asked = await farm.answer(messages, "chat", tools=[BASH])
    (call,) = asked["tool_calls"]
    home = farm.who_served("[[then]]")
    home.process.kill()
    await home.process.wait()
    result = {"role": "tool", "tool_call_id": call["id"], "content": "notes.txt"}
    answer = await farm.answer([*messages, asked, result], "chat", tools=[BASH])
    heir = farm.other_than(home)
    (replayed,) = heir.fake.runs()
    # Its call id was sealed by another, and is history: the new agent reads everything.
    assert "notes.txt" in replayed["prompt"] and json.dumps("ls") in replayed["prompt"]
    assert answer["content"] == "replayed"
    messages = [*messages, asked, result, answer, {"role": "user", "content": "[[text:on]]"}]
    assert (await farm.answer(messages, "chat", tools=[BASH]))["content"] == "on"


async def test_a_response_is_known_to_its_gateway_only(farm: Farm) -> None:
    async with farm.post("/responses", {"input": "[[text:one]]"}, X_Cursor_Session="r") as response:
        earlier = (await response.json())["id"]
    home = farm.who_served("[[text:one]]")
    more = {"input": "[[text:two]]", "previous_response_id": earlier}
    async with farm.post("/responses", more, X_Cursor_Session="r") as response:
        assert response.status == 200
    home.process.kill()
    await home.process.wait()
    async with farm.post("/responses", more, X_Cursor_Session="r") as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (404, "previous_response_not_found")
        assert "send the whole conversation" in error["message"]
    whole = {"input": _messages("[[text:two]]")}
    async with farm.post("/responses", whole, X_Cursor_Session="r") as response:
        assert response.status == 200


async def test_a_gateway_that_is_told_to_stop_loses_no_request(farm: Farm) -> None:
    leaving = farm.nodes[0]
    async with Load(farm).running() as load:
        await load.has_served(2 * LOAD)
        leaving.process.send_signal(signal.SIGTERM)
        assert await leaving.process.wait() == 0
        await load.has_served(2 * LOAD)
    assert load.failed == []
