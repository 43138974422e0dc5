"""Anthropic Messages over a real socket: order of events, silence, failures, what is ignored."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, frames_of

pytestmark = EITHER_AGENT

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def post(client: Client, prompt: Any, path: str = "/v1/messages", **body: Any) -> Any:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    asked = {"model": "auto", "max_tokens": 1000, "messages": messages} | body
    headers = {"anthropic-version": "2023-06-01"} | body.pop("headers", {})
    return client.session.post(client.url(path), json=asked, headers=headers)


async def events(client: Client, prompt: Any, **body: Any) -> list[Any]:
    async with post(client, prompt, stream=True, **body) as response:
        assert response.status == 200, await response.text()
        return [frame async for frame in frames_of(response)]


async def test_silence_is_filled_with_pings_after_the_start(start: Start) -> None:
    kinds: list[str] = []
    async with (
        start(keep_alive=0.05) as client,
        post(client, "[[init]][[hang]]", stream=True) as response,
    ):
        async for frame in frames_of(response):
            kinds.append(frame["type"])
            if len(kinds) == 4:
                break
    assert kinds == ["message_start", "ping", "ping", "ping"]


async def test_parallel_calls_are_blocks_of_their_own(client: Client) -> None:
    tools = [{"name": "ls", "input_schema": {"type": "object"}, "defer_loading": True}]
    frames = await events(client, '[[call:ls {"n": 1}]][[call:ls {"n": 2}]]', tools=tools)
    begun = [frame for frame in frames if frame["type"] == "content_block_start"]
    assert [frame["index"] for frame in begun] == [0, 1]
    assert len({frame["content_block"]["id"] for frame in begun}) == 2
    deltas = [frame["delta"] for frame in frames if frame["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == ["input_json_delta"] * 2
    assert frames[-2]["delta"]["stop_reason"] == "tool_use"
    assert frames[-1] == {"type": "message_stop"}


async def test_thinking_comes_in_blocks_for_those_who_asked(client: Client) -> None:
    async def kinds(thinking: Any) -> list[str]:
        frames = await events(client, "[[think:hm]][[text:Hello]]", thinking=thinking)
        begun = [frame for frame in frames if frame["type"] == "content_block_start"]
        return [frame["content_block"]["type"] for frame in begun]

    assert await kinds({"type": "adaptive"}) == ["thinking", "text"]
    assert await kinds({"type": "enabled", "budget_tokens": 1024}) == ["thinking", "text"]
    assert await kinds({"type": "adaptive", "display": "omitted"}) == ["text"]
    assert await kinds({"type": "disabled"}) == ["text"]


async def test_a_request_as_claude_code_sends_it_is_answered(
    client: Client, fake: FakeAgent
) -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    body = {
        "system": [{"type": "text", "text": "Be brief.", **cached}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "u"},
        "betas": ["context-management-2025-06-27"],
        "tools": [
            {"name": "Bash", "input_schema": {"type": "object"}, "defer_loading": True, **cached},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        ],
    }
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "[[text:Hello]]", **cached}]},
        {"role": "system", "content": "You are in a maze."},
    ]
    path = "/v1/messages?beta=true"
    headers = {"anthropic-beta": "claude-code-20250219,effort-2025-11-24"}
    async with post(client, messages, path, headers=headers, **body) as response:
        answer = await response.json()
    assert (answer["type"], answer["content"][0]["text"]) == ("message", "Hello")
    prompt = fake.runs()[0]["prompt"]
    assert "You are in a maze." in prompt and "Bash" in prompt and "web_search" not in prompt


@pytest.mark.agents("cli")
async def test_a_result_may_be_an_error_or_hold_an_image(client: Client, fake: FakeAgent) -> None:
    call: Any = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no such file"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [IMAGE]},
        {"type": "text", "text": "[[text:Seen.]]"},
    ]
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [call, call | {"id": "t2"}]},
        {"role": "user", "content": results},
    ]
    async with post(client, messages) as response:
        assert (await response.json())["content"][0]["text"] == "Seen."
    (run,) = fake.runs()
    assert any(name.endswith(".png") for name in run["files"])
    assert 'id="t1" is_error="true"' in run["prompt"]


async def test_a_stop_sequence_is_named(client: Client) -> None:
    frames = await events(client, "[[text:a EN]][[text:D b]]", stop_sequences=["END"])
    assert frames[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


@pytest.mark.parametrize(
    ("prompt", "status", "kind"),
    [
        ("[[play:fail_auth_required]]", 403, "authentication_error"),
        ("[[play:fail_invalid_key]]", 403, "authentication_error"),
        ("[[play:fail_usage_limit]]", 429, "rate_limit_error"),
        ("[[play:fail_unknown_model]]", 400, "invalid_request_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_word_is_a_status(
    client: Client, prompt: str, status: int, kind: str, stream: bool
) -> None:
    """Never a 401: Claude Code would repeat it for over a minute without a word."""
    async with post(client, prompt, stream=stream) as response:
        body = await response.json()
        assert (response.status, body["type"], body["error"]["type"]) == (status, "error", kind)
        assert response.headers["request-id"] == body["request_id"]


async def test_a_failure_after_it_is_an_error_event(client: Client) -> None:
    prompt = "[[text:Hello]][[error-event:RetriableError: [unavailable]]]"
    *before, last = await events(client, prompt)
    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")
    assert "message_stop" not in [event["type"] for event in before]


async def test_every_refusal_has_anthropics_shape(start: Start) -> None:
    async with start(api_key="k", max_body_mb=1) as client:
        key = {"x-api-key": "k"}
        for path, headers, body, status in (
            ("/v1/messages", {}, b"{}", 403),
            ("/v1/messages", key, b"{", 400),
            ("/v1/messages", key | {"Content-Type": "text/plain"}, b"{}", 415),
            ("/v1/messages", key, b"x" * 2_000_000, 413),
            ("/v1/messages/batches", key, b"{}", 404),
            ("/v1/nowhere", key | {"anthropic-version": "2023-06-01"}, b"{}", 404),
        ):
            headers = {"Content-Type": "application/json"} | headers
            url = client.url(path)
            async with client.session.post(url, data=io.BytesIO(body), headers=headers) as response:
                assert (response.status, (await response.json())["type"]) == (status, "error")


async def test_models_are_shown_in_anthropics_shape(client: Client) -> None:
    version = {"anthropic-version": "2023-06-01"}
    _, listed = await client.get("/v1/models", **version)
    _, one = await client.get("/v1/models/auto", **version)
    assert one in listed["data"]
    assert (one["type"], one["display_name"]) == ("model", "Auto")


async def test_an_estimate_of_tokens_needs_no_agent(client: Client, fake: FakeAgent) -> None:
    path = "/v1/messages/count_tokens?beta=true"
    async with post(client, "word " * 100, path) as response:
        plain = await response.json()
    async with post(client, [{"role": "user", "content": [IMAGE]}], path) as response:
        seen = await response.json()
    assert plain["estimated"] is True and plain["input_tokens"] >= 100
    assert seen["input_tokens"] >= 1600
    assert fake.runs() == []
