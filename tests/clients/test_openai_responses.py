"""The Responses half of the official OpenAI SDK, against a real server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.conftest import Client

LS: Any = {
    "type": "function",
    "name": "ls",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
    "strict": False,
}


def sdk(client: Client) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=client.server.base_url, api_key="-", max_retries=0)


async def test_an_answer_is_folded_and_streamed(client: Client) -> None:
    prompt = "[[think:hm]][[text:Hel]][[text:lo]]"
    async with sdk(client) as api:
        answer = await api.responses.create(model="auto", input=prompt)
        assert (answer.output_text, answer.status) == ("Hello", "completed")
        assert answer.usage is not None and answer.usage.total_tokens > 0
        async with api.responses.stream(model="auto", input=prompt) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
    assert final.output_text == "Hello"
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_round_trips_with_parallel_calls(client: Client, stream: bool) -> None:
    calls = "".join(f'[[call:ls {{"path": "/{at}"}}]]' for at in range(3))
    script = f"{calls}[[then]]{calls}[[then]][[text:All done.]]"
    items: list[Any] = [{"role": "user", "content": script}]
    asked: list[str] = []
    async with sdk(client) as api:
        while True:
            if stream:
                async with api.responses.stream(model="auto", input=items, tools=[LS]) as events:
                    answer: Any = await events.get_final_response()
            else:
                answer = await api.responses.create(model="auto", input=items, tools=[LS])
            made = [item for item in answer.output if item.type == "function_call"]
            if not made:
                break
            items += [call.model_dump(exclude={"parsed_arguments"}) for call in made]
            for call in made:
                asked.append(json.loads(call.arguments)["path"])
                result = {"call_id": call.call_id, "output": f"listing {len(asked)}"}
                items.append({"type": "function_call_output"} | result)
    assert asked == ["/0", "/1", "/2"] * 2
    assert answer.output_text == "All done."


class Person(BaseModel):
    name: str
    age: int


async def test_parse_gives_a_typed_object(client: Client) -> None:
    prompt = '[[nth:{"name": "Ada"}|{"name": "Ada", "age": 36}]]'
    async with sdk(client) as api:
        answer = await api.responses.parse(model="auto", input=prompt, text_format=Person)
    assert answer.output_parsed == Person(name="Ada", age=36)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("[[play:fail_auth_required]]", openai.AuthenticationError),
        ("[[play:fail_usage_limit]]", openai.RateLimitError),
        ("[[play:fail_unknown_model]]", openai.BadRequestError),
    ],
)
async def test_failures_are_typed_errors(
    client: Client, prompt: str, error: type[openai.APIStatusError], stream: bool
) -> None:
    async with sdk(client) as api:
        with pytest.raises(error):
            await api.responses.create(model="auto", input=prompt, stream=stream)


async def until_it_breaks(stream: Any) -> AsyncIterator[Any]:
    with contextlib.suppress(Exception):
        async for event in stream:
            yield event


async def test_a_failure_mid_stream_is_a_failed_response(client: Client) -> None:
    prompt = "[[text:Hello]][[stderr:RetriableError: [unavailable]]][[exit:1]]"
    async with sdk(client) as api:
        stream: Any = await api.responses.create(model="auto", input=prompt, stream=True)
        kinds = [stream_event.type async for stream_event in until_it_breaks(stream)]
    assert kinds[-1] == "response.failed"
