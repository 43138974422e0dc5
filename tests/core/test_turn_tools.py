"""A turn with tools, event by event."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import (
    Conversation,
    JsonOutput,
    Message,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    AgentEvent,
    AnswerEvent,
    Finished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from tests.core.driven import Driven

USAGE = Usage(10, 5)
END = Finished("stop", USAGE)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
BASH = ToolSpec("bash", "", SCHEMA)
USER = Message("user", (Text("go"),))
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
GARBLED = "<tool_call>\n{oops}\n</tool_call>"


def turn(*messages: Message, **fields: Any) -> Driven:
    ids = (f"call_{number}" for number in itertools.count(1))
    asked = Conversation("auto", messages or (USER,), tools=(BASH,), **fields)
    begun = Driven(asked, max_repeat=2, new_id=lambda: next(ids))
    begun.begin(asked)
    return begun


def called(number: int = 1, command: str = "ls") -> ToolCall:
    return ToolCall(f"call_{number}", "bash", f'{{"command":"{command}"}}')


DONE = AgentCallDone("shell", {}, {"rejected": {"reason": ""}})


def shell(command: str = "ls", model_call: str = "m-1") -> AgentCall:
    return AgentCall("x", "shell", {"command": command}, "", model_call)


def text(events: list[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def again(a_turn: Driven) -> None:
    a_turn.begin(Conversation("auto", (USER, *a_turn.retry), tools=(BASH,)))


def test_a_burst_is_handed_out_when_the_agent_falls_silent() -> None:
    subject = turn()
    assert subject.feed([TextDelta("Hm.\n"), shell("a"), shell("b")]) == [TextDelta("Hm.\n")]
    assert subject.burst_open
    out = subject.feed([])
    assert out[:2] == [called(1, "a"), called(2, "b")]
    assert isinstance(out[2], Finished) and out[2].reason == "tool_calls"
    assert subject.over and not subject.burst_open
    assert subject.feed([]) == []


def test_silence_without_a_burst_changes_nothing() -> None:
    subject = turn()
    assert subject.feed([]) == []
    assert not subject.over and not subject.retry


def test_a_burst_ends_with_whatever_comes_after_it() -> None:
    for events in ([TextDelta("x")], [END], [DONE, shell("b", "m-2")]):
        subject = turn()
        out = subject.feed([shell(), *events])
        assert out[0] == called() and len(out) == 2 and subject.over


def test_calls_are_made_at_once_as_long_as_none_has_come_back() -> None:
    subject = turn()
    assert subject.feed([shell("a", "m-1"), shell("b", "m-2"), DONE, DONE]) == []
    assert [event for event in subject.feed([]) if isinstance(event, ToolCall)] == [
        called(1, "a"),
        called(2, "b"),
    ]


def test_a_call_that_came_back_is_part_of_the_burst_it_was_announced_in() -> None:
    subject = turn()
    assert subject.feed([shell("a"), DONE, shell("b"), DONE]) == []
    assert [event for event in subject.feed([]) if isinstance(event, ToolCall)] == [
        called(1, "a"),
        called(2, "b"),
    ]


def test_calls_in_text_wait_for_the_end_of_the_run() -> None:
    subject = turn()
    assert subject.feed([TextDelta("Hm.\n" + CALL)]) == [TextDelta("Hm.\n")]
    assert subject.feed([TextDelta("\n" + CALL), END]) == [
        called(1),
        called(2),
        Finished("tool_calls", USAGE),
    ]


def test_a_garbled_call_beside_good_ones_is_asked_for_with_them() -> None:
    subject = turn()
    assert subject.feed([TextDelta(CALL + GARBLED), END]) == []
    said, correction = (str(message.parts[0]) for message in subject.retry)
    assert "ls" in said and "oops" in said
    assert "Those 2 calls were not made" in correction
    again(subject)
    assert subject.feed([TextDelta(CALL + GARBLED), END]) == [
        called(),
        TextDelta(GARBLED),
        Finished("tool_calls", Usage(20, 10)),
    ]


def test_a_model_may_think_between_calls_that_it_makes_at_once() -> None:
    subject = turn()
    assert subject.feed([shell("a"), ThinkingDelta("x"), shell("b")]) == [ThinkingDelta("x")]
    out = subject.feed([DONE, DONE, ThinkingDelta("next")])
    assert out[:2] == [called(1, "a"), called(2, "b")] and len(out) == 3


def test_text_before_an_announced_call_is_whole() -> None:
    subject = turn(stop=("END",))
    out = subject.feed([TextDelta("TH E"), TextDelta("N <"), shell()]) + subject.feed([])
    assert text(out) == "TH EN <"
    cut = turn(stop=("<x",), max_tokens=1)
    out = cut.feed([TextDelta("1234<"), shell()]) + cut.feed([])
    assert [event for event in out if isinstance(event, ToolCall)] == []


def test_calls_that_are_not_allowed_are_taken_out_of_the_text() -> None:
    subject = turn(tool_choice=ToolChoice("none"))
    out = subject.feed([TextDelta("Hm.\n" + CALL + GARBLED + "Done."), END])
    assert text(out) == "Hm.\nDone." and out[-1] == END


def test_calls_before_a_cut_are_calls() -> None:
    out = turn(stop=("STOP",)).feed([TextDelta(CALL + "STOP more"), END])
    assert out[0] == called()
    assert isinstance(out[1], Finished) and out[1].reason == "tool_calls"
    out = turn(stop=("<x",), max_tokens=1).feed([TextDelta(CALL + "1234<"), END])
    assert out[0] == TextDelta("1234") and out[1] == called()


def test_a_run_that_mends_a_call_says_nothing_else() -> None:
    subject = turn()
    assert subject.feed([TextDelta("Hm.\n" + GARBLED), END]) == [TextDelta("Hm.\n")]
    assert subject.retry and not subject.over
    assert subject.feed([TextDelta("more")]) == []
    again(subject)
    out = subject.feed([TextDelta("Sorry.\n" + CALL), END])
    assert out == [called(), Finished("tool_calls", Usage(20, 10))]


def test_an_answer_instead_of_a_mended_call_is_the_answer() -> None:
    subject = turn()
    subject.feed([TextDelta(GARBLED), END])
    again(subject)
    out = subject.feed([TextDelta("No tool is needed: 42."), END])
    assert out == [TextDelta("No tool is needed: 42."), Finished("stop", Usage(20, 10))]


def test_a_call_that_stays_unreadable_is_text() -> None:
    subject = turn()
    subject.feed([TextDelta(GARBLED), END])
    again(subject)
    out = subject.feed([TextDelta("Sorry.\n" + GARBLED), END])
    assert out == [TextDelta(GARBLED), Finished("stop", Usage(20, 10))]


def test_an_unfinished_call_is_garbled() -> None:
    subject = turn()
    subject.feed([TextDelta('<tool_call>{"name": "ba'), END])
    assert "does not end" in str(subject.retry[-1].parts[0])


def test_limits_hold_for_the_text_around_calls() -> None:
    out = turn(max_tokens=1).feed([TextDelta("12345678" + CALL), END])
    assert out[0] == TextDelta("1234")
    assert isinstance(out[1], Finished) and out[1].reason == "length"
    out = turn(max_tokens=1).feed([TextDelta("1234<"), END])
    assert text(out) == "1234" and isinstance(out[-1], Finished) and out[-1].reason == "length"
    subject = turn(stop=("123STOP",), max_tokens=1)
    out = subject.feed([TextDelta("xx123ST"), END])
    assert text(out) == "xx12" and isinstance(out[-1], Finished) and out[-1].reason == "length"


def test_structured_output_and_calls_do_not_disturb_each_other() -> None:
    out = turn(output=JsonOutput()).feed([TextDelta("Hm.\n" + CALL), END])
    assert out == [TextDelta("Hm.\n"), called(), Finished("tool_calls", USAGE)]
    assert turn(output=JsonOutput()).feed([TextDelta("{}"), END]) == [TextDelta("{}"), END]


def test_text_waits_for_a_call_that_must_come() -> None:
    subject = turn(tool_choice=ToolChoice("required"))
    assert subject.feed([TextDelta("Hm.\n")]) == []
    assert subject.feed([TextDelta(CALL), TextDelta("\nafter"), END]) == [
        TextDelta("Hm.\nafter"),
        called(),
        Finished("tool_calls", USAGE),
    ]


def looping() -> list[Message]:
    messages = [USER]
    for number in range(3):
        messages.append(Message("assistant", (ToolCall(f"c{number}", "bash", '{"command":"ls"}'),)))
        messages.append(Message("user", (ToolResult(f"c{number}", (Text("a"),)),)))
    return messages


def test_a_good_call_beside_a_looping_one_goes_out_alone() -> None:
    other = CALL.replace("ls", "pwd")
    out = turn(*looping()).feed([TextDelta(CALL + other), END])
    assert out == [called(2, "pwd"), Finished("tool_calls", USAGE)]


def test_a_hint_and_then_the_end() -> None:
    subject = turn(*looping())
    assert subject.feed([TextDelta("Hm.\n" + CALL), END]) == [TextDelta("Hm.\n")]
    assistant, user = subject.retry
    assert assistant.parts == (Text("Hm.\n"), called())
    assert isinstance(user.parts[0], ToolResult) and user.parts[0].is_error
    again(subject)
    out = subject.feed([shell(), DONE, shell("pwd", "m-9")])
    assert text(out).startswith("[cursor-gateway stopped a loop: bash")
    end = out[-1]
    assert isinstance(end, Finished) and end.reason == "stop" and end.loop is not None
    assert end.usage is not None and end.usage.estimated


def test_retries_for_different_reasons_add_up() -> None:
    subject = turn(tool_choice=ToolChoice("required"))
    subject.feed([TextDelta("no"), END])
    again(subject)
    subject.feed([TextDelta(GARBLED), END])
    assert len(subject.retry) == 4


def test_the_agents_own_activity_can_be_shown() -> None:
    asked = Conversation("auto", (USER,))
    subject = Driven(asked, max_repeat=2, new_id=lambda: "c", show_activity=True)
    subject.begin(asked)
    assert subject.feed([AgentCall("x", "read", {"n": 1, "path": "/a\nb"})]) == [
        ThinkingDelta("[read /a]\n")
    ]
    assert subject.feed([AgentCall("x", "ls", {})]) == [ThinkingDelta("[ls ]\n")]


@given(st.lists(st.sampled_from(["text", "call", "garbled", "native", "think", "silence"])))
def test_every_turn_ends_at_most_once_and_never_speaks_after_it(steps: list[str]) -> None:
    subject = turn()
    events: dict[str, list[AgentEvent]] = {
        "text": [TextDelta("x")],
        "call": [TextDelta(f"\n{CALL}")],
        "garbled": [TextDelta(f"\n{GARBLED}")],
        "native": [shell()],
        "think": [ThinkingDelta("x")],
        "silence": [],
    }
    out = [event for step in steps for event in subject.feed(events[step])]
    out += subject.feed([END])
    ends = [at for at, event in enumerate(out) if isinstance(event, Finished)]
    assert len(ends) == (0 if subject.retry else 1)
    assert all(at == len(out) - 1 for at in ends)
    assert not any("<tool_call" in event.text for event in out if isinstance(event, TextDelta)) or (
        "garbled" in steps
    )


# Calls in the wrong place

MISPLACED = {
    "in a sentence": f"Let me look. {CALL}",
    "in a code block": f"So:\n```xml\n{CALL}\n```\n",
    "in two code blocks": f"```xml\n{CALL}\n```\n\n```xml\n{CALL}\n```",
    "before one that is made": f"Let me look. {CALL}\n{CALL}",
    "and answered": f"Let me look. {CALL}\n<tool_result>a.txt",
}


@pytest.mark.parametrize("words", MISPLACED.values(), ids=MISPLACED)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_call_in_the_wrong_place_with_which_a_run_ends_is_asked_for_again(
    words: str, size: int
) -> None:
    subject = turn()
    deltas = [TextDelta(words[at : at + size]) for at in range(0, len(words), size)]
    out = subject.feed([*deltas, END])
    assert text(out) == words[: words.index("<tool_call")]
    said, correction = (str(message.parts[0]) for message in subject.retry)
    assert said.count("<tool_call") == words.count("<tool_call")
    assert "not made" in correction and "only quoted" in correction
    again(subject)
    call, finished = subject.feed([TextDelta(CALL), END])
    assert call == called() and isinstance(finished, Finished)


@pytest.mark.parametrize("reply", ["Quoted.", f"So: {CALL}"])
def test_what_was_only_quoted_is_part_of_the_answer(reply: str) -> None:
    subject = turn()
    words = f"You write:\n```xml\n{CALL}\n```\n"
    out = subject.feed([TextDelta(words), END])
    again(subject)
    out += subject.feed([TextDelta(reply), END])
    assert text(out) == words and out[-1] == Finished("stop", Usage(20, 10))


@pytest.mark.parametrize(
    "words",
    [
        f"Write `{CALL}`",
        f"Write `{CALL}` to do that.",
        f"Write {CALL} to do that.",
        f"```\n{CALL}\n```\nThat is the form.",
        f"```\n{CALL}\n```" + "\n" * 300,
        f"- {CALL}\n- {CALL}\n\nThese are two.",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_quotation_with_words_behind_it_is_text_at_once(words: str, size: int) -> None:
    subject = turn()
    out = subject.feed([TextDelta(words[at : at + size]) for at in range(0, len(words), size)])
    assert text(out + subject.feed([END])) == words
    assert subject.over and not subject.retry


def test_a_quotation_before_a_call_of_the_agents_is_text() -> None:
    subject = turn()
    out = subject.feed([TextDelta(f"So: {CALL}"), shell("pwd")]) + subject.feed([])
    assert text(out) == f"So: {CALL}" and called(1, "pwd") in out


def test_where_nothing_may_be_called_quotations_are_text() -> None:
    subject = turn(tool_choice=ToolChoice("none"))
    assert text(subject.feed([TextDelta(f"So: {CALL}"), END])) == f"So: {CALL}"


def test_a_call_behind_an_act_of_the_agents_begins_a_line() -> None:
    subject = turn()
    out = subject.feed([TextDelta("Hm."), AgentCall("x", "unknown", {}), TextDelta(CALL), END])
    assert called() in out


def test_several_calls_in_one_block_are_all_handed_out() -> None:
    block = CALL.replace("\n</", '\n{"name": "bash", "arguments": {"command": "pwd"}}\n</')
    out = turn().feed([TextDelta(f"Hm.\n{block}"), END])
    assert out == [TextDelta("Hm.\n"), called(), called(2, "pwd"), Finished("tool_calls", USAGE)]
