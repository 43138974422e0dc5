"""Whether a conversation goes on from another: what counts, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.conversation import (
    Conversation,
    ImageFile,
    ImageLink,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from cursor_gateway.core.events import TextDelta, ThinkingDelta
from cursor_gateway.core.history import Answer, History, history_of, reminders, session_name, split


def user(*parts: str | Part) -> Message:
    return Message("user", tuple(Text(p) if isinstance(p, str) else p for p in parts))


def assistant(*parts: str | Part) -> Message:
    return Message("assistant", tuple(Text(p) if isinstance(p, str) else p for p in parts))


CALL = ToolCall("call_1", "bash", '{"command": "ls"}')
RESULT = ToolResult("call_1", (Text("a.txt"),))
SEEN = history_of((user("Hi"), assistant("Let me see.", CALL), user(RESULT), assistant("Done.")))


@pytest.mark.parametrize(
    "messages",
    [
        (user("H", "i"), assistant("Let me see.", CALL), user(RESULT), assistant("Done.")),
        (user("Hi"), assistant(" Let me\nsee. ", CALL), user(RESULT), assistant("Done.")),
        (user("Hi"), assistant("Let me see."), assistant(CALL), user(RESULT), assistant("Done.")),
        (user("Hi"), assistant(CALL, "Let me see."), user(RESULT), assistant("Do", "ne.")),
        (user("Hi"), assistant(CALL), user(RESULT), assistant("Done.")),
        (
            user("Hi"),
            assistant("Let me see.", ToolCall("call_1", "Bash", "{}")),
            user(RESULT),
            assistant("Done."),
        ),
    ],
)
def test_how_a_client_writes_it_does_not_count(messages: tuple[Message, ...]) -> None:
    assert history_of(messages).goes_on_from(SEEN)


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (user("Hi"),),
        (user("Hi!"), assistant("Let me see.", CALL), user(RESULT), assistant("Done.")),
        (user("Hi"), assistant("Let me see?", CALL), user(RESULT), assistant("Done.")),
        (user("Hi"), assistant("Let me see."), user(RESULT), assistant("Done.")),
        (user("Hi"), assistant(ToolCall("call_2", "bash", "{}")), user(RESULT)),
        (
            user("Hi"),
            assistant("Let me see.", CALL),
            user(ToolResult("call_1", (Text("b.txt"),))),
            assistant("Done."),
        ),
        (
            user("Hi", ImageFile(b"x", "png")),
            assistant("Let me see.", CALL),
            user(RESULT),
            assistant("Done."),
        ),
        (
            user("Hi", ImageLink("http://x")),
            assistant("Let me see.", CALL),
            user(RESULT),
            assistant("Done."),
        ),
    ],
)
def test_what_was_said_counts(messages: tuple[Message, ...]) -> None:
    assert not history_of(messages).goes_on_from(SEEN)


DATE = "<system-reminder>It is Tuesday.</system-reminder>"
SKILLS = "<system-reminder>You have skills.</system-reminder>"
SEALED = "x-anthropic-billing-header: cc_entrypoint=cli; cch={};"


def system(*texts: str) -> Message:
    return Message("system", tuple(map(Text, texts)))


OTHER = ToolCall("call_2", "bash", '{"command": "pwd"}')


@pytest.mark.parametrize(
    ("seen", "now"),
    [
        # oh-my-pi
        (
            (system(SEALED.format("6e5fd"), "Be brief."), user("Hi"), assistant("Yes")),
            (system(SEALED.format("0c2e7"), "Be brief."), user("Hi"), assistant("Yes")),
        ),
        # gptme, pydantic-ai
        (
            (user("Hi"), assistant("Looking. ", CALL)),
            (user("Hi"), assistant("<think>\nHm\n</think>\n\nLooking. \n", CALL)),
        ),
        (
            (user("Hi"), assistant("Looking. ", CALL)),
            (user("Hi"), assistant("<think>\nHm\n</think>"), assistant("Looking. ", CALL)),
        ),
        ((user("Hi"), assistant(CALL)), (user("Hi"), assistant("<think>Hm</think>", CALL))),
        # Qwen Code
        (
            (user(SKILLS, DATE, "Hi"), assistant("Yes")),
            (user(SKILLS, "Hi"), assistant("Yes")),
        ),
        ((user(DATE), user("Hi"), assistant("Yes")), (user("Hi"), assistant("Yes"))),
        (
            (user("Hi"), assistant(CALL), user(RESULT, DATE)),
            (user("Hi"), assistant(CALL), user(RESULT)),
        ),
        # gptme
        ((user("Hi"), assistant(CALL, OTHER)), (user("Hi"), assistant(CALL))),
    ],
)
def test_what_a_client_changes_by_habit_is_no_change(
    seen: tuple[Message, ...], now: tuple[Message, ...]
) -> None:
    assert history_of(now).goes_on_from(history_of(seen))
    assert history_of(now).key == history_of(seen).key


@pytest.mark.parametrize(
    ("seen", "now"),
    [
        ((system("Be brief."), user("Hi")), (system("Be long."), user("Hi"))),
        (
            (system(SEALED.format("6e5fd"), "Be brief."), user("Hi")),
            (system(SEALED.format("6e5fd"), "Be long."), user("Hi")),
        ),
        ((user(SEALED.format("6e5fd")),), (user(SEALED.format("0c2e7")),)),
        ((system(DATE), user("Hi")), (user("Hi"),)),
        ((user("Hi"), assistant("Yes")), (user("Hi"), assistant("<think>Hm</think>No"))),
        ((user("Hi"), assistant("Yes")), (user(DATE, "Hi"), assistant("Yes"))),
        ((user(DATE, "Hi"), assistant("Yes")), (user(SKILLS, "Hi"), assistant("Yes"))),
        ((user("Hi"), assistant(CALL)), (user("Hi"), assistant(CALL, OTHER))),
        (
            (user("Hi"), assistant(CALL, OTHER), user(RESULT)),
            (user("Hi"), assistant(CALL), user(RESULT)),
        ),
        ((user("Hi", CALL), assistant("Yes")), (user("Hi"), assistant("Yes"))),
    ],
)
def test_a_habit_is_no_licence(seen: tuple[Message, ...], now: tuple[Message, ...]) -> None:
    assert not history_of(now).goes_on_from(history_of(seen))


SPOKEN = st.sampled_from(
    [
        *(user("Hi"), user(RESULT), assistant("Well"), assistant(CALL), user("")),
        *(user(DATE), user(DATE, "Hi"), system("Be brief."), assistant("<think>", CALL)),
    ]
)


@given(st.lists(SPOKEN))
def test_a_history_may_be_read_in_two_parts(messages: list[Message]) -> None:
    past, news = split(messages)
    assert history_of(news, history_of(past)) == history_of(messages)


def test_an_answer_is_what_the_next_request_repeats() -> None:
    answer = Answer()
    answer.feed([ThinkingDelta("Hm"), TextDelta("Let me ")])
    answer.feed([TextDelta("see."), CALL])
    asked = history_of((user("Hi"),))
    assert answer.after(asked) == history_of((user("Hi"), assistant("Let me see.", CALL)))
    assert answer.calls == [CALL]


def test_an_answer_without_a_word_adds_none() -> None:
    answer = Answer()
    answer.feed([TextDelta(" \n")])
    answer.feed([ThinkingDelta("Hm")])
    assert answer.after(History()) == History()


def test_what_is_new_comes_after_the_assistants_last_turn() -> None:
    messages = (user("a"), assistant("b"), user(RESULT), user("c"))
    assert split(messages) == (messages[:2], messages[2:])
    assert split(messages[:1]) == ((), messages[:1])


def test_reminders_stand_in_tags_beside_results() -> None:
    note = Text("<system-reminder>Be tidy.</system-reminder>")
    assert reminders([user(RESULT, note)]) == (note,)
    assert reminders([user(RESULT)]) == ()
    assert reminders([user(RESULT, "Stop!")]) is None
    assert reminders([user(RESULT), user("Stop!")]) is None


def test_a_session_is_named_in_a_system_message() -> None:
    named = Message("system", (Text("Be brief.\nSession: session-abc123\n"),))
    assert session_name(Conversation("auto", (named, user("Hi")))) == "session-abc123"
    for text in ("Session: abc", "session: session-abc", "My Session: session-abc"):
        other = Message("system", (Text(text),))
        assert session_name(Conversation("auto", (other, user("Session: session-x")))) == ""
