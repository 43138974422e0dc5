"""The fake `cursor-agent acp` and the official client of the protocol, which checks every line by
its schema: so the fake is not only what our own driver takes it for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from tests.conftest import FakeAgent, eventually

SCRIPT = (
    '[[think:hm]][[text:Hi]][[own:read {}]][[own:shell {"command": "ls"}]]'
    '[[try:edit {"path": "made", "streamContent": "x"}]][[relay:bash {}]]'
    "[[plan:Do]][[question:a|b]]"
)
TOLD = {
    "SessionInfoUpdate",
    "AvailableCommandsUpdate",
    "AgentThoughtChunk",
    "AgentMessageChunk",
    "AgentPlanUpdate",
    "ToolCallStart",
    "ToolCallProgress",
}


class Client:
    """As much of one as is asked here: it allows everything once, and notes what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.asked: list[str] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.told.append(type(update).__name__)

    async def request_permission(
        self, options: Any, session_id: str, tool_call: Any, **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call.title)
        (once,) = [each.option_id for each in options if each.kind == "allow_once"]
        outcome = schema.AllowedOutcome(outcome="selected", option_id=once)
        return schema.RequestPermissionResponse(outcome=outcome)


@pytest.fixture
def agent_kind() -> str:
    return "acp"


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
async def agent(fake: FakeAgent, client: Client) -> AsyncIterator[Any]:
    fake.put("commands-take", "0")
    # The library runs a program by the PATH of whoever calls it.
    program = str(fake.bridge.with_name("cursor-agent"))
    whole: Any = client
    async with acp.spawn_agent_process(whole, program, "acp", env=fake.env) as (agent, _):
        picker = schema.ClientCapabilities(field_meta={"parameterizedModelPicker": True})
        await agent.initialize(protocol_version=1, client_capabilities=picker)
        yield agent


async def test_a_turn_with_everything_is_understood(
    agent: Any, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    made = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
    session = {"session_id": made.session_id}
    await agent.set_session_mode(mode_id="ask", **session)
    await agent.set_config_option(config_id="model", value="gpt-5.5", **session)
    answer = await agent.prompt(prompt=[acp.text_block(SCRIPT)], **session)
    assert answer.stop_reason == "end_turn"
    assert client.asked == ["`ls`", "client-bash: bash"]
    # Cursor's own requests are none that the protocol knows.
    assert (fake.home / "answers").read_text().count("-32601") == 2
    await eventually(lambda: set(client.told) >= TOLD)


async def test_a_session_is_listed_and_loaded(agent: Any, client: Client, tmp_path: Path) -> None:
    made = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
    await agent.prompt(prompt=[acp.text_block("[[text:Hi]]")], session_id=made.session_id)
    (listed,) = (await agent.list_sessions()).sessions
    assert listed.session_id == made.session_id
    await agent.load_session(cwd=str(tmp_path), session_id=listed.session_id, mcp_servers=[])
    await eventually(lambda: "UserMessageChunk" in client.told)


async def test_a_turn_is_cancelled(agent: Any, client: Client, tmp_path: Path) -> None:
    made = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
    prompt = [acp.text_block("[[text:so]][[hang]]")]
    asked = asyncio.ensure_future(agent.prompt(prompt=prompt, session_id=made.session_id))
    await eventually(lambda: "AgentMessageChunk" in client.told)
    await agent.cancel(session_id=made.session_id)
    async with asyncio.timeout(40):
        assert (await asked).stop_reason == "cancelled"


async def test_a_refusal_has_a_code(agent: Any, fake: FakeAgent, tmp_path: Path) -> None:
    fake.sign_out()
    with pytest.raises(acp.RequestError) as refused:
        await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
    assert refused.value.code == -32000
