"""Anthropic Messages, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import (
    ImageLink,
    JsonOutput,
    Message,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.core.events import (
    AgentCall,
    AnswerEvent,
    Finished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.loop_guard import Loop
from cursor_gateway.core.models import Model
from cursor_gateway.dialects.messages import (
    SIGNATURE,
    count_tokens,
    parse,
    render_error,
    render_models,
)
from cursor_gateway.errors import (
    AgentFailed,
    InvalidApiKey,
    InvalidRequest,
    MissingMessages,
    NotAuthenticated,
    QuotaExceeded,
    UnsupportedParameter,
)
from tests.support.bodies import BODIES, FIELDS

USER = {"role": "user", "content": "hi"}


def exchange(**body: Any) -> Any:
    return parse({"model": "auto", "max_tokens": 100, "messages": [USER]} | body)


def conversation(**body: Any) -> Any:
    return exchange(**body).conversation


def test_a_request_as_claude_code_sends_it() -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    parsed = conversation(
        system=[{"type": "text", "text": "Rules", "cache_control": {"type": "ephemeral"}}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {"role": "system", "content": "Reminder"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "Looking"},
                    {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
                    {"type": "tool_reference", "tool_name": "Edit"},
                    {"type": "image", "source": {"type": "url", "url": "https://x/y"}},
                ],
            },
        ],
        tools=[
            {"name": "Bash", "description": "Run", "input_schema": schema, "defer_loading": True},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        stop_sequences=["END"],
        thinking={"type": "adaptive"},
        context_management={"edits": []},
        metadata={"user_id": "u"},
        output_config={"effort": "high"},
    )
    assert parsed.messages == (
        Message("system", (Text("Rules"),)),
        Message("user", (Text("go"),)),
        Message("system", (Text("Reminder"),)),
        Message("assistant", (Text("Looking"), ToolCall("t1", "Bash", '{"command":"ls"}'))),
        Message(
            "user",
            (
                ToolResult("t1", (Text("no"),), is_error=True),
                Text("[the tool Edit]"),
                ImageLink("https://x/y"),
            ),
        ),
    )
    assert parsed.tools == (ToolSpec("Bash", "Run", schema),)
    assert (parsed.max_tokens, parsed.stop, parsed.output) == (100, ("END",), None)


@pytest.mark.parametrize(
    ("choice", "parsed", "parallel"),
    [
        (None, ToolChoice(), True),
        ({"type": "auto"}, ToolChoice(), True),
        ({"type": "none"}, ToolChoice("none"), True),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "tool", "name": "a"}, ToolChoice("required", "a"), True),
    ],
)
def test_tool_choices(choice: Any, parsed: ToolChoice, parallel: bool) -> None:
    asked = conversation(tools=[{"name": "a"}], tool_choice=choice)
    assert (asked.tool_choice, asked.parallel_calls) == (parsed, parallel)


def test_what_cannot_be_read_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="tool_choice"):
        conversation(tool_choice={"type": "tool", "name": "a"})
    with pytest.raises(InvalidRequest, match="role"):
        conversation(messages=[{"role": "tool"}])
    with pytest.raises(MissingMessages):
        conversation(messages=[])


def test_a_thread_is_refused_in_the_words_that_the_sdk_knows() -> None:
    with pytest.raises(UnsupportedParameter) as refused:
        conversation(thread={"type": "create"})
    details = render_error(refused.value, "r")["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_a_schema_for_the_answer() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "array"}}
    expected = JsonOutput({"type": "array"})
    assert conversation(output_config={"format": wanted}).output == expected
    assert conversation(output_format=wanted).output == expected


@given(st.dictionaries(FIELDS, BODIES), st.booleans())
def test_any_body_is_accepted_or_refused_by_name(body: dict[str, Any], plausible: bool) -> None:
    if plausible:
        body = {"model": "auto", "messages": [USER]} | body
    try:
        parse(body)
    except InvalidRequest as refused:
        assert refused.message


EVENTS: list[AnswerEvent] = [
    ThinkingDelta("h"),
    ThinkingDelta("m"),
    TextDelta("Grü"),
    TextDelta("ße"),
    AgentCall("c", "read", {}),
    ToolCall("c1", "ls", '{"p":1}'),
    ToolCall("c2", "ls", "{}"),
    Finished("tool_calls", Usage(10, 5, 3)),
]


def events_of(wire: bytes) -> list[Any]:
    frames = [frame.split(b"\n") for frame in wire.strip().split(b"\n\n")]
    for name, data in frames:
        assert name == b"event: " + json.loads(data[6:])["type"].encode()
    return [json.loads(data[6:]) for _, data in frames]


def test_the_whole_order_of_events() -> None:
    encoder = exchange(thinking={"type": "enabled"}).encoder("1", 0)
    events = events_of(encoder.feed(EVENTS))
    types = [(event["type"], event.get("index")) for event in events]
    assert types == [
        ("message_start", None),
        ("content_block_start", 0),
        *[("content_block_delta", 0)] * 3,
        ("content_block_stop", 0),
        ("content_block_start", 1),
        *[("content_block_delta", 1)] * 2,
        ("content_block_stop", 1),
        *[("content_block_start", 2), ("content_block_delta", 2), ("content_block_stop", 2)],
        *[("content_block_start", 3), ("content_block_delta", 3), ("content_block_stop", 3)],
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert events[0]["message"]["id"] == "msg_1"
    assert events[4]["delta"] == {"type": "signature_delta", "signature": SIGNATURE}
    assert events[10]["content_block"] == {
        "type": "tool_use",
        "id": "c1",
        "name": "ls",
        "input": {},
    }
    assert events[11]["delta"] == {"type": "input_json_delta", "partial_json": '{"p":1}'}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"] == {
        "input_tokens": 7,
        "output_tokens": 5,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 0,
    }


def test_what_a_providers_own_tools_did_is_left_out_and_a_text_document_read() -> None:
    content = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "document", "source": {"type": "text", "data": "Once upon a time"}},
    ]
    (message,) = conversation(messages=[{"role": "user", "content": content}]).messages
    assert message.parts == (Text("Once upon a time"),)
    pdf = {"type": "document", "source": {"type": "base64", "data": "JVBERg=="}}
    with pytest.raises(UnsupportedParameter, match="document"):
        conversation(messages=[{"role": "user", "content": [pdf]}])


def test_thinking_is_shown_only_to_those_who_asked() -> None:
    quiet = exchange()
    encoder, fold = quiet.encoder("1", 0), quiet.fold("1", 0)
    assert b"thinking" not in encoder.feed(EVENTS)
    fold.feed(EVENTS)
    assert [block["type"] for block in fold.body()["content"]] == ["text", "tool_use", "tool_use"]


def folded(events: list[Any]) -> list[dict[str, Any]]:
    """A stream as a client puts it together."""
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            match event["delta"]:
                case {"type": "text_delta", "text": text}:
                    blocks[-1]["text"] += text
                case {"type": "thinking_delta", "thinking": text}:
                    blocks[-1]["thinking"] += text
                case {"type": "signature_delta", "signature": signature}:
                    blocks[-1]["signature"] = signature
                case {"type": "input_json_delta", "partial_json": text}:
                    blocks[-1]["input"] = json.loads(text)
    return blocks


@given(
    st.lists(
        st.builds(TextDelta, st.text(min_size=1))
        | st.builds(ThinkingDelta, st.text(min_size=1))
        | st.builds(ToolCall, st.just("c"), st.just("ls"), st.just('{"p":1}'))
    )
)
def test_a_stream_says_what_the_fold_says(deltas: list[AnswerEvent]) -> None:
    asked = exchange(thinking={"type": "enabled"})
    encoder, fold = asked.encoder("1", 0), asked.fold("1", 0)
    events = [*deltas, Finished("stop", None)]
    wire = b"".join(encoder.feed([event]) for event in events)
    fold.feed(events)
    assert folded(events_of(wire)) == fold.body()["content"]


@pytest.mark.parametrize(
    ("finished", "reason", "sequence"),
    [
        (Finished("stop", None), "end_turn", None),
        (Finished("length", None), "max_tokens", None),
        (Finished("stop", None, stop_sequence="END"), "stop_sequence", "END"),
    ],
)
def test_stop_reasons(finished: Finished, reason: str, sequence: str | None) -> None:
    fold = exchange().fold("1", 0)
    fold.feed([finished])
    assert (fold.body()["stop_reason"], fold.body()["stop_sequence"]) == (reason, sequence)


def test_an_estimate_and_a_stopped_loop_say_so() -> None:
    loop = Loop("ls", 3, "repeat", 2)
    end = Finished("stop", Usage(1, 1, estimated=True), loop)
    asked = exchange()
    encoder, fold = asked.encoder("1", 0), asked.fold("1", 0)
    fold.feed([end])
    assert fold.body()["usage"]["estimated"] is True
    guard = {"loop_guard": loop.as_json()}
    assert fold.body()["cursor_gateway"] == guard
    assert events_of(encoder.feed([end]))[-2]["cursor_gateway"] == guard


def test_silence_is_filled_with_pings_after_the_start() -> None:
    encoder = exchange().encoder("1", 0)
    assert [event["type"] for event in events_of(encoder.keep_alive())] == ["message_start", "ping"]
    assert [event["type"] for event in events_of(encoder.heartbeat())] == ["ping"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotAuthenticated("x"), "authentication_error"),
        (InvalidApiKey("x"), "authentication_error"),
        (QuotaExceeded("x"), "rate_limit_error"),
        (InvalidRequest("x"), "invalid_request_error"),
        (AgentFailed("x"), "api_error"),
    ],
)
def test_errors_have_anthropics_shape(error: Any, kind: str) -> None:
    body = render_error(error, "r1")
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["request_id"] == "r1"
    (event,) = events_of(exchange().encoder("1", 0).fail(error, "r1"))
    assert event == body


def test_a_count_errs_on_the_high_side() -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "word " * 100}]}
    assert count_tokens(body) == {"input_tokens": 167, "estimated": True}


def test_models_in_anthropics_shape() -> None:
    listed = render_models([Model("a", "A"), Model("b", "B")], 0)
    assert listed["data"][0] == {
        "type": "model",
        "id": "a",
        "display_name": "A",
        "created_at": "1970-01-01T00:00:00Z",
    }
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("a", "b", False)
    assert render_models([], 0) == {"data": [], "has_more": False}
