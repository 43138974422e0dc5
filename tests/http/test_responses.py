"""OpenAI Responses over a real socket: what is kept, and what happens in silence."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, frames_of
from tests.support.views import resumed

pytestmark = EITHER_AGENT


def post(client: Client, prompt: Any, **body: Any) -> Any:
    asked = {"model": "auto", "input": prompt} | body
    return client.session.post(client.url("/v1/responses"), json=asked)


async def respond(client: Client, prompt: Any, **body: Any) -> Any:
    """The response, whole or out of the last event of its stream."""
    async with post(client, prompt, **body) as response:
        if not body.get("stream"):
            return await response.json()
        return [frame async for frame in frames_of(response)][-1]["response"]


async def forget(client: Client, response_id: str) -> tuple[int, Any]:
    async with client.session.delete(client.url(f"/v1/responses/{response_id}")) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_goes_on_from_an_earlier_one(
    start: Start, fake: FakeAgent, stream: bool
) -> None:
    async with start(session_reuse=False) as client:
        first = await respond(
            client, "[[text:I am first.]]", stream=stream, instructions="Whisper."
        )
        more = {"previous_response_id": first["id"], "stream": stream}
        second = await respond(client, "[[text:I am second.]]", **more)
        assert second["previous_response_id"] == first["id"]
        await respond(client, "[[text:I am third.]]", previous_response_id=second["id"])
    prompt = fake.runs()[-1]["prompt"]
    said = ["[[text:I am first.]]", "I am first.\n", "[[text:I am second.]]", "I am second.\n"]
    places = [prompt.index(words) for words in said]
    assert places == sorted(places)
    assert "Whisper." in fake.runs()[0]["prompt"] and "Whisper." not in prompt


async def test_an_earlier_response_is_a_chat_that_goes_on(client: Client, fake: FakeAgent) -> None:
    first = await respond(client, "[[text:I am first.]]")
    await respond(client, "[[text:I am second.]]", previous_response_id=first["id"])
    assert resumed(fake) == [False, True]
    assert fake.runs()[1]["prompt"] == "[[text:I am second.]]"


async def test_a_kept_response_is_shown_and_forgotten(client: Client) -> None:
    made = await respond(client, "[[text:Hello]]", stream=True, metadata={"a": "b"})
    path = f"/v1/responses/{made['id']}"
    assert await client.get(path) == (200, made)
    status, listed = await client.get(f"{path}/input_items?order=asc")
    assert (status, listed["data"][0]["content"]) == (200, "[[text:Hello]]")
    deleted = {"id": made["id"], "object": "response", "deleted": True}
    assert await forget(client, made["id"]) == (200, deleted)
    for gone in (path, f"{path}/input_items"):
        status, body = await client.get(gone)
        assert (status, body["error"]["code"]) == (404, "response_not_found")
    assert (await forget(client, made["id"]))[0] == 404


async def test_what_is_gone_is_a_404_that_says_what_to_do(client: Client, fake: FakeAgent) -> None:
    body = await respond(client, "hi", previous_response_id="resp_of_yesterday")
    error = body["error"]
    assert (error["status"], error["code"]) == (404, "previous_response_not_found")
    assert (error["type"], error["param"]) == ("invalid_request_error", "previous_response_id")
    assert "resp_of_yesterday" in error["message"] and "`input`" in error["message"]
    assert fake.runs() == []


async def test_nothing_is_kept_where_client_or_user_say_so(start: Start) -> None:
    async with start() as client:
        made = await respond(client, "[[text:Hello]]", store=False)
        assert (await client.get(f"/v1/responses/{made['id']}"))[0] == 404
    async with start(kept_responses_mb=0) as client:
        made = await respond(client, "[[text:Hello]]")
        assert (await client.get(f"/v1/responses/{made['id']}"))[0] == 404


async def test_old_responses_make_room_for_new_ones(start: Start) -> None:
    async with start(kept_responses_mb=1) as client:
        long = "x" * 600_000
        first = await respond(client, f"{long}[[text:1]]")
        second = await respond(client, f"{long}[[text:2]]")
        assert (await client.get(f"/v1/responses/{first['id']}"))[0] == 404
        assert (await client.get(f"/v1/responses/{second['id']}"))[0] == 200


async def test_a_kept_response_is_not_streamed_again(client: Client) -> None:
    made = await respond(client, "[[text:Hello]]")
    status, body = await client.get(f"/v1/responses/{made['id']}?stream=true")
    assert (status, body["error"]["param"]) == (400, "stream")


async def test_a_websocket_is_refused_with_the_status_that_means_http(client: Client) -> None:
    for path in ("/v1/responses", "/responses"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.session.ws_connect(client.url(path))
        assert refused.value.status == 426
    headers = {"Connection": "Upgrade", "Upgrade": "WebSocket"}
    status, body = await client.get("/v1/responses", **headers)
    assert (status, body["error"]["code"]) == (426, "websocket_refused")
    assert "HTTP" in body["error"]["message"]
    assert (await client.get("/v1/responses"))[0] == 405
    assert (await respond(client, "[[text:Hello]]"))["status"] == "completed"


async def test_silence_is_filled_with_events_that_codex_counts(start: Start) -> None:
    kinds: list[str] = []
    async with (
        start(keep_alive=0.05, heartbeat=0.1) as client,
        post(client, "[[init]][[hang]]", stream=True) as response,
    ):
        async for frame in frames_of(response):
            kinds.append(frame["type"])
            if len(kinds) == 4:
                break
    assert kinds == ["response.created", *["response.in_progress"] * 3]


async def test_a_failure_in_a_stream_is_a_failed_response_with_its_text(client: Client) -> None:
    prompt = "[[text:Hello]][[error-event:RetriableError: [unavailable]]]"
    async with post(client, prompt, stream=True) as response:
        frames = [frame async for frame in frames_of(response)]
    assert frames[-1]["type"] == "response.failed"
    assert "unavailable" in frames[-1]["response"]["error"]["message"]
    failed = frames[-1]["response"]["id"]
    assert (await client.get(f"/v1/responses/{failed}"))[0] == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_namespaced_and_custom_tools_come_back_under_their_own_names(
    client: Client, fake: FakeAgent, stream: bool
) -> None:
    tools = [
        {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "list"}]},
        {"type": "custom", "name": "patch", "description": "Apply a patch."},
        {"type": "web_search", "external_web_access": True},
        {"type": "never_heard_of"},
    ]
    prompt = '[[call:files__list {}]][[call:patch {"input": "*** Begin"}]]'
    include = ["reasoning.encrypted_content"]
    body = await respond(client, prompt, tools=tools, stream=stream, include=include)
    listed, patched = body["output"]
    assert (listed["type"], listed["namespace"], listed["name"]) == (
        "function_call",
        "files",
        "list",
    )
    assert (patched["type"], patched["name"], patched["input"]) == (
        "custom_tool_call",
        "patch",
        "*** Begin",
    )
    assert "web_search" not in fake.runs()[0]["prompt"]
    outputs = [
        {"type": "function_call_output", "call_id": listed["call_id"], "output": "a.txt"},
        {"type": "custom_tool_call_output", "call_id": patched["call_id"], "output": "patched"},
    ]
    items = [*body["output"], *outputs, {"role": "user", "content": "[[text:Done.]]"}]
    again = await respond(client, items, tools=tools, stream=stream)
    assert again["output"][0]["content"][0]["text"] == "Done."
    prompt = fake.runs()[-1]["prompt"]
    assert '"files__list"' in prompt and json.dumps("*** Begin") in prompt


async def test_a_cut_answer_is_incomplete(client: Client) -> None:
    body = await respond(client, "[[text:12345678]]", max_output_tokens=1)
    assert (body["status"], body["incomplete_details"]["reason"]) == (
        "incomplete",
        "max_output_tokens",
    )
