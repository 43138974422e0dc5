"""What a request may not be, in the words that its sender reads."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from cursor_gateway.core.conversation import ImageLink, ToolCall
from cursor_gateway.core.events import AnswerEvent, Finished
from cursor_gateway.dialects import DIALECTS, chat
from cursor_gateway.dialects.fields import MAX_IMAGE_BYTES
from cursor_gateway.errors import GatewayError, InvalidImage, MissingMessages

HELLO: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "Hello"}]}


def picture(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return HELLO | {"messages": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 2}, "`n` must be 1"),
        ({"top_logprobs": 3}, "logprobs"),
        ({"response_format": {"type": "xml"}}, "text, json_object or json_schema"),
        ({"model": " "}, "must not be empty"),
        ({"stop": ["x"] * 1000}, "may hold"),
        ({"stop": 5}, "`stop`"),
        ({"max_tokens": 1.5}, "whole number"),
        ({"stream": "yes"}, "true or false"),
        ({"model": 5}, "`model`"),
        ({"messages": 5}, "`messages`"),
        ({"response_format": 5}, "`response_format`"),
        ({"tools": [{"name": str(n), "input_schema": {}} for n in range(5001)]}, "5000 tools"),
        ({"messages": HELLO["messages"] * 20_001}, "more than 20000 messages"),
    ],
)
def test_a_field_that_cannot_be_honoured_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(GatewayError, match=words):
        chat.parse(HELLO | change)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "web address"),
        ("data:image/png;base64,@@@", "not valid base64"),
        (f"data:image/png;base64,{base64.b64encode(b'GIF?').decode()}", "PNG, JPEG, GIF or WebP"),
        ("data:image/png;base64," + "A" * (MAX_IMAGE_BYTES * 4 // 3 + 8), "larger than"),
    ],
)
def test_an_image_that_is_none_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidImage, match=words):
        chat.parse(picture(url))


def test_an_image_on_the_web_stays_a_link() -> None:
    (message,) = chat.parse(picture("https://example.com/a.png")).conversation.messages
    assert message.parts == (ImageLink("https://example.com/a.png"),)


def test_old_clients_get_their_one_function_call() -> None:
    functions = [{"name": "ls", "parameters": {"type": "object"}}]
    exchange = chat.parse(HELLO | {"functions": functions})
    events: list[AnswerEvent] = [ToolCall("call_1", "ls", "{}"), Finished("tool_calls", None)]
    fold = exchange.fold("id", 0)
    fold.feed(events)
    [choice] = fold.body()["choices"]
    assert choice["message"]["function_call"] == {"name": "ls", "arguments": "{}"}
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"
    wire = exchange.encoder("id", 0).feed(events)
    assert b'"delta":{"function_call":{"name":"ls","arguments":"{}"}}' in wire
    assert b'"finish_reason":"function_call"' in wire and b"tool_calls" not in wire
    assert not exchange.conversation.parallel_calls


@pytest.mark.parametrize("parse", [dialect.parse for dialect in DIALECTS])
def test_an_empty_body_is_told_first_that_nothing_is_asked(parse: Callable[..., object]) -> None:
    with pytest.raises(MissingMessages):
        parse({})


def test_an_answer_of_words_ends_for_old_clients_as_for_others() -> None:
    exchange = chat.parse(HELLO | {"functions": [{"name": "ls"}]})
    assert b'"finish_reason":"stop"' in exchange.encoder("id", 0).feed([Finished("stop", None)])
