"""What waits or is stored belongs to the caller who began it, also where the gateway has no key."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent

pytestmark = EITHER_AGENT

TASK = '[[relay:bash {"command": "ls"}]][[text:It holds ]][[say-result]][[then]][[text:replayed]]'
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
ONE = {"Authorization": "Bearer one"}
OTHERS: list[dict[str, str]] = [
    {"Authorization": "Bearer two"},
    {"x-api-key": "two"},
    {},
]

Answer = dict[str, Any]
# What a client sends to bring the result of the calls in an answer; None sends the task itself.
Body = Callable[[Answer | None], dict[str, Any]]


def chat(answer: Answer | None) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    if answer is not None:
        message = answer["choices"][0]["message"]
        call = message["tool_calls"][0]["id"]
        messages += [message, {"role": "tool", "tool_call_id": call, "content": "a.txt"}]
    tool = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
    return {"messages": messages, "tools": [tool]}


def messages(answer: Answer | None) -> dict[str, Any]:
    turns: list[Any] = [{"role": "user", "content": TASK}]
    if answer is not None:
        call = answer["content"][-1]["id"]
        result = {"type": "tool_result", "tool_use_id": call, "content": "a.txt"}
        turns.append({"role": "assistant", "content": answer["content"]})
        turns.append({"role": "user", "content": [result]})
    tools = [{"name": "bash", "input_schema": SCHEMA}]
    return {"messages": turns, "max_tokens": 1000, "tools": tools}


def responses(answer: Answer | None) -> dict[str, Any]:
    items: list[Any] = [{"role": "user", "content": TASK}]
    if answer is not None:
        call = answer["output"][-1]["call_id"]
        output = {"type": "function_call_output", "call_id": call, "output": "a.txt"}
        items += [*answer["output"], output]
    return {"input": items, "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA}]}


# Every dialect that has tools, and one of the others each.
DIALECTS: list[tuple[str, Body, dict[str, str]]] = [
    ("/v1/chat/completions", chat, OTHERS[0]),
    ("/v1/messages", messages, OTHERS[1]),
    ("/v1/responses", responses, OTHERS[2]),
]


async def post(client: Client, path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    request = {"model": "auto"} | body
    async with client.session.post(client.url(path), json=request, headers=headers) as response:
        return dict(await response.json())


@pytest.mark.parametrize(("path", "body", "other"), DIALECTS, ids=["chat", "messages", "responses"])
async def test_a_waiting_run_is_neither_joined_nor_ended_by_another_caller(
    client: Client, fake: FakeAgent, path: str, body: Body, other: dict[str, str]
) -> None:
    asked = await post(client, path, body(None), ONE)
    assert "replayed" in json.dumps(await post(client, path, body(asked), other))
    answer = json.dumps(await post(client, path, body(asked), ONE))
    assert "It holds a.txt" in answer and "replayed" not in answer
    assert len(fake.runs()) == 2


async def test_over_a_websocket_no_other_caller_ends_a_waiting_run(
    client: Client, fake: FakeAgent
) -> None:
    asked = await post(client, "/v1/chat/completions", chat(None), ONE)
    protocols = ("chat-completions", "openai-insecure-api-key.two")
    url = client.url("/v1/chat/completions/ws")
    async with client.session.ws_connect(url, protocols=protocols) as socket:
        await socket.send_json({"model": "auto", "stream": False} | chat(asked))
        assert "replayed" in (await socket.receive()).data
    answer = await post(client, "/v1/chat/completions", chat(asked), ONE)
    assert answer["choices"][0]["message"]["content"] == "It holds a.txt"


async def test_the_same_key_in_another_header_is_the_same_caller(
    client: Client, fake: FakeAgent
) -> None:
    asked = await post(client, "/v1/messages", messages(None), ONE)
    answer = await post(client, "/v1/messages", messages(asked), {"x-api-key": "one"})
    assert "It holds a.txt" in json.dumps(answer)
    assert len(fake.runs()) == 1


@pytest.mark.parametrize("other", OTHERS, ids=["bearer", "x-api-key", "nobody"])
async def test_a_stored_response_does_not_exist_for_another_caller(
    client: Client, other: dict[str, str]
) -> None:
    made = await post(client, "/v1/responses", {"input": "[[text:Secret]]"}, ONE)
    path = f"/v1/responses/{made['id']}"
    reference = {"type": "item_reference", "id": made["output"][0]["id"]}
    for method, at, body in (
        ("GET", path, {}),
        ("GET", f"{path}/input_items", {}),
        ("DELETE", path, {}),
        ("POST", "/v1/responses", {"input": "Hi", "previous_response_id": made["id"]}),
        ("POST", "/v1/responses", {"input": [{"role": "user", "content": "Hi"}, reference]}),
    ):
        assert await status(client, method, at, other, body) == 404
    assert await status(client, "GET", path, ONE) == 200
    assert await status(client, "DELETE", path, ONE) == 200


async def status(
    client: Client, method: str, path: str, headers: dict[str, str], body: Any = None
) -> int:
    asked = {"model": "auto"} | body if body else None
    request = client.session.request(method, client.url(path), json=asked, headers=headers)
    async with request as response:
        return response.status
