"""The official OpenAI SDK, sync and async, against a real server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from pydantic import BaseModel

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually

pytestmark = EITHER_AGENT


def sdk(client: Client, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=client.server.base_url, api_key="-", max_retries=0, **options
    )


def asking(prompt: str) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": prompt}]}


async def test_the_async_client_folds_and_streams(client: Client) -> None:
    async with sdk(client) as api:
        answer = await api.chat.completions.create(**asking("[[think:hm]][[text:Hello]]"))
        assert answer.choices[0].message.content == "Hello"
        assert answer.usage is not None and answer.usage.total_tokens > 0
        options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        stream = await api.chat.completions.create(**asking("[[text:Hel]][[text:lo]]"), **options)
        chunks = [chunk async for chunk in stream]
        said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(said) == "Hello"
        assert chunks[-1].usage is not None


async def test_the_strict_stream_helper_accepts_the_frames(client: Client) -> None:
    async with (
        sdk(client) as api,
        api.chat.completions.stream(**asking("[[think:hm]][[text:Hel]][[text:lo]]")) as stream,
    ):
        kinds = {event.type async for event in stream}
        final = await stream.get_final_completion()
    assert "content.delta" in kinds
    assert final.choices[0].message.content == "Hello"
    assert final.choices[0].finish_reason == "stop"


async def test_the_sync_client_folds_and_streams(client: Client) -> None:
    def talk() -> tuple[str | None, str]:
        with openai.OpenAI(base_url=client.server.base_url, api_key="-") as api:
            answer = api.chat.completions.create(**asking("[[text:Hello]]"))
            stream = api.chat.completions.create(**asking("[[many:50]]"), stream=True)
            deltas = [chunk.choices[0].delta.content or "" for chunk in stream]
            return answer.choices[0].message.content, "".join(deltas)

    folded, streamed = await asyncio.to_thread(talk)
    assert folded == "Hello"
    assert streamed == "".join(f"{number} " for number in range(50))


class Person(BaseModel):
    name: str
    age: int


async def test_parse_gives_a_typed_object(client: Client) -> None:
    async with sdk(client) as api:
        prompt = '[[nth:{"name": "Ada"}|{"name": "Ada", "age": 36}]]'
        answer = await api.chat.completions.parse(**asking(prompt), response_format=Person)
    assert answer.choices[0].message.parsed == Person(name="Ada", age=36)


@pytest.mark.parametrize("step", ["call", "relay"])
async def test_old_scripts_call_a_function(client: Client, fake: FakeAgent, step: str) -> None:
    functions: Any = [{"name": "ls", "parameters": {"type": "object"}}]
    asked = asking(f"[[text:Well.]][[{step}:ls {{}}]][[then]][[text:Done.]]")
    asked |= {"functions": functions}
    async with sdk(client) as api:
        [choice] = (await api.chat.completions.create(**asked)).choices
        stream = await api.chat.completions.create(**asked, stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]
        # Nobody waits for a client that cannot say whose result it brings.
        await eventually(lambda: not fake.at_work())
        asked["messages"] += [
            choice.message.model_dump(exclude_none=True),
            {"role": "function", "name": "ls", "content": "a.txt"},
        ]
        after = await api.chat.completions.create(**asked)
    assert after.choices[0].message.content == "Done."
    assert "a.txt" in fake.runs()[-1]["prompt"]
    assert choice.finish_reason == chunks[-1].finish_reason == "function_call"
    assert choice.message.function_call is not None and choice.message.tool_calls is None
    assert choice.message.function_call.name == "ls"
    made = [chunk.delta.function_call for chunk in chunks if chunk.delta.function_call]
    assert [(call.name, call.arguments) for call in made] == [("ls", "{}")]
    assert not any(chunk.delta.tool_calls for chunk in chunks)


async def test_old_scripts_complete_a_prompt(client: Client) -> None:
    async with sdk(client) as api:
        answer = await api.completions.create(model="auto", prompt="[[text:Once upon]]")
        assert answer.choices[0].text == "Once upon"
        stream = await api.completions.create(model="auto", prompt="[[many:5]]", stream=True)
        said = [chunk.choices[0].text async for chunk in stream]
    assert "".join(said) == "0 1 2 3 4 "


async def test_models_are_listed_and_retrieved(client: Client) -> None:
    async with sdk(client) as api:
        listed = [model.id async for model in api.models.list()]
        assert "composer-2.5" in listed
        assert (await api.models.retrieve("composer-2.5")).owned_by == "cursor"


@pytest.mark.agents("cli")
async def test_a_workspace_that_nobody_trusts_is_a_typed_error(client: Client) -> None:
    async with sdk(client) as api:
        with pytest.raises(openai.PermissionDeniedError):
            await api.chat.completions.create(**asking("[[play:fail_trust]]"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("[[play:fail_auth_required]]", openai.AuthenticationError),
        ("[[play:fail_usage_limit]]", openai.RateLimitError),
        ("[[play:fail_unknown_model]]", openai.BadRequestError),
        ("[[exit:0]]", openai.InternalServerError),
    ],
)
async def test_failures_are_typed_errors(
    client: Client, prompt: str, error: type[openai.APIStatusError], stream: bool
) -> None:
    async with sdk(client) as api:
        with pytest.raises(error) as info:
            await api.chat.completions.create(**asking(prompt), stream=stream)
    assert info.value.code
    assert info.value.request_id


async def test_a_failure_mid_stream_is_an_exception(client: Client) -> None:
    prompt = "[[text:Hello]][[error-event:RetriableError: [unavailable]]]"
    async with sdk(client) as api:
        stream = await api.chat.completions.create(**asking(prompt), stream=True)
        with pytest.raises(openai.APIError, match="unavailable"):
            async for _ in stream:
                pass


async def test_a_quota_is_not_hammered(client: Client, fake: FakeAgent) -> None:
    async with sdk(client).with_options(max_retries=3) as api:
        with pytest.raises(openai.RateLimitError):
            await api.chat.completions.create(**asking("[[play:fail_usage_limit]]"))
    assert len(fake.runs()) == 1


async def test_a_usage_limit_keeps_its_type_when_it_is_answered_from_memory(
    client: Client, fake: FakeAgent
) -> None:
    async with sdk(client) as api:
        for prompt in ("[[play:fail_usage_limit]]", "[[play:fail_usage_limit]]", "something else"):
            with pytest.raises(openai.RateLimitError) as info:
                await api.chat.completions.create(**asking(prompt))
            assert info.value.code == "quota_exceeded"
    assert len(fake.runs()) == 1


async def test_the_sdk_repeats_what_may_pass_and_gives_up_what_stays(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.errors.Unavailable.retry_after", 0)
    fake.put("flaky", "1")
    async with sdk(client).with_options(max_retries=5) as api:
        answer = await api.chat.completions.create(**asking("[[flaky:No.]][[text:Hello]]"))
        assert answer.choices[0].message.content == "Hello"
        with pytest.raises(openai.InternalServerError, match="failed 2 times in a row"):
            await api.chat.completions.create(**asking("[[exit:1]]"))
    assert len(fake.runs()) == 4


async def test_a_gateway_key_is_the_sdks_key(start: Start) -> None:
    async with start(api_key="k") as client:
        url = client.server.base_url
        async with openai.AsyncOpenAI(base_url=url, api_key="wrong", max_retries=0) as api:
            with pytest.raises(openai.AuthenticationError):
                await api.chat.completions.create(**asking("hi"))
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as api:
            answer = await api.chat.completions.create(**asking("[[text:ok]]"))
        assert answer.choices[0].message.content == "ok"


LS = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}
FORMATS: dict[str, dict[str, Any]] = {
    "nested": {"tools": [{"type": "function", "function": {"name": "ls", "parameters": LS}}]},
    "flat": {"tools": [{"name": "ls", "description": "List", "input_schema": LS}]},
}


def script(channel: str, turns: int, width: int) -> str:
    """`turns` times `width` calls, then an answer."""
    first, last, pause = {
        "text": ("call", "call", "[[then]]"),
        "relay": ("announce", "relay", ""),
    }[channel]
    steps = [first] * (width - 1) + [last]
    rounds = [
        "".join(f'[[{step}:ls {{"path": "/{turn}/{at}"}}]]' for at, step in enumerate(steps))
        for turn in range(turns)
    ]
    return pause.join([*rounds, "[[text:All done.]]"])


async def answer_of(api: openai.AsyncOpenAI, stream: bool, **body: Any) -> Any:
    if not stream:
        return (await api.chat.completions.create(**body)).choices[0]
    # The helper looks into the tools itself and knows only OpenAI's own form.
    known = [tool for tool in body.get("tools", []) if tool.get("type") == "function"]
    state: Any = ChatCompletionStreamState(input_tools=known)
    async for chunk in await api.chat.completions.create(**body, stream=True):
        state.handle_chunk(chunk)
    return state.get_final_completion().choices[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("channel", ["relay", "text"])
async def test_tool_round_trips_ten_turns_deep(
    client: Client, fake: FakeAgent, channel: str, form: str, width: int, stream: bool
) -> None:
    turns = 10 if (form, width) == ("nested", 5) else 2
    body = {"model": "auto"} | FORMATS[form]
    messages: list[Any] = [{"role": "user", "content": script(channel, turns, width)}]
    asked: list[str] = []
    async with sdk(client) as api:
        while True:
            choice = await answer_of(api, stream, messages=messages, **body)
            if choice.finish_reason != "tool_calls":
                break
            messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
            for call in choice.message.tool_calls:
                asked.append(json.loads(call.function.arguments)["path"])
                result = {"role": "tool", "tool_call_id": call.id, "content": f"result {call.id}"}
                messages.append(result)
    assert asked == [f"/{turn}/{at}" for turn in range(turns) for at in range(width)]
    assert (choice.finish_reason, choice.message.content) == ("stop", "All done.")
    assert channel == "text" or len(fake.runs()) == 1
