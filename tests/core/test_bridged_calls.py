"""Calls that we execute ourselves: what the turn asks for, and how the next one knows of them."""

from __future__ import annotations

import itertools
from typing import Any

from cursor_gateway.core import turn as turns
from cursor_gateway.core.bridged_calls import Errands
from cursor_gateway.core.conversation import (
    Conversation,
    Message,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.core.events import AgentCall, Event, Finished, TextDelta, ThinkingDelta, Usage
from cursor_gateway.core.turn import Turn

NOTES = ToolSpec("mcp__notes__echo", "", {}, bridged=True)
BASH = ToolSpec("bash", "", {})
DONE = Finished("stop", Usage(10, 5))


def written(name: str, arguments: str = "{}") -> TextDelta:
    return TextDelta(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>')


def turn(**options: Any) -> Turn:
    asked = (Message("user", (Text("Hi"),)),)
    show = options.pop("show_activity", False)
    conversation = Conversation("auto", asked, tools=(NOTES, BASH), **options)
    new_id = (f"call_{number}" for number in itertools.count(1)).__next__
    begun = Turn(conversation, max_repeat=1, new_id=new_id, show_activity=show)
    begun.begin(conversation)
    return begun


def execute(it: Turn, said: str = "fine") -> None:
    it.executed([ToolResult(call.id, (Text(said),)) for call in it.errands])


def test_an_errand_interrupts_the_turn_and_its_result_is_asked_with() -> None:
    it = turn()
    assert it.feed([written("mcp__notes__echo"), DONE]) == [
        AgentCall("call_1", "mcp__notes__echo", {})
    ]
    assert [call.name for call in it.errands] == ["mcp__notes__echo"]
    assert not it.wants_more and not it.over and it.ended_with_agent
    execute(it)
    assert it.retry == (
        Message("assistant", (ToolCall("call_1", "mcp__notes__echo", "{}"),)),
        Message("user", (ToolResult("call_1", (Text("fine"),)),)),
    )
    it.begin(Conversation("auto", it.retry))
    assert it.feed([TextDelta("Done."), Finished("stop", Usage(20, 5))])[0] == TextDelta("Done.")
    assert it.over and it.usage == Usage(30, 10)


def test_beside_a_clients_call_the_turn_ends_and_the_errand_is_still_to_do() -> None:
    it = turn()
    events = it.feed([written("mcp__notes__echo"), written("bash"), DONE])
    assert [event.name for event in events if isinstance(event, ToolCall)] == ["bash"]
    assert it.over
    assert len(it.errands) == 1
    execute(it)
    assert not it.retry and not it.errands


def test_errands_can_be_shown_as_thoughts() -> None:
    it = turn(show_activity=True)
    (shown,) = it.feed([written("mcp__notes__echo", '{"text": "x"}'), DONE])
    assert shown == ThinkingDelta("[mcp__notes__echo x]\n")


def test_a_call_that_must_be_made_is_one_of_the_clients() -> None:
    it = turn(tool_choice=ToolChoice("required"))
    it.feed([written("mcp__notes__echo"), DONE])
    execute(it)
    it.begin(Conversation("auto", it.retry))
    assert it.feed([TextDelta("Done."), DONE]) == []
    assert "must be called" in str(it.retry[-1])


def test_a_limit_is_that_of_the_whole_answer() -> None:
    it = turn(max_tokens=2)
    it.feed([TextDelta("fou\n"), written("mcp__notes__echo"), DONE])
    execute(it)
    it.begin(Conversation("auto", it.retry))
    said, finished = it.feed([TextDelta("more than four"), DONE])
    assert said == TextDelta("more") and isinstance(finished, Finished)
    assert finished.reason == "length"


def test_a_loop_of_errands_is_told_and_then_stopped() -> None:
    it = turn()
    events: list[Event] = []
    for _ in range(6):
        if it.over:
            break
        events = it.feed([written("mcp__notes__echo"), DONE])
        if it.errands:
            execute(it, "same")
        it.begin(Conversation("auto", it.retry))
    assert isinstance(events[-1], Finished) and events[-1].loop is not None


def test_there_is_an_end_to_errands() -> None:
    it = turn()
    for number in range(turns.MAX_ROUNDS):
        it.feed([written("mcp__notes__echo", f'{{"n": {number}}}'), DONE])
        execute(it, str(number))
        it.begin(Conversation("auto", it.retry))
    events = it.feed([written("mcp__notes__echo"), DONE])
    assert it.over and any("stopped after" in e.text for e in events if isinstance(e, TextDelta))


def test_what_was_done_beside_a_call_is_woven_in_where_it_was() -> None:
    errands = Errands()
    ours, theirs = ToolCall("1", "mcp__notes__echo", "{}"), ToolCall("2", "bash", "{}")
    done, answer = ToolResult("1", (Text("noted"),)), ToolResult("2", (Text("a.txt"),))
    errands.remember("me", ["2"], [ours], [done])
    asked = Message("user", (Text("Hi"),))
    conversation = Conversation(
        "auto", (asked, Message("assistant", (theirs,)), Message("user", (answer,)))
    )
    assert errands.woven("me", conversation).messages == (
        asked,
        Message("assistant", (theirs, ours)),
        Message("user", (done, answer)),
    )
    unfinished = Conversation("auto", conversation.messages[:2])
    assert errands.woven("me", unfinished) == unfinished
    assert errands.woven("another", conversation) == conversation
    assert Errands().woven("me", conversation) == conversation


def test_it_is_woven_in_once_however_a_client_writes_the_turn() -> None:
    errands = Errands()
    ours = ToolCall("1", "mcp__notes__echo", "{}")
    errands.remember("me", ["2", "3"], [ours], [ToolResult("1", ())])
    second, third = ToolCall("2", "bash", "{}"), ToolCall("3", "bash", "{}")
    messages = (
        Message("assistant", (second,)),
        Message("assistant", (third,)),
        Message("user", (ToolResult("2", ()),)),
        Message("assistant", (third,)),
        Message("user", (ToolResult("3", ()),)),
    )
    woven = errands.woven("me", Conversation("auto", messages)).messages
    parts = [part for message in woven for part in message.parts]
    assert parts.count(ours) == 1 and parts.count(ToolResult("1", ())) == 1
    assert woven[2].parts[0] == ToolResult("1", ())


def test_not_everything_is_remembered_for_ever() -> None:
    errands = Errands()
    call, result = ToolCall("x", "mcp__notes__echo", "{}"), ToolResult("x", ())
    for number in range(600):
        errands.remember("me", [str(number)], [call], [result])
    errands.remember("me", ["big"], [call], [ToolResult("x", (Text("x" * 50_000_000),))])
    errands.remember("me", ["599"], [call], [result])
    old, new = (
        Conversation("auto", (Message("assistant", (ToolCall(n, "b", "{}"),)), Message("user", ())))
        for n in ("0", "599")
    )
    assert errands.woven("me", old) == old
    assert len(errands.woven("me", new).messages[1].parts) == 1
