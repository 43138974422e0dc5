"""BridgeStream: what the bridge tells of a run, as events.

Text and thinking come as deltas, and once more as whole messages, which are left out. Calls of the
client's tools come by the call-back (`tool_calls.py`); what the stream tells of them only counts
them, and parts the words around them. What nobody here knows is ignored, since the protocol grows.

A run that failed is a stream that succeeded: its `result` says so, and mostly the last `status`
says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cursor_gateway.agents.sdk.texts import Refusal, error_for
from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    AgentEvent,
    Aside,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.half_characters import HalfCharacters
from cursor_gateway.core.json_text import is_too_deep
from cursor_gateway.errors import GatewayError

# The server by whose name the model calls custom tools.
SERVER = "custom-user-tools"

_STATUS = "RUN_LIFECYCLE_STATUS_"
# A count that large is a mistake, and no number that clients can add up.
_ABSURD = 10**12


class BridgeStream:
    def __init__(self, tool: Callable[[str], ToolSpec | None]) -> None:
        # A tool by the name that the model has for it.
        self._tool = tool
        self.run_id = ""
        self.finished = False
        self.failure: GatewayError | None = None
        # Calls of the client's tools that were told of, and not yet that they are done.
        self.announced: set[str] = set()
        # How many calls of the client's tools it has told of.
        self.calls = 0
        # Whether the agent has given any sign of life. That its run was made is none: the bridge
        # says so by itself.
        self.heard = False
        self._own_calls: dict[str, Mapping[str, Any]] = {}
        self._text, self._thinking = HalfCharacters(), HalfCharacters()
        self._has_text = False
        self._reason = ""
        self._usage: Usage | None = None

    @property
    def tool_is_running(self) -> bool:
        return bool(self._own_calls or self.announced)

    def feed(self, message: Mapping[str, Any]) -> list[AgentEvent]:
        if self.finished or self.failure:
            return []
        if update := _object(_object(message.get("interactionUpdate")).get("update")):
            self.heard = True
            return self._update(update)
        if told := _object(_object(message.get("sdkMessage")).get("message")):
            self._message(told)
        if result := _object(message.get("result")):
            return self._result(result)
        return []

    # While it runs

    def _update(self, update: Mapping[str, Any]) -> list[AgentEvent]:
        match update.get("type"):
            case "text-delta":
                return self._says(self._text.feed(_string(update.get("text"))))
            case "thinking-delta":
                text = self._thinking.feed(_string(update.get("text")))
                return [ThinkingDelta(text)] if text else []
            case "tool-call-started":
                return self._call(update)
            case "tool-call-completed":
                return self._call_done(update)
        return []

    def _says(self, text: str) -> list[AgentEvent]:
        self._has_text |= bool(text)
        return [TextDelta(text)] if text else []

    def _call(self, update: Mapping[str, Any]) -> list[AgentEvent]:
        call_id, name, arguments, _ = _called(update)
        tool = self._client_tool(name, arguments)
        if tool is not None and not tool.bridged:
            self.announced.add(call_id)
            self.calls += 1
            return [Aside()]
        if tool is not None:
            name, arguments = tool.name, _object(arguments.get("args"))
        self._own_calls[call_id] = arguments
        model_call = _string(update.get("modelCallId"))
        return [AgentCall(call_id, name, arguments, model_call=model_call)]

    def _call_done(self, update: Mapping[str, Any]) -> list[AgentEvent]:
        call_id, name, arguments, result = _called(update)
        tool = self._client_tool(name, arguments)
        if tool is not None and not tool.bridged:
            self.announced.discard(call_id)
            return [Aside()]
        name = tool.name if tool else name
        announced = self._own_calls.pop(call_id, {})
        return [AgentCallDone(name, announced or arguments, result, call_id)]

    def _client_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolSpec | None:
        is_ours = name == "mcp" and arguments.get("providerIdentifier", SERVER) == SERVER
        return self._tool(_string(arguments.get("toolName"))) if is_ours else None

    def _message(self, told: Mapping[str, Any]) -> None:
        self.run_id = self.run_id or _string(told.get("run_id"))
        if told.get("type") == "status":
            self._reason = _string(told.get("message")) or self._reason
            return
        self.heard = True
        if told.get("type") == "usage" and (usage := _usage(told.get("usage"))):
            self._usage = usage if self._usage is None else self._usage + usage

    # Its end

    def _result(self, result: Mapping[str, Any]) -> list[AgentEvent]:
        whole = _object(result.get("result"))
        self.run_id = self.run_id or _string(result.get("runId"))
        status = _string(result.get("status")).removeprefix(_STATUS)
        if status != "FINISHED":
            self.failure = self._failed(status, result, whole)
            return []
        self.finished = True
        rest = self._text.close() if self._has_text else _string(whole.get("result"))
        thought: list[AgentEvent] = [ThinkingDelta(t)] if (t := self._thinking.close()) else []
        # The sum of the run, where it is told.
        usage = _usage(whole.get("usage")) or self._usage
        return [*thought, *self._says(rest), RunFinished(usage)]

    def _failed(
        self, status: str, result: Mapping[str, Any], whole: Mapping[str, Any]
    ) -> GatewayError:
        code = _string(result.get("errorCode")) or _string(whole.get("errorCode"))
        said = self._reason or _string(whole.get("errorMessage")) or _string(whole.get("result"))
        words = said or f"the run ended as {status.lower() or 'nothing that is known'}"
        code = code.removeprefix("SDK_ERROR_CODE_").lower()
        return error_for(Refusal(code, code, words))


def _called(
    update: Mapping[str, Any],
) -> tuple[str, str, Mapping[str, Any], Mapping[str, Any]]:
    """The id of a call, its tool, its arguments and its result. Of what is nested so deeply that
    nobody could write it again nothing is known."""
    call = {} if is_too_deep(update.get("toolCall")) else _object(update.get("toolCall"))
    name = _string(call.get("type")) or "unknown"
    result = _object(call.get("result"))
    return _string(update.get("callId")), name, _object(call.get("args")), result


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    read, written, fresh, output = (
        _count(usage.get(name)) or 0
        for name in ("cacheReadTokens", "cacheWriteTokens", "inputTokens", "outputTokens")
    )
    # As in the CLI's stream, which has the counts from the same place: cached input stands beside
    # `inputTokens`, and reasoning is a part of `outputTokens`.
    reasoning = _count(usage.get("reasoningTokens"))
    return Usage(fresh + read + written, output, read, reasoning=reasoning)


def _count(value: object) -> int | None:
    """A whole number, which JSON may also write as a text."""
    text = str(value) if isinstance(value, str | int | float) else ""
    text = text.removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) <= len(str(_ABSURD)) else None


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
