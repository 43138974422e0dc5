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
    AnswerEvent,
    Finished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.loop_guard import Loop
from cursor_gateway.dialects.response_history import find_record, render_input_items
from cursor_gateway.dialects.responses import parse
from cursor_gateway.errors import (
    ContextTooLong,
    InvalidRequest,
    MissingMessages,
    PreviousResponseNotFound,
    QuotaExceeded,
    ResponseNotFound,
    UnsupportedParameter,
)
from tests.support.bodies import BODIES, FIELDS

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
    {
        "type": "custom",
        "name": "sum",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: INT"},
    },
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
        ToolSpec("sum", "\n\nThe input must fit this lark grammar:\nstart: INT", free),
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
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [
                    {"type": "function", "name": "x"},
                    {"type": "custom", "name": "patch"},
                    {"type": "mcp", "server_label": "deepwiki"},
                ],
            },
            ToolChoice("required", allowed=frozenset({"n__x", "patch"})),
        ),
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
        ({"input": ["odd"]}, InvalidRequest),
        ({"conversation": "conv_1"}, UnsupportedParameter),
        ({"prompt": {"id": "p"}}, UnsupportedParameter),
        ({"top_logprobs": 3}, UnsupportedParameter),
        ({"previous_response_id": 5}, InvalidRequest),
        ({"previous_response_id": "resp_1"}, PreviousResponseNotFound),
        ({"input": [{"type": "item_reference", "id": "x"}]}, ResponseNotFound),
        ({"tool_choice": {"type": "function", "name": "no"}}, InvalidRequest),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, InvalidRequest),
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


EVENTS: list[AnswerEvent] = [
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
    assert response["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == response["output"]


@given(
    st.lists(
        st.builds(TextDelta, st.text(min_size=1))
        | st.builds(ThinkingDelta, st.text(min_size=1))
        | st.builds(ToolCall, st.just("c"), st.just("ls"), st.just('{"p":1}'))
    )
)
def test_a_stream_says_what_the_fold_says(deltas: list[AnswerEvent]) -> None:
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


class Memory(dict[str, Any]):
    """What is kept, by nobody in particular."""

    def put(self, response_id: str, value: dict[str, Any]) -> None:
        self[response_id] = json.loads(json.dumps(value))


def answered(kept: Memory, answer_id: str, *events: AnswerEvent, **body: Any) -> Any:
    """One answer with that id, and what was asked for it."""
    asked = parse({"model": "auto"} | body, kept)
    fold = asked.fold(answer_id, 0)
    fold.feed([*events, Finished("stop", None)])
    return asked.conversation, fold.body()


def test_what_was_said_before_precedes_the_new_input_but_not_its_instructions() -> None:
    kept = Memory()
    answered(kept, "1", TextDelta("Hello"), input="hi", instructions="Be brief.")
    call = ToolCall("c1", "ls", "{}")
    more = {"previous_response_id": "resp_1"}
    _, second = answered(kept, "2", ThinkingDelta("hm"), call, input="list", **more)
    assert second["previous_response_id"] == "resp_1"
    result = {"type": "function_call_output", "call_id": "c1", "output": "a.txt"}
    more = {"previous_response_id": "resp_2", "instructions": "Be kind."}
    third, _ = answered(kept, "3", input=[result], **more)
    assert third.messages == (
        Message("system", (Text("Be kind."),)),
        Message("user", (Text("hi"),)),
        Message("assistant", (Text("Hello"),)),
        Message("user", (Text("list"),)),
        Message("assistant", (call,)),
        Message("user", (ToolResult("c1", (Text("a.txt"),)),)),
    )


def test_a_chain_with_a_missing_link_is_refused_not_shortened() -> None:
    kept = Memory()
    answered(kept, "1", input="hi")
    answered(kept, "2", input="more", previous_response_id="resp_1")
    del kept["resp_1"]
    with pytest.raises(PreviousResponseNotFound, match="resp_1"):
        answered(kept, "3", input="again", previous_response_id="resp_2")


def test_only_what_may_be_kept_is_kept() -> None:
    kept = Memory()
    _, body = answered(kept, "1", input="hi", store=False, metadata={"a": "b"})
    assert (body["store"], body["metadata"]) == (False, {"a": "b"})
    assert kept == {}
    failing = parse({"model": "auto", "input": "hi"}, kept).encoder("2", 0)
    failing.fail(QuotaExceeded("No more."), "r")
    assert kept == {}


def test_a_streamed_answer_is_kept_under_the_id_that_the_client_saw() -> None:
    kept = Memory()
    encoder = parse({"model": "auto", "input": "hi"}, kept).encoder("1", 0)
    events = events_of(encoder.feed([TextDelta("Hello"), Finished("length", None)]))
    seen = events[0]["response"]["id"]
    assert kept[seen] == {
        "input": [{"type": "message", "role": "user", "content": "hi"}],
        "response": events[-1]["response"],
    }


def test_an_item_reference_stands_for_the_item() -> None:
    kept = Memory()
    call = ToolCall("c1", "ls", "{}")
    _, body = answered(kept, "1", ThinkingDelta("hm"), TextDelta("Hello"), call, input="hi")
    references = [{"type": "item_reference", "id": item["id"]} for item in body["output"]]
    asked, _ = answered(kept, "2", input=[*references, {"role": "user", "content": "go on"}])
    assert asked.messages[0] == Message("assistant", (Text("Hello"), call))
    del kept["resp_1"]
    assert kept["resp_2"]["input"][1] == body["output"][1]
    with pytest.raises(ResponseNotFound, match="msg_1_9"):
        answered(kept, "3", input=[{"type": "item_reference", "id": "msg_1_9"}])


def test_a_response_is_read_once_however_many_items_refer_to_it() -> None:
    read: list[str] = []

    class Counting(Memory):
        def get(self, response_id: str, default: Any = None) -> Any:
            read.append(response_id)
            return super().get(response_id, default)

    kept = Counting()
    _, body = answered(kept, "1", TextDelta("Hello"), input="hi")
    reference = {"type": "item_reference", "id": body["output"][0]["id"]}
    answered(kept, "2", input=[reference] * 100)
    assert read == ["resp_1"]


def test_more_items_than_a_model_could_read_are_refused_before_they_are_looked_up() -> None:
    reference = {"type": "item_reference", "id": "nothing"}
    with pytest.raises(ContextTooLong, match="`input` holds more than 20000"):
        exchange(input=[reference] * 20_001)


def test_the_input_items_are_listed_in_both_orders() -> None:
    kept = Memory()
    named = {"type": "message", "role": "user", "content": "b", "id": "mine"}
    answered(kept, "1", input=[{"role": "user", "content": "a"}, named])
    record = find_record(kept, "resp_1")
    oldest_first = render_input_items(record, ascending=True)
    assert [item["id"] for item in oldest_first["data"]] == ["in_1_0", "mine"]
    newest_first = render_input_items(record, ascending=False)
    assert (newest_first["first_id"], newest_first["last_id"]) == ("mine", "in_1_0")
    with pytest.raises(ResponseNotFound):
        find_record(kept, "resp_9")
