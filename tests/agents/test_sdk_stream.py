"""What the bridge tells, as events: every word once, every call, and why it failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursor_gateway import errors
from cursor_gateway.agents.sdk.stream import BridgeStream
from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    Aside,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    Usage,
)

TOOLS = {"bash": ToolSpec("bash", "", {}), "look": ToolSpec("mcp/look", "", {}, bridged=True)}


def stream() -> BridgeStream:
    return BridgeStream(TOOLS.get)


def update(kind: str, **fields: Any) -> dict[str, Any]:
    return {"interactionUpdate": {"type": kind, "update": {"type": kind, **fields}}}


def message(kind: str, **fields: Any) -> dict[str, Any]:
    return {"sdkMessage": {"type": kind, "message": {"type": kind, "run_id": "run-1", **fields}}}


def result(status: str = "FINISHED", **fields: Any) -> dict[str, Any]:
    whole = {"runId": "run-1"} | fields
    return {
        "result": {"runId": "run-1", "status": f"RUN_LIFECYCLE_STATUS_{status}", "result": whole}
    }


def mcp(name: str, **args: Any) -> dict[str, Any]:
    called = {"providerIdentifier": "custom-user-tools", "toolName": name, "args": args}
    return {"type": "mcp", "args": called}


def test_words_and_thoughts_come_once() -> None:
    run = stream()
    assert run.feed(update("thinking-delta", text="Hm")) == [ThinkingDelta("Hm")]
    assert run.feed(update("text-delta", text="Hello")) == [TextDelta("Hello")]
    assert run.feed(message("assistant", message={"content": [{"text": "Hello"}]})) == []
    assert run.feed(result(result="Hello")) == [RunFinished(None)]
    assert run.finished and run.run_id == "run-1"
    assert run.feed(update("text-delta", text="after the end")) == []


def test_an_answer_that_came_as_a_whole_only_is_not_lost() -> None:
    assert stream().feed(result(result="Hello")) == [TextDelta("Hello"), RunFinished(None)]


def test_halves_of_characters_meet() -> None:
    run = stream()
    first, second = (json.loads(f'"\\u{half}"') for half in ("d83d", "de00"))
    assert run.feed(update("text-delta", text=first)) == []
    assert run.feed(update("text-delta", text=second)) == [TextDelta("\U0001f600")]
    assert run.feed(update("text-delta", text=first)) == []
    assert run.feed(update("thinking-delta", text=first)) == []
    assert run.feed(result()) == [ThinkingDelta("\ufffd"), TextDelta("\ufffd"), RunFinished(None)]


def test_calls_of_the_clients_tools_are_counted_only() -> None:
    run = stream()
    started = update("tool-call-started", callId="1", toolCall=mcp("bash", command="ls"))
    assert run.feed(started) == [Aside()]
    assert (run.calls, run.tool_is_running) == (1, True)
    done = update("tool-call-completed", callId="1", toolCall=mcp("bash"))
    assert run.feed(done) == [Aside()]
    assert (run.calls, run.tool_is_running) == (1, False)


def test_calls_of_bridged_tools_are_the_agents_own() -> None:
    run = stream()
    started = update("tool-call-started", callId="1", toolCall=mcp("look", at="x"), modelCallId="m")
    assert run.feed(started) == [AgentCall("1", "mcp/look", {"at": "x"}, model_call="m")]
    call = mcp("look") | {"result": {"status": "success"}}
    assert run.feed(update("tool-call-completed", callId="1", toolCall=call)) == [
        AgentCallDone("mcp/look", {"at": "x"}, {"status": "success"}, "1")
    ]
    assert not run.tool_is_running


def test_its_own_tools_and_those_of_other_servers_are_told_of() -> None:
    run = stream()
    shell = {"type": "shell", "args": {"command": "ls"}}
    assert run.feed(update("tool-call-started", callId="1", toolCall=shell)) == [
        AgentCall("1", "shell", {"command": "ls"})
    ]
    other = {"type": "mcp", "args": {"providerIdentifier": "other", "toolName": "bash"}}
    (call,) = run.feed(update("tool-call-started", callId="2", toolCall=other))
    assert isinstance(call, AgentCall) and call.tool == "mcp"
    deep: Any = {}
    for _ in range(1000):
        deep = {"a": deep}
    (call,) = run.feed(update("tool-call-started", toolCall={"type": "read", "args": deep}))
    assert call == AgentCall("", "unknown", {})


def test_what_nobody_knows_is_ignored() -> None:
    run = stream()
    assert run.feed({}) == run.feed(message("status", status="RUNNING")) == []
    assert not run.heard
    unknown: list[dict[str, Any]] = [{"done": {}}, {"x": 1}, {"result": 7}]
    for odd in (update("mood"), message("hologram"), *unknown):
        assert run.feed(odd) == []
    assert run.feed({"interactionUpdate": {"update": [1]}, "sdkMessage": None}) == []
    assert run.heard and not run.finished


COUNTS = {"inputTokens": 10, "outputTokens": 4, "cacheReadTokens": 3, "cacheWriteTokens": 2}


def test_usage_is_that_of_the_whole_run() -> None:
    run = stream()
    run.feed(message("usage", usage=COUNTS))
    run.feed(message("usage", usage=COUNTS | {"reasoningTokens": "3"}))
    run.feed(message("usage", usage=7))
    assert run.feed(result()) == [RunFinished(Usage(30, 8, 6, reasoning=3))]
    told = {"inputTokens": "7", "outputTokens": 2.0, "cacheReadTokens": -1, "totalTokens": "9"}
    assert stream().feed(result(usage=told)) == [RunFinished(Usage(7, 2))]
    absurd = {"inputTokens": 10**30, "outputTokens": [1], "reasoningTokens": "many"}
    assert stream().feed(result(usage=absurd)) == [RunFinished(Usage(0, 0))]


def test_a_run_that_failed_says_why() -> None:
    run = stream()
    run.feed(message("status", status="ERROR", message="You have hit your usage limit"))
    run.feed(message("status", status="ERROR"))
    assert run.feed(result("ERROR")) == []
    assert isinstance(run.failure, errors.QuotaExceeded)
    assert run.feed(update("text-delta", text="more")) == []


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        (
            result("ERROR", errorCode="rate_limited", errorMessage="slow"),
            errors.RateLimited,
            "slow",
        ),
        (result("ERROR", errorCode="SDK_ERROR_CODE_PLAN_REQUIRED"), errors.PlanRequired, "error"),
        (result("CANCELLED"), errors.AgentFailed, "cancelled"),
        (result("EXPIRED"), errors.AgentFailed, "expired"),
        ({"result": {"runId": "x"}}, errors.AgentFailed, "nothing that is known"),
    ],
)
def test_a_run_that_did_not_finish_has_failed(
    told: dict[str, Any], kind: type[errors.GatewayError], words: str
) -> None:
    run = stream()
    run.feed(told)
    assert type(run.failure) is kind and words in str(run.failure)
