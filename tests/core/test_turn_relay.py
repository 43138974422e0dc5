"""Turns whose calls come over the relay: the agent waits, and its run goes on."""

from __future__ import annotations

import itertools
from typing import Any

from cursor_gateway.core.conversation import (
    Conversation,
    Message,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    Aside,
    ClientCall,
    Finished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from tests.core.driven import Driven

BASH = ToolSpec(
    "bash",
    "",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
LS = ClientCall("call_a", "bash", {"command": "ls"})
PWD = ClientCall("call_b", "bash", {"command": "pwd"})


def turn(*messages: Message, parallel: bool = True) -> Driven:
    asked = messages or (Message("user", (Text("Hi"),)),)
    conversation = Conversation("auto", asked, tools=(BASH,), parallel_calls=parallel)
    ids = itertools.count(1)
    begun = Driven(conversation, max_repeat=1, new_id=lambda: f"new_{next(ids)}")
    begun.begin(conversation)
    return begun


def looping(times: int) -> tuple[Message, ...]:
    steps = [Message("user", (Text("Hi"),))]
    for number in range(times):
        call = ToolCall(str(number), "bash", '{"command": "ls"}')
        steps += [Message("assistant", (call,))]
        steps += [Message("user", (ToolResult(str(number), (Text("same"),)),))]
    return tuple(steps)


def test_a_burst_ends_the_turn_and_leaves_the_agent_waiting() -> None:
    it = turn()
    assert it.feed([TextDelta("Hm."), LS]) == [TextDelta("Hm.")]
    assert it.burst_open and not it.leaves_agent_waiting
    assert it.feed([PWD]) == []
    *calls, finished = it.feed([])
    assert [(call.id, call.name) for call in calls if isinstance(call, ToolCall)] == [
        ("call_a", "bash"),
        ("call_b", "bash"),
    ]
    assert isinstance(finished, Finished) and finished.reason == "tool_calls"
    assert it.leaves_agent_waiting and not it.ended_with_agent and it.channel == "relay"


def test_an_aside_parts_words_and_nothing_else() -> None:
    it = turn()
    said = it.feed([TextDelta("Hm."), Aside(), TextDelta("Well."), LS, Aside()])
    assert said == [TextDelta("Hm."), TextDelta("\n\nWell.")]
    assert it.burst_open and not it.over


def test_what_comes_after_the_burst_is_for_the_next_turn() -> None:
    it = turn()
    more: list[Any] = [TextDelta("Still waiting."), ThinkingDelta("Hm.")]
    it.feed([LS, *more])
    assert it.over and it.unread == more


def test_a_call_that_does_not_fit_is_answered_at_once() -> None:
    it = turn()
    assert it.feed([ClientCall("call_a", "bash", {"cmd": "ls"})]) == []
    (reply,) = it.replies
    assert reply.id == "call_a" and reply.is_error
    assert not it.over and not it.burst_open
    it.feed([ClientCall("call_b", "gone", {})])
    assert it.replies[1].id == "call_b"


def test_a_loop_is_told_in_the_same_run_and_stopped_when_it_goes_on() -> None:
    it = turn(*looping(2))
    it.feed([LS])
    assert it.feed([]) == [] and not it.over and not it.retry
    assert [reply.id for reply in it.replies] == ["call_a"]
    it.feed([ClientCall("call_c", "bash", {"command": "ls"})])
    *_, finished = it.feed([])
    assert isinstance(finished, Finished) and finished.loop is not None
    assert it.over and not it.leaves_agent_waiting


def test_a_loop_beside_a_new_call_is_told_to_the_model_too() -> None:
    it = turn(*looping(2))
    it.feed([LS, PWD])
    calls = [event for event in it.feed([]) if isinstance(event, ToolCall)]
    assert [call.id for call in calls] == ["call_b"]
    assert [reply.id for reply in it.replies] == ["call_a"]
    assert it.leaves_agent_waiting


def test_an_agent_that_also_used_its_own_tool_cannot_go_on() -> None:
    it = turn()
    own = AgentCall("x", "shell", {"command": "pwd"}, "", "")
    it.feed([LS, own])
    it.feed([])
    assert it.over and not it.leaves_agent_waiting


def test_the_usage_of_a_run_is_shared_out_among_its_answers() -> None:
    def answer(told: Usage, counted: Usage) -> Usage:
        it = turn()
        it.begin(Conversation("auto", (Message("user", (Text("Hi"),)),)), told)
        (finished,) = it.feed([Finished("stop", counted)])
        assert isinstance(finished, Finished) and finished.usage == it.usage
        return it.usage

    told = Usage(100, 10, estimated=True)
    assert answer(told, Usage(150, 30, cached=20)) == Usage(50, 20, 20, estimated=True)
    assert answer(told, Usage(90, 30)).estimated
    assert answer(Usage(0, 0), Usage(7, 3)) == Usage(7, 3)


def test_one_call_at_a_time_is_one_of_a_burst() -> None:
    it = turn(parallel=False)
    it.feed([LS, PWD])
    calls = [event for event in it.feed([]) if isinstance(event, ToolCall)]
    assert [call.id for call in calls] == ["call_a"]


def test_one_call_at_a_time_is_one_of_those_that_are_written() -> None:
    it = turn(parallel=False)
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>\n'
    events = it.feed([TextDelta(call * 2)])
    assert sum(isinstance(event, ToolCall) for event in events) == 1 and it.over


def test_a_loop_of_the_agents_own_calls_is_told_to_another_run() -> None:
    it = turn()
    own = AgentCall("x", "semSearch", {"query": "a"}, "", "m")
    done = AgentCallDone("semSearch", {"query": "a"}, {"success": {"results": ""}})
    it.feed([TextDelta("Let me see.")])
    for _ in range(4):
        it.feed([own, done])
    assert it.retry and not it.over
    # Else it would begin with the same words, which the client has.
    assert it.retry[0].parts[0] == Text("Let me see.")


def test_an_unknown_tool_and_arguments_that_do_not_fit_are_asked_for_again() -> None:
    for call in ('{"name": "rm", "arguments": {}}', '{"name": "bash", "arguments": {}}'):
        it = turn()
        it.feed([TextDelta(f"<tool_call>\n{call}\n</tool_call>"), Finished("stop", None)])
        assert it.retry
