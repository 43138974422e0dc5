"""Schemas of strangers: whatever they hold, they are refused by name or take only so long."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.fuzz_schemas import doubling
from tests.conftest import Client, FakeAgent
from tests.http.dialogue import Dialogue, tool

DEEP: Any = {}
for _ in range(300):
    DEEP = {"not": DEEP}


def asks(schema: Any) -> list[tuple[str, dict[str, Any], str]]:
    """The schema in each dialect: the path, the body, and how the field is called."""
    said = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
    wanted = {"type": "json_schema", "name": "x", "schema": schema}
    chat = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return [
        (
            "/v1/chat/completions",
            said | {"response_format": chat},
            "response_format.json_schema.schema",
        ),
        (
            "/v1/messages",
            said | {"max_tokens": 9, "output_config": {"format": wanted}},
            "output_config.format.schema",
        ),
        (
            "/v1/responses",
            {"model": "auto", "input": "hi", "text": {"format": wanted}},
            "text.format.schema",
        ),
    ]


async def refusal(client: Client, path: str, body: dict[str, Any]) -> tuple[int, str]:
    async with client.session.post(client.url(path), json=body) as response:
        return response.status, str((await response.json())["error"])


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"$schema": 5}, "`$schema` must be a string"),
        ({"$schema": ["x"]}, "`$schema` must be a string"),
        ({"$id": 5}, "`$id` must be a string"),
        ({"properties": {"a": {"$schema": {}}}}, "at properties.a, `$schema` must be a string"),
        ({"allOf": [{}] * 60_000}, "50000 values"),
    ],
)
async def test_a_schema_that_is_none_or_too_large_is_refused_by_the_name_of_its_field(
    client: Client, fake: FakeAgent, schema: Any, named: str
) -> None:
    for path, body, field in asks(schema):
        status, error = await refusal(client, path, body)
        assert status == 400, error
        assert named in error
        assert path == "/v1/messages" or field in error
    assert fake.runs() == []


async def test_a_schema_that_is_nested_too_deep_is_refused_by_the_name_of_its_field(
    client: Client, fake: FakeAgent
) -> None:
    for path, body, field in asks(DEEP):
        status, error = await refusal(client, path, body)
        assert status == 400
        assert f"`{field.split('.')[0]}` is nested more than 128 levels deep" in error
    assert fake.runs() == []


async def test_tools_that_are_too_large_together_are_refused_by_their_place(
    client: Client, fake: FakeAgent
) -> None:
    large = {"enum": [0] * 30_000}
    flat = [{"type": "function", "name": f"t{at}", "parameters": large} for at in range(2)]
    nested = [{"type": "function", "function": each} for each in flat]
    anthropic = [{"name": each["name"], "input_schema": large} for each in flat]
    said = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    for path, body in (
        ("/v1/chat/completions", said | {"tools": nested}),
        ("/v1/messages", said | {"tools": anthropic}),
        ("/v1/responses", {"model": "auto", "input": "hi", "tools": flat}),
    ):
        status, error = await refusal(client, path, body)
        assert status == 400
        assert "`tools[1]` is too large" in error
    status, error = await refusal(client, "/v1/chat/completions", said | {"functions": flat})
    assert status == 400 and "`functions[1]` is too large" in error
    assert fake.runs() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reference", ["$ref", "$dynamicRef"])
async def test_an_answer_is_held_against_a_schema_that_doubles_for_only_so_long(
    client: Client, reference: str
) -> None:
    schema = doubling("allOf", reference)
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    status, error = await client.error('[[nth:{"a":1}|{"a":1}]]', response_format=wanted)
    assert (status, error["code"]) == (422, "output_invalid")
    assert "too expensive to check" in error["message"]
    assert (await client.get("/health"))[0] == 200


@pytest.mark.timeout(60)
async def test_an_answer_with_a_trap_for_every_item_is_held_against_its_schema(
    client: Client,
) -> None:
    """Each would take a backtracking engine for ever, and there is one for each item."""
    schema = {"properties": {"a": {"items": {"not": {"pattern": r"^(\w+\s?){1,40}$"}}}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = '{"a":["' + '","'.join(["a" * 50 + "!"] * 500) + '"]}'
    assert await client.content(f"[[text:{answer}]]", response_format=wanted) == answer


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reference", ["$ref", "$dynamicRef", "$recursiveRef"])
async def test_a_call_with_a_schema_that_doubles_is_left_to_the_client(
    client: Client, reference: str
) -> None:
    endless = doubling("dependentSchemas", reference)
    write = tool("write", path={"type": "string"})
    write["function"]["parameters"] |= endless
    dialogue = Dialogue(client, [write])
    await dialogue.say('[[relay:write {"path": "x", "a": 1, "b": 2}]]')
    assert dialogue.asked == [("write", {"path": "x", "a": 1, "b": 2})]
