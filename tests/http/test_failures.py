"""A failure is never shown as success: each way to fail, streamed and not, as a true status."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from typing import Any

import pytest

from tests.conftest import (
    EITHER_AGENT,
    Client,
    FakeAgent,
    Start,
    eventually,
    frames_of,
    stalls,
    text_of,
)

BOTH = pytest.mark.parametrize("stream", [False, True])


@EITHER_AGENT
@BOTH
@pytest.mark.parametrize(
    ("prompt", "status", "code"),
    [
        ("[[play:fail_invalid_key]]", 401, "agent_key_invalid"),
        ("[[play:fail_unknown_model]]", 400, "model_not_found"),
        ("[[play:fail_usage_limit]]", 429, "quota_exceeded"),
        ("[[error-event:Error: [resource_exhausted] x]]", 429, "rate_limited"),
        ("[[error-event:RetriableError: [unavailable] x]]", 503, "cursor_unreachable"),
        ("[[error-event:CONVERSATION_TOO_LONG]]", 400, "context_length_exceeded"),
        ("[[exit:0]]", 502, "agent_failed"),
        ("[[half-line]]", 502, "agent_failed"),
    ],
)
async def test_a_failure_before_the_first_word_is_a_status(
    client: Client, prompt: str, status: int, code: str, stream: bool
) -> None:
    got, error = await client.error(prompt, stream=stream)
    assert (got, error["code"], error["status"]) == (status, code, status)
    assert error["request_id"]


@BOTH
@pytest.mark.parametrize(
    ("prompt", "status", "code"),
    [
        ("[[play:fail_auth_required]]", 401, "not_authenticated"),
        ("[[play:fail_keychain_macos]]", 401, "not_authenticated"),
        ("[[play:fail_unknown_option]]", 400, "agent_outdated"),
        ("[[play:fail_trust]]", 403, "workspace_not_trusted"),
        ("[[play:DEFENSIVE_error_event]]", 503, "cursor_unreachable"),
        ("[[play:DEFENSIVE_error_result]]", 429, "quota_exceeded"),
        ("[[play:sigint_abort]]", 502, "agent_failed"),
        (
            "[[init]][[stderr:ActionRequiredError: You've hit your usage limit]][[exit:1]]",
            *(429, "quota_exceeded"),
        ),
        (
            "[[init]][[stderr:ActionRequiredError: Named models unavailable Free plans can only "
            "use Auto. Switch to Auto or upgrade plans to continue.]][[exit:1]]",
            *(402, "plan_required"),
        ),
        ("[[stderr:Error: [resource_exhausted] x]][[exit:1]]", 429, "rate_limited"),
        ("[[stderr:RetriableError: [unavailable] x]][[exit:1]]", 503, "cursor_unreachable"),
        ("[[stderr:getaddrinfo ENOTFOUND api2.cursor.sh]][[exit:1]]", 503, "cursor_unreachable"),
        ("[[stderr:CONVERSATION_TOO_LONG]][[exit:1]]", 400, "context_length_exceeded"),
        ("[[noise:Cannot use this model: x.]][[exit:1]]", 400, "model_not_found"),
        ("[[stderr:⚠ Workspace Trust Required]][[exit:0]]", 403, "workspace_not_trusted"),
        ("[[init]][[exit:0]]", 502, "agent_failed"),
        ("[[init]][[half-line]]", 502, "agent_failed"),
        ("[[flood:300000]][[stderr:Error: You've hit your usage limit]][[exit:1]]", 429,
         "quota_exceeded"),
        ("[[init]][[close-stdout]][[hang]]", 502, "agent_failed"),
    ],
)  # fmt: skip
async def test_each_way_in_which_the_cli_fails_has_a_status(
    client: Client, prompt: str, status: int, code: str, stream: bool
) -> None:
    got, error = await client.error(prompt, stream=stream)
    assert (got, error["code"]) == (status, code)


@EITHER_AGENT
async def test_what_may_pass_later_says_when(client: Client) -> None:
    async with client.chat("[[error-event:RetriableError: [unavailable]]]") as response:
        assert response.headers["Retry-After"] == "5"
    async with client.chat("[[play:fail_usage_limit]]") as response:
        assert response.headers["x-should-retry"] == "false"


async def test_the_message_says_what_to_do_and_carries_no_list(client: Client) -> None:
    _, error = await client.error("[[play:fail_unknown_model]]")
    assert "Cannot use this model: gpt-99" in error["message"]
    assert "cursor-gateway models" in error["message"]
    assert "gemini" not in error["message"]


BREAKS_OFF = "[[text:Hello]][[error-event:RetriableError: [unavailable] x]]"


@EITHER_AGENT
async def test_a_failure_after_the_first_word_is_the_last_frame(client: Client) -> None:
    frames = await client.frames(BREAKS_OFF)
    assert text_of(frames[:-1]) == "Hello"
    assert frames[-1]["error"]["code"] == "cursor_unreachable"
    finish = [f["choices"][0]["finish_reason"] for f in frames if "choices" in f]
    assert set(finish) == {None}


@EITHER_AGENT
@pytest.mark.parametrize(
    ("path", "body", "last", "never"),
    [
        ("chat/completions", {}, b'data: {"error":', b"[DONE]"),
        ("messages", {"max_tokens": 9}, b"event: error", b"message_stop"),
        ("responses", {"input": BREAKS_OFF}, b"event: response.failed", b"response.completed"),
        ("completions", {"prompt": BREAKS_OFF}, b'data: {"error":', b"[DONE]"),
    ],
)
async def test_a_stream_that_breaks_off_ends_like_any_other_after_its_error(
    client: Client, path: str, body: dict[str, Any], last: bytes, never: bytes
) -> None:
    """Codex, Cline and Kilo lose the message where the connection seems to break."""
    messages = [{"role": "user", "content": BREAKS_OFF}]
    asked = {"model": "auto", "messages": messages, "stream": True} | body
    async with client.session.post(client.url(f"/v1/{path}"), json=asked) as response:
        wire = await response.read()
    *_, frame, rest = wire.split(b"\n\n")
    assert (response.status, rest) == (200, b"")
    assert frame.startswith(last) and b"unavailable" in frame
    assert never not in wire


@EITHER_AGENT
async def test_a_failure_after_some_words_is_a_failure_of_a_plain_request(client: Client) -> None:
    status, error = await client.error("[[text:Hello]][[exit:0]]")
    assert (status, error["code"]) == (502, "agent_failed")


async def test_an_error_that_comes_as_the_answer_is_a_failure(client: Client) -> None:
    text = "Error: RetriableError: [unavailable] http/2 stream closed with error code CANCEL (0x8)"
    status, error = await client.error(f"[[text:{text}]]")
    assert (status, error["code"]) == (503, "cursor_unreachable")


@BOTH
async def test_each_time_out_is_named(start: Start, stream: bool) -> None:
    async with start(first_event_timeout=0.3) as client:
        status, error = await client.error("[[hang]]", stream=stream)
        assert status == 504 and "first_event_timeout" in error["message"]
    async with start(idle_timeout=0.4) as client:
        status, error = await client.error("[[init]][[hang]]", stream=stream)
        assert status == 504 and "idle_timeout" in error["message"]
    async with start(total_timeout=0.5) as client:
        status, error = await client.error("[[init]][[hang]]", stream=stream)
        assert status == 504 and "total_timeout" in error["message"]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="exits are watched by threads here")
async def test_an_agent_that_nobody_could_watch_is_ended(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await client.content("[[text:before]]") == "before"

    def no_descriptor(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", no_descriptor)
    for more in ("", "x" * 1_000_000):  # what a pipe does not take is written later
        status, error = await client.error(f"[[text:x]][[hang]]{more}")
        assert (status, error["code"]) == (503, "out_of_resources")
        assert "Too many open files" in error["message"]
    await eventually(lambda: not fake.at_work())


@pytest.mark.parametrize("errno_", [errno.ENOSYS, errno.EPERM])
async def test_agents_are_watched_by_threads_where_the_kernel_has_no_descriptors_for_them(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch, errno_: int
) -> None:
    def unknown(pid: int) -> int:
        raise OSError(errno_, "pidfd_open")

    monkeypatch.setattr(os, "pidfd_open", unknown, raising=False)
    assert await client.content("[[text:all the same]]") == "all the same"
    status, error = await client.error("[[exit:3]]")
    assert (status, error["code"]) == (502, "agent_failed")
    await eventually(lambda: not fake.at_work())


@EITHER_AGENT
async def test_who_never_stops_talking_does_not_finish_in_time_either(start: Start) -> None:
    async with start(total_timeout=0.5) as client:
        status, error = await client.error("[[many:100000000]]")
        assert status == 504 and "total_timeout" in error["message"]


@EITHER_AGENT
async def test_a_running_tool_may_be_silent_for_longer(start: Start) -> None:
    async with start(idle_timeout=0.3) as client:
        status, error = await client.error("[[open-tool:task]][[hang]]")
        assert status == 504 and "1.2 seconds" in error["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"messages": [NaN]}', "invalid_json"),
        (b'"\\ud800', "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"[]", "invalid_value"),
        (b"{}", "missing_messages"),
        (b'{"model": 1, "messages": []}', "missing_messages"),
        (b'{"model": 1, "messages": [{"role":"user","content":"x"}]}', "invalid_value"),
        (b'{"model": " ", "messages": [{"role":"user","content":"x"}]}', "invalid_value"),
        (b'{"model": "auto"}', "missing_messages"),
        (b'{"model": "auto", "messages": []}', "missing_messages"),
        (b'{"model": "auto", "messages": "hi"}', "invalid_value"),
        (b'{"model": "auto", "messages": [1]}', "invalid_value"),
        (b'{"model": "auto", "messages": [{"role": "king"}]}', "invalid_value"),
        (b'{"model": "auto", "messages": [{"role": "user", "content": 5}]}', "invalid_value"),
    ],
)
@EITHER_AGENT
async def test_a_malformed_body_is_a_400_that_names_it(
    client: Client, body: bytes, code: str
) -> None:
    headers = {"Content-Type": "application/json"}
    url = client.url("/v1/chat/completions")
    async with client.session.post(url, data=body, headers=headers) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == code


@pytest.mark.parametrize("steps", ["[[half-echo]]", "[[mirror]][[exit:1]]", "[[mirror]][[hang]]"])
@pytest.mark.agents("cli", "sdk")
async def test_the_prompt_neither_decides_nor_appears(start: Start, steps: str) -> None:
    async with start(first_event_timeout=0.5) as client:
        prompt = f"canary: why do I see Not logged in or a usage limit? {steps}"
        status, error = await client.error(prompt)
    assert status in (502, 504)
    assert "canary" not in error["message"]


async def test_noise_before_the_reason_is_not_quoted(client: Client) -> None:
    prompt = "[[flood:80]][[stderr:Error: You've hit your usage limit]][[exit:1]]"
    _, error = await client.error(prompt)
    assert error["message"].startswith("Cursor's agent says: You've hit your usage limit.")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@EITHER_AGENT
async def test_a_body_that_is_not_what_it_says_is_a_400(client: Client, encoding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    url = client.url("/v1/chat/completions")
    async with client.session.post(url, data=b"not compressed", headers=headers) as response:
        assert response.status == 400
        assert (await response.json())["error"]["request_id"]


@EITHER_AGENT
async def test_half_a_character_in_the_body_is_no_reason_to_refuse_it(
    client: Client, fake: FakeAgent
) -> None:
    text = rb"cut \ud83d and \udc4d, whole \ud83d\udc4d, escaped \\ud83d [[text:ok]]"
    body = b'{"model":"auto","messages":[{"role":"user","content":"%b"}]}' % text
    headers = {"Content-Type": "application/json"}
    url = client.url("/v1/chat/completions")
    async with client.session.post(url, data=body, headers=headers) as response:
        assert response.status == 200
    expected = "cut \ufffd and \ufffd, whole \U0001f44d, escaped \\ud83d [[text:ok]]"
    assert fake.runs()[0]["prompt"] == expected


@EITHER_AGENT
async def test_a_pattern_that_would_backtrack_for_ever_is_judged_at_once(client: Client) -> None:
    pattern = "^(\\w+\\s?){1,40}$"
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = '{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}'
    status, error = await client.error(f"[[text:{answer}]]", response_format=wanted)
    assert (status, error["code"]) == (422, "output_invalid")
    assert "does not match" in error["message"]


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"n": 2}, "unsupported_parameter"),
        ({"logprobs": True}, "unsupported_parameter"),
        ({"top_logprobs": 3}, "unsupported_parameter"),
        ({"max_tokens": 0}, "invalid_value"),
        ({"max_tokens": True}, "invalid_value"),
        ({"max_tokens": "5"}, "invalid_value"),
        ({"stop": [1]}, "invalid_value"),
        ({"stop": ["x" * 1001]}, "invalid_value"),
        ({"stream": "yes"}, "invalid_value"),
        ({"stream_options": 5}, "invalid_value"),
        ({"response_format": {"type": "xml"}}, "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "invalid_value"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}},
            "invalid_value",
        ),
        ({"model": "--force"}, "model_not_found"),
        ({"model": "gpt-99"}, "model_not_found"),
    ],
)
@EITHER_AGENT
async def test_a_field_that_cannot_be_served_is_refused(
    client: Client, fake: FakeAgent, extra: dict[str, object], code: str
) -> None:
    status, error = await client.error("hi", **extra)
    assert (status, error["code"]) == (400, code)
    assert fake.runs() == []


@EITHER_AGENT
async def test_a_schema_cannot_make_the_gateway_fetch_anything(client: Client) -> None:
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    status, error = await client.error("[[nth:{}|{}]]", response_format=wanted)
    assert status == 422
    assert "not part of it" in error["message"]


async def test_the_config_race_costs_nobody_an_answer(client: Client, fake: FakeAgent) -> None:
    fake.put("config-race", "2")
    assert await client.content("[[text:fine]]") == "fine"
    assert len(fake.runs()) == 3
    assert await client.content("[[text:spaced]]") == "spaced"


async def test_a_race_that_never_ends_is_a_failure(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.cursor.starts.START_SPACING", 0.01)
    fake.put("config-race", "99")
    status, error = await client.error("hi")
    assert (status, error["code"]) == (502, "agent_failed")
    assert len(fake.runs()) == 5


@EITHER_AGENT
async def test_slots_are_given_in_order_and_the_rest_is_429(start: Start, fake: FakeAgent) -> None:
    async with start(slots=1, queue=1) as client:
        first = client.chat("[[text:one]][[hang]]", stream=True)
        async with first as running:
            await anext(frames_of(running))
            second = asyncio.ensure_future(client.content("[[text:two]]"))
            third = asyncio.ensure_future(client.error("three"))
            done, _ = await asyncio.wait({second, third}, return_when=asyncio.FIRST_COMPLETED)
            assert done == {third}
            assert third.result()[0] == 429
            assert (await client.get("/health"))[1]["slots"] == {
                "total": 1,
                "busy": 1,
                "waiting": 1,
            }
        assert await second == "two"


@EITHER_AGENT
async def test_who_leaves_the_queue_takes_no_slot(start: Start, fake: FakeAgent) -> None:
    async with start(slots=1, queue=5) as client:
        async with client.chat("[[text:one]][[hang]]", stream=True) as running:
            await anext(frames_of(running))
            waiting = asyncio.ensure_future(client.content("never"))
            while (await client.get("/health"))[1]["slots"]["waiting"] == 0:
                pass
            waiting.cancel()
            while (await client.get("/health"))[1]["slots"]["waiting"] == 1:
                pass
        assert await client.content("[[text:two]]") == "two"
        assert [run["prompt"] for run in fake.runs()] == [
            "[[text:one]][[hang]]",
            "[[text:two]]",
        ]


@EITHER_AGENT
async def test_an_unexpected_error_shows_an_id_and_nothing_else(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr("cursor_gateway.core.turn.Turn.feed", broken)
    status, error = await client.error("hi")
    assert (status, error["code"]) == (500, "server_error")
    assert "canary" not in json.dumps(error)
    assert error["request_id"] in caplog.text


@pytest.mark.parametrize(
    ("prompt", "status", "code"),
    [
        ("[[init]][[blanks:64000]][[exit:1]]", 502, "agent_failed"),
        ("[[init]][[blanks:64000 newline]][[exit:1]]", 502, "agent_failed"),
        ("[[failed-result:1000000 usage limit]][[exit:1]]", 429, "quota_exceeded"),
    ],
)
async def test_a_long_silence_among_the_agents_last_words_stops_nobody(
    client: Client, prompt: str, status: int, code: str
) -> None:
    with stalls() as longest:
        got, error = await client.error(prompt)
    assert (got, error["code"]) == (status, code)
    assert max(longest) < 2


@EITHER_AGENT
async def test_blanks_in_a_code_block_stop_nobody(client: Client) -> None:
    with stalls() as longest:
        wanted = {"type": "json_object"}
        answer = await client.content('[[fenced:120000 {"a": 1}]]', response_format=wanted)
    assert answer == '{"a": 1}'
    assert max(longest) < 2


@pytest.mark.parametrize("depth", [200, 700, 1_000, 100_000])
@pytest.mark.parametrize("place", ["arguments", "result"])
async def test_a_call_of_the_agents_that_is_nested_a_thousand_levels_deep_is_its_own_affair(
    client: Client, depth: int, place: str
) -> None:
    assert await client.content(f"[[deep:{depth} {place}]][[text:Done.]]") == "Done."
