"""Frames of a Connect stream, in all pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.agents.sdk.frames import Frames, frame, message_of
from cursor_gateway.agents.sdk.texts import BridgeFault

MESSAGES: list[dict[str, Any]] = [{}, {"a": "ü"}, {"b": {"c": [1, 2]}}, {"d": "x" * 1000}]
LAST = b"\x02\0\0\0\x02{}"


def test_messages_come_out_whole() -> None:
    frames = Frames()
    assert frames.feed(b"".join(map(frame, MESSAGES)) + LAST) == MESSAGES
    assert frames.ended and frames.refusal is None


@given(st.lists(st.integers(1, 200), max_size=40))
def test_they_may_come_in_any_pieces(sizes: list[int]) -> None:
    data, frames, found = b"".join(map(frame, MESSAGES)) + LAST, Frames(), []
    for size in sizes:
        found += frames.feed(data[:size])
        data = data[size:]
    assert found + frames.feed(data) == MESSAGES
    assert frames.ended


def test_the_last_one_may_say_why_it_failed() -> None:
    error = frame({"error": {"code": "internal", "message": "no"}})
    frames = Frames()
    assert frames.feed(b"\x02" + error[1:] + frame({"after": 1})) == []
    assert frames.refusal is not None and frames.refusal.words == "no"


def test_half_a_character_is_no_mistake() -> None:
    assert message_of(b'{"text":"\\ud83d"}') == {"text": "\ud83d"}
    assert Frames().feed(frame({"text": "\ud83d"})) == [{"text": "\ud83d"}]


@pytest.mark.parametrize("data", [b"{nope", b"[1]", b"7"])
def test_what_is_no_message_is_a_fault(data: bytes) -> None:
    with pytest.raises(BridgeFault):
        message_of(data)
    assert message_of(b"") == {}


def test_what_nobody_could_write_again_says_nothing() -> None:
    assert message_of(b'{"a":' * 100_000 + b"1" + b"}" * 100_000) == {}


def test_what_is_too_large_or_compressed_is_a_fault() -> None:
    with pytest.raises(BridgeFault, match="11 bytes"):
        Frames(largest=10).feed(b"\0\0\0\0\x0b")
    with pytest.raises(BridgeFault, match="nobody asked for"):
        Frames().feed(b"\x01\0\0\0\x02{}")
