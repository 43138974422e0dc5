"""MessageMeter: sizes and values, however the bytes are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.mcp_bridge.message_meter import (
    EVENTS,
    LINES,
    WHOLE,
    MessageMeter,
    MessageTooLarge,
)

MB = 1024 * 1024
texts = st.text(st.sampled_from('a"\\,[{é\n'))
documents = st.recursive(
    st.none() | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)
)


def marks(document: Any) -> int:
    """Its lists and objects, and the commas in them."""
    if not isinstance(document, dict | list):
        return 0
    inner = list(document.values()) if isinstance(document, dict) else document
    return 1 + max(len(inner) - 1, 0) + sum(map(marks, inner))


def fits(meter: MessageMeter, text: bytes, size: int) -> bool:
    try:
        for at in range(0, len(text), size):
            meter.feed(text[at : at + size])
    except MessageTooLarge:
        return False
    return True


@given(documents, st.integers(1, 9), st.booleans(), st.sampled_from([WHOLE, LINES, EVENTS]))
def test_values_are_counted_outside_of_strings_however_they_are_cut(
    document: Any, size: int, is_ascii: bool, ends: Any
) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii).encode()
    count = marks(document)
    assert fits(MessageMeter(ends, MB, count), text, size)
    assert not count or not fits(MessageMeter(ends, MB, count - 1), text, size)


@pytest.mark.parametrize(
    ("ends", "between"),
    [(LINES, b"\n"), (EVENTS, b"\n\n"), (EVENTS, b"\r\n\r\n"), (EVENTS, b"\r\r")],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_every_message_has_the_limits_for_itself(ends: Any, between: bytes, size: int) -> None:
    message = b'data: {"a": [1, 2]}' + between
    assert fits(MessageMeter(ends, MB, 3), message * 50, size)
    assert fits(MessageMeter(ends, MB, 3), b": it's 5\"" + between + message * 50, size)
    if size == 1:
        assert not fits(MessageMeter(ends, MB, 2), message, size)
        assert not fits(MessageMeter(WHOLE, MB, 3), message * 2, size)


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("decoy", [b': "', b': "\\', b'event: "\\"', b'id: "x'])
def test_a_quotation_mark_outside_of_the_message_hides_nothing(
    line_end: bytes, decoy: bytes
) -> None:
    event = decoy + line_end + b"data: [1,2,3]"
    assert not fits(MessageMeter(EVENTS, MB, 2), event, 1)
    assert not fits(MessageMeter(EVENTS, MB, 2), event, 100)


def test_bytes_are_counted_too_and_the_error_says_which() -> None:
    meter = MessageMeter(WHOLE, 2 * MB, 5)
    for _ in range(2):
        meter.feed(b"x" * MB)
    with pytest.raises(MessageTooLarge, match="more than 2 MB in one message"):
        meter.feed(b"x")
    with pytest.raises(MessageTooLarge, match="more than 1,000 values in one message"):
        MessageMeter(WHOLE, MB, 1000).feed(b"[" * 1001)
