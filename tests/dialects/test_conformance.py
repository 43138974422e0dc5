"""One suite over all dialects and recordings: the same words, calls and counts in each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cursor_gateway.core.agent_stream import AgentStream
from cursor_gateway.core.conversation import ToolCall
from cursor_gateway.core.events import Event, Finished, TextDelta, ThinkingDelta
from cursor_gateway.core.turn import Turn
from cursor_gateway.dialects import DIALECTS, Dialect, chat, completions, messages, responses
from tests.conftest import RECORDINGS
from tests.core.test_agent_stream import COMPLETE, MANIFEST, expected_text

USER = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, dict[str, Any]] = {
    chat.PATH: {"messages": USER, "stream_options": {"include_usage": True}},
    messages.PATH: {"messages": USER, "thinking": {"type": "enabled"}},
    responses.PATH: {"input": "hi"},
    completions.PATH: {"prompt": "hi"},
}


def said_in_chat(body: Any) -> str:
    return str(body["choices"][0]["message"]["content"])


def said_in_messages(body: Any) -> str:
    return "".join(block["text"] for block in body["content"] if block["type"] == "text")


def said_in_responses(body: Any) -> str:
    items = [item for item in body["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in items for part in item["content"])


SAID: dict[str, Callable[[Any], str]] = {
    chat.PATH: said_in_chat,
    messages.PATH: said_in_messages,
    responses.PATH: said_in_responses,
    completions.PATH: lambda body: str(body["choices"][0]["text"]),
}
DELTAS: dict[str, Callable[[Any], str]] = {
    chat.PATH: lambda e: (e["choices"][0]["delta"].get("content") or "") if e["choices"] else "",
    messages.PATH: lambda e: e.get("delta", {}).get("text") or "",
    responses.PATH: lambda e: e["delta"] if e["type"] == "response.output_text.delta" else "",
    completions.PATH: lambda e: e["choices"][0]["text"],
}
ENDS = {
    chat.PATH: lambda e: bool(e["choices"]) and e["choices"][0]["finish_reason"] is not None,
    messages.PATH: lambda e: e["type"] == "message_stop",
    responses.PATH: lambda e: e["type"] == "response.completed",
    completions.PATH: lambda e: e["choices"][0]["finish_reason"] is not None,
}
EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.PATH)


def exchange(dialect: Dialect) -> Any:
    return dialect.parse({"model": "auto"} | REQUESTS[dialect.PATH])


def answered(dialect: Dialect, name: str) -> list[Event]:
    stream = AgentStream(partial=MANIFEST[name]["partial"])
    turn = Turn(exchange(dialect).conversation, max_repeat=9, new_id=lambda: "call_1")
    return turn.feed(stream.feed((RECORDINGS / f"{name}.ndjson").read_bytes()) + stream.close())


def wire_events(wire: bytes) -> list[Any]:
    lines = [line[6:] for line in wire.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


@EVERY_DIALECT
@pytest.mark.parametrize("name", COMPLETE)
def test_a_recording_says_the_same_in_every_dialect(dialect: Dialect, name: str) -> None:
    events = answered(dialect, name)
    encoder, fold = exchange(dialect).encoder("1", 0), exchange(dialect).fold("1", 0)
    stream = wire_events(b"".join(encoder.feed([event]) for event in events))
    fold.feed(events)
    expected = expected_text((RECORDINGS / f"{name}.ndjson").read_bytes())
    assert SAID[dialect.PATH](fold.body()) == expected
    assert "".join(map(DELTAS[dialect.PATH], stream)) == expected
    assert sum(map(ENDS[dialect.PATH], stream)) == 1


@pytest.mark.parametrize("dialect", [chat, messages, responses], ids=lambda dialect: dialect.PATH)
def test_calls_and_counts_are_the_same_in_every_dialect(dialect: Dialect) -> None:
    calls = [ToolCall(f"call_{n}", "ls", f'{{"n":{n}}}') for n in range(3)]
    end = Finished("tool_calls", answered(dialect, "partial_simple")[-1].usage)  # type: ignore[union-attr]
    fold = exchange(dialect).fold("1", 0)
    fold.feed([ThinkingDelta("hm"), TextDelta("Hm."), *calls, end])
    text = json.dumps(fold.body())
    assert [text.count(f'"call_{n}"') for n in range(3)] == [1, 1, 1]
    assert "44800" in text and "185" in text
