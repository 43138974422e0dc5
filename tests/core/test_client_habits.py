"""What clients change by habit, as it was recorded from them."""

from __future__ import annotations

from time import perf_counter

import pytest

from cursor_gateway.core.client_habits import (
    TOGETHER,
    ends_the_task,
    is_reminder,
    with_calls_from_text,
    without_seal,
    without_thoughts,
)
from cursor_gateway.core.conversation import (
    Conversation,
    Message,
    Part,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)

ONE, TWO = f"call_{'1' * 24}", f"call_{'2' * 24}"


def user(*parts: str | Part) -> Message:
    return Message("user", tuple(Text(p) if isinstance(p, str) else p for p in parts))


def assistant(*parts: str | Part) -> Message:
    return Message("assistant", tuple(Text(p) if isinstance(p, str) else p for p in parts))


INVOICE = "x-anthropic-billing-header: cc_version=2.1.257.efd; cc_entrypoint=cli; cch="


def test_only_the_seal_of_an_invoice_is_left_out() -> None:
    assert without_seal(f"{INVOICE}6e5fd;\nBe brief.") == f"{INVOICE};\nBe brief."
    for text in ("Be brief. cch=6e5fd;", f"{INVOICE[:26]} none\ncch=6e5fd;", "", INVOICE * 99_999):
        assert without_seal(text) == text


def test_thoughts_are_taken_out_wherever_they_stand() -> None:
    assert without_thoughts("<think>\nHm\n</think>\n\nLooking.") == "\n\nLooking."
    assert without_thoughts("a<think>b</think>c<think></think>d") == "acd"
    assert without_thoughts("never <think>closed") == "never <think>closed"
    assert without_thoughts("</think>x<think>") == "</think>x<think>"


@pytest.mark.parametrize("text", ["<think>" * 300_000, "<think></think>" * 150_000])
def test_thoughts_take_linear_time(text: str) -> None:
    def seconds(words: str) -> float:
        begun = perf_counter()
        without_thoughts(words)
        return perf_counter() - begun

    assert seconds(text) < 100 * max(seconds(text[: len(text) // 10]), 1e-3)


@pytest.mark.parametrize(
    ("part", "is_one"),
    [
        (Text("<system-reminder>\nIt is Tuesday.\n</system-reminder>\n"), True),
        (Text("<system-reminder>a</system-reminder> Stop! <system-reminder>"), False),
        (
            Text("<system-reminder>a</system-reminder>Stop!<system-reminder>b</system-reminder>"),
            False,
        ),
        (Text("Stop! <system-reminder>a</system-reminder>"), False),
        (Text("<system-reminder>"), False),
        (Text("<b>a</b>"), False),
        (ToolResult("x", (Text("<system-reminder>a</system-reminder>"),)), False),
    ],
)
def test_a_reminder_holds_no_word_of_the_users(part: Part, is_one: bool) -> None:
    assert is_reminder(part) is is_one


def calling(*ids: str) -> str:
    listed = [
        {"id": each, "type": "function", "function": {"name": "bash", "arguments": {"n": "1"}}}
        for each in ids
    ]
    return f"Calling tools:\n{listed}"


def test_calls_that_are_retold_in_words_are_calls() -> None:
    told = (user("Hi"), assistant(f"Looking.\n{calling(ONE)}"), user("Observation:\n1"))
    assert with_calls_from_text(told) == (
        user("Hi"),
        assistant("Looking.\n", ToolCall(ONE, "", "{}")),
        user(ToolResult(ONE, (Text("1"),))),
    )


def test_results_that_are_told_together_stay_together() -> None:
    told = (assistant("Two.", calling(ONE, TWO)), user("Observation:\n2\n3"))
    assert with_calls_from_text(told)[1] == user(
        ToolResult(ONE, (Text("2\n3"),)), ToolResult(TWO, (Text(TOGETHER),))
    )


@pytest.mark.parametrize(
    "told",
    [
        (assistant(calling(ONE)), user("Observation:\n1\nNew task:\nAnother one")),
        (assistant(calling(ONE)), user("Stop!")),
        (assistant(calling(ONE)), user("Observation:\n1", "Stop!")),
        (assistant(calling("call_of_somebody")), user("Observation:\n1")),
        (assistant(f"{calling(ONE)} and more"), user("Observation:\n1")),
        (assistant("A list: []"), user("Observation:\n1")),
        (user(calling(ONE)), user("Observation:\n1")),
        (assistant(), user("Observation:\n1")),
        (assistant(calling(ONE)), assistant("Observation:\n1")),
        (),
    ],
)
def test_what_is_not_surely_a_call_and_its_result_stays_words(told: tuple[Message, ...]) -> None:
    assert with_calls_from_text(told) == told


def spec(name: str, description: str = "") -> ToolSpec:
    return ToolSpec(name, description, {"type": "object"})


@pytest.mark.parametrize(
    ("tools", "choice", "called", "ends"),
    [
        ((spec("Person"),), ToolChoice("required", "Person"), ["Person"], True),
        ((spec("bash"),), ToolChoice("required"), ["bash"], False),
        ((spec("bash"), spec("final_answer")), ToolChoice("required"), ["bash"], False),
        ((spec("bash"), spec("final_answer")), ToolChoice("required"), ["final_answer"], True),
        ((spec("final_result"),), ToolChoice(), ["final_result"], True),
        ((spec("complete", "the session should end."),), ToolChoice(), ["complete"], True),
        ((spec("complete", "Complete a step."),), ToolChoice(), ["complete"], False),
        ((), ToolChoice(), ["final_answer"], False),
    ],
)
def test_some_calls_end_a_task(
    tools: tuple[ToolSpec, ...], choice: ToolChoice, called: list[str], ends: bool
) -> None:
    asked = Conversation("auto", (user("Hi"),), tools=tools, tool_choice=choice)
    assert ends_the_task(asked, called) is ends
