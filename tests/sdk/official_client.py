"""Cursor's own Python client, as it is published, against the fake bridge.

`make sdk-client` runs it. The fake is right where this client believes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cursor_sdk import AsyncClient, CustomTool, LocalAgentOptions, SDKImage, SendOptions, errors

from tests.conftest import WAIT_SECONDS, FakeAgent
from tests.fakes.connect import SDK_CODES


@pytest.fixture
def agent_kind() -> str:
    return "sdk"


@pytest.fixture
async def client(
    fake: FakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncClient]:
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    async with asyncio.timeout(WAIT_SECONDS):
        client = await AsyncClient.launch_bridge(str(fake.bridge), workspace=str(tmp_path))
        async with client:
            yield client


async def asked(client: AsyncClient, prompt: str, **local: Any) -> tuple[list[Any], Any]:
    """What a new agent does: its deltas, and its result."""
    deltas: list[Any] = []
    agent = await client.create_agent(model="composer-2.5", local=LocalAgentOptions(**local))
    async with agent:
        run = await agent.send(prompt, SendOptions(on_delta=deltas.append))
        return deltas, await run.wait()


async def test_the_handshake(client: AsyncClient) -> None:
    assert await client.ping() == "pong"
    version = await client.get_version()
    assert version["protocolVersion"] == "sdk.v1"


async def test_the_account_and_its_models(client: AsyncClient) -> None:
    assert (await client.me()).user_email == "dev@example.com"
    models = {model.id: model for model in await client.list_models()}
    grok = models["cursor-grok-4.6"]
    assert [parameter.id for parameter in grok.parameters] == ["effort", "fast"]
    assert [variant.is_default for variant in grok.variants] == [True, False, False]
    assert models["auto"].parameters == ()


async def test_words_come_as_deltas_and_as_a_result(client: AsyncClient) -> None:
    deltas, result = await asked(client, "[[think:hm]] [[text:Hello ]] [[text:world]]")
    assert [delta.text for delta in deltas if delta.type == "text-delta"] == ["Hello ", "world"]
    assert [delta.text for delta in deltas if delta.type == "thinking-delta"] == ["hm"]
    assert (result.status, result.result) == ("finished", "Hello world")


async def test_usage_is_counted(client: AsyncClient) -> None:
    agent = await client.create_agent(model="composer-2.5", local=LocalAgentOptions())
    await (await agent.send("[[text:one]]")).wait()
    run = await agent.send("[[think:so that]] [[text:two]]")
    usage = (await run.wait()).usage
    assert usage and usage.input_tokens and usage.cache_read_tokens and usage.reasoning_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


async def test_a_custom_tool_is_called_back(client: AsyncClient, fake: FakeAgent) -> None:
    def weather(args: Any, context: Any) -> str:
        assert context.tool_call_id
        return f"21 degrees in {args['city']}"

    tool = CustomTool(weather, "The weather", {"type": "object"})
    prompt = '[[relay:weather {"city": "Bonn"}]] [[say-result]]'
    deltas, result = await asked(client, prompt, custom_tools={"weather": tool})
    assert result.result == "21 degrees in Bonn"
    (call,) = [delta for delta in deltas if delta.type == "tool-call-started"]
    assert call.tool_call["args"]["args"] == {"city": "Bonn"}
    assert fake.model_steps() == 2


async def test_calls_are_in_flight_at_once(client: AsyncClient) -> None:
    meeting = asyncio.Barrier(3)

    async def meet(args: Any, _: Any) -> str:
        await meeting.wait()
        return str(args["name"])

    tool = CustomTool(meet, "Meet", {"type": "object"})
    calls = '[[announce:meet {"name": "a"}]] [[announce:meet {"name": "b"}]]'
    prompt = f'{calls} [[relay:meet {{"name": "c"}}]] [[say-results]]'
    _, result = await asked(client, prompt, custom_tools={"meet": tool})
    assert result.result == "a b c"


async def test_a_run_is_cancelled(client: AsyncClient) -> None:
    agent = await client.create_agent(model="composer-2.5", local=LocalAgentOptions())
    run = await agent.send("[[text:so]] [[hang]]")
    await run.cancel()
    result = await run.wait()
    assert result.status == "cancelled"


async def test_a_failed_run_is_a_result(client: AsyncClient) -> None:
    _, result = await asked(client, "[[fail-as-result:usage_limit: That was all]]")
    assert (result.status, result.error_code) == ("error", "usage_limit")
    assert result.error_message == "That was all"


async def test_images_are_sent(client: AsyncClient, fake: FakeAgent) -> None:
    agent = await client.create_agent(model="composer-2.5", local=LocalAgentOptions())
    image = SDKImage.from_data("aGVsbG8=", "image/png")
    await (await agent.send({"text": "[[text:a cat]]", "images": [image]})).wait()
    (note,) = fake.runs()
    assert note["images"] == [{"data": "aGVsbG8=", "mimeType": "image/png"}]


async def test_a_wrong_key_is_an_authentication_error(client: AsyncClient, fake: FakeAgent) -> None:
    fake.put("key", "another")
    with pytest.raises(errors.AuthenticationError) as caught:
        await client.me()
    assert caught.value.proto_error_code == "SDK_ERROR_CODE_UNAUTHORIZED"


async def test_an_agent_that_is_busy_says_so(client: AsyncClient, fake: FakeAgent) -> None:
    agent = await client.create_agent(model="composer-2.5", local=LocalAgentOptions())
    fake.put("busy", "2")
    with pytest.raises(errors.InternalServerError, match="already has active run"):
        await agent.send("[[text:no]]")
    fake.put("busy-typed")
    with pytest.raises(errors.AgentBusyError):
        await agent.send("[[text:no]]")


@pytest.mark.parametrize("code", [code for code in SDK_CODES if code != "UNSPECIFIED"])
async def test_every_code_is_a_typed_error(client: AsyncClient, fake: FakeAgent, code: str) -> None:
    with pytest.raises(errors.CursorSDKError) as caught:
        await asked(client, f"[[error:{code} 30 So it is]]")
    error = caught.value
    assert error.proto_error_code == f"SDK_ERROR_CODE_{code}"
    assert (error.message, error.retry_after) == ("So it is", "30s")


async def test_a_stream_without_its_last_frame_is_broken(client: AsyncClient) -> None:
    with pytest.raises(errors.CursorSDKError, match="Unexpected end"):
        await asked(client, "[[text:so]] [[no-last-frame]]")


async def test_what_no_version_knows_is_passed_over(client: AsyncClient) -> None:
    _, result = await asked(client, "[[unknown]] [[text:still here]]")
    assert result.result == "still here"


async def test_frames_may_be_split_anywhere(client: AsyncClient, fake: FakeAgent) -> None:
    fake.put("split-frames", "3")
    fake.put("keep-alive", "0.02")
    _, result = await asked(client, "[[text:bit by bit]] [[gap:0.1]]")
    assert result.result == "bit by bit"
