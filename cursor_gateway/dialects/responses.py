"""The OpenAI Responses dialect: Codex, and the newer half of OpenAI's SDKs.

An answer is a list of items (reasoning, message, calls). Typed and numbered events announce, fill
and close each item. The encoder builds the items as it writes the events, since the last event
holds the whole answer as its `response`; an answer that is not streamed is that `response`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson

from cursor_gateway.core.conversation import Conversation, JsonOutput, Message, ToolCall
from cursor_gateway.core.events import AnswerEvent, Finished, TextDelta, ThinkingDelta, Usage
from cursor_gateway.core.structured import check_schema
from cursor_gateway.dialects.content import expect_tools, not_too_long, parse_model
from cursor_gateway.dialects.fields import (
    expect_object,
    expect_string,
    optional_bool,
    optional_count,
)
from cursor_gateway.dialects.openai_errors import render_error
from cursor_gateway.dialects.response_history import (
    NONE_STORED,
    StoredResponses,
    dereferenced,
    earlier_items,
    item_id,
)
from cursor_gateway.dialects.response_items import (
    Origin,
    input_items,
    parse_instructions,
    parse_items,
    parse_response_tools,
    parse_tool_choice,
)
from cursor_gateway.errors import GatewayError, MissingMessages, UnsupportedParameter

__all__ = ["EXAMPLE", "PATH", "parse", "render_error"]

PATH = "/responses"
EXAMPLE: Mapping[str, Any] = {"input": "Hello"}

# Fields that cannot be honoured, and whose loss would change the answer.
_CANNOT = ("conversation", "prompt", "top_logprobs")


def parse(body: Mapping[str, Any], stored: StoredResponses = NONE_STORED) -> ResponsesExchange:
    for name in _CANNOT:
        if body.get(name):
            raise UnsupportedParameter(f"`{name}` is not possible here.", param=name)
    previous = _previous(body)
    # Each response is parsed once, however many items refer to it.
    get = cache(stored.get)
    given = [
        dereferenced(item, get, f"input[{at}]")
        for at, item in enumerate(not_too_long(input_items(body.get("input")), "input"))
    ]
    asked = _asked(given)
    tools, origins = parse_response_tools(expect_tools(body))
    return ResponsesExchange(
        conversation=Conversation(
            model=parse_model(body),
            messages=(
                *parse_instructions(body.get("instructions")),
                *parse_items(earlier_items(stored, previous), "previous_response_id"),
                *asked,
            ),
            max_tokens=optional_count(body, "max_output_tokens"),
            output=_output(body.get("text")),
            tools=tools,
            tool_choice=parse_tool_choice(body.get("tool_choice"), origins),
            parallel_calls=body.get("parallel_tool_calls") is not False,
        ),
        stream=optional_bool(body, "stream"),
        origins=origins,
        echo={
            "metadata": body.get("metadata") or {},
            "previous_response_id": previous,
            "store": body.get("store") is not False,
        },
        given=given,
        stored=stored,
    )


def _previous(body: Mapping[str, Any]) -> str | None:
    previous = body.get("previous_response_id")
    return None if previous is None else expect_string(previous, "previous_response_id")


def _asked(items: list[Any]) -> tuple[Message, ...]:
    messages = parse_items(items, "input")
    if not messages:
        raise MissingMessages("`input` must hold at least one message.", param="input")
    return messages


@dataclass(frozen=True, slots=True)
class ResponsesExchange:
    conversation: Conversation
    stream: bool
    origins: Mapping[str, Origin]
    # Fields of the request that the response repeats.
    echo: Mapping[str, Any]
    given: list[Any]
    stored: StoredResponses

    def encoder(self, answer_id: str, created: int) -> ResponsesEncoder:
        return ResponsesEncoder(answer_id, created, self)

    def fold(self, answer_id: str, created: int) -> ResponsesFold:
        return ResponsesFold(answer_id, created, self)

    def store(self, response: dict[str, Any]) -> None:
        if self.echo["store"]:
            self.stored.put(response["id"], {"input": self.given, "response": response})


class ResponsesEncoder:
    def __init__(self, answer_id: str, created: int, exchange: ResponsesExchange) -> None:
        self._id = answer_id
        self._exchange = exchange
        self._response: dict[str, Any] = {
            "id": f"resp_{answer_id}",
            "object": "response",
            "created_at": created,
            "status": "in_progress",
            "model": exchange.conversation.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "parallel_tool_calls": exchange.conversation.parallel_calls,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
            **exchange.echo,
        }
        self._number = 0
        self._begun = False
        # The open item, and the pieces of its text so far.
        self._item: dict[str, Any] | None = None
        self._pieces: list[str] = []

    @property
    def response(self) -> dict[str, Any]:
        return self._response

    def feed(self, events: Iterable[AnswerEvent]) -> bytes:
        frames: list[bytes] = []
        self._begin(frames)
        for event in events:
            if isinstance(event, TextDelta):
                self._text("message", event.text, frames)
            elif isinstance(event, ThinkingDelta):
                self._text("reasoning", event.text, frames)
            elif isinstance(event, ToolCall):
                self._close_item(frames)
                self._call(event, frames)
            elif isinstance(event, Finished):
                self._close_item(frames)
                self._finish(event, frames)
        return b"".join(frames)

    def fail(self, error: GatewayError, request_id: str) -> bytes:
        """An error is `response.failed`: Codex 0.166 loses the text of an `error` event."""
        frames: list[bytes] = []
        self._begin(frames)
        described = {"code": error.code, "message": error.message, "request_id": request_id}
        self._response |= {"status": "failed", "error": described}
        self._emit("response.failed", {"response": self._response}, frames)
        return b"".join(frames)

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def heartbeat(self) -> bytes:
        frames: list[bytes] = []
        self._begin(frames)
        self._emit("response.in_progress", {"response": self._response}, frames)
        return b"".join(frames)

    def _begin(self, frames: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            self._emit("response.created", {"response": self._response}, frames)
            self._emit("response.in_progress", {"response": self._response}, frames)

    def _emit(self, kind: str, fields: dict[str, Any], frames: list[bytes]) -> None:
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        frames.append(b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(body) + b"\n\n")

    # Messages and reasoning

    def _text(self, kind: str, text: str, frames: list[bytes]) -> None:
        if self._item is None or self._item["type"] != kind:
            self._close_item(frames)
            self._open_item(kind, frames)
        self._pieces.append(text)
        delta = _TEXT_EVENTS[kind] + ".delta"
        self._emit(delta, {**self._place(kind), "delta": text, **_logprobs(kind)}, frames)

    def _open_item(self, kind: str, frames: list[bytes]) -> None:
        self._item = self._new_item(kind)
        self._pieces = []
        self._emit("response.output_item.added", self._about_item(self._item), frames)
        added = _PART_EVENTS[kind] + ".added"
        self._emit(added, {**self._place(kind), "part": _part(kind, "")}, frames)

    def _close_item(self, frames: list[bytes]) -> None:
        if self._item is None:
            return
        kind, text = self._item["type"], "".join(self._pieces)
        place, part = self._place(kind), _part(kind, text)
        done = _TEXT_EVENTS[kind] + ".done"
        self._emit(done, {**place, "text": text, **_logprobs(kind)}, frames)
        self._emit(_PART_EVENTS[kind] + ".done", {**place, "part": part}, frames)
        if kind == "message":
            self._item |= {"status": "completed", "content": [part]}
        else:
            self._item["summary"] = [part]
        self._done(self._item, frames)
        self._item = None

    def _new_item(self, kind: str) -> dict[str, Any]:
        number = len(self._response["output"])
        if kind == "reasoning":
            return {"type": kind, "id": item_id("rs", self._id, number), "summary": []}
        item = {"type": kind, "id": item_id("msg", self._id, number), "status": "in_progress"}
        return item | {"role": "assistant", "content": []}

    # Calls

    def _call(self, call: ToolCall, frames: list[bytes]) -> None:
        origin = self._exchange.origins.get(call.name, Origin(call.name, None, is_custom=False))
        kind = "custom_tool_call" if origin.is_custom else "function_call"
        field = "input" if origin.is_custom else "arguments"
        value = orjson.loads(call.arguments)["input"] if origin.is_custom else call.arguments
        number = len(self._response["output"])
        prefix = "ctc" if origin.is_custom else "fc"
        item = {"type": kind, "id": item_id(prefix, self._id, number), "call_id": call.id}
        item |= {"name": origin.name, field: "", "status": "in_progress"}
        if origin.namespace:
            item["namespace"] = origin.namespace
        self._emit("response.output_item.added", self._about_item(item), frames)
        place = {"item_id": item["id"], "output_index": number}
        self._emit(f"response.{kind}_{field}.delta", {**place, "delta": value}, frames)
        done = {**place, field: value, "name": origin.name}
        self._emit(f"response.{kind}_{field}.done", done, frames)
        self._done(item | {field: value, "status": "completed"}, frames)

    # Ends

    def _finish(self, event: Finished, frames: list[bytes]) -> None:
        is_cut = event.reason == "length"
        self._response["status"] = "incomplete" if is_cut else "completed"
        if is_cut:
            self._response["incomplete_details"] = {"reason": "max_output_tokens"}
        self._response["usage"] = _usage(event.usage)
        self._response |= event.extension
        self._exchange.store(self._response)
        kind = "response.incomplete" if is_cut else "response.completed"
        self._emit(kind, {"response": self._response}, frames)

    def _done(self, item: dict[str, Any], frames: list[bytes]) -> None:
        self._emit("response.output_item.done", self._about_item(item), frames)
        self._response["output"].append(item)

    def _about_item(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"output_index": len(self._response["output"]), "item": item}

    def _place(self, kind: str) -> dict[str, Any]:
        assert self._item is not None
        part = "content_index" if kind == "message" else "summary_index"
        number = len(self._response["output"])
        return {"item_id": self._item["id"], "output_index": number, part: 0}


class ResponsesFold:
    """Collects an answer with the encoder, whose last event holds the whole answer."""

    def __init__(self, answer_id: str, created: int, exchange: ResponsesExchange) -> None:
        self._encoder = ResponsesEncoder(answer_id, created, exchange)

    def feed(self, events: Iterable[AnswerEvent]) -> None:
        self._encoder.feed(events)

    def body(self) -> dict[str, Any]:
        return self._encoder.response


_TEXT_EVENTS = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_summary_text",
}
_PART_EVENTS = {
    "message": "response.content_part",
    "reasoning": "response.reasoning_summary_part",
}


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "summary_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _logprobs(kind: str) -> dict[str, Any]:
    return {"logprobs": []} if kind == "message" else {}


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    counts: dict[str, Any] = {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output,
    }
    return counts | {"estimated": True} if usage.estimated else counts


def _output(text: object) -> JsonOutput | None:
    wanted = text.get("format") if isinstance(text, dict) else None
    if not isinstance(wanted, dict):
        return None
    if wanted.get("type") == "json_object":
        return JsonOutput()
    if wanted.get("type") != "json_schema":
        return None
    output = JsonOutput(expect_object(wanted.get("schema"), "text.format.schema"))
    check_schema(output, "text.format.schema")
    return output
