"""Where the agent acted between two texts, a paragraph ends; nowhere else is anything added."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import Conversation, Message, Text
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    AgentEvent,
    Finished,
    TextDelta,
    ThinkingDelta,
)
from cursor_gateway.core.seams import Seams
from tests.core.driven import Driven

DONE = AgentCallDone("read", {"path": "/x"}, {"success": {}})
OWN: list[Any] = [AgentCall("1", "read", {"path": "/x"}), DONE]
END = Finished("stop", None)


def said(*events: AgentEvent | Finished, **limits: object) -> str:
    conversation = Conversation(
        "auto",
        (Message("user", (Text("?"),)),),
        **limits,  # type: ignore[arg-type]
    )
    turn = Driven(conversation, max_repeat=3, new_id=iter("abcdef").__next__)
    turn.begin(conversation)
    return "".join(e.text for e in turn.feed(events) if isinstance(e, TextDelta))


@pytest.mark.parametrize("between", [OWN, [DONE], [*OWN, ThinkingDelta("hm"), *OWN]])
def test_a_paragraph_ends_where_the_agent_used_a_tool_of_its_own(
    between: list[AgentEvent],
) -> None:
    text = said(TextDelta("In a.txt."), *between, TextDelta("It has 3"), TextDelta(" lines."), END)
    assert text == "In a.txt.\n\nIt has 3 lines."


@pytest.mark.parametrize(
    ("before", "after"), [("a\n", "b"), ("a", "\nb"), ("a", "\r\nb"), ("a\n\n", "\nb")]
)
def test_a_line_break_of_either_side_is_enough(before: str, after: str) -> None:
    assert said(TextDelta(before), *OWN, TextDelta(after), END) == before + after


def test_nothing_is_put_before_the_first_text_or_behind_the_last() -> None:
    assert said(*OWN, TextDelta("a"), *OWN, END) == "a"


def test_thinking_is_no_seam() -> None:
    assert said(TextDelta("a"), ThinkingDelta("hm"), TextDelta("b"), END) == "ab"


def test_a_stop_sequence_is_not_found_in_what_the_model_did_not_write() -> None:
    assert said(TextDelta("a"), *OWN, TextDelta("b"), END, stop=("\n\n",)) == "a\n\nb"


def test_another_run_goes_on_after_what_the_client_has_got_only() -> None:
    seams = Seams()
    seams.joined("dropped")
    seams.begin()
    seams.speaks()
    assert seams.joined("first") == "first"
    seams.sent()
    seams.joined("dropped\n")
    seams.begin()
    seams.speaks()
    assert seams.joined("second") == "\n\nsecond"


def test_what_was_held_back_is_not_parted_from_what_it_follows() -> None:
    seams = Seams()
    seams.joined("a ")
    seams.acted()
    assert seams.joined("<") == "<"
    seams.speaks()
    assert seams.joined("b") == "\n\nb"


@given(st.lists(st.tuples(st.text("a \n", min_size=1, max_size=3), st.booleans()), max_size=12))
def test_every_word_stays_as_it_was(pieces: list[tuple[str, bool]]) -> None:
    seams, out = Seams(), ""
    for text, acts in pieces:
        seams.speaks()
        out += seams.joined(text)
        if acts:
            seams.acted()
    plain = "".join(text for text, _ in pieces)
    glued = sum(acts and "\n" not in one[-1] + two[0] for (one, acts), (two, _) in pairwise(pieces))
    assert len(out) == len(plain) + 2 * glued
    assert "".join(out.split()) == "".join(plain.split())
