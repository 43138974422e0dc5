"""The Responses half of the official OpenAI SDK, against a real server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.conftest import EITHER_AGENT, Client

pytestmark = EITHER_AGENT

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


async def test_a_conversation_is_kept_for_the_next_request(client: Client) -> None:
    """Tools, too: only what is new is sent."""
    prompt = '[[call:ls {"path": "/a"}]][[then]][[text:All done.]]'
    async with sdk(client) as api:
        first = await api.responses.create(model="auto", input=prompt, tools=[LS])
        (call,) = first.output
        assert call.type == "function_call"
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "a.txt"}
        async with api.responses.stream(
            model="auto", input=[result], tools=[LS], previous_response_id=first.id
        ) as stream:
            second = await stream.get_final_response()
        assert second.output_text == "All done."
        assert (await api.responses.retrieve(second.id)).output_text == "All done."
        listed = await api.responses.input_items.list(second.id)
        assert [item.type async for item in listed] == ["function_call_output"]


async def test_what_is_gone_is_a_typed_error(client: Client) -> None:
    async with sdk(client) as api:
        made = await api.responses.create(model="auto", input="[[text:Hello]]")
        await api.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError, match=made.id):
            await api.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError, match="whole conversation"):
            await api.responses.create(model="auto", input="hi", previous_response_id=made.id)


async def test_the_sync_client_folds_and_streams(client: Client) -> None:
    def talk() -> tuple[str, str]:
        with openai.OpenAI(base_url=client.server.base_url, api_key="-") as api:
            answer = api.responses.create(model="auto", input="[[text:Hello]]")
            with api.responses.stream(model="auto", input="[[many:30]]") as stream:
                return answer.output_text, stream.get_final_response().output_text

    whole, streamed = await asyncio.to_thread(talk)
    assert whole == "Hello"
    assert streamed == "".join(f"{number} " for number in range(30))


class Person(BaseModel):
    name: str
    age: int


async def test_parse_gives_a_typed_object(client: Client) -> None:
    prompt = '[[nth:{"name": "Ada"}|{"name": "Ada", "age": 36}]]'
    async with sdk(client) as api:
        answer = await api.responses.parse(model="auto", input=prompt, text_format=Person)
        assert answer.output_parsed == Person(name="Ada", age=36)
        async with api.responses.stream(model="auto", input=prompt, text_format=Person) as stream:
            final = await stream.get_final_response()
        assert final.output_parsed == Person(name="Ada", age=36)
        with pytest.raises(openai.UnprocessableEntityError):
            await api.responses.parse(model="auto", input="[[text:no]]", text_format=Person)


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


async def test_a_failure_mid_stream_is_a_failed_response(client: Client) -> None:
    prompt = "[[text:Hello]][[error-event:RetriableError: [unavailable]]]"
    async with sdk(client) as api:
        stream: Any = await api.responses.create(model="auto", input=prompt, stream=True)
        events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert "unavailable" in events[-1].response.error.message
