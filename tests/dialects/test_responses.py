"""OpenAI Responses, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import (
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
    Event,
    Finished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.loop_guard import Loop
from cursor_gateway.dialects.responses import parse
from cursor_gateway.errors import (
    InvalidRequest,
    MissingMessages,
    QuotaExceeded,
    UnsupportedParameter,
)
from tests.dialects.test_chat import BODIES, FIELDS

SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}


def exchange(**body: Any) -> Any:
    return parse({"model": "auto", "input": "hi"} | body)


def conversation(**body: Any) -> Any:
    return exchange(**body).conversation


def test_a_text_is_a_user_message_and_instructions_come_first() -> None:
    assert conversation(instructions="Be brief.").messages == (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("hi"),)),
    )
    assert conversation(instructions="").messages == (Message("user", (Text("hi"),)),)


def test_items_as_codex_sends_them() -> None:
    text = {"type": "input_text", "text": "go"}
    parsed = conversation(
        input=[
            {"type": "message", "role": "developer", "content": [text]},
            {"role": "user", "content": "go"},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": "Looking."},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"p":1}'},
            {"type": "function_call", "call_id": "c2", "name": "x", "namespace": "n"},
            {"type": "custom_tool_call", "call_id": "c3", "name": "patch", "input": "***"},
            {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
            {"type": "custom_tool_call_output", "call_id": "c3", "output": [text]},
            {"type": "web_search_call", "id": "w"},
        ]
    )
    assert parsed.messages == (
        Message("system", (Text("go"),)),
        Message("user", (Text("go"),)),
        Message(
            "assistant",
            (
                Text("Looking."),
                ToolCall("c1", "ls", '{"p":1}'),
                ToolCall("c2", "n__x", "{}"),
                ToolCall("c3", "patch", '{"input":"***"}'),
            ),
        ),
        Message("user", (ToolResult("c1", (Text("a.txt"),)),)),
        Message("user", (ToolResult("c3", (Text("go"),)),)),
    )


TOOLS = [
    {"type": "function", "name": "ls", "description": "List", "parameters": SCHEMA},
    {"type": "custom", "name": "patch", "description": "Patch", "format": {"type": "text"}},
    {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "x"}, "odd"]},
    {"type": "namespace", "name": "empty"},
    {"type": "web_search"},
    "odd",
]


def test_tools_of_every_kind() -> None:
    free = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    assert conversation(tools=TOOLS).tools == (
        ToolSpec("ls", "List", SCHEMA),
        ToolSpec("patch", "Patch", free),
        ToolSpec("n__x", "", {"type": "object", "properties": {}}),
    )


@pytest.mark.parametrize(
    ("choice", "parsed"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "ls"}, ToolChoice("required", "ls")),
        ({"type": "function", "name": "x"}, ToolChoice("required", "n__x")),
        ({"type": "web_search"}, ToolChoice()),
    ],
)
def test_tool_choices(choice: Any, parsed: ToolChoice) -> None:
    assert conversation(tools=TOOLS, tool_choice=choice).tool_choice == parsed


def test_limits_and_formats() -> None:
    schema = {"type": "json_schema", "name": "x", "schema": {"type": "array"}}
    parsed = conversation(max_output_tokens=5, parallel_tool_calls=False, text={"format": schema})
    assert (parsed.max_tokens, parsed.parallel_calls) == (5, False)
    assert parsed.output == JsonOutput({"type": "array"})
    assert conversation(text={"format": {"type": "json_object"}}).output == JsonOutput()
    assert conversation(text={"format": {"type": "text"}}).output is None
    assert conversation(text={"verbosity": "low"}).output is None


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"input": []}, MissingMessages),
        ({"input": ""}, MissingMessages),
        ({"input": [{"type": "reasoning", "summary": []}]}, MissingMessages),
        ({"input": [{"role": "king"}]}, InvalidRequest),
        ({"input": [{"type": "item_reference", "id": "x"}]}, UnsupportedParameter),
        ({"previous_response_id": "resp_1"}, UnsupportedParameter),
        ({"tool_choice": {"type": "function", "name": "no"}}, InvalidRequest),
    ],
)
def test_what_would_change_the_answer_is_refused(body: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        exchange(**body)


@given(st.dictionaries(FIELDS, BODIES), BODIES, st.booleans())
def test_any_body_is_accepted_or_refused_by_name(
    body: dict[str, Any], given: Any, plausible: bool
) -> None:
    if plausible:
        body = {"model": "auto"} | body | {"input": given}
    try:
        parse(body)
    except InvalidRequest as refused:
        assert refused.message


EVENTS: list[Event] = [
    ThinkingDelta("h"),
    ThinkingDelta("m"),
    TextDelta("Hel"),
    TextDelta("lo"),
    AgentCall("a", "read", {}),
    ToolCall("c1", "ls", '{"cmd":"x"}'),
    ToolCall("c2", "patch", '{"input":"***"}'),
    ToolCall("c3", "n__x", "{}"),
    ToolCall("c4", "unlisted", "{}"),
    Finished("tool_calls", Usage(10, 5, 3)),
]


def events_of(wire: bytes) -> list[Any]:
    frames = [frame.split(b"\n") for frame in wire.strip().split(b"\n\n")]
    for name, data in frames:
        assert name == b"event: " + json.loads(data[6:])["type"].encode()
    return [json.loads(data[6:]) for _, data in frames]


def test_the_whole_sequence_of_typed_events() -> None:
    events = events_of(exchange(tools=TOOLS).encoder("1", 7).feed(EVENTS))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [event["type"].removeprefix("response.") for event in events]
    assert types == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added"),
        *["reasoning_summary_text.delta"] * 2,
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added"),
        *["output_text.delta"] * 2,
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "custom_tool_call_input.delta"),
        *("custom_tool_call_input.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    response = events[-1]["response"]
    assert (response["id"], response["status"], response["created_at"]) == (
        "resp_1",
        "completed",
        7,
    )
    reasoning, message, call, custom, spaced, _ = response["output"]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert message["content"][0]["text"] == "Hello"
    assert (call["call_id"], call["name"], call["arguments"]) == ("c1", "ls", '{"cmd":"x"}')
    assert (custom["type"], custom["input"]) == ("custom_tool_call", "***")
    assert (spaced["name"], spaced["namespace"]) == ("x", "n")
    assert response["usage"]["input_tokens_details"] == {"cached_tokens": 3}
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == response["output"]


@given(
    st.lists(
        st.builds(TextDelta, st.text(min_size=1))
        | st.builds(ThinkingDelta, st.text(min_size=1))
        | st.builds(ToolCall, st.just("c"), st.just("ls"), st.just('{"p":1}'))
    )
)
def test_a_stream_says_what_the_fold_says(deltas: list[Event]) -> None:
    asked = exchange()
    encoder, fold = asked.encoder("1", 0), asked.fold("1", 0)
    events = [*deltas, Finished("stop", None)]
    wire = b"".join(encoder.feed([event]) for event in events)
    fold.feed(events)
    assert events_of(wire)[-1]["response"] == fold.body()


def test_a_cut_answer_is_incomplete() -> None:
    end = Finished("length", Usage(1, 1, estimated=True), Loop("ls", 3, "repeat", 2))
    last = events_of(exchange().encoder("1", 0).feed([TextDelta("x"), end]))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["usage"]["estimated"] is True
    assert last["response"]["cursor_gateway"]["loop_guard"]["tool"] == "ls"


def test_a_failure_is_a_failed_response() -> None:
    events = events_of(exchange().encoder("1", 0).fail(QuotaExceeded("No more."), "r1"))
    assert [event["type"] for event in events][-1] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "quota_exceeded"


def test_silence_is_filled() -> None:
    encoder = exchange().encoder("1", 0)
    assert encoder.keep_alive() == b": keep-alive\n\n"
    first = [event["type"] for event in events_of(encoder.heartbeat())]
    assert first == ["response.created", "response.in_progress", "response.in_progress"]
    assert [event["type"] for event in events_of(encoder.heartbeat())] == ["response.in_progress"]
