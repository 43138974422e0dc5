"""What the CLI tells over ACP, as events: every word once, every act, and why it failed."""

from __future__ import annotations

from typing import Any

import pytest

from cursor_gateway import errors
from cursor_gateway.agents.acp.stream import AcpStream
from cursor_gateway.agents.acp.wire import Answer, Asked, RpcError, Told
from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    AgentEvent,
    Aside,
    RunFinished,
    TextDelta,
    ThinkingDelta,
)
from cursor_gateway.core.relayed_tools import RelayedTools

TOOLS = RelayedTools([ToolSpec("bash", "", {}), ToolSpec("look", "", {}, bridged=True)])
ARGUMENTS = '```json\n{"at": 1}\n```'


def stream(tools: RelayedTools | None = TOOLS) -> AcpStream:
    return AcpStream(3, "s", tools)


def update(named: str, session: str = "s", **fields: Any) -> Told:
    return Told(
        "session/update", {"sessionId": session, "update": {"sessionUpdate": named, **fields}}
    )


def text(words: str) -> Told:
    return update("agent_message_chunk", content={"type": "text", "text": words})


def thought(words: str) -> Told:
    return update("agent_thought_chunk", content={"type": "text", "text": words})


def call(title: str, kind: str = "other", call_id: str = "c\n1", **raw: Any) -> Told:
    about: dict[str, Any] = {"title": title, "kind": kind, "status": "pending", "rawInput": raw}
    return update("tool_call", toolCallId=call_id, **about)


def done(call_id: str = "c\n1", status: str = "completed", **fields: Any) -> Told:
    return update("tool_call_update", toolCallId=call_id, status=status, **fields)


def permission(title: str, content: Any = None, call_id: str = "c\n1") -> Asked:
    about = {"toolCallId": call_id, "title": title, "kind": "other", "content": content}
    return Asked(0, "session/request_permission", {"sessionId": "s", "toolCall": about})


def block(words: str) -> list[Any]:
    return [{"type": "content", "content": {"type": "text", "text": words}}]


def end(reason: str = "end_turn") -> Answer:
    return Answer(3, {"stopReason": reason})


def fed(run: AcpStream, *messages: Any) -> list[AgentEvent]:
    return [event for message in messages for event in run.feed(message)]


def test_words_and_thoughts_come_as_they_are_said() -> None:
    run = stream()
    assert fed(run, thought("Hm"), text("Hel"), text("lo")) == [
        ThinkingDelta("Hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
    ]
    assert run.feed(end()) == [RunFinished(None)]
    assert run.finished and run.is_over and run.failure is None
    assert fed(run, text("late"), end("cancelled")) == []


def test_half_an_emoji_waits_for_its_other_half() -> None:
    run = stream()
    assert fed(run, text("\ud83d"), text("\udc69!"), thought("\ud83d")) == [
        TextDelta("\U0001f469!")
    ]
    assert fed(run, text("\ud83d"), end()) == [
        ThinkingDelta("\ufffd"),
        TextDelta("\ufffd"),
        RunFinished(None),
    ]


@pytest.mark.parametrize(
    "message",
    [
        update("hologram", depth=3),
        update("agent_message_chunk", content={"type": "hologram"}),
        update("agent_message_chunk"),
        update("agent_thought_chunk"),
        update("agent_message_chunk", session="another", content={"text": "not for us"}),
        update("tool_call_update", toolCallId="c", status="in_progress"),
        Told("session/update", {}),
        Told("cursor/mood", {}),
        Asked(1, "cursor/task", {}),
        Answer(4, {"stopReason": "end_turn"}),
    ],
)
def test_what_nobody_knows_is_ignored(message: Any) -> None:
    run = stream()
    assert run.feed(message) == [] and not run.is_over


def test_only_what_follows_from_a_prompt_is_a_sign_of_life() -> None:
    run = stream()
    fed(run, update("available_commands_update"))
    assert not run.heard
    fed(run, update("session_info_update", title="Hello"))
    assert run.heard


# Calls


def called(name: str, **args: Any) -> dict[str, Any]:
    return {"providerIdentifier": "client", "toolName": name, "args": args}


def test_a_call_of_the_clients_tool_is_announced_with_what_leave_is_asked_for() -> None:
    run = stream()
    assert run.feed(call("MCP: bash")) == [Aside()]
    assert run.feed(permission("client-bash: bash", block(ARGUMENTS))) == [
        AgentCall("c\n1", "mcp", called("bash", at=1))
    ]
    assert run.tool_is_running
    output = {"success": True}
    assert run.feed(done(rawOutput=output)) == [
        AgentCallDone("mcp", called("bash", at=1), {"success": output}, "c\n1")
    ]
    assert not run.tool_is_running


def test_a_call_for_which_no_leave_is_asked_only_parts_words() -> None:
    run = stream()
    assert run.feed(call("MCP: bash")) == [Aside()]
    assert run.tool_is_running
    assert run.feed(done()) == [Aside()]
    assert not run.tool_is_running


@pytest.mark.parametrize("content", [None, [], [5], block("at 1"), block("```json\n[1]\n```")])
def test_arguments_that_cannot_be_read_are_none(content: Any) -> None:
    asked = permission("client-bash: bash", content)
    assert stream().feed(asked) == [AgentCall("c\n1", "mcp", called("bash"))]


@pytest.mark.parametrize(
    ("title", "kind", "raw", "tool", "arguments"),
    [
        ("`ls`", "execute", {"command": "ls"}, "shell", {"command": "ls"}),
        ("Read File", "read", {}, "read", {"title": "Read File", "id": "c\n1"}),
        ("Find", "search", {}, "grep", {"title": "Find", "id": "c\n1"}),
        ("Task: x", "other", {"_toolName": "task"}, "task", {"title": "Task: x", "id": "c\n1"}),
        ("MCP: x", "other", {}, "mcp", {"toolName": "x", "title": "MCP: x", "id": "c\n1"}),
        ("Anything", "", {}, "unknown", {"title": "Anything", "id": "c\n1"}),
    ],
)
def test_its_own_tools_have_the_names_of_print_mode(
    title: str, kind: str, raw: Any, tool: str, arguments: Any
) -> None:
    run = stream(None)
    assert run.feed(call(title, kind, **raw)) == [AgentCall("c\n1", tool, arguments)]
    assert run.tool_is_running


@pytest.mark.parametrize(
    ("update", "result"),
    [
        (done(rawOutput={"exitCode": 0}), {"success": {"exitCode": 0}}),
        (done(rawOutput={"exitCode": 2}), {"error": {"exitCode": 2}}),
        (done(rawOutput={"error": "no"}), {"error": {"error": "no"}}),
        (done(status="failed"), {"error": {}}),
        (done(content=[1]), {"success": {"content": [1]}}),
    ],
)
def test_how_a_call_of_its_own_went(update: Told, result: Any) -> None:
    run = stream(None)
    run.feed(call("`ls`", "execute", command="ls"))
    (event,) = run.feed(update)
    assert event == AgentCallDone("shell", {"command": "ls"}, result, "c\n1")


def test_what_was_refused_is_known_by_our_own_answer() -> None:
    run = stream(None)
    fed(run, call("`ls`", "execute", command="ls"), permission("`ls`"))
    (event,) = run.feed(done())
    assert isinstance(event, AgentCallDone) and event.result == {"rejected": {}}


# Failures


def test_a_failure_in_the_words_of_an_answer_is_a_failure() -> None:
    run = stream()
    assert fed(run, text("So"), text("\n\nError: T: [resource_exhausted] Error")) == [
        TextDelta("So")
    ]
    assert run.feed(end()) == []
    assert type(run.failure) is errors.RateLimited and not run.finished and run.is_over


def test_words_about_failures_are_an_answer() -> None:
    run = stream()
    assert fed(run, text("Error: handling in Go"), end()) == [
        TextDelta("Error: handling in Go"),
        RunFinished(None),
    ]


@pytest.mark.parametrize("between", [thought("Hm"), call("Read File", "read")])
def test_words_that_something_follows_are_an_answer(between: Told) -> None:
    run = stream()
    events = fed(run, text("Error: T: [unavailable] Error"), between, end())
    assert events[0] == TextDelta("Error: T: [unavailable] Error")
    assert run.finished


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (end("cancelled"), errors.AgentFailed),
        (end("max_tokens"), errors.AgentFailed),
        (end("refusal"), errors.AgentRefused),
        (end(""), errors.AgentFailed),
        (Answer(3, {}, RpcError(-32000, "Authentication required")), errors.NotAuthenticated),
    ],
)
def test_another_end_is_a_failure(answer: Answer, kind: type[errors.GatewayError]) -> None:
    run = stream()
    run.feed(answer)
    assert type(run.failure) is kind and not run.finished


def test_what_was_said_before_another_end_is_not_lost() -> None:
    run = stream()
    assert fed(run, text("So far.\n"), end("max_tokens")) == [TextDelta("So far."), TextDelta("\n")]
