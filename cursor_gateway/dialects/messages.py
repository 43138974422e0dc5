"""The Anthropic Messages dialect: Claude Code, the Anthropic SDKs, Droid's anthropic provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from cursor_gateway.core.conversation import (
    Conversation,
    JsonOutput,
    Message,
    Role,
    ToolCall,
    ToolChoice,
    ToolSpec,
)
from cursor_gateway.core.events import Event, Finished, TextDelta, ThinkingDelta, Usage
from cursor_gateway.core.models import Model
from cursor_gateway.core.prompt import render
from cursor_gateway.core.structured import check_schema
from cursor_gateway.dialects.content import (
    expect_tools,
    parse_content,
    parse_messages,
    parse_model,
    parse_tools,
)
from cursor_gateway.dialects.fields import expect_object, optional_bool, optional_count, string_list
from cursor_gateway.errors import GatewayError, InvalidRequest, UnsupportedParameter

PATH = "/messages"
COUNT_PATH = "/messages/count_tokens"
EXAMPLE: Mapping[str, Any] = {
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Hello"}],
}

# A model's thoughts carry a signature of the provider's. Nobody checks ours: thoughts that come
# back in the history are not given to the model again.
SIGNATURE = "Y3Vyc29yLWdhdGV3YXk="

# Models need fewer tokens than one for three bytes, so a count that errs is too high.
_BYTES_PER_TOKEN_AT_LEAST = 3
# What Anthropic counts for the largest image; a smaller one costs less.
_TOKENS_PER_IMAGE_AT_MOST = 4784

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def parse(body: Mapping[str, Any]) -> MessagesExchange:
    if body.get("thread") is not None:
        # The next request would bring only its new messages. The SDK then sends the whole history.
        raise UnsupportedParameter("No threads are kept: send the whole history.", param="thread")
    turns = parse_messages(body, _turn)
    tools = parse_tools(expect_tools(body))
    choice = expect_object(body.get("tool_choice") or {}, "tool_choice")
    return MessagesExchange(
        conversation=Conversation(
            model=parse_model(body),
            messages=(*_system(body.get("system")), *turns),
            max_tokens=optional_count(body, "max_tokens"),
            stop=string_list(body.get("stop_sequences"), "stop_sequences"),
            output=_output(body),
            tools=tools,
            tool_choice=_tool_choice(choice, tools),
            parallel_calls=not optional_bool(choice, "disable_parallel_tool_use"),
        ),
        stream=optional_bool(body, "stream"),
        shows_thinking=_shows_thinking(body.get("thinking")),
    )


def count_tokens(body: Mapping[str, Any], bridged: tuple[ToolSpec, ...] = ()) -> dict[str, Any]:
    """About how many tokens the conversation has, with the tools that the gateway adds; rather too
    many than too few."""
    conversation = parse(body).conversation
    prompt = render(replace(conversation, tools=conversation.tools + bridged))
    text = -(-len(prompt.text.encode()) // _BYTES_PER_TOKEN_AT_LEAST)
    images = len(prompt.files) * _TOKENS_PER_IMAGE_AT_MOST
    return {"input_tokens": text + images, "estimated": True}


def render_model(model: Model, created: int) -> dict[str, Any]:
    moment = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    return {"type": "model", "id": model.id, "display_name": model.name, "created_at": moment}


def render_models(models: Iterable[Model], created: int) -> dict[str, Any]:
    """The list of models, for a client that sends `anthropic-version`."""
    data = [render_model(model, created) for model in models]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    return {"data": data, "has_more": False, **ends}


def render_error(error: GatewayError, request_id: str, status: int | None = None) -> dict[str, Any]:
    kind = _error_type(error, error.status if status is None else status)
    described: dict[str, Any] = {"type": kind, "message": error.message, "code": error.code}
    if isinstance(error, UnsupportedParameter):
        code = f"{error.param}_unsupported_request"
        described["details"] = {"error_code": code, "unsupported": [error.param]}
    return {"type": "error", "error": described, "request_id": request_id}


def _error_type(error: GatewayError, status: int) -> str:
    if status not in (error.status, 403):
        return "invalid_request_error"
    kind = _ERROR_TYPES.get(error.status, "api_error")
    # Claude Code repeats what is of this type, whatever the status and the headers say.
    is_repeated = kind == "overloaded_error"
    return "api_error" if is_repeated and error.is_final else kind


@dataclass(frozen=True, slots=True)
class MessagesExchange:
    conversation: Conversation
    stream: bool
    shows_thinking: bool

    def encoder(self, answer_id: str, created: int) -> MessagesEncoder:
        name = f"msg_{answer_id}"
        return MessagesEncoder(name, self.conversation.model, self.shows_thinking)

    def fold(self, answer_id: str, created: int) -> MessagesFold:
        return MessagesFold(f"msg_{answer_id}", self.conversation.model, self.shows_thinking)


BlockKind = Literal["text", "thinking"]


class MessagesEncoder:
    """Events -> typed SSE events. Text and thinking fill blocks; a call is a block of its own."""

    def __init__(self, answer_id: str, model: str, shows_thinking: bool) -> None:
        self._answer_id = answer_id
        self._model = model
        self._shows_thinking = shows_thinking
        self._begun = False
        self._blocks = 0
        self._open: BlockKind | None = None

    def feed(self, events: Iterable[Event]) -> bytes:
        frames: list[bytes] = []
        self._begin(frames)
        for event in events:
            if isinstance(event, TextDelta):
                self._delta("text", {"type": "text_delta", "text": event.text}, frames)
            elif isinstance(event, ThinkingDelta):
                if self._shows_thinking:
                    delta = {"type": "thinking_delta", "thinking": event.text}
                    self._delta("thinking", delta, frames)
            elif isinstance(event, ToolCall):
                self._call(event, frames)
            elif isinstance(event, Finished):
                self._finish(event, frames)
        return b"".join(frames)

    def fail(self, error: GatewayError, request_id: str) -> bytes:
        return _frame("error", render_error(error, request_id))

    def keep_alive(self) -> bytes:
        return self.heartbeat()

    def heartbeat(self) -> bytes:
        frames: list[bytes] = []
        self._begin(frames)
        frames.append(_frame("ping", {"type": "ping"}))
        return b"".join(frames)

    def _begin(self, frames: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            message = _message(self._answer_id, self._model) | {"usage": _usage(None)}
            frames.append(_frame("message_start", {"type": "message_start", "message": message}))

    def _delta(self, kind: BlockKind, delta: dict[str, Any], frames: list[bytes]) -> None:
        if self._open != kind:
            self._close_block(frames)
            empty = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            self._start_block(empty, frames)
            self._open = kind
        self._block_delta(delta, frames)

    def _call(self, call: ToolCall, frames: list[bytes]) -> None:
        self._close_block(frames)
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        self._start_block(block, frames)
        self._block_delta({"type": "input_json_delta", "partial_json": call.arguments}, frames)
        self._stop_block(frames)

    def _finish(self, event: Finished, frames: list[bytes]) -> None:
        self._close_block(frames)
        ending = {"type": "message_delta", "delta": _ending(event), "usage": _usage(event.usage)}
        frames.append(_frame("message_delta", ending | event.extension))
        frames.append(_frame("message_stop", {"type": "message_stop"}))

    def _start_block(self, block: dict[str, Any], frames: list[bytes]) -> None:
        start = {"type": "content_block_start", "index": self._blocks, "content_block": block}
        frames.append(_frame("content_block_start", start))

    def _block_delta(self, delta: dict[str, Any], frames: list[bytes]) -> None:
        body = {"type": "content_block_delta", "index": self._blocks, "delta": delta}
        frames.append(_frame("content_block_delta", body))

    def _close_block(self, frames: list[bytes]) -> None:
        if self._open == "thinking":
            self._block_delta({"type": "signature_delta", "signature": SIGNATURE}, frames)
        if self._open is not None:
            self._stop_block(frames)
            self._open = None

    def _stop_block(self, frames: list[bytes]) -> None:
        stop = {"type": "content_block_stop", "index": self._blocks}
        frames.append(_frame("content_block_stop", stop))
        self._blocks += 1


class MessagesFold:
    def __init__(self, answer_id: str, model: str, shows_thinking: bool) -> None:
        self._answer_id = answer_id
        self._model = model
        self._shows_thinking = shows_thinking
        self._content: list[dict[str, Any]] = []
        self._pieces: list[str] = []
        self._kind: BlockKind | None = None
        self._finished: Finished | None = None

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._add("text", event.text)
            elif isinstance(event, ThinkingDelta):
                if self._shows_thinking:
                    self._add("thinking", event.text)
            elif isinstance(event, ToolCall):
                self._close_block()
                arguments = orjson.loads(event.arguments)
                block = {"type": "tool_use", "id": event.id, "name": event.name, "input": arguments}
                self._content.append(block)
            elif isinstance(event, Finished):
                self._close_block()
                self._finished = event

    def body(self) -> dict[str, Any]:
        assert self._finished is not None, "an answer without an end is a failure, not a body"
        message = _message(self._answer_id, self._model) | {"content": self._content}
        usage = {"usage": _usage(self._finished.usage)}
        return message | _ending(self._finished) | usage | self._finished.extension

    def _add(self, kind: BlockKind, text: str) -> None:
        if self._kind != kind:
            self._close_block()
            self._kind = kind
        self._pieces.append(text)

    def _close_block(self) -> None:
        if self._kind is not None:
            signature = {"signature": SIGNATURE} if self._kind == "thinking" else {}
            block = {"type": self._kind, self._kind: "".join(self._pieces)}
            self._content.append(block | signature)
        self._kind = None
        self._pieces = []


def _frame(name: str, body: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(body) + b"\n\n"


def _message(answer_id: str, model: str) -> dict[str, Any]:
    return {
        "id": answer_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _ending(finished: Finished) -> dict[str, Any]:
    if finished.stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stop_sequence}
    return {"stop_reason": _STOP_REASONS[finished.reason], "stop_sequence": None}


def _usage(usage: Usage | None) -> dict[str, Any]:
    """Anthropic counts cached input beside `input_tokens`; our vocabulary counts it inside."""
    counted = usage or Usage(0, 0)
    counts: dict[str, Any] = {
        "input_tokens": counted.input - counted.cached,
        "output_tokens": counted.output,
        "cache_read_input_tokens": counted.cached,
        "cache_creation_input_tokens": 0,
    }
    return counts | {"estimated": True} if counted.estimated else counts


def _system(system: object) -> tuple[Message, ...]:
    content = parse_content(system, "system")
    return (Message("system", content),) if content else ()


def _turn(message: Mapping[str, Any], where: str) -> Message:
    roles: dict[object, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
    role = roles.get(str(message.get("role")))
    if role is None:
        raise InvalidRequest(f"`{where}.role` must be user, assistant or system.", param=where)
    return Message(role, parse_content(message.get("content"), f"{where}.content"))


def _tool_choice(choice: Mapping[str, Any], tools: tuple[ToolSpec, ...]) -> ToolChoice:
    match choice.get("type"):
        case "none":
            return ToolChoice("none")
        case "any":
            return ToolChoice("required")
        case "tool":
            name = choice.get("name")
            if not any(tool.name == name for tool in tools):
                raise InvalidRequest("`tool_choice` names no tool here.", param="tool_choice")
            return ToolChoice("required", name)
    return ToolChoice()


def _shows_thinking(thinking: object) -> bool:
    if not isinstance(thinking, dict) or thinking.get("display") == "omitted":
        return False
    return thinking.get("type") in ("enabled", "adaptive")


def _output(body: Mapping[str, Any]) -> JsonOutput | None:
    config = body.get("output_config")
    wanted = config.get("format") if isinstance(config, dict) else body.get("output_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    output = JsonOutput(expect_object(wanted.get("schema"), "output_config.format.schema"))
    check_schema(output, "output_config.format.schema")
    return output
