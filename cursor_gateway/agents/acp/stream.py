"""AcpStream: what the CLI tells of one prompt, as events.

Every piece of text is new; nothing is repeated, and nothing marks an end but another kind of
update. Calls of the client's tools come over the relay, one at a time. Their arguments stand in no
update, but in the request for leave that comes before each: so calls that are made at once are
announced by these, as print mode announces them in its stream (`cursor/relayed.py`). What nobody
here knows is ignored, since the protocol grows.

That a call of the agent's own was refused shows in nothing that it tells (a refused call and one
that failed both end as `completed`), so what we answered is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cursor_gateway.agents.acp.requests import is_offered, permitted_tool
from cursor_gateway.agents.acp.texts import LastWords, error_for
from cursor_gateway.agents.acp.wire import Answer, Asked, Json, Message, Told, json_object, text_of
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    AgentEvent,
    Aside,
    RunFinished,
    TextDelta,
    ThinkingDelta,
)
from cursor_gateway.core.half_characters import HalfCharacters
from cursor_gateway.core.relayed_tools import SERVER, RelayedTools
from cursor_gateway.errors import AgentFailed, AgentRefused, GatewayError

# Its own tools by their kind, as print mode names them.
_TOOLS = {"execute": "shell", "search": "grep", "fetch": "webfetch"}
_MCP = "MCP: "
_DONE = frozenset({"completed", "failed"})
# It comes some time after the session was made, whatever is asked.
_NO_SIGN_OF_LIFE = "available_commands_update"


class AcpStream:
    def __init__(self, prompt_id: int, session_id: str, tools: RelayedTools | None = None) -> None:
        self.finished = False
        self.failure: GatewayError | None = None
        # Whether the agent has given any sign of life.
        self.heard = False
        self._prompt_id = prompt_id
        self._session_id = session_id
        self._tools = tools
        self._words = LastWords()
        self._text, self._thinking = HalfCharacters(), HalfCharacters()
        # The calls that have not come back, by their ids: those that were passed on, and others.
        self._passed: dict[str, tuple[str, Json]] = {}
        self._others: set[str] = set()
        self._refused: set[str] = set()

    @property
    def is_over(self) -> bool:
        return self.finished or self.failure is not None

    @property
    def tool_is_running(self) -> bool:
        return bool(self._passed or self._others)

    def feed(self, message: Message) -> list[AgentEvent]:
        if self.is_over:
            return []
        match message:
            case Told("session/update", params) if self._is_own(params):
                return self._update(json_object(params.get("update")))
            case Asked(_, "session/request_permission", params):
                return self._permission(params)
            case Answer(id=request_id) if request_id == self._prompt_id:
                return self._end(message)
        return []

    def _is_own(self, params: Json) -> bool:
        return text_of(params.get("sessionId", self._session_id)) == self._session_id

    # While it works

    def _update(self, update: Json) -> list[AgentEvent]:
        kind = update.get("sessionUpdate")
        self.heard |= kind != _NO_SIGN_OF_LIFE
        match kind:
            case "agent_message_chunk":
                return _text(self._words.feed(self._text.feed(_words(update))))
            case "agent_thought_chunk":
                thought = self._thinking.feed(_words(update))
                return [*self._let_go(), ThinkingDelta(thought)] if thought else []
            case "tool_call":
                return [*self._let_go(), *self._call(update)]
            case "tool_call_update" if update.get("status") in _DONE:
                return self._call_done(update)
        return []

    def _let_go(self) -> list[AgentEvent]:
        return _text(self._words.let_go())

    def _call(self, update: Json) -> list[AgentEvent]:
        call_id, title = text_of(update.get("toolCallId")), text_of(update.get("title"))
        if title.startswith(_MCP) and is_offered(title.removeprefix(_MCP), self._tools):
            self._others.add(call_id)
            return [Aside()]
        self._passed[call_id] = _own_call(call_id, title, update)
        return [AgentCall(call_id, *self._passed[call_id])]

    def _permission(self, params: Json) -> list[AgentEvent]:
        """It was answered already, by `requests.reply_to`."""
        self.heard = True
        call = json_object(params.get("toolCall"))
        call_id = text_of(call.get("toolCallId"))
        name = permitted_tool(params, self._tools)
        if name is None:
            self._refused.add(call_id)
            return []
        self._others.discard(call_id)
        called = {"providerIdentifier": SERVER, "toolName": name, "args": _arguments(call)}
        self._passed[call_id] = "mcp", called
        return [AgentCall(call_id, "mcp", called)]

    def _call_done(self, update: Json) -> list[AgentEvent]:
        call_id = text_of(update.get("toolCallId"))
        if (call := self._passed.pop(call_id, None)) is None:
            self._others.discard(call_id)
            return [Aside()]
        return [AgentCallDone(*call, self._outcome(call_id, update), call_id)]

    def _outcome(self, call_id: str, update: Json) -> dict[str, Any]:
        if call_id in self._refused:
            self._refused.discard(call_id)
            return {"rejected": {}}
        output = json_object(update.get("rawOutput"))
        if update["status"] == "failed" or "error" in output or output.get("exitCode"):
            return {"error": output}
        return {"success": output or {"content": update.get("content")}}

    # Its end

    def _end(self, answer: Answer) -> list[AgentEvent]:
        self.heard = True
        if answer.error is not None:
            self.failure = error_for(answer.error)
            return []
        self.failure = _stopped(text_of(answer.result.get("stopReason")))
        words, failure = self._words.close()
        self.failure = failure or self.failure
        thought = self._thinking.close()
        rest: list[AgentEvent] = [ThinkingDelta(thought)] if thought else []
        rest += _text(words + self._text.close())
        self.finished = self.failure is None
        return [*rest, RunFinished(None)] if self.finished else rest


def _own_call(call_id: str, title: str, update: Json) -> tuple[str, Json]:
    # Mostly nothing is told of what it does. Then no two calls are the same.
    untold = {"title": title, "id": call_id}
    if title.startswith(_MCP):
        return "mcp", {"toolName": title.removeprefix(_MCP), **untold}
    arguments, kind = dict(json_object(update.get("rawInput"))), text_of(update.get("kind"))
    tool = text_of(arguments.pop("_toolName", "")) or _TOOLS.get(kind, kind or "unknown")
    return tool, arguments or untold


def _stopped(reason: str) -> GatewayError | None:
    """Only `end_turn` was ever seen of a prompt that nobody cancelled; the others stand in the
    protocol."""
    if reason == "end_turn":
        return None
    kind = AgentRefused if reason == "refusal" else AgentFailed
    return kind(
        f"Cursor's agent has stopped: {reason or 'it does not say why'}.", quotes_agent=True
    )


def _arguments(call: Json) -> Mapping[str, Any]:
    """What leave is asked for, in a fenced block of JSON. What arrives at the relay counts more."""
    content = call.get("content")
    first = json_object(content[0]) if isinstance(content, list) and content else {}
    text = text_of(json_object(first.get("content")).get("text"))
    try:
        return json_object(orjson.loads(text.removeprefix("```json").removesuffix("```")))
    except orjson.JSONDecodeError:
        return {}


def _words(update: Json) -> str:
    return text_of(json_object(update.get("content")).get("text"))


def _text(text: str) -> list[AgentEvent]:
    return [TextDelta(text)] if text else []
