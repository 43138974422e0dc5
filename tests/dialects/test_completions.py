"""Legacy completions, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursor_gateway.core.conversation import Message, Text
from cursor_gateway.core.events import AnswerEvent, Finished, TextDelta, ThinkingDelta, Usage
from cursor_gateway.dialects.completions import parse
from cursor_gateway.errors import AgentFailed, InvalidRequest, MissingMessages, UnsupportedParameter


def exchange(**body: Any) -> Any:
    return parse({"model": "auto", "prompt": "Once"} | body)


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_a_prompt_is_a_user_message(prompt: Any) -> None:
    parsed = exchange(prompt=prompt, max_tokens=5, stop="END", temperature=1).conversation
    assert parsed.messages == (Message("user", (Text("Once"),)),)
    assert (parsed.max_tokens, parsed.stop) == (5, ("END",))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"prompt": None}, MissingMessages),
        ({"prompt": []}, MissingMessages),
        ({"prompt": ["a", "b"]}, UnsupportedParameter),
        ({"prompt": [[1, 2]]}, UnsupportedParameter),
        ({"echo": True}, UnsupportedParameter),
        ({"suffix": "x"}, UnsupportedParameter),
        ({"logprobs": 3}, UnsupportedParameter),
        ({"n": 2}, UnsupportedParameter),
        ({"best_of": 2}, UnsupportedParameter),
        ({"stream": "yes"}, InvalidRequest),
    ],
)
def test_what_cannot_be_done_is_refused(body: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        exchange(**body)


EVENTS: list[AnswerEvent] = [
    ThinkingDelta("hm"),
    TextDelta("Once "),
    TextDelta("upon"),
    Finished("length", Usage(10, 5, 3)),
]


def test_frames_and_fold_say_the_same() -> None:
    asked = exchange(stream_options={"include_usage": True})
    encoder, fold = asked.encoder("1", 7), asked.fold("1", 7)
    wire = encoder.feed(EVENTS)
    fold.feed(EVENTS)
    *frames, done = [line[6:] for line in wire.split(b"\n") if line.startswith(b"data: ")]
    assert done == b"[DONE]"
    *chunks, usage = map(json.loads, frames)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Once upon"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    body = fold.body()
    assert body["choices"][0]["text"] == "Once upon"
    assert body["usage"] == usage["usage"] and usage["choices"] == []
    assert (body["id"], body["object"], body["created"]) == ("cmpl-1", "text_completion", 7)


def test_silence_and_failure() -> None:
    encoder = exchange().encoder("1", 0)
    assert encoder.keep_alive() == b": keep-alive\n\n"
    assert b'"text":""' in encoder.heartbeat()
    assert b"agent_failed" in encoder.fail(AgentFailed("x"), "r")
    assert b"usage" not in encoder.feed([Finished("stop", None)])
