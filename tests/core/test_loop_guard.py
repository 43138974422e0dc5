from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import ImageLink, Message, Text, ToolCall, ToolResult
from cursor_gateway.core.loop_guard import LoopGuard, classify, fingerprint, outcome_of

USER = Message("user", (Text("Do it"),))


def step(name: str, arguments: Any, result: str, *, number: int = 0) -> list[Message]:
    call_id = f"c{number}"
    return [
        Message("assistant", (ToolCall(call_id, name, json.dumps(arguments)),)),
        Message("user", (ToolResult(call_id, (Text(result), ImageLink("https://x"))),)),
    ]


def history(*steps: tuple[str, Any, str]) -> list[Message]:
    messages = [USER]
    for number, (name, arguments, result) in enumerate(steps):
        messages += step(name, arguments, result, number=number)
    return messages


def judged(messages: list[Message], name: str, arguments: Any, limit: int = 2) -> Any:
    return LoopGuard(limit, messages).judge(name, arguments)


SAME = ("ls", {"path": "."}, "a.txt")


def test_the_third_repetition_is_too_many() -> None:
    for times in (0, 1, 2):
        assert judged(history(*[SAME] * times), "ls", {"path": "."}) is None
    loop = judged(history(*[SAME] * 3), "ls", {"path": "."})
    assert (loop.tool, loop.count, loop.kind, loop.limit) == ("ls", 3, "repeat", 2)
    assert judged(history(*[SAME] * 3), "ls", {"path": "src"}) is None
    assert judged(history(*[SAME] * 3), "ls", {"path": "."}, limit=5) is None


def test_the_words_for_the_model_and_for_the_client() -> None:
    loop = judged(history(*[SAME] * 3), "ls", {"path": "."})
    assert "ls was called 3 times" in loop.hint and "the id c2" in loop.hint
    assert "TOOL_LOOP_MAX_REPEAT=2" in loop.message and "ls" in loop.message and "3" in loop.message
    assert loop.as_json() == {
        "tool": "ls",
        "count": 3,
        "kind": "repeat",
        "limit": 2,
        "setting": "TOOL_LOOP_MAX_REPEAT",
    }


def test_the_same_call_with_a_new_result_is_progress() -> None:
    polls: list[tuple[str, Any, str]] = [
        ("status", {}, f"{percent} %") for percent in range(0, 100, 5)
    ]
    assert judged(history(*polls), "status", {}) is None


def test_alternating_calls_are_a_loop() -> None:
    one: tuple[str, Any, str] = ("a", {}, "1")
    two: tuple[str, Any, str] = ("b", {}, "2")
    assert judged(history(*[one, two] * 2), "a", {}) is None
    assert judged(history(*[one, two] * 3), "a", {}).tool == "a"
    assert judged(history(*[one, two, ("c", {}, "3")] * 3), "a", {}).tool == "a"


def test_work_between_the_same_calls_is_progress() -> None:
    steps = []
    for number in range(10):
        steps += [("edit", {"line": number}, "ok"), ("test", {}, "all passed")]
    assert judged(history(*steps), "test", {}) is None


def test_counting_restarts_when_the_user_speaks() -> None:
    messages = [*history(*[SAME] * 3), USER]
    assert judged(messages, "ls", {"path": "."}) is None


def test_a_clients_reminder_beside_a_result_is_not_the_user() -> None:
    messages = history(*[SAME] * 3)
    reminded = [
        Message(message.role, (*message.parts, Text("<system-reminder>")))
        if any(isinstance(part, ToolResult) for part in message.parts)
        else message
        for message in messages
    ]
    assert judged(reminded, "ls", {"path": "."}) is not None


def test_a_run_of_validation_failures_of_one_tool_is_a_loop() -> None:
    failing = [("edit", {"n": n}, f"Invalid arguments for edit: {n}") for n in range(3)]
    loop = judged(history(*failing), "edit", {"n": 99})
    assert (loop.kind, loop.count) == ("validation", 3)
    assert "schema" in loop.hint and "failed validation" in loop.message
    assert judged(history(*failing), "read", {}) is None
    assert judged(history(*failing[:2]), "edit", {"n": 99}) is None
    mended = [*failing, ("edit", {"n": 5}, "ok")]
    assert judged(history(*mended), "edit", {"n": 99}) is None
    mixed = [failing[0], ("read", {"n": 1}, "Invalid arguments for read"), failing[1]]
    assert judged(history(*mixed), "edit", {"n": 99}) is None


def test_what_the_user_says_beside_a_result_is_the_users() -> None:
    messages = history(*[SAME] * 3)
    messages[-1] = Message("user", (*messages[-1].parts, Text("please run it once more")))
    assert judged(messages, "ls", {"path": "."}) is None


def test_a_footer_that_changes_with_every_call_is_no_news() -> None:
    timed: list[tuple[str, Any, str]] = [
        ("bash", {}, f"same\n\n\nWall time: 0.{n} seconds") for n in range(3)
    ]
    assert judged(history(*timed), "bash", {}) is not None


def test_a_result_without_its_call_counts_for_nothing() -> None:
    stray = Message("user", (ToolResult("nobody", (Text("x"),)),))
    assert judged([USER, stray, stray, stray, stray], "ls", {}) is None


CALLS = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(CALLS, unique=True), CALLS)
def test_a_history_that_always_brings_something_new_is_never_stopped(
    steps: list[tuple[str, int, int]], then: tuple[str, int, int]
) -> None:
    """Each step a call or a result that was not there before."""
    messages = history(*((tool, {"x": x}, f"result {y}") for tool, x, y in steps))
    assert judged(messages, then[0], {"x": then[1]}) is None


@given(st.dictionaries(st.text(), st.integers() | st.text()), st.randoms())
def test_the_order_of_keys_does_not_matter(arguments: dict[str, Any], random: Any) -> None:
    items = list(arguments.items())
    random.shuffle(items)
    assert fingerprint("t", arguments) == fingerprint("t", dict(items))
    assert fingerprint("t", json.dumps(arguments, indent=3)) == fingerprint("t", arguments)
    assert fingerprint("t", arguments) != fingerprint("u", arguments)


def test_arguments_that_are_no_json_have_a_fingerprint_too() -> None:
    assert fingerprint("t", "{broken") == fingerprint("t", "{broken") != fingerprint("t", "{")


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("", "success"),
        ("1: invalid schema\n2: missing required parameter: error: timeout", "success"),
        ('{"items": [{"error": "in a log"}]}', "success"),
        ("{not json", "success"),
        ("[1, 2]", "success"),
        ('{"error": "no such file"}', "error"),
        ('{"success": false}', "error"),
        ('{"exitCode": 2}', "error"),
        ('{"exit_code": 0}', "success"),
        ('{"is_error": true}', "error"),
        ("Error: ENOENT", "error"),
        ("Traceback (most recent call last):\n x", "error"),
        ("out\n[Process exited with code 1]", "error"),
        ("out\n[Process exited with code 0]", "success"),
        ("make: *** failed\nExit code: 2", "error"),
        ("x" * 5000 + " exit code 1", "success"),
        ("<tool_use_error>InputValidationError: x", "validation"),
        ("The bash tool was called with invalid arguments: x", "validation"),
        ("Invalid arguments for read", "validation"),
        ("Invalidation of caches is hard", "success"),
        ("Invalid input 0: see the RFC", "success"),
        ("Error: Invalid arguments for build 7", "error"),
        ("Missing required field in this form", "success"),
        ("Chunk ID: 1\nProcess exited with code 2\nOutput:\nx", "error"),
    ],
)
def test_the_outcome_is_read_from_structure(text: str, outcome: str) -> None:
    assert classify("read", text) == outcome


def test_a_flagged_result_is_an_error_whatever_it_says() -> None:
    assert classify("read", "fine", is_error=True) == "error"
    assert outcome_of({"success": {}}) == "success"
    assert outcome_of({"rejected": {"reason": ""}}) == outcome_of({}) == "error"


def test_arguments_that_nobody_can_write_again_are_compared_as_they_stand() -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    assert fingerprint("bash", deep) == fingerprint("bash", deep)
    assert fingerprint("bash", deep) != fingerprint("bash", deep + " ")
