"""The agent seam: an agent without any process serves everything, by one file and one line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from cursor_gateway.agents import AGENTS
from cursor_gateway.doctor.checks import all_checks
from cursor_gateway.doctor.examination import DoctorContext, examine
from cursor_gateway.settings import FIELDS, Settings
from cursor_gateway.web.server import serving
from tests.conftest import Client, FakeAgent

TOOL = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setitem(AGENTS, "echo", "tests.agents.echo_agent:EchoAgent")
    return Settings(port=0, journal_mb=0, mcp=False, agent="echo")


@pytest.fixture
async def echo(settings: Settings, fake: FakeAgent) -> AsyncIterator[Client]:
    async with serving(settings, fake.env) as server, aiohttp.ClientSession() as session:
        yield Client(session, server)
    assert fake.calls() == []


def test_the_settings_name_the_agents_that_there_are() -> None:
    assert set(FIELDS["agent"].choices) == set(AGENTS)


async def test_every_dialect_is_answered(echo: Client) -> None:
    of_openai = openai.AsyncOpenAI(base_url=echo.server.base_url, api_key="-")
    of_anthropic = anthropic.AsyncAnthropic(base_url=echo.url(""), api_key="-")
    chat = await of_openai.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": "hi"}]
    )
    assert chat.choices[0].message.content == "hi (1 new)"
    assert chat.usage is not None and chat.usage.total_tokens == 5
    completion = await of_openai.completions.create(model="echo", prompt="hi")
    assert completion.choices[0].text == "hi (1 new)"
    response = await of_openai.responses.create(model="echo", input="hi")
    assert response.output_text == "hi (1 new)"
    async with of_anthropic.messages.stream(
        model="echo", max_tokens=100, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        assert await stream.get_final_text() == "hi (1 new)"
    await of_openai.close()
    await of_anthropic.close()


async def test_a_tool_is_called_and_the_same_run_goes_on_with_its_result(echo: Client) -> None:
    asked: list[Any] = [{"role": "user", "content": "call clock"}]
    answer = await echo.answer(asked, model="echo", tools=[TOOL])
    message = answer["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "clock"
    result = {"role": "tool", "tool_call_id": call["id"], "content": "noon"}
    assert (
        await echo.content([*asked, message, result], model="echo", tools=[TOOL]) == "result: noon"
    )
    _, listed = await echo.get("/v1/requests")
    assert [entry["agent"] for entry in listed["data"]] == ["continued", "fresh"]


async def test_a_chat_goes_on_with_what_is_new(echo: Client) -> None:
    asked: list[Any] = [{"role": "user", "content": "one"}]
    answer = await echo.answer(asked, model="echo")
    more = [*asked, answer["choices"][0]["message"], {"role": "user", "content": "two"}]
    assert await echo.content(more, model="echo") == "two (1 new)"


async def test_health_tells_of_it(echo: Client) -> None:
    status, health = await echo.get("/health")
    assert status == 200 and health["auth"] == "authenticated"
    assert health["agent"] == {"kind": "echo", "path": "in memory", "version": "1"}
    assert health["warm"]["spares"] == 0 and health["warnings"] == []
    async with echo.session.get(echo.url("/metrics")) as metrics:
        assert 'agent="echo"} 1' in await metrics.text()


async def test_the_doctors_plain_checks_look_at_it(settings: Settings, fake: FakeAgent) -> None:
    async with DoctorContext(replace(settings), fake.env) as context:
        found = {
            check.name: {finding.verdict for finding in findings}
            async for check, findings in examine(all_checks(context), context)
        }
    assert found["agent"] == found["sign-in"] == found["models"] == {"ok"}
    # Others may have left processes on this machine.
    assert "fault" not in set().union(*(found[name] for name in found if name != "strays"))
