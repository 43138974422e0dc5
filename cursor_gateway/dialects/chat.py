"""The OpenAI Chat Completions dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cursor_gateway.core.conversation import (
    Conversation,
    JsonOutput,
    Message,
    Part,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.core.events import AgentCall, AnswerEvent, Finished, TextDelta, ThinkingDelta
from cursor_gateway.core.structured import check_schema
from cursor_gateway.dialects.content import (
    expect_tools,
    parse_allowed_tools,
    parse_call,
    parse_content,
    parse_messages,
    parse_model,
    parse_tools,
    result_parts,
)
from cursor_gateway.dialects.fields import (
    expect_list,
    expect_object,
    optional_bool,
    optional_count,
    string_list,
)
from cursor_gateway.dialects.openai_errors import render_error
from cursor_gateway.dialects.openai_usage import render_usage
from cursor_gateway.errors import GatewayError, InvalidRequest, UnsupportedParameter

__all__ = ["EXAMPLE", "PATH", "parse", "render_error"]

PATH = "/chat/completions"
EXAMPLE: Mapping[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


def parse(body: Mapping[str, Any]) -> ChatExchange:
    _refuse_what_cannot_be_done(body)
    # The messages come first: an empty request gets the error about its missing messages.
    messages = parse_messages(body, _message)
    options = body.get("stream_options") or {}
    tools = _tools(body)
    legacy = not body.get("tools") and bool(body.get("functions"))
    return ChatExchange(
        conversation=Conversation(
            model=parse_model(body),
            messages=messages,
            max_tokens=optional_count(body, "max_completion_tokens")
            or optional_count(body, "max_tokens"),
            stop=string_list(body.get("stop"), "stop"),
            output=_output(body.get("response_format")),
            tools=tools,
            tool_choice=_tool_choice(body, tools),
            # A legacy answer has room for one call, without its id.
            parallel_calls=not legacy and body.get("parallel_tool_calls") is not False,
            calls_have_ids=not legacy,
        ),
        stream=optional_bool(body, "stream"),
        include_usage=optional_bool(expect_object(options, "stream_options"), "include_usage"),
        legacy=legacy,
    )


@dataclass(frozen=True, slots=True)
class ChatExchange:
    conversation: Conversation
    stream: bool
    include_usage: bool
    # The client only knows `functions`: the answer has its call in `function_call`.
    legacy: bool = False

    def encoder(self, answer_id: str, created: int) -> ChatEncoder:
        model = self.conversation.model
        name = f"chatcmpl-{answer_id}"
        return ChatEncoder(name, created, model, self.include_usage, self.legacy)

    def fold(self, answer_id: str, created: int) -> ChatFold:
        return ChatFold(f"chatcmpl-{answer_id}", created, self.conversation.model, self.legacy)


class ChatEncoder:
    """Events -> SSE frames. Everything but the text of a frame is built once per answer."""

    def __init__(
        self, answer_id: str, created: int, model: str, include_usage: bool, legacy: bool
    ) -> None:
        self._head = _frame_head(answer_id, created, model)
        self._text_head = self._choice_head + b'{"content":'
        self._thinking_head = self._choice_head + b'{"reasoning_content":'
        self._include_usage = include_usage
        self._legacy = legacy
        self._begun = False
        self._calls = 0

    @property
    def _choice_head(self) -> bytes:
        return self._head + b',"choices":[{"index":0,"delta":'

    def feed(self, events: Iterable[AnswerEvent]) -> bytes:
        frames: list[bytes] = []
        self._begin(frames)
        for event in events:
            if isinstance(event, TextDelta):
                frames += (self._text_head, orjson.dumps(event.text), _DELTA_TAIL)
            elif isinstance(event, ThinkingDelta):
                frames += (self._thinking_head, orjson.dumps(event.text), _DELTA_TAIL)
            elif isinstance(event, ToolCall):
                self._call(event, frames)
            elif isinstance(event, AgentCall):
                frames.append(b": the agent uses a tool of its own\n\n")
            else:
                self._finish(event, frames)
        return b"".join(frames)

    def fail(self, error: GatewayError, request_id: str) -> bytes:
        return b"data: " + orjson.dumps(render_error(error, request_id)) + b"\n\n"

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def heartbeat(self) -> bytes:
        frames: list[bytes] = []
        self._begin(frames)
        frames.append(self._choice_head + b'{},"finish_reason":null}]}\n\n')
        return b"".join(frames)

    def _begin(self, frames: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            frames.append(self._choice_head + b'{"role":"assistant","content":""')
            frames.append(_DELTA_TAIL)

    def _call(self, call: ToolCall, frames: list[bytes]) -> None:
        """The whole call in one chunk. Some clients concatenate names and ids that come twice, such
        as the Python SDK and LangChain."""
        delta: dict[str, Any] = {"function_call": _function(call)}
        if not self._legacy:
            delta = {"tool_calls": [{"index": self._calls, **_tool_call(call)}]}
        self._calls += 1
        frames += (self._choice_head, orjson.dumps(delta), _DELTA_TAIL[1:])

    def _finish(self, event: Finished, frames: list[bytes]) -> None:
        reason = orjson.dumps(_reason(event, legacy=self._legacy))
        extra = b"," + orjson.dumps(event.extension)[1:-1] if event.loop else b""
        frames.append(
            self._choice_head + b'{},"finish_reason":' + reason + b"}]" + extra + b"}\n\n"
        )
        if self._include_usage:
            usage = orjson.dumps(render_usage(event.usage))
            frames.append(self._head + b',"choices":[],"usage":' + usage + extra + b"}\n\n")
        frames.append(b"data: [DONE]\n\n")


_DELTA_TAIL = b'},"finish_reason":null}]}\n\n'


def _frame_head(answer_id: str, created: int, model: str) -> bytes:
    fields = {
        "id": answer_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
    }
    return b"data: " + orjson.dumps(fields)[:-1]


class ChatFold:
    def __init__(self, answer_id: str, created: int, model: str, legacy: bool) -> None:
        self._legacy = legacy
        self._calls: list[ToolCall] = []
        self._fields = {
            "id": answer_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
        }
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._finished: Finished | None = None

    def feed(self, events: Iterable[AnswerEvent]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._text.append(event.text)
            elif isinstance(event, ThinkingDelta):
                self._thinking.append(event.text)
            elif isinstance(event, ToolCall):
                self._calls.append(event)
            elif isinstance(event, Finished):
                self._finished = event

    def body(self) -> dict[str, Any]:
        assert self._finished is not None, "an answer without an end is a failure, not a body"
        said = "".join(self._text)
        message: dict[str, Any] = {"role": "assistant", "content": said}
        if self._calls:
            message["content"] = said or None
        if self._calls and self._legacy:
            message["function_call"] = _function(self._calls[0])
        elif self._calls:
            message["tool_calls"] = [_tool_call(call) for call in self._calls]
        if self._thinking:
            message["reasoning_content"] = "".join(self._thinking)
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _reason(self._finished, legacy=self._legacy),
        }
        body = self._fields | {"choices": [choice], "usage": render_usage(self._finished.usage)}
        return body | self._finished.extension


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": _function(call)}


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": call.arguments}


def _reason(finished: Finished, *, legacy: bool) -> str:
    is_legacy_call = legacy and finished.reason == "tool_calls"
    return "function_call" if is_legacy_call else finished.reason


def _refuse_what_cannot_be_done(body: Mapping[str, Any]) -> None:
    """Reject fields whose loss would change the answer. Other fields that cannot be honoured are
    ignored."""
    if body.get("n") not in (None, 1):
        raise UnsupportedParameter("Only one choice is possible: `n` must be 1.", param="n")
    if body.get("logprobs") or body.get("top_logprobs"):
        raise UnsupportedParameter("Cursor's agent gives no `logprobs`.", param="logprobs")


def _message(message: Mapping[str, Any], where: str) -> Message:
    role = message.get("role")
    content = parse_content(message.get("content"), f"{where}.content")
    match role:
        case "system" | "developer":
            return Message("system", content)
        case "user":
            return Message("user", content)
        case "assistant":
            return Message("assistant", (*content, *_tool_calls(message, where)))
        case "tool" | "function":
            call = message.get("tool_call_id" if role == "tool" else "name")
            call_id = call if isinstance(call, str) else ""
            return Message("user", (ToolResult(call_id, result_parts(content)),))
    raise InvalidRequest(
        f"`{where}.role` must be system, developer, user, assistant, tool or function.",
        param=f"{where}.role",
    )


def _tool_calls(message: Mapping[str, Any], where: str) -> Iterable[Part]:
    calls = expect_list(message.get("tool_calls") or [], f"{where}.tool_calls")
    for at, call in enumerate(calls):
        path = f"{where}.tool_calls[{at}]"
        yield parse_call(expect_object(call, path), path)
    if not calls and (legacy := message.get("function_call")):
        yield parse_call({"function": legacy}, f"{where}.function_call")


def _tools(body: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    functions = ({"function": function} for function in expect_tools(body, "functions"))
    return parse_tools([*expect_tools(body), *functions])


def _tool_choice(body: Mapping[str, Any], tools: tuple[ToolSpec, ...]) -> ToolChoice:
    choice = body.get("tool_choice", body.get("function_call"))
    names = {tool.name: tool.name for tool in tools}
    if isinstance(choice, dict):
        if choice.get("type") == "allowed_tools":
            where = "tool_choice.allowed_tools"
            allowed = expect_object(choice.get("allowed_tools"), where)
            return parse_allowed_tools(allowed, where, names.get)
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            if name not in names:
                raise InvalidRequest("`tool_choice` names no tool here.", param="tool_choice")
            return ToolChoice("required", name)
        choice = choice.get("type")
    match choice:
        case "none":
            return ToolChoice("none")
        case "required" | "any":
            return ToolChoice("required")
    return ToolChoice()


def _output(response_format: object) -> JsonOutput | None:
    if response_format is None:
        return None
    wanted = expect_object(response_format, "response_format")
    match wanted.get("type"):
        case "text" | None:
            return None
        case "json_object":
            return JsonOutput()
        case "json_schema":
            where = "response_format.json_schema"
            output = JsonOutput(
                expect_object(
                    expect_object(wanted.get("json_schema"), where).get("schema"), f"{where}.schema"
                )
            )
            check_schema(output, f"{where}.schema")
            return output
    raise InvalidRequest(
        "`response_format.type` must be text, json_object or json_schema.",
        param="response_format.type",
    )
