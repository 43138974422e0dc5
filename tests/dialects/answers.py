"""What a client makes of an answer in each dialect: the same few facts, from stream and body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from cursor_gateway.agents.cursor.stream import AgentStream
from cursor_gateway.core.conversation import ToolCall
from cursor_gateway.core.events import AgentCall, Event, Finished, TextDelta, ThinkingDelta, Usage
from cursor_gateway.dialects import Dialect, chat, completions, messages, responses
from tests.conftest import RECORDINGS
from tests.support.recorded import MANIFEST

USER = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, dict[str, Any]] = {
    chat.PATH: {"messages": USER, "stream_options": {"include_usage": True}},
    messages.PATH: {"messages": USER, "thinking": {"type": "enabled"}},
    responses.PATH: {"input": "hi"},
    completions.PATH: {"prompt": "hi", "stream_options": {"include_usage": True}},
}


def exchange(dialect: Dialect) -> Any:
    return dialect.parse({"model": "auto"} | REQUESTS[dialect.PATH])


def recorded(name: str, *, with_calls: bool) -> list[Event]:
    """The events of a recording; `with_calls` as if the agent's own tools were the client's."""
    stream = AgentStream(partial=MANIFEST[name]["partial"])
    events = stream.feed((RECORDINGS / f"{name}.ndjson").read_bytes()) + stream.close()
    if not with_calls or not any(isinstance(event, AgentCall) for event in events):
        return events
    return [_as_the_clients(event, at) for at, event in enumerate(events)]


def _as_the_clients(event: Event, number: int) -> Event:
    if isinstance(event, AgentCall):
        arguments = orjson.dumps(event.arguments).decode()
        return ToolCall(f"call_{number}", event.tool, arguments)
    return Finished("tool_calls", event.usage) if isinstance(event, Finished) else event


@dataclass(slots=True)
class Answer:
    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    # Tokens read, of them cached, written.
    usage: tuple[int, int, int] | None = None
    ends: int = 0


def told(events: Iterable[Event], dialect: Dialect) -> Answer:
    """What the client must find, whatever it speaks. Completions has a place for text only, and
    Messages none for the absence of a count."""
    answer = Answer()
    for event in events:
        if isinstance(event, TextDelta):
            answer.text += event.text
        elif isinstance(event, ThinkingDelta) and dialect is not completions:
            answer.thinking += event.text
        elif isinstance(event, ToolCall) and dialect is not completions:
            answer.calls.append((event.id, event.name, json.loads(event.arguments)))
        elif isinstance(event, Finished):
            answer.ends += 1
            counts = event.usage or (Usage(0, 0) if dialect is messages else None)
            if counts is not None:
                answer.usage = counts.input, counts.cached, counts.output
    return answer


def wire_events(wire: bytes) -> list[Any]:
    lines = [line[6:] for line in wire.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


def _openai_usage(usage: Any) -> tuple[int, int, int] | None:
    if usage is None:
        return None
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, usage["completion_tokens"]


def _add_openai(answer: Answer, choice: Any, message: Any) -> None:
    answer.text += message.get("content") or choice.get("text") or ""
    answer.thinking += message.get("reasoning_content") or ""
    for call in message.get("tool_calls") or []:
        function = call["function"]
        answer.calls.append((call["id"], function["name"], json.loads(function["arguments"])))
    answer.ends += choice["finish_reason"] is not None


def read_openai(wire: bytes) -> Answer:
    answer = Answer()
    for event in wire_events(wire):
        for choice in event["choices"]:
            _add_openai(answer, choice, choice.get("delta", {}))
        if "usage" in event:
            answer.usage = _openai_usage(event["usage"])
    assert wire.count(b"data: [DONE]") == answer.ends
    return answer


def read_openai_body(body: Any) -> Answer:
    answer = Answer(usage=_openai_usage(body["usage"]))
    (choice,) = body["choices"]
    _add_openai(answer, choice, choice.get("message", {}))
    return answer


def _messages_usage(usage: Any) -> tuple[int, int, int]:
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached, usage["output_tokens"]


def read_messages(wire: bytes) -> Answer:
    """Blocks by their index, filled by deltas."""
    blocks: dict[int, Any] = {}
    answer = Answer()
    for event in wire_events(wire):
        match event["type"]:
            case "content_block_start":
                blocks[event["index"]] = event["content_block"] | {"partial": ""}
            case "content_block_delta":
                _fill(blocks[event["index"]], event["delta"])
            case "message_delta":
                answer.usage = _messages_usage(event["usage"])
            case "message_stop":
                answer.ends += 1
    _add_blocks(answer, blocks.values())
    return answer


def _fill(block: Any, delta: Any) -> None:
    name = delta["type"].removesuffix("_delta")
    if name == "input_json":
        block["partial"] += delta["partial_json"]
        block["input"] = json.loads(block["partial"])
    else:
        block[name] += delta[name]


def _add_blocks(answer: Answer, blocks: Iterable[Any]) -> None:
    for block in blocks:
        if block["type"] == "tool_use":
            answer.calls.append((block["id"], block["name"], block["input"]))
        elif block["type"] == "thinking":
            answer.thinking += block["thinking"]
        else:
            answer.text += block["text"]


def read_messages_body(body: Any) -> Answer:
    answer = Answer(usage=_messages_usage(body["usage"]), ends=int(body["stop_reason"] is not None))
    _add_blocks(answer, body["content"])
    return answer


def read_responses(wire: bytes) -> Answer:
    """From the deltas alone; that the last event says the same is checked besides."""
    answer = Answer()
    calls: dict[str, Any] = {}
    for event in wire_events(wire):
        match event["type"]:
            case "response.output_text.delta":
                answer.text += event["delta"]
            case "response.reasoning_summary_text.delta":
                answer.thinking += event["delta"]
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                calls[event["item"]["id"]] = event["item"]
            case "response.function_call_arguments.delta":
                calls[event["item_id"]]["arguments"] += event["delta"]
            case "response.completed" | "response.incomplete":
                answer.ends += 1
                answer.usage = _responses_usage(event["response"]["usage"])
    _add_calls(answer, calls.values())
    return answer


def _responses_usage(usage: Any) -> tuple[int, int, int] | None:
    if usage is None:
        return None
    cached = usage["input_tokens_details"]["cached_tokens"]
    return usage["input_tokens"], cached, usage["output_tokens"]


def _add_calls(answer: Answer, calls: Iterable[Any]) -> None:
    for call in calls:
        answer.calls.append((call["call_id"], call["name"], json.loads(call["arguments"])))


def read_responses_body(body: Any) -> Answer:
    answer = Answer(usage=_responses_usage(body["usage"]), ends=int(body["status"] == "completed"))
    for item in body["output"]:
        if item["type"] == "message":
            answer.text += "".join(part["text"] for part in item["content"])
        elif item["type"] == "reasoning":
            answer.thinking += "".join(part["text"] for part in item["summary"])
    _add_calls(answer, (item for item in body["output"] if item["type"] == "function_call"))
    return answer


READ_STREAM: dict[str, Callable[[bytes], Answer]] = {
    chat.PATH: read_openai,
    messages.PATH: read_messages,
    responses.PATH: read_responses,
    completions.PATH: read_openai,
}
READ_BODY: dict[str, Callable[[Any], Answer]] = {
    chat.PATH: read_openai_body,
    messages.PATH: read_messages_body,
    responses.PATH: read_responses_body,
    completions.PATH: read_openai_body,
}
