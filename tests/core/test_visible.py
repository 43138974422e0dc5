"""Text of others, as it may be shown."""

from __future__ import annotations

import json

import pytest

from cursor_gateway.core.visible import one_line, visible, visible_json


@pytest.mark.parametrize("text", ["", "plain", "naïve 日本語 😀", "سلام", "👩‍👩‍👧"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == one_line(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\x9b31m\x7f\x00", r"\x9b31m\x7f\x00"),
        ("gpt\u202e5-tpg\u2066", r"gpt\u202e5-tpg\u2066"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("half \ud83d", r"half \ud83d"),
        ("over\rwritten", r"over\rwritten"),
    ],
)
def test_what_would_steer_a_terminal_can_be_seen_instead(text: str, shown: str) -> None:
    assert visible(text) == one_line(text) == shown


def test_a_text_has_lines_and_a_name_has_none() -> None:
    assert visible("a\tb\r\nc\nd") == "a\tb\nc\nd"
    assert one_line("a\tb\nc\u200b\ufeff") == r"a\tb\nc\u200b\ufeff"


def test_json_stays_the_same_json() -> None:
    body = {"name": "\x1b\x7f\x9b\u202e\u2028 ok\n"}
    text = visible_json(json.dumps(body, ensure_ascii=False, indent=2))
    assert json.loads(text) == body
    assert text == one_line(text.replace("\n", "")).replace("{", "{\n").replace("}", "\n}")
