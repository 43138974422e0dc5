"""AgentStream: what the CLI writes with `--output-format stream-json`, as events.

Only a `result` line makes an answer, or a turn whose text is whole where a background shell keeps
the CLI from writing one (`turn_ended`, `conclude`). Everything else that the CLI may write (unknown
event types, notices, blank lines, half a line at its death) is passed over, and the last of what
was not JSON is kept, because that is where the reason of a failure sometimes stands.

Deltas that one read brought together leave together, as one event. Nobody could have seen them
apart, and all that follows costs one event instead of hundreds.
"""

from __future__ import annotations

import json
import re
from collections import deque
from itertools import compress
from typing import Any

import orjson

from cursor_gateway.agents.cursor.deltas import DeltaTracker
from cursor_gateway.agents.cursor.texts import classify_failure
from cursor_gateway.core.events import (
    AgentCall,
    AgentCallDone,
    AgentEvent,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.half_characters import HalfCharacters
from cursor_gateway.core.json_text import is_too_deep
from cursor_gateway.core.line_buffer import LineBuffer
from cursor_gateway.errors import GatewayError

_RESULT = b'{"type":"result"'
# The prompt again. It may be long, and nobody needs it.
_PROMPT = (b'{"type":"user",', b'\n{"type":"user",')
# No clients' numbers hold more.
_ABSURD = 2**52
# More than one read brings: it holds a line that took several of them, and no delta is as long.
_LONG_BLOCK = 1024 * 1024
_NOISE_LINES = 50
# How often a `result` that may be whole is parsed, from its beginning, before its newline comes.
_MOST_TRIES = 20
# An agent of the agent's takes steps that nobody sees, and its tokens count.
_STEPS_OF_AGENTS = 1000
_NOISE_LINE_BYTES = 2000

# A session becomes an argument (`--resume`) and a file name: what could be a flag or a path
# is none.
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

# What may stand in a string as it is; to name what may not would take a fifth longer.
_PLAIN = rb"[ !#-\[\]-\xff]*+"
# A delta byte for byte as today's CLI writes it, with its text. Nearly all lines are deltas, and to
# find their texts costs a third of parsing them. Any other line is parsed, also a delta of another
# form or with half a character in it, which only an escape like `\ud83d` can carry. Nothing is
# given back once it has matched (`+`), so a line that is none costs no more than its length.
_DELTA = re.compile(
    rb'\n\{"type":"assistant","message":\{"role":"assistant","content":\[\{"type":"text","text":"'
    rb'(%b(?:\\["\\/bfnrt]%b)*+)'
    rb'"\}\]\},"session_id":"%b","timestamp_ms":[1-9][0-9]{0,18}+\}(?=\n)'
    % (_PLAIN, _PLAIN, _PLAIN)
)

# Some transport failures reach print mode as an ordinary answer that consists of the error.
_ERROR_AS_ANSWER = re.compile(r"Error: (?:Retriable|ActionRequired|NonRetriable)Error: ")


class AgentStream:
    def __init__(self) -> None:
        self._lines = LineBuffer()
        self._tracker = DeltaTracker()
        self._text = _Words(TextDelta)
        self._thinking = _Words(ThinkingDelta)
        self._noise: deque[str] = deque(maxlen=_NOISE_LINES)
        # The arguments of calls that have not come back; a refused one comes back without them.
        self._open_calls: dict[str, dict[str, Any]] = {}
        self._workspace = ""
        self._tries_left = _MOST_TRIES
        self.session_id = ""
        # The CLI's own word that the run failed. Set at most once, after the events before it.
        self.failure: GatewayError | None = None
        self.finished = False
        # The CLI never wrote `result`; its turn was whole all the same.
        self.lacks_result = False
        # The tokens of all steps of the turn, and how many steps there were at most: the model is
        # asked anew with the results of its calls, and after a connection that broke.
        self.usage: Usage | None = None
        self.steps = 1

    @property
    def turn_ended(self) -> bool:
        """Whether the text is whole; a healthy CLI sends `result` right after its end."""
        return self._tracker.turn_ended and not self.finished

    @property
    def tool_is_running(self) -> bool:
        return bool(self._open_calls)

    @property
    def noise(self) -> str:
        """What the CLI wrote to stdout that was not an event."""
        return "\n".join(self._noise)

    def feed(self, data: bytes) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        if lines := self._lines.feed(data):
            self._take(lines, events)
        begins, ends = self._lines.unfinished
        if begins.startswith(_RESULT) and ends.endswith(b"}") and self._tries_left:
            self._tries_left -= 1
            self._unfinished_result(events)
        self._let_go(events)
        return events

    def _unfinished_result(self, events: list[AgentEvent]) -> None:
        """`result` ends the answer at once, even where its newline never comes."""
        line = self._lines.close()
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError:
            self._lines.feed(line)
        else:
            self._take(line, events)

    def close(self) -> list[AgentEvent]:
        """The agent's stdout ended. A last line may stand there without its newline."""
        events: list[AgentEvent] = []
        self._take(self._lines.close(), events)
        if not self.finished:
            self._text.pieces.append(self._tracker.close())
            self._text.close(events)
        return events

    def goes_on(self) -> None:
        """Something else than the stream shows that the turn has not ended: a call over the relay,
        which not every version announces."""
        self._tracker.turn_ended = False

    def conclude(self) -> list[AgentEvent]:
        """The turn has ended and no `result` comes: the answer is finished, its usage unknown."""
        self.finished = self.lacks_result = True
        events: list[AgentEvent] = []
        self._text.close(events)
        return [*events, RunFinished(None)]

    def _take(self, block: bytes, events: list[AgentEvent]) -> None:
        """Whole lines: the texts of deltas, and in between what else there is."""
        if len(block) > _LONG_BLOCK:
            self._take_others(block, events)
            return
        pieces = _DELTA.split(b"\n" + block)
        others, deltas = pieces[::2], pieces[1::2]
        taken = 0
        for at in compress(range(len(others)), others):
            self._take_deltas(deltas[taken:at], events)
            self._take_others(others[at], events)
            taken = at
        self._take_deltas(deltas[taken:], events)

    def _take_deltas(self, deltas: list[bytes], events: list[AgentEvent]) -> None:
        if not self.finished:
            self._say(self._tracker.deltas(deltas), events)

    def _take_others(self, lines: bytes, events: list[AgentEvent]) -> None:
        # A line that stands alone is not copied: it may be long.
        is_one = lines.find(b"\n", 1, -1) < 0
        for line in [lines] if is_one else lines.split(b"\n"):
            if not line or line.isspace():
                continue
            if line.startswith(_PROMPT):
                self._event("user", {"type": "user"}, events)
                continue
            try:
                event = orjson.loads(line)
            except orjson.JSONDecodeError:
                event = _parsed_leniently(line.decode("utf-8", "replace"))
            kind = event.get("type") if type(event) is dict else None
            if isinstance(kind, str):
                self._event(kind, event, events)
            else:
                noise = line[:_NOISE_LINE_BYTES].strip(b"\n")
                self._noise.append(noise.decode("utf-8", "replace"))

    def _say(self, text: str, events: list[AgentEvent]) -> None:
        if text:
            if self._thinking.pieces:
                self._thinking.let_go(events)
            self._text.pieces.append(text)

    def _event(self, kind: str, event: dict[str, Any], events: list[AgentEvent]) -> None:
        if self.finished or self._is_failure(event):
            return
        self._say(self._tracker.event(kind, event), events)
        if kind == "thinking":
            self._text.let_go(events)
            self._thinking.pieces.append(_string(event.get("text")))
        elif kind == "tool_call":
            self._let_go(events)
            self._tool_call(event, events)
        elif kind == "retry":
            self.steps += 1
        elif kind == "result":
            self.finished = True
            self.usage = _usage(event.get("usage"))
            self._thinking.let_go(events)
            self._text.close(events)
            events.append(RunFinished(self.usage))
        elif kind == "system" and event.get("subtype") == "init":
            session = _string(event.get("session_id"))
            self.session_id = session if _SESSION.fullmatch(session) else ""
            self._workspace = _string(event.get("cwd"))

    def _let_go(self, events: list[AgentEvent]) -> None:
        """At most one of the two holds any words: each lets the other go before it."""
        self._text.let_go(events)
        self._thinking.let_go(events)

    def _is_failure(self, event: dict[str, Any]) -> bool:
        """The CLI is not known to report a failure as an event, but it may begin to."""
        if event["type"] == "error":
            words = _string(event.get("message"))
        elif event["type"] == "result":
            words = _string(event.get("result"))
            if not event.get("is_error") and not _ERROR_AS_ANSWER.match(words):
                return False
        else:
            return False
        self.failure = self.failure or classify_failure(words)
        return True

    def _tool_call(self, event: dict[str, Any], events: list[AgentEvent]) -> None:
        call_id = _string(event.get("call_id"))
        tool, call, description = _tool_of(event.get("tool_call"))
        arguments = _object(call.get("args"))
        if event.get("subtype") == "started":
            self._open_calls[call_id] = arguments
            self.steps += _STEPS_OF_AGENTS if tool == "task" else 1
            model_call = _string(event.get("model_call_id"))
            events.append(
                AgentCall(call_id, tool, arguments, description, model_call, self._workspace)
            )
        else:
            announced = self._open_calls.pop(call_id, {})
            result = _object(call.get("result"))
            events.append(AgentCallDone(tool, arguments or announced, result, call_id))


def _parsed_leniently(line: str) -> object:
    """Two things strict JSON refuses: a logger's word before the event, and half an emoji."""
    prefix, brace, rest = line.partition("{")
    if not brace or prefix.strip() not in {"", "stdout", "stderr"}:
        return None
    try:
        return json.loads(brace + rest)
    except (ValueError, RecursionError):
        return None


class _Words:
    """The deltas of one kind, until they are let go as one event."""

    def __init__(self, kind: type[TextDelta] | type[ThinkingDelta]) -> None:
        self._kind = kind
        # The CLI counts in UTF-16.
        self._halves = HalfCharacters()
        self.pieces: list[str] = []

    def let_go(self, events: list[AgentEvent]) -> None:
        text = "".join(self.pieces)
        self.pieces.clear()
        if text := self._halves.feed(text):
            events.append(self._kind(text))

    def close(self, events: list[AgentEvent]) -> None:
        """Nothing more comes."""
        self.let_go(events)
        if rest := self._halves.close():
            events.append(self._kind(rest))


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tool_of(tool_call: object) -> tuple[str, dict[str, Any], str]:
    """`{"toolCallId": ..., "readToolCall": {...}}` -> `read` and what stands under it.

    The tool is the key that ends in `ToolCall`; its siblings may stand before it. What is nested so
    deeply that nobody could write it again is a call of which nothing is known.
    """
    calls = {} if is_too_deep(tool_call) else _object(tool_call)
    for key, call in calls.items():
        if key.endswith("ToolCall"):
            description = _string(calls.get("description"))
            description = description or _string(
                _object(_object(call).get("args")).get("description")
            )
            return key.removesuffix("ToolCall"), _object(call), description
    return _string(_object(calls.get("function")).get("name")) or "unknown", {}, ""


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    read, written, fresh, output = (
        count if isinstance(count := usage.get(name), int) and 0 <= count < _ABSURD else 0
        for name in ("cacheReadTokens", "cacheWriteTokens", "inputTokens", "outputTokens")
    )
    # The CLI counts cached input beside `inputTokens`; OpenAI counts it inside.
    return Usage(input=fresh + read + written, output=output, cached=read)
