"""One suite over all dialects and recordings: the same words, calls and counts in each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import ToolCall
from cursor_gateway.core.events import AnswerEvent, Finished, TextDelta, ThinkingDelta, Usage
from cursor_gateway.dialects import DIALECTS, Dialect
from cursor_gateway.errors import AgentFailed
from tests.conftest import RECORDINGS
from tests.dialects.answers import READ_BODY, READ_STREAM, exchange, recorded, told
from tests.support.recorded import COMPLETE, expected_text

EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.PATH)


def check(dialect: Dialect, batches: list[list[AnswerEvent]]) -> None:
    """Stream, body and events say the same."""
    asked = exchange(dialect)
    encoder, fold = asked.encoder("1", 0), asked.fold("1", 0)
    wire = b"".join(encoder.feed(batch) for batch in batches)
    for batch in batches:
        fold.feed(batch)
    streamed, whole = READ_STREAM[dialect.PATH](wire), READ_BODY[dialect.PATH](fold.body())
    expected = told([event for batch in batches for event in batch], dialect)
    assert streamed == whole
    assert streamed == expected


@EVERY_DIALECT
@pytest.mark.parametrize("with_calls", [False, True])
@pytest.mark.parametrize("name", COMPLETE)
def test_a_recording_says_the_same_in_every_dialect(
    dialect: Dialect, name: str, with_calls: bool
) -> None:
    events = recorded(name, with_calls=with_calls)
    assert told(events, dialect).text == expected_text((RECORDINGS / f"{name}.ndjson").read_bytes())
    check(dialect, [events])
    check(dialect, [[event] for event in events])


PIECES = st.lists(
    st.builds(TextDelta, st.text(min_size=1))
    | st.builds(ThinkingDelta, st.text(min_size=1))
    | st.builds(ToolCall, st.uuids().map(str), st.text(min_size=1), st.just('{"p":[1,"ü"]}'))
)


@EVERY_DIALECT
@given(st.lists(PIECES), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_so_does_any_answer_however_it_is_cut(
    dialect: Dialect, batches: list[list[AnswerEvent]], fresh: int, cached: int, output: int
) -> None:
    end = Finished("stop", Usage(fresh + cached, output, cached))
    check(dialect, [*batches, [end]])


@EVERY_DIALECT
@pytest.mark.parametrize("said", [[], [ThinkingDelta("hm")], [TextDelta("Half a")]])
def test_a_failure_is_told_and_never_looks_like_an_end(
    dialect: Dialect, said: list[AnswerEvent]
) -> None:
    encoder = exchange(dialect).encoder("1", 0)
    before = encoder.feed(said) if said else b""
    failure = encoder.fail(AgentFailed("The agent died."), "r1")
    assert READ_STREAM[dialect.PATH](before).ends == 0
    assert failure.count(b"The agent died.") == 1
    assert failure.endswith(b"}\n\n")
    for ending in (b"[DONE]", b"message_stop", b"response.completed"):
        assert ending not in failure


@EVERY_DIALECT
def test_silence_adds_nothing_to_the_answer(dialect: Dialect) -> None:
    events = recorded("thinking", with_calls=False)
    encoder = exchange(dialect).encoder("1", 0)
    wire = encoder.keep_alive() + encoder.heartbeat()
    for event in events:
        wire += encoder.feed([event])
        if not isinstance(event, Finished):
            wire += encoder.keep_alive() + encoder.heartbeat()
    assert READ_STREAM[dialect.PATH](wire) == told(events, dialect)
