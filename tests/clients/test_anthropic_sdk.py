"""The official Anthropic SDK, sync and async, against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start

pytestmark = EITHER_AGENT

LS: Any = {
    "name": "ls",
    "description": "List",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}


def base(client: Client) -> str:
    return client.server.base_url.removesuffix("/v1")


def sdk(client: Client) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=base(client), api_key="-", max_retries=0)


def asking(prompt: str, **more: Any) -> Any:
    message = {"role": "user", "content": prompt}
    return {"model": "auto", "max_tokens": 1000, "messages": [message]} | more


async def test_the_async_client_folds_and_streams(client: Client) -> None:
    async with sdk(client) as api:
        answer = await api.messages.create(**asking("[[think:hm]][[text:Hello]]"))
        assert (answer.content[0].type, answer.stop_reason) == ("text", "end_turn")
        assert answer.usage.output_tokens > 0
        thinking = {"type": "enabled", "budget_tokens": 1024}
        prompt = "[[think:hm]][[text:Hel]][[text:lo]]"
        async with api.messages.stream(**asking(prompt, thinking=thinking)) as stream:
            said = [text async for text in stream.text_stream]
            final = await stream.get_final_message()
    assert "".join(said) == "Hello"
    assert [block.type for block in final.content] == ["thinking", "text"]


async def test_the_sync_client_folds_and_streams(client: Client) -> None:
    def talk() -> tuple[Any, str]:
        with anthropic.Anthropic(base_url=base(client), api_key="-") as api:
            answer = api.messages.create(**asking("[[text:Hello]]"))
            with api.messages.stream(**asking("[[many:30]]")) as stream:
                return answer.content[0], "".join(stream.text_stream)

    block, streamed = await asyncio.to_thread(talk)
    assert block.text == "Hello"
    assert streamed == "".join(f"{number} " for number in range(30))


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_round_trips_with_parallel_calls(
    client: Client, fake: FakeAgent, stream: bool
) -> None:
    calls = "".join(f'[[call:ls {{"path": "/{at}"}}]]' for at in range(3))
    body = asking(f"{calls}[[then]][[text:All done.]]", tools=[LS])
    async with sdk(client) as api:
        for _ in range(2):
            if stream:
                async with api.messages.stream(**body) as events:
                    answer: Any = await events.get_final_message()
            else:
                answer = await api.messages.create(**body)
            used = [block for block in answer.content if block.type == "tool_use"]
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": block.input["path"]}
                for block in used
            ]
            body["messages"] += [
                {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
                {"role": "user", "content": results},
            ]
            if not used:
                break
            assert [block.input for block in used] == [{"path": f"/{at}"} for at in range(3)]
            assert answer.stop_reason == "tool_use"
    assert (answer.content[0].text, answer.stop_reason) == ("All done.", "end_turn")
    assert fake.runs()[-1]["prompt"].count("<tool_result id=") == 3


RUNNER_SCRIPT = '[[call:ls {"path": "/a"}]][[then]][[text:Done.]]'


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdks_own_tool_runner(client: Client, fake: FakeAgent, stream: bool) -> None:
    @anthropic.beta_async_tool
    async def ls(path: str) -> str:
        """List a directory."""
        return f"listing of {path}"

    async with sdk(client) as api:
        runner: Any = api.beta.messages.tool_runner(
            **asking(RUNNER_SCRIPT), tools=[ls], stream=stream
        )
        final: Any = await runner.until_done()
    assert final.content[0].text == "Done."
    assert "listing of /a" in fake.runs()[-1]["prompt"]


async def test_the_sdks_own_tool_runner_without_async(client: Client, fake: FakeAgent) -> None:
    @anthropic.beta_tool
    def ls(path: str) -> str:
        """List a directory."""
        return f"listing of {path}"

    def run() -> Any:
        with anthropic.Anthropic(base_url=base(client), api_key="-") as api:
            return api.beta.messages.tool_runner(**asking(RUNNER_SCRIPT), tools=[ls]).until_done()

    assert (await asyncio.to_thread(run)).content[0].text == "Done."
    assert "listing of /a" in fake.runs()[-1]["prompt"]


class Person(BaseModel):
    name: str
    age: int


async def test_parse_gives_a_typed_object(client: Client) -> None:
    prompt = '[[nth:{"name": "Ada"}|{"name": "Ada", "age": 36}]]'
    async with sdk(client) as api:
        answer = await api.messages.parse(**asking(prompt), output_format=Person)
        assert answer.parsed_output == Person(name="Ada", age=36)
        with pytest.raises(anthropic.UnprocessableEntityError):
            await api.messages.parse(**asking("[[text:no]]"), output_format=Person)


async def test_an_answer_and_an_error_name_their_request(client: Client) -> None:
    async with sdk(client) as api:
        answer = await api.messages.create(**asking("[[text:Hello]]"))
        assert answer._request_id
        with pytest.raises(anthropic.BadRequestError) as refused:
            await api.messages.create(**asking("hi", model="nobody"))
        assert refused.value.request_id


async def test_limits_are_named(client: Client) -> None:
    async with sdk(client) as api:
        cut = await api.messages.create(**asking("[[text:12345678]]", max_tokens=1))
        assert cut.stop_reason == "max_tokens"
        stopped = await api.messages.create(**asking("[[text:a END b]]", stop_sequences=["END"]))
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "END")


async def test_tokens_are_counted_and_models_listed(client: Client) -> None:
    async with sdk(client) as api:
        counted = await api.messages.count_tokens(
            model="auto", messages=[{"role": "user", "content": "hello there"}]
        )
        assert counted.input_tokens >= 3
        assert "composer-2.5" in [model.id async for model in api.models.list()]
        assert (await api.models.retrieve("composer-2.5")).display_name == "Composer 2.5"


@pytest.mark.agents("cli")
@pytest.mark.parametrize(
    ("wanted", "model"),
    [
        ("claude-opus-5-20260101", "claude-opus-5-thinking-high"),
        ("claude-sonnet-4-6", "claude-4.6-sonnet-medium"),
    ],
)
async def test_a_claude_model_stands_for_its_family(
    client: Client, fake: FakeAgent, wanted: str, model: str
) -> None:
    async with sdk(client) as api:
        await api.messages.create(**asking("[[text:ok]]", model=wanted))
        with pytest.raises(anthropic.BadRequestError, match="no model"):
            await api.messages.create(**asking("hi", model="claude-haiku-4-5"))
    assert model in fake.runs()[0]["argv"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("[[play:fail_auth_required]]", anthropic.PermissionDeniedError),
        ("[[play:fail_usage_limit]]", anthropic.RateLimitError),
        ("[[play:fail_unknown_model]]", anthropic.BadRequestError),
        ("[[exit:0]]", anthropic.InternalServerError),
    ],
)
async def test_failures_are_typed_errors(
    client: Client, prompt: str, error: type[anthropic.APIStatusError], stream: bool
) -> None:
    async with sdk(client) as api:
        with pytest.raises(error):
            await api.messages.create(**asking(prompt), stream=stream)


async def test_the_sdk_repeats_what_may_pass_and_gives_up_what_stays(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.errors.Unavailable.retry_after", 0)
    fake.put("flaky", "1")
    async with sdk(client).with_options(max_retries=5) as api:
        answer: Any = await api.messages.create(**asking("[[flaky:No.]][[text:Hello]]"))
        assert answer.content[0].text == "Hello"
        with pytest.raises(anthropic.InternalServerError, match="failed 2 times in a row"):
            await api.messages.create(**asking("[[exit:1]]"))
        for _ in range(2):
            with pytest.raises(anthropic.RateLimitError):
                await api.messages.create(**asking("[[play:fail_usage_limit]]"))
    assert len(fake.runs()) == 5


async def test_a_failure_mid_stream_is_an_exception(client: Client) -> None:
    prompt = "[[text:Hello]][[error-event:RetriableError: [unavailable]]]"
    async with sdk(client) as api:
        stream: Any = await api.messages.create(**asking(prompt), stream=True)
        with pytest.raises(anthropic.APIError, match="unavailable"):
            async for _ in stream:
                pass


async def test_the_query_and_the_key_of_real_clients(start: Start) -> None:
    async with start(api_key="k") as client:
        url = client.url("/v1/messages?beta=true")
        body = asking("[[text:ok]]")
        for headers in ({"x-api-key": "k"}, {"Authorization": "Bearer k"}):
            async with client.session.post(url, json=body, headers=headers) as response:
                assert response.status == 200
        async with client.session.post(url, json=body) as response:
            assert response.status == 403
            body = await response.json()
        assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
