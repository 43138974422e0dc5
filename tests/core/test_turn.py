from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import (
    Conversation,
    ImageLink,
    JsonOutput,
    Message,
    Text,
    ToolCall,
    ToolResult,
)
from cursor_gateway.core.events import (
    AgentCall,
    AnswerEvent,
    Finished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.limits import estimate_tokens
from cursor_gateway.errors import OutputInvalid
from tests.core.driven import Driven

ASKED = Conversation("auto", (Message("user", (Text("12345678"),)),))
USAGE = Usage(100, 10, 5)


def ask(**fields: object) -> Driven:
    ids = (f"call_{number}" for number in itertools.count(1))
    asked = dataclasses.replace(ASKED, **fields)  # type: ignore[arg-type]
    begun = Driven(asked, max_repeat=2, new_id=lambda: next(ids))
    begun.begin(asked)
    return begun


def text(events: list[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_without_limits_everything_passes_and_the_agent_counts() -> None:
    events: list[Any] = [ThinkingDelta("hm"), AgentCall("c", "read", {}), TextDelta("hi")]
    turn = ask()
    assert turn.feed([*events, Finished("stop", USAGE)]) == [*events, Finished("stop", USAGE)]
    assert turn.over
    assert turn.feed([TextDelta("late")]) == []


def test_missing_usage_is_estimated() -> None:
    turn = ask()
    (*_, end) = turn.feed([ThinkingDelta("éé"), TextDelta("1234"), Finished("stop", None)])
    assert end == Finished("stop", Usage(2, 2, estimated=True))
    assert [estimate_tokens(size) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_the_estimate_counts_all_that_the_agent_reads() -> None:
    parts = (
        ToolCall("c", "ls", "1234"),
        ToolResult("c", (Text("1234"), ImageLink("https://x"))),
        ImageLink("https://x"),
    )
    turn = ask(messages=(Message("user", parts),))
    assert turn.feed([Finished("stop", None)]) == [Finished("stop", Usage(2, 0, estimated=True))]


@given(st.lists(st.text("aé日\U0001f600", max_size=4)), st.integers(1, 12))
def test_max_tokens_cuts_at_the_same_place_however_the_text_comes(
    deltas: list[str], limit: int
) -> None:
    whole = "".join(deltas)
    turn = ask(max_tokens=limit)
    events = turn.feed([*map(TextDelta, deltas), Finished("stop", USAGE)])
    kept = whole.encode()[: limit * 4].decode(errors="ignore")
    assert text(events) == kept
    reason = "stop" if len(whole.encode()) <= limit * 4 else "length"
    assert isinstance(events[-1], Finished) and events[-1].reason == reason


@given(
    st.lists(st.text("ab", max_size=3)),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_stop_sequence_is_found_wherever_the_deltas_are_cut(
    deltas: list[str], stops: list[str]
) -> None:
    turn = ask(stop=tuple(stops))
    events = [event for delta in deltas for event in turn.feed([TextDelta(delta)])]
    events += turn.feed([Finished("stop", USAGE)])
    whole = "".join(deltas)
    found = [at for at in (whole.find(stop) for stop in stops) if at >= 0]
    if not found:
        assert text(events) == whole
    else:
        # Of two that overlap, the one that is complete first decides.
        assert text(events) in {whole[:at] for at in found}
    assert [isinstance(event, Finished) for event in events].count(True) == 1


def test_text_that_cannot_become_a_stop_is_not_delayed() -> None:
    turn = ask(stop=("STOP",))
    assert turn.feed([TextDelta("free")]) == [TextDelta("free")]
    assert turn.feed([TextDelta(" ST")]) == [TextDelta(" ")]
    assert turn.feed([TextDelta("AND")]) == [TextDelta("STAND")]


def test_text_held_for_a_stop_is_cut_by_the_limit_too() -> None:
    turn = ask(stop=("1234STOP",), max_tokens=1)
    events = turn.feed([TextDelta("xx1234ST"), Finished("stop", USAGE)])
    assert text(events) == "xx12"
    assert isinstance(events[-1], Finished) and events[-1].reason == "length"


def test_a_stop_behind_the_limit_changes_nothing() -> None:
    turn = ask(stop=("STOP",), max_tokens=1)
    events = turn.feed([TextDelta("123456STOP")])
    assert text(events) == "1234"
    assert [isinstance(event, Finished) for event in events].count(True) == 1


def test_json_is_kept_back_until_it_is_known_to_be_json() -> None:
    turn = ask(output=JsonOutput())
    assert turn.feed([TextDelta('{"a"'), ThinkingDelta("hm")]) == [ThinkingDelta("hm")]
    assert turn.feed([TextDelta(": 1}"), Finished("stop", USAGE)]) == [
        TextDelta('{"a": 1}'),
        Finished("stop", USAGE),
    ]


def test_bad_json_is_asked_for_again_once_and_both_runs_are_counted() -> None:
    turn = ask(output=JsonOutput())
    assert turn.feed([TextDelta("sorry"), Finished("stop", USAGE)]) == []
    assert not turn.over
    answer, correction = turn.retry
    assert answer == Message("assistant", (Text("sorry"),))
    assert "not JSON" in str(correction.parts[0])
    turn.begin(dataclasses.replace(ASKED, messages=(*ASKED.messages, *turn.retry)))
    events = turn.feed([TextDelta("{}"), Finished("stop", USAGE)])
    assert events == [TextDelta("{}"), Finished("stop", Usage(200, 20, 10))]


def test_json_that_is_bad_twice_is_an_error() -> None:
    turn = ask(output=JsonOutput())
    turn.feed([TextDelta("[1]"), Finished("stop", USAGE)])
    turn.begin(ASKED)
    with pytest.raises(OutputInvalid, match="not a JSON object"):
        turn.feed([TextDelta("[1]"), Finished("stop", USAGE)])


def test_json_that_the_limit_cuts_is_given_as_far_as_it_goes() -> None:
    turn = ask(output=JsonOutput(), max_tokens=1)
    events = turn.feed([TextDelta('{"a": 12345}')])
    assert text(events) == '{"a"'
    assert isinstance(events[-1], Finished) and events[-1].reason == "length"
