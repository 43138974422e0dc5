"""Tools of MCP servers: listed, named, chosen, called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cursor_gateway.core.conversation import ImageFile, Text, ToolCall, ToolResult
from cursor_gateway.mcp_bridge.bridge import Bridge
from tests.bridge.conftest import Bridged, Mcp, call, has_failed, said, server_state
from tests.conftest import Client, FakeAgent, Start
from tests.support.views import health_when


async def test_tools_are_listed_and_called(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("my server")
    async with bridged() as client:
        status, listed = await client.get("/v1/tools")
        assert status == 200 and listed["object"] == "list"
        assert listed["mcp"] == {"servers": 1, "tools": 14}
        assert listed["data"][0] == {
            "id": "mcp__my_server__echo",
            "name": "echo",
            "server": "my server",
            "description": "Does echo.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        }
        assert await call(client, "mcp__my_server__echo", text="hello") == (
            200,
            {"content": [{"type": "text", "text": "hello"}], "isError": False},
        )
        health = (await client.get("/health"))[1]
        assert health["mcp"] == {"enabled": True, "servers": 1, "tools": 14}
        assert server_state(health, "my server") | {"file": "", "protocol": ""} == {
            "name": "my server", "type": "local", "file": "", "state": "connected", "tools": 14,
            "error": None, "left_out": None, "server": "fake 1", "protocol": "",
        }  # fmt: skip


async def test_without_servers_there_are_no_tools(client: Client) -> None:
    empty = {"object": "list", "data": [], "mcp": {"servers": 0, "tools": 0}}
    assert await client.get("/v1/tools") == (200, empty)
    health = (await client.get("/health"))[1]
    assert health["mcp"] == {"enabled": False, "servers": 0, "tools": 0}


async def test_the_bridge_can_be_switched_off(mcp: Mcp, start: Start) -> None:
    mcp.add("good")
    async with start(mcp=False) as client:
        assert (await client.get("/health"))[1]["mcp"]["enabled"] is False


async def test_images_and_structured_results_arrive_as_they_are(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("good")
    async with bridged() as client:
        _, image = await call(client, "mcp__good__image")
        assert image["content"][0]["mimeType"] == "image/png"
        _, structured = await call(client, "mcp__good__structured")
        assert structured["structuredContent"] == {"answer": 42}
        assert len(await said(client, "mcp__good__quote", bytes=5_000_000)) == 5_000_000


async def test_a_failure_of_a_tool_is_its_result(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("good")
    async with bridged() as client:
        assert (await call(client, "mcp__good__fail"))[1]["isError"] is True
        status, refused = await call(client, "mcp__good__refuse")
        assert (status, refused["isError"]) == (200, True)
        assert refused["content"][0]["text"] == "The MCP server 'good' failed: I will not"
        assert await said(client, "mcp__good__echo", text="still here") == "still here"


async def test_calls_are_counted(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add('a "good" one')
    async with bridged() as client:
        for name in ("echo", "echo", "fail"):
            await call(client, f"mcp__a_good_one__{name}")
        async with client.session.get(client.url("/metrics")) as response:
            declared = text_string_to_metric_families(await response.text())
    samples = [sample for each in declared for sample in each.samples if "mcp_calls" in sample.name]
    counted = {sample.labels["outcome"]: sample.value for sample in samples}
    assert counted == {"done": 2, "failed": 1}
    assert {sample.labels["server"] for sample in samples} == {'a "good" one'}


async def test_a_call_of_the_models_becomes_what_the_model_is_told(
    mcp: Mcp, bridged: Bridged
) -> None:
    mcp.add("good")
    async with bridged() as client:
        bridge: Bridge = client.server._gateway.bridge
        assert bridge.owns("mcp__good__echo") and not bridge.owns("echo")
        assert bridge.tools[0].name == "mcp__good__echo"

        async def answer(tool: str, arguments: str) -> ToolResult:
            return await bridge.answer(ToolCall("call_1", tool, arguments))

        said = await answer("mcp__good__echo", '{"text": "hello"}')
        assert said == ToolResult("call_1", (Text("hello"),))
        (image,) = (await answer("mcp__good__image", "")).content
        assert isinstance(image, ImageFile)
        for tool, arguments in (("mcp__good__echo", "{"), ("mcp__bad__x", "{}")):
            assert (await answer(tool, arguments)).is_error is True


async def test_direct_calls_are_allowed_by_the_user_only(mcp: Mcp, start: Start) -> None:
    mcp.add("good")
    async with start() as client:
        status, body = await call(client, "mcp__good__echo")
        assert (status, body["error"]["code"]) == (403, "tool_calls_not_allowed")
    async with start(mcp_call_endpoint=True, api_key="the-key-of-keys") as client:
        assert (await call(client, "mcp__good__echo"))[0] == 401
        assert set((await client.get("/health"))[1]) == {"status", "version", "auth", "mcp"}
        client.headers["Authorization"] = "Bearer the-key-of-keys"
        status, body = await call(client, "mcp__nobody__nothing")
        assert (status, body["error"]["code"]) == (404, "tool_not_found")
        async with client.session.post(
            client.url("/v1/tools/x/call"), json={"arguments": 1}, headers=client.headers
        ) as response:
            assert response.status == 400


async def test_names_are_clean_unique_and_short(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("collide", "collide")
    async with bridged() as client:
        listed = (await client.get("/v1/tools"))[1]["data"]
        names = {tool["name"]: tool["id"] for tool in listed}
        assert names["a_b"] == "mcp__collide__a_b"
        assert {names["a b"], names["a.b"]} == {"mcp__collide__a_b_2", "mcp__collide__a_b_3"}
        assert all(len(name) <= 64 for name in names.values())
        assert len(set(names.values())) == 5
        assert await said(client, names["a.b"]) == "collide a.b"


async def test_five_hundred_tools_come_in_pages_and_endless_ones_end(
    mcp: Mcp, bridged: Bridged
) -> None:
    mcp.add("many", "many")
    mcp.add("endless", "endless")
    mcp.add("toolless", "toolless")
    async with bridged(servers=3) as client:
        health = (await client.get("/health"))[1]
        assert server_state(health, "many")["tools"] == 500
        endless = server_state(health, "endless")
        assert (endless["tools"], endless["left_out"]) == (2000, "all after the first 2,000")
        assert server_state(health, "toolless")["tools"] == 0
        assert await said(client, "mcp__many__tool_499") == "many tool_499"


async def test_a_changed_list_of_tools_is_noticed(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("good")
    async with bridged() as client:
        await call(client, "mcp__good__grow")
        await health_when(client, lambda health: health["mcp"]["tools"] == 15)
        assert await said(client, "mcp__good__grown_0") == "grown_0"


async def test_the_stateless_protocol_is_spoken_where_the_old_one_is_refused(
    mcp: Mcp, bridged: Bridged
) -> None:
    mcp.add("modern", "modern")
    async with bridged() as client:
        assert await said(client, "mcp__modern__echo", text="hello") == "modern hello"
        state = server_state((await client.get("/health"))[1], "modern")
        assert state["protocol"] == "2026-07-28"


async def test_allow_and_deny_lists_choose_tools(mcp: Mcp, bridged: Bridged) -> None:
    mcp.add("one")
    mcp.add("two")
    mcp.add("three")
    flags = {"mcp_allow": "one/e*,two", "mcp_deny": "one/environment,two/*"}
    async with bridged(servers=1, **flags) as client:
        listed = (await client.get("/v1/tools"))[1]
        assert [tool["id"] for tool in listed["data"]] == ["mcp__one__echo"]
        assert (await call(client, "mcp__one__environment"))[0] == 404


async def test_a_server_gets_its_own_environment_and_little_else(
    mcp: Mcp, bridged: Bridged, fake: FakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("from a file\n")
    fake.env.update({"CURSOR_API_KEY": "canary-key", "MY_VARIABLE": "from outside"})
    variables = {"OWN": "{env:MY_VARIABLE}", "FILE": f"{{file:{tmp_path}/token}}"}
    mcp.add("good", environment=variables, cwd=str(tmp_path))
    async with bridged() as client:
        environment = json.loads(await said(client, "mcp__good__environment"))
        assert environment["OWN"] == "from outside"
        assert environment["FILE"] == "from a file"
        assert environment["PATH"] == fake.env["PATH"]
        assert not {"CURSOR_API_KEY", "MY_VARIABLE", "FAKE_AGENT_DIR"} & set(environment)
        assert await said(client, "mcp__good__directory") == str(tmp_path)


async def test_its_stderr_is_in_the_debug_log_without_its_secrets(
    mcp: Mcp, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="cursor_gateway")
    mcp.add("crashes", "crashes", environment={"KEY": "canary-secret"})
    async with start() as client:
        health = await health_when(client, lambda health: has_failed(health, "crashes"))
        error = server_state(health, "crashes")["error"]
    assert error == "it exited with code 1: boom: no such module, key ***"
    assert "MCP server crashes: boom: no such module, key ***" in caplog.messages
    assert "canary-secret" not in caplog.text
