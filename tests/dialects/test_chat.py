"""Chat Completions, without a server: bodies in, conversations and raw frames out."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import (
    ImageFile,
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
from cursor_gateway.dialects.chat import parse, render_error
from cursor_gateway.errors import GatewayError, InvalidRequest, NotAuthenticated
from tests.support.bodies import BODIES, FIELDS


def conversation(*messages: dict[str, Any], **body: Any) -> Any:
    return parse({"model": "auto", "messages": list(messages)} | body).conversation


def one(**message: Any) -> Message:
    (parsed,) = conversation(message).messages
    assert isinstance(parsed, Message)
    return parsed


@pytest.mark.parametrize(
    ("message", "parsed"),
    [
        ({"role": "system", "content": "s"}, Message("system", (Text("s"),))),
        ({"role": "developer", "content": "s"}, Message("system", (Text("s"),))),
        ({"role": "user", "content": "u"}, Message("user", (Text("u"),))),
        ({"role": "user", "content": ""}, Message("user", ())),
        ({"role": "user", "content": None}, Message("user", ())),
        ({"role": "user"}, Message("user", ())),
        ({"role": "user", "content": []}, Message("user", ())),
        ({"role": "assistant", "content": None}, Message("assistant", ())),
        (
            {"role": "tool", "tool_call_id": "c", "content": "out"},
            Message("user", (ToolResult("c", (Text("out"),)),)),
        ),
        (
            {"role": "function", "name": "f", "content": "out"},
            Message("user", (ToolResult("f", (Text("out"),)),)),
        ),
        ({"role": "tool", "content": None}, Message("user", (ToolResult("", ()),))),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            Message("assistant", (Text("no"),)),
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            Message("assistant", ()),
        ),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            Message("user", (Text("a"),)),
        ),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y"}]},
            Message("user", (ImageLink("https://x/y"),)),
        ),
    ],
)
def test_every_role_and_form_of_content(message: dict[str, Any], parsed: Message) -> None:
    assert one(**message) == parsed


def test_calls_in_the_history_keep_their_arguments() -> None:
    calls = [
        {"id": "a", "function": {"name": "ls", "arguments": '{"p": 1}'}},
        {"id": "b", "function": {"name": "ls", "arguments": {"p": 1}}},
        {"function": {"name": "ls"}},
    ]
    message = one(role="assistant", content="hm", tool_calls=calls)
    assert message.parts == (
        Text("hm"),
        ToolCall("a", "ls", '{"p": 1}'),
        ToolCall("b", "ls", '{"p":1}'),
        ToolCall("ls", "ls", "{}"),
    )
    legacy = one(role="assistant", function_call={"name": "f", "arguments": "{}"})
    assert legacy.parts == (ToolCall("f", "f", "{}"),)


@pytest.mark.parametrize(
    ("data", "extension"),
    [
        (b"\x89PNG\r\n\x1a\n", "png"),
        (b"\xff\xd8\xff\xe0", "jpg"),
        (b"GIF89a", "gif"),
        (b"RIFF\0\0\0\0WEBP", "webp"),
    ],
)
def test_images_are_known_by_their_bytes(data: bytes, extension: str) -> None:
    url = f"data:image/whatever;base64,{base64.b64encode(data).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    assert one(role="user", content=[part]).parts == (ImageFile(data, extension),)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": ["bare"]},
        {"role": "user", "content": [{"type": "image_url"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]},
        {"role": "assistant", "tool_calls": [{"id": "x"}]},
        {"role": "assistant", "tool_calls": "x"},
        {"role": None},
    ],
)
def test_content_that_would_be_lost_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as info:
        one(**message)
    assert str(info.value.param).startswith("messages[0]")


def test_limits_and_formats_are_understood() -> None:
    user = {"role": "user", "content": "hi"}
    parsed = conversation(user, max_tokens=5.0, stop=["a", ""], response_format={"type": "text"})
    assert (parsed.max_tokens, parsed.stop, parsed.output) == (5, ("a",), None)
    assert conversation(user, response_format={}).output is None
    assert conversation(user, response_format={"type": "json_object"}).output == JsonOutput()
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}
    assert conversation(user, response_format=schema).output == JsonOutput({"type": "array"})


def test_tools_come_in_every_form() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    parsed = conversation(
        {"role": "user", "content": "x"},
        tools=[
            {
                "type": "function",
                "function": {"name": "a", "description": "A", "parameters": schema},
            },
            {"name": "b", "parameters": None, "input_schema": schema},
            {"type": "function", "name": "c", "parameters": schema},
            {"type": "custom", "name": "d"},
            {"type": "web_search"},
            {"type": "function", "function": {"name": ""}},
            {"type": "function", "function": 5},
            "odd",
        ],
        functions=[{"name": "e", "description": 5, "parameters": schema}],
    )
    empty = {"type": "object", "properties": {}}
    assert parsed.tools == (
        ToolSpec("a", "A", schema),
        ToolSpec("b", "", schema),
        ToolSpec("c", "", schema),
        ToolSpec("d", "", empty),
        ToolSpec("e", "", schema),
    )
    assert parsed.parallel_calls and parsed.tool_choice == ToolChoice()


@pytest.mark.parametrize(
    ("choice", "parsed"),
    [
        ("auto", ToolChoice()),
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ("any", ToolChoice("required")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "function", "function": {"name": "a"}}, ToolChoice("required", "a")),
        ({"type": "tool", "name": "a"}, ToolChoice("required", "a")),
        ({"type": "web_search"}, ToolChoice()),
        ({"type": "function", "function": 5}, ToolChoice()),
        ({}, ToolChoice()),
    ],
)
def test_a_tool_choice_comes_in_every_form(choice: Any, parsed: ToolChoice) -> None:
    user = {"role": "user", "content": "x"}
    tools = [{"name": "a"}]
    assert conversation(user, tools=tools, tool_choice=choice).tool_choice == parsed


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_choice_among_some_of_the_tools(mode: Any) -> None:
    listed = [
        {"type": "function", "function": {"name": "a"}},
        {"name": "b"},
        {"type": "web_search"},
    ]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}
    tools = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    parsed = conversation({"role": "user", "content": "x"}, tools=tools, tool_choice=choice)
    assert parsed.tool_choice == ToolChoice(mode, allowed=frozenset({"a", "b"}))
    assert [tool.name for tool in parsed.callable_tools] == ["a", "b"]


@pytest.mark.parametrize(
    ("allowed", "param"),
    [
        (None, ""),
        ({"mode": "auto"}, ".tools"),
        ({"mode": "none", "tools": []}, ".mode"),
        ({"mode": ["auto"], "tools": []}, ".mode"),
        ({"mode": "auto", "tools": ["a"]}, ".tools[0]"),
        ({"mode": "auto", "tools": [{"function": "a"}]}, ".tools[0]"),
        ({"mode": "auto", "tools": [{"name": "a"}, {"function": {}}]}, ".tools[1].name"),
        ({"mode": "auto", "tools": [{"name": "a"}, {"name": "b"}]}, ".tools[1]"),
    ],
)
def test_a_choice_among_tools_that_cannot_be_read_is_refused_by_name(
    allowed: Any, param: str
) -> None:
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    with pytest.raises(InvalidRequest) as refused:
        conversation({"role": "user"}, tools=[{"name": "a"}], tool_choice=choice)
    assert refused.value.param == f"tool_choice.allowed_tools{param}"


def test_a_choice_of_no_tool_is_refused() -> None:
    choice = {"type": "function", "function": {"name": "b"}}
    with pytest.raises(InvalidRequest, match="tool_choice"):
        conversation({"role": "user"}, tools=[{"name": "a"}], tool_choice=choice)


def test_a_call_that_an_old_client_sends_back_in_both_forms_is_one_call() -> None:
    function = {"name": "ls", "arguments": "{}"}
    both = one(
        role="assistant", tool_calls=[{"id": "c", "function": function}], function_call=function
    )
    assert both.parts == (ToolCall("c", "ls", "{}"),)


def test_calls_and_results_may_stand_in_content_blocks() -> None:
    url = base64.b64encode(b"GIF89a").decode()
    use = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": 1}}
    message = one(role="assistant", content=[{"type": "text", "text": "hm"}, use])
    assert message.parts == (Text("hm"), ToolCall("t1", "ls", '{"p":1}'))
    image = {"type": "image", "source": {"type": "base64", "data": url}}
    link = {"type": "image", "source": {"type": "url", "url": "https://x/y"}}
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "plain", "is_error": True},
        {
            "type": "tool_result",
            "tool_use_id": "t2",
            "content": [{"type": "text", "text": "a"}, image],
        },
        {"type": "tool_result", "content": [link, use]},
        {"type": "text", "text": "and"},
    ]
    assert one(role="user", content=results).parts == (
        ToolResult("t1", (Text("plain"),), is_error=True),
        ToolResult("t2", (Text("a"), ImageFile(b"GIF89a", "gif"))),
        ToolResult("", (ImageLink("https://x/y"),)),
        Text("and"),
    )


def test_calls_are_rendered_with_index_id_and_type() -> None:
    body = {"model": "m", "messages": [{"role": "user"}], "tools": [{"name": "ls"}]}
    encoder, fold = parse(body).encoder("i", 0), parse(body).fold("i", 0)
    events: list[AnswerEvent] = [
        ToolCall("c1", "ls", "{}"),
        ToolCall("c2", "ls", '{"p":1}'),
        Finished("tool_calls", None, Loop("ls", 3, "repeat", 2)),
    ]
    wire = encoder.feed(events)
    fold.feed(events)
    frames = [json.loads(line[6:]) for line in wire.split(b"\n") if line.startswith(b"data: {")]
    deltas = [frame["choices"][0]["delta"] for frame in frames]
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": '{"p":1}'}},
    ]
    assert deltas[1:3] == [{"tool_calls": [{"index": at} | call]} for at, call in enumerate(calls)]
    message = fold.body()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "tool_calls": calls}
    guard = {"loop_guard": Loop("ls", 3, "repeat", 2).as_json()}
    assert frames[-1]["cursor_gateway"] == fold.body()["cursor_gateway"] == guard


@given(st.dictionaries(FIELDS, BODIES), st.booleans())
def test_any_body_is_accepted_or_refused_by_name(body: dict[str, Any], plausible: bool) -> None:
    if plausible:
        body = {"model": "auto", "messages": [{"role": "user", "content": "x"}]} | body
    try:
        parse(body)
    except InvalidRequest as refused:
        assert refused.message


EVENTS: list[AnswerEvent] = [
    ThinkingDelta("hm"),
    TextDelta("Grüße\n\u2028"),
    AgentCall("c", "read", {}),
    Finished("stop", Usage(10, 5, 3)),
]


def test_frames_are_exactly_these_bytes() -> None:
    body = {"model": "a/b", "messages": [{"role": "user", "content": "x"}], "stream": True}
    encoder = parse(body | {"stream_options": {"include_usage": True}}).encoder("id-1", 7)
    head = 'data: {"id":"chatcmpl-id-1","object":"chat.completion.chunk","created":7,"model":"a/b",'
    choice = head + '"choices":[{"index":0,"delta":'
    assert encoder.feed(EVENTS).decode() == (
        f'{choice}{{"role":"assistant","content":""}},"finish_reason":null}}]}}\n\n'
        f'{choice}{{"reasoning_content":"hm"}},"finish_reason":null}}]}}\n\n'
        f'{choice}{{"content":"Grüße\\n\u2028"}},"finish_reason":null}}]}}\n\n'
        ": the agent uses a tool of its own\n\n"
        f'{choice}{{}},"finish_reason":"stop"}}]}}\n\n'
        f'{head}"choices":[],"usage":{{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,'
        '"prompt_tokens_details":{"cached_tokens":3}}}\n\n'
        "data: [DONE]\n\n"
    )


def test_the_role_comes_first_even_in_a_heartbeat_and_only_once() -> None:
    encoder = parse({"model": "m", "messages": [{"role": "user"}]}).encoder("i", 0)
    assert encoder.keep_alive() == b": keep-alive\n\n"
    first, second = encoder.heartbeat(), encoder.heartbeat()
    assert first.count(b"data: ") == 2 and b'"role":"assistant"' in first
    assert second.count(b"data: ") == 1 and b'"delta":{}' in second
    assert b"role" not in encoder.feed([TextDelta("x")])


@given(
    st.lists(
        st.builds(TextDelta, st.text(min_size=1)) | st.builds(ThinkingDelta, st.text(min_size=1))
    ),
    st.sampled_from(["stop", "length"]),
    st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9), estimated=st.booleans()),
)
def test_a_stream_says_what_the_fold_says(
    deltas: list[AnswerEvent], reason: Any, usage: Any
) -> None:
    exchange = parse(
        {"model": "m", "messages": [{"role": "user"}], "stream_options": {"include_usage": True}}
    )
    events = [*deltas, Finished(reason, usage)]
    encoder, fold = exchange.encoder("i", 0), exchange.fold("i", 0)
    wire = b"".join(encoder.feed([event]) for event in events)
    fold.feed(events)
    body = orjson.loads(orjson.dumps(fold.body()))
    data = [line[6:] for line in wire.split(b"\n") if line.startswith(b"data: ")]
    assert data[-1] == b"[DONE]"
    frames = [json.loads(entry) for entry in data[:-1]]
    choices = [frame["choices"][0] for frame in frames if frame["choices"]]
    message = body["choices"][0]["message"]
    for field in ("content", "reasoning_content"):
        said = "".join(choice["delta"].get(field, "") for choice in choices)
        assert said == message.get(field, "")
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert reasons == [body["choices"][0]["finish_reason"]]
    assert frames[-1]["usage"] == body["usage"]


def test_an_error_has_the_shape_that_clients_read() -> None:
    error = NotAuthenticated("Not signed in.")
    assert render_error(error, "r1") == {
        "error": {
            "message": f"Not signed in. {NotAuthenticated.hint}",
            "type": "authentication_error",
            "code": "not_authenticated",
            "param": None,
            "status": 401,
            "request_id": "r1",
        }
    }
    encoder = parse({"model": "m", "messages": [{"role": "user"}]}).encoder("i", 0)
    frame = encoder.fail(GatewayError("Oh."), "r2")
    assert json.loads(frame.removeprefix(b"data: "))["error"]["message"] == "Oh."
