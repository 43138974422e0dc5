"""Failures over ACP: those that have a code, and those that look like an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway import errors
from cursor_gateway.agents.acp.texts import MOST_HELD, LastWords, error_for
from cursor_gateway.agents.acp.wire import RpcError

# What was seen at the end of answers, and what it is in print mode.
SEEN = {
    "Error: T: [resource_exhausted] Error": errors.RateLimited,
    "Error: RetriableError: [internal] Failed to run step, exceeded max retries": (
        errors.CursorUnreachable
    ),
    "Error: I: AI Model Not Found Model name is not valid: gpt-99": errors.ModelNotFound,
    "Error: T: [canceled] http/2 stream closed with error code CANCEL (0x8)": (
        errors.CursorUnreachable
    ),
    "Error: [unauthenticated] Error": errors.NotAuthenticated,
    "Error: ConnectError: [unavailable] Error": errors.CursorUnreachable,
    "Error: ActionRequiredError: Named models unavailable Free plans can only use Auto": (
        errors.PlanRequired
    ),
    "Error: You've hit your usage limit\n  Get Cursor Pro for more Agent usage.": (
        errors.QuotaExceeded
    ),
    "You've hit your usage limit": errors.QuotaExceeded,
    "Upgrade your plan to continue": errors.QuotaExceeded,
    "Error: S: something that nobody has seen": errors.AgentFailed,
    "Error: Aborted\n": errors.AgentFailed,
}
ANSWERS = [
    "Error: handling in Go is explicit.",
    "Error: rate limit handling in Go takes a loop.",
    "Error: TypeError: x is not a function",
    "Error: Aborted is what git says then.",
    "Errors: T: [resource_exhausted] Error",
    "The log says:\n\nError: connection failed\n\nSo it failed.",
    "If it says `Error: T: [resource_exhausted] Error`, wait.",
    "When you've hit your usage limit, wait.",
]


def read(*pieces: str) -> tuple[str, errors.GatewayError | None]:
    words = LastWords()
    passed = "".join(map(words.feed, pieces))
    rest, failure = words.close()
    return passed + rest, failure


@pytest.mark.parametrize(("words", "kind"), SEEN.items())
def test_a_failure_that_was_seen_is_one(words: str, kind: type[errors.GatewayError]) -> None:
    text, failure = read(words)
    assert (text, type(failure)) == ("", kind)
    assert failure is not None and failure.quotes_agent


@pytest.mark.parametrize(("words", "kind"), SEEN.items())
def test_so_it_is_behind_an_answer_that_began(words: str, kind: type[errors.GatewayError]) -> None:
    assert read("It ", "is", f"\n\n{words}")[0] == "It is"
    assert read(f"It is\n\n{words}")[0] == "It is"
    assert type(read("It is", words)[1]) is kind
    assert type(read("It is", "\n\n", *words)[1]) is kind


@pytest.mark.parametrize("words", ANSWERS)
def test_prose_that_only_looks_like_a_failure_is_an_answer(words: str) -> None:
    for pieces in ([words], list(words), words.splitlines(keepends=True)):
        assert read(*pieces) == (words, None)


def test_nothing_but_line_breaks_is_said_before_a_failure_that_is_all() -> None:
    words = LastWords()
    assert words.feed("\n\n") == ""
    assert words.feed("Error: T: [unavailable] Error") == ""
    assert type(words.close()[1]) is errors.CursorUnreachable


def test_what_something_else_follows_was_an_answer() -> None:
    words = LastWords()
    assert words.feed("Look:\n\nError: T: [unavailable] Error") == "Look:"
    assert words.let_go() == "\n\nError: T: [unavailable] Error"
    assert words.close() == ("", None)


def test_no_more_is_held_than_a_failure_has() -> None:
    words = LastWords()
    assert words.feed("Error: ") == ""
    assert words.feed("x" * MOST_HELD) == "Error: " + "x" * MOST_HELD
    assert len(words.feed("\n" * 5000)) == 4000
    assert type(read("Error: " + "x" * MOST_HELD, "\n\nError: T: [unavailable]")[1]) is (
        errors.CursorUnreachable
    )


def test_a_failure_behind_a_line_that_looks_like_one_is_found() -> None:
    text, failure = read("Error: nil means success.\n\nError: T: [unavailable] Error")
    assert text == "Error: nil means success." and type(failure) is errors.CursorUnreachable


PIECES = st.sampled_from(["Error: ", "Err", "or: ", "T: ", "[x]", "\n", "\n\n", "You've", "a", "E"])


@given(st.lists(PIECES | st.text(max_size=5), max_size=40))
def test_no_word_of_an_answer_is_lost_or_said_twice(pieces: list[str]) -> None:
    text, failure = read(*pieces)
    whole = "".join(pieces)
    assert text == whole if failure is None else whole.startswith(text)


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (-32000, "Authentication required", errors.NotAuthenticated),
        (-32602, "Invalid model value: gpt-99", errors.ModelNotFound),
        (-32602, 'Session "x" not found', errors.AgentFailed),
        (-32603, "Failed to initialize session services", errors.CursorUnreachable),
        (-32603, "connect ECONNREFUSED", errors.CursorUnreachable),
        (-32601, "Method not found", errors.AgentFailed),
        (-32603, "", errors.AgentFailed),
    ],
)
def test_every_code_has_a_place(code: int, words: str, kind: type[errors.GatewayError]) -> None:
    assert type(error_for(RpcError(code, words))) is kind


def test_a_key_that_is_not_valid_looks_like_a_fault() -> None:
    refusal = RpcError(-32603, "Internal error: Failed to initialize session services")
    assert type(error_for(refusal, has_key=True)) is errors.AgentKeyInvalid
