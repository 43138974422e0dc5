"""The CLI's stream, each recording fed whole, byte by byte and in random cuts."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.agents.cursor.stream import AgentStream
from cursor_gateway.agents.demo.program import Emitter
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    AgentEvent,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.errors import AgentFailed, CursorUnreachable, QuotaExceeded
from tests.conftest import RECORDINGS
from tests.support.recorded import COMPLETE, MANIFEST, expected_text


def feed(chunks: Iterable[bytes]) -> tuple[list[AgentEvent], AgentStream]:
    stream = AgentStream()
    events: list[AgentEvent] = []
    for chunk in chunks:
        events += stream.feed(chunk)
    return events + stream.close(), stream


def text(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def merged(events: list[AgentEvent]) -> list[AgentEvent]:
    """With neighbours of one kind as one: how deltas are grouped depends on the reads."""
    out: list[AgentEvent] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            out[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ThinkingDelta) and isinstance(last, ThinkingDelta):
            out[-1] = ThinkingDelta(last.text + event.text)
        else:
            out.append(event)
    return out


def bytewise(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


@pytest.mark.parametrize("name", COMPLETE)
def test_a_recording_gives_the_text_of_its_result_however_it_is_cut(name: str) -> None:
    data = (RECORDINGS / f"{name}.ndjson").read_bytes()
    whole, stream = feed([data])
    assert text(whole) == expected_text(data)
    assert isinstance(whole[-1], RunFinished) and stream.finished
    assert merged(feed(bytewise(data))[0]) == merged(whole)


def test_deltas_that_come_in_one_read_leave_as_one_event() -> None:
    deltas = lines(assistant("a", timestamp_ms=1), assistant("b", timestamp_ms=1))
    thoughts = lines(*({"type": "thinking", "text": word} for word in "cd"))
    stream = AgentStream()
    assert stream.feed(deltas + thoughts + deltas) == [
        TextDelta("ab"),
        ThinkingDelta("cd"),
        TextDelta("ab"),
    ]
    assert stream.feed(deltas) == [TextDelta("ab")]


@given(st.lists(st.text('ha "\\\n\x01/é\U0001f600\ud83d\ude00', max_size=4), max_size=12))
def test_deltas_as_the_cli_writes_them_say_what_any_other_json_of_them_says(
    words: list[str],
) -> None:
    deltas = [assistant(word, session_id="s", timestamp_ms=1) for word in words]
    as_written = b"".join(map(stringified, deltas))
    said = text(feed([as_written])[0])
    assert said == text(feed([lines(*deltas)])[0])
    assert said == text(feed(bytewise(as_written))[0])


@given(
    damage=st.lists(
        st.tuples(
            st.integers(0, 180), st.sampled_from((b"", b"\\", b'"', b"\n", b"\x01", b"0", b"\xff"))
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_damaged_delta_says_nothing_that_parsing_it_would_not(
    damage: list[tuple[int, bytes]],
) -> None:
    data = stringified(assistant("a\n", session_id="5f0c" * 9, timestamp_ms=1787030681469))
    for place, byte in damage:
        data = data[:place] + byte + data[place + 1 :]
    found, stream = feed([data])
    with patch("cursor_gateway.agents.cursor.stream._DELTA", re.compile(rb"(never)")):
        parsed, reference = feed([data])
    assert (merged(found), stream.noise) == (merged(parsed), reference.noise)


def test_a_long_block_is_parsed_line_by_line() -> None:
    word = "x" * 1_200_000
    deltas = lines(assistant(word, timestamp_ms=1), assistant("y", timestamp_ms=2))
    assert text(feed([deltas])[0]) == f"{word}y"


def test_deltas_that_are_not_utf_8_are_mended() -> None:
    line = stringified(assistant("a?b", session_id="s", timestamp_ms=1))
    assert text(feed([line.replace(b"?", b"\xff")])[0]) == "a\ufffdb"


@pytest.mark.parametrize("name", COMPLETE)
@given(cuts=st.data())
def test_a_recording_survives_random_cuts(name: str, cuts: st.DataObject) -> None:
    data = (RECORDINGS / f"{name}.ndjson").read_bytes()
    places = sorted(cuts.draw(st.sets(st.integers(0, len(data)), max_size=20)) | {0, len(data)})
    chunks = [data[a:b] for a, b in itertools.pairwise(places)]
    assert text(feed(chunks)[0]) == expected_text(data)


@pytest.mark.parametrize("name", [name for name, facts in MANIFEST.items() if name not in COMPLETE])
def test_a_recording_of_a_failure_never_finishes(name: str) -> None:
    data = (RECORDINGS / f"{name}.ndjson").read_bytes()
    events, stream = feed([data])
    assert not stream.finished
    assert not any(isinstance(event, RunFinished) for event in events)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text("ha \n\u2028é\U0001f600", min_size=1, max_size=5)),
        st.sampled_from([("tool", ""), ("query", ""), ("retry", ""), ("think", "")]),
    ),
    max_size=20,
)


@given(steps=STEPS, cut=st.integers(1, 200), partial=st.booleans())
def test_whatever_the_cli_does_every_word_comes_once_and_in_order(
    steps: list[tuple[str, str]], cut: int, partial: bool
) -> None:
    out = io.StringIO()
    emitter = Emitter(out, partial=partial)
    emitter.init("/", "prompt")
    for step, argument in steps:
        match step:
            case "text":
                emitter.text(argument)
            case "tool":
                emitter.tool_call("read", {}, {"success": {}})
            case "query":
                emitter.interaction_query("webSearch", {})
            case "retry":
                emitter.retry()
            case "think":
                emitter.thinking(["hm"])
    emitter.result()
    data = out.getvalue().encode()
    chunks = [data[at : at + cut] for at in range(0, len(data), cut)]
    events, _ = feed(chunks)
    assert text(events) == "".join(argument for step, argument in steps if step == "text")
    assert [isinstance(event, RunFinished) for event in events].count(True) == 1


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def stringified(event: dict[str, Any]) -> bytes:
    """As JavaScript writes it: nothing escaped but what has to be, half characters among it."""
    compact = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    halves = re.compile("[\ud800-\udfff]")
    return halves.sub(lambda half: f"\\u{ord(half[0]):04x}", compact).encode() + b"\n"


def assistant(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content}} | fields


def result(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": text} | fields


def test_text_that_never_came_as_a_delta_is_taken_from_the_flush_or_the_result() -> None:
    flushed = lines(assistant("all of it"), result("all of it"))
    assert text(feed([flushed])[0]) == "all of it"
    missing = lines(assistant("half ", timestamp_ms=1), result("half whole"))
    assert text(feed([missing])[0]) == "half whole"


def test_a_flush_that_does_not_match_adds_nothing() -> None:
    data = lines(assistant("abc", timestamp_ms=1), assistant("xyz"), result("abc"))
    assert text(feed([data])[0]) == "abc"


def test_a_held_delta_at_the_end_of_the_stream_was_text() -> None:
    data = lines(assistant("ha", timestamp_ms=1), assistant("ha", timestamp_ms=2))
    assert text(feed([data])[0]) == "haha"


@pytest.mark.parametrize(
    "message",
    [
        {"content": "plain"},
        {
            "content": [
                {"type": "text", "text": "pl"},
                {"type": "x"},
                {"type": "text", "text": "ain"},
            ]
        },
    ],
)
def test_content_may_be_a_string_or_blocks(message: dict[str, Any]) -> None:
    data = lines({"type": "assistant", "message": message, "timestamp_ms": 1}, result("plain"))
    assert text(feed([data])[0]) == "plain"


def test_the_flat_form_of_early_versions_is_understood() -> None:
    data = lines({"type": "assistant", "text": "hi", "timestamp_ms": 1}, result("hi"))
    assert text(feed([data])[0]) == "hi"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "assistant", "message": {"content": 5}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": 5}]}},
        {"type": "thinking", "text": None},
        {"type": "tool_call", "subtype": "started", "tool_call": None},
        {"type": "tool_call", "subtype": "started", "tool_call": {"function": 5}},
        {"type": "tool_call", "subtype": "completed", "tool_call": {}},
        {"type": "result", "result": None, "is_error": None, "usage": [1]},
        {"type": "system"},
        {"type": "from the future", "text": "?"},
        {"no": "type"},
    ],
)
def test_events_of_an_unknown_shape_are_passed_over(odd: dict[str, Any]) -> None:
    events, _ = feed([lines(odd)])
    assert text(events) == ""


def test_thinking_tools_and_the_end_are_told() -> None:
    call = {"toolCallId": "c", "readToolCall": {"args": {"path": "/x"}}, "description": "Look"}
    answered = {"readToolCall": {"args": {"path": "/x"}, "result": {"success": {"content": "y"}}}}
    named = {"function": {"name": "legacy_fn"}}
    data = lines(
        {"type": "system", "subtype": "init", "session_id": "s1", "cwd": "/home/dev"},
        {"type": "thinking", "subtype": "delta", "text": "hm"},
        {"type": "tool_call", "subtype": "started", "call_id": "c", "tool_call": call}
        | {"model_call_id": "m-0"},
    )
    stream = AgentStream()
    assert stream.feed(data) == [
        ThinkingDelta("hm"),
        AgentCall("c", "read", {"path": "/x"}, "Look", "m-0", "/home/dev"),
    ]
    assert stream.session_id == "s1"
    assert stream.tool_is_running
    done = {"type": "tool_call", "subtype": "completed", "call_id": "c", "tool_call": answered}
    older = {"type": "tool_call", "subtype": "started", "call_id": "d", "tool_call": named}
    assert stream.feed(lines(done, older)) == [
        AgentCallDone("read", {"path": "/x"}, {"success": {"content": "y"}}, "c"),
        AgentCall("d", "legacy_fn", {}, "", "", "/home/dev"),
    ]
    usage = {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4}
    assert stream.feed(lines(result("", usage=usage))) == [RunFinished(Usage(8, 2, 3))]
    assert stream.feed(lines(assistant("after the end", timestamp_ms=1))) == []


def test_the_end_of_a_turn_is_noticed_before_its_result() -> None:
    stream = AgentStream()
    stream.feed(lines(assistant("a", timestamp_ms=1)))
    assert not stream.turn_ended
    stream.feed(lines(assistant("a")))
    assert stream.turn_ended
    assert stream.conclude() == [RunFinished(None)]
    assert stream.finished and stream.lacks_result and not stream.turn_ended


CALL = {"type": "tool_call", "call_id": "c", "tool_call": {"shellToolCall": {}}}


@pytest.mark.parametrize(
    ("event", "is_over"),
    [
        ({"type": "thinking", "text": "more"}, False),
        (CALL | {"subtype": "started"}, False),
        ({"type": "interaction_query", "subtype": "request"}, False),
        ({"type": "retry", "subtype": "starting"}, False),
        (assistant("b", timestamp_ms=1), False),
        (CALL | {"subtype": "completed"}, True),
        ({"type": "system", "subtype": "background_shell_timeout"}, True),
        ({"type": "system", "subtype": "task_notification"}, True),
        ({"type": "from the future"}, True),
    ],
)
def test_only_what_a_turn_brings_shows_that_it_goes_on(
    event: dict[str, Any], is_over: bool
) -> None:
    for written in (lines(event), stringified(event)):
        stream = AgentStream()
        stream.feed(lines(assistant("a", timestamp_ms=1), assistant("a")) + written)
        assert stream.turn_ended is is_over


def test_a_call_over_the_relay_shows_it_too() -> None:
    stream = AgentStream()
    stream.feed(lines(assistant("a")))
    stream.goes_on()
    assert not stream.turn_ended


@pytest.mark.parametrize(
    "closing",
    [
        assistant("something else"),
        assistant("ab", model_call_id="m-0"),
        assistant(""),
    ],
)
def test_text_that_no_closing_repetition_confirms_is_not_known_to_be_whole(
    closing: dict[str, Any],
) -> None:
    stream = AgentStream()
    stream.feed(lines(assistant("ab", timestamp_ms=1), closing))
    assert not stream.turn_ended


def test_a_result_that_only_looks_finished_is_waited_for() -> None:
    data = lines(assistant("{}", timestamp_ms=1), result("{}"))
    data = data.replace(b": ", b":").replace(b", ", b",").rstrip(b"\n")
    at = data.rindex(b"{}") + 2
    stream = AgentStream()
    assert text(stream.feed(data[:at])) == "{}"
    assert not stream.finished
    stream.feed(data[at:])
    assert stream.finished


def test_noise_is_kept_for_the_classifier_and_bounded() -> None:
    data = b"\n  \nT: hello\n[1,2]\n" + b"x" * 5000 + b"\n" + b"y\n" * 100
    _, stream = feed([data])
    assert stream.noise.count("\n") == 49
    _, stream = feed([b"T: hello\n[1]\n"])
    assert stream.noise == "T: hello\n[1]"


def test_a_word_before_the_event_is_looked_through() -> None:
    data = b"stdout" + lines(assistant("hi", timestamp_ms=1)) + b"what{}\n" + b"stderr{broken\n"
    events, stream = feed([data])
    assert text(events) == "hi"
    assert stream.noise == "what{}\nstderr{broken"


def test_an_event_nested_beyond_reason_is_noise() -> None:
    events, stream = feed([b'{"type":' + b"[" * 100_000 + b"\n"])
    assert events == [] and stream.noise


def test_half_characters_are_joined_or_replaced() -> None:
    halves = b'{"type":"assistant","message":{"content":"%s"},"timestamp_ms":1}\n'
    joined = feed([halves % rb"a\ud83d", halves % rb"\ude00b"])[0]
    assert text(joined) == "a\U0001f600b"
    alone = feed([halves % rb"a\ud83d", halves % b"b"])[0]
    assert text(alone) == "a\ufffdb"
    at_the_end = feed([halves % rb"a\ud83d"])[0]
    assert text(at_the_end) == "a\ufffd"
    before_result = feed([halves % rb"a\ud83d", lines(result("?"))])[0]
    assert text(before_result) == "a\ufffd"


def test_the_clis_own_word_of_failure_is_kept() -> None:
    limit = {"type": "result", "is_error": True, "result": "You've hit your usage limit"}
    events, stream = feed([lines(assistant("half", timestamp_ms=1), limit)])
    assert text(events) == "half"
    assert isinstance(stream.failure, QuotaExceeded)
    _, stream = feed([lines({"type": "error", "message": "Connection failed"})])
    assert isinstance(stream.failure, CursorUnreachable)
    _, stream = feed([lines({"type": "error"})])
    assert isinstance(stream.failure, AgentFailed)


@pytest.mark.parametrize("flush", ["query", "retry", "tool", "end"])
def test_a_character_that_is_cut_in_deltas_and_whole_in_their_repetition_comes_once(
    flush: str,
) -> None:
    out = io.StringIO()
    emitter = Emitter(out, partial=True)
    emitter.init("/x", "hi")
    for piece in ("Look ", "\ud83d", "\udc4d", "!"):
        emitter.text(piece)
    if flush == "query":
        emitter.interaction_query("webFetch", {})
    elif flush == "retry":
        emitter.retry()
    elif flush == "tool":
        emitter.tool_call("read", {}, {"success": {}})
    emitter.text(" Bye.")
    emitter.result()
    assert text(feed([out.getvalue().encode()])[0]) == "Look 👍! Bye."


@pytest.mark.parametrize("count", [2**63 - 1, -1, "5", None, 1.5])
def test_a_count_that_is_none_counts_nothing(count: object) -> None:
    usage = {"inputTokens": count, "cacheReadTokens": 2**63 - 1, "outputTokens": 3}
    events, _ = feed([lines(result("x", usage=usage))])
    assert events[-1] == RunFinished(Usage(0, 3, 0))


@pytest.mark.parametrize("depth", [129, 1000])
def test_of_a_call_that_is_nested_too_deeply_nothing_is_known(depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    call = b'{"type":"tool_call","subtype":"%b","call_id":"c","tool_call":{"readToolCall":%b}}\n'
    stream = AgentStream()
    (begun,) = stream.feed(call % (b"started", b'{"args":%b}' % deep))
    assert isinstance(begun, AgentCall) and (begun.tool, begun.arguments) == ("unknown", {})
    (done,) = stream.feed(call % (b"completed", b'{"result":%b}' % deep))
    assert isinstance(done, AgentCallDone) and (done.tool, done.result) == ("unknown", {})
    assert not stream.tool_is_running


def test_a_result_that_looks_finished_all_the_time_is_not_parsed_all_the_time() -> None:
    stream = AgentStream()
    stream.feed(b'{"type":"result","is_error":false,"result":"')
    with patch.object(orjson, "loads", wraps=orjson.loads) as loads:
        for _ in range(1000):
            stream.feed(b"}")
        assert loads.call_count <= 20
    assert text(stream.feed(b'"}\n')) == "}" * 1000 and stream.finished
