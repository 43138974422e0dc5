"""Calls that we execute ourselves: what the turn asks for, and how the next one knows of them."""

from __future__ import annotations

import itertools
from typing import Any

from cursor_gateway.core import turn as turns
from cursor_gateway.core.bridged_calls import BridgedCalls
from cursor_gateway.core.conversation import (
    Conversation,
    Message,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.core.events import (
    AgentCall,
    AnswerEvent,
    Finished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from tests.core.driven import Driven

NOTES = ToolSpec("mcp__notes__echo", "", {}, bridged=True)
BASH = ToolSpec("bash", "", {})
DONE = Finished("stop", Usage(10, 5))


def written(name: str, arguments: str = "{}") -> TextDelta:
    return TextDelta(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>')


def turn(**options: Any) -> Driven:
    asked = (Message("user", (Text("Hi"),)),)
    show = options.pop("show_activity", False)
    conversation = Conversation("auto", asked, tools=(NOTES, BASH), **options)
    new_id = (f"call_{number}" for number in itertools.count(1)).__next__
    begun = Driven(conversation, max_repeat=1, new_id=new_id, show_activity=show)
    begun.begin(conversation)
    return begun


def execute(it: Driven, said: str = "fine") -> list[AnswerEvent]:
    return it.executed([ToolResult(call.id, (Text(said),)) for call in it.bridged])


def test_a_bridged_call_interrupts_the_turn_and_its_result_is_asked_with() -> None:
    it = turn()
    assert it.feed([written("mcp__notes__echo"), DONE]) == [
        AgentCall("call_1", "mcp__notes__echo", {})
    ]
    assert [call.name for call in it.bridged] == ["mcp__notes__echo"]
    assert it.bridged and not it.over
    execute(it)
    assert it.retry == (
        Message("assistant", (ToolCall("call_1", "mcp__notes__echo", "{}"),)),
        Message("user", (ToolResult("call_1", (Text("fine"),)),)),
    )
    it.begin(Conversation("auto", it.retry))
    assert it.feed([TextDelta("Done."), Finished("stop", Usage(20, 5))])[0] == TextDelta("Done.")
    assert it.over and it.usage == Usage(30, 10)


def test_beside_a_clients_call_the_turn_ends_and_the_bridged_call_is_still_to_do() -> None:
    it = turn()
    assert it.feed([written("mcp__notes__echo"), written("bash"), DONE]) == []
    assert len(it.bridged) == 1 and not it.over
    events = execute(it)
    assert [event.name for event in events if isinstance(event, ToolCall)] == ["bash"]
    assert it.over and it.beside and not it.retry and not it.bridged


def test_bridged_calls_can_be_shown_as_thoughts() -> None:
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


def test_a_loop_of_bridged_calls_is_told_and_then_stopped() -> None:
    it = turn()
    events: list[Any] = []
    for _ in range(6):
        if it.over:
            break
        events = it.feed([written("mcp__notes__echo"), DONE])
        if it.bridged:
            execute(it, "same")
        it.begin(Conversation("auto", it.retry))
    assert isinstance(events[-1], Finished) and events[-1].loop is not None


def test_there_is_an_end_to_bridged_calls() -> None:
    it = turn()
    for number in range(turns.MAX_ROUNDS):
        it.feed([written("mcp__notes__echo", f'{{"n": {number}}}'), DONE])
        execute(it, str(number))
        it.begin(Conversation("auto", it.retry))
    events = it.feed([written("mcp__notes__echo"), DONE])
    assert it.over and any("stopped after" in e.text for e in events if isinstance(e, TextDelta))


def test_what_was_done_beside_a_call_is_found_in_where_it_was() -> None:
    bridged = BridgedCalls()
    ours, theirs = ToolCall("1", "mcp__notes__echo", "{}"), ToolCall("2", "bash", "{}")
    done, answer = ToolResult("1", (Text("noted"),)), ToolResult("2", (Text("a.txt"),))
    bridged.remember("me", ["2"], [ours], [done])
    asked = Message("user", (Text("Hi"),))
    conversation = Conversation(
        "auto", (asked, Message("assistant", (theirs,)), Message("user", (answer,)))
    )
    assert bridged.with_bridged_results("me", conversation).messages == (
        asked,
        Message("assistant", (theirs, ours)),
        Message("user", (done, answer)),
    )
    unfinished = Conversation("auto", conversation.messages[:2])
    assert bridged.with_bridged_results("me", unfinished) == unfinished
    assert bridged.with_bridged_results("another", conversation) == conversation
    assert BridgedCalls().with_bridged_results("me", conversation) == conversation


def test_it_is_found_in_once_however_a_client_writes_the_turn() -> None:
    bridged = BridgedCalls()
    ours = ToolCall("1", "mcp__notes__echo", "{}")
    bridged.remember("me", ["2", "3"], [ours], [ToolResult("1", ())])
    second, third = ToolCall("2", "bash", "{}"), ToolCall("3", "bash", "{}")
    messages = (
        Message("assistant", (second,)),
        Message("assistant", (third,)),
        Message("user", (ToolResult("2", ()),)),
        Message("assistant", (third,)),
        Message("user", (ToolResult("3", ()),)),
    )
    found = bridged.with_bridged_results("me", Conversation("auto", messages)).messages
    parts = [part for message in found for part in message.parts]
    assert parts.count(ours) == 1 and parts.count(ToolResult("1", ())) == 1
    assert found[2].parts[0] == ToolResult("1", ())


def test_not_everything_is_remembered_for_ever() -> None:
    bridged = BridgedCalls()
    call, result = ToolCall("x", "mcp__notes__echo", "{}"), ToolResult("x", ())
    for number in range(600):
        bridged.remember("me", [str(number)], [call], [result])
    bridged.remember("me", ["big"], [call], [ToolResult("x", (Text("x" * 50_000_000),))])
    bridged.remember("me", ["599"], [call], [result])
    old, new = (
        Conversation("auto", (Message("assistant", (ToolCall(n, "b", "{}"),)), Message("user", ())))
        for n in ("0", "599")
    )
    assert bridged.with_bridged_results("me", old) == old
    assert len(bridged.with_bridged_results("me", new).messages[1].parts) == 1
