"""LoopGuard: stops a model that repeats the same calls.

Theory of operation
-------------------
The guard derives everything from the conversation, so it has no memory that a restart could lose.
It walks the steps since the user last said something in order. A step is a call (its tool and the
canonical JSON of its arguments) with its outcome (its class, and a hash of the result).

A step that was not seen before is progress, and progress forgives everything before it: the same
call with a new result, another file, another edit. Steps that were seen before are stale. When a
call comes that stands among the stale steps `max_repeat` times already, the model is in a loop, be
it A A A A or A B A B A B. Apart from that, a run of calls to one tool that all failed validation is
a loop too, though every one of them was different.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from cursor_gateway.core.conversation import Message, Text, ToolCall, ToolResult
from cursor_gateway.core.json_text import is_too_deep

OutcomeClass = Literal["success", "error", "validation"]

# Lines that clients add to a result, which differ with every call though the result is the same.
_FRAME = re.compile(r"^(?:Wall time: [\d.]+ seconds|Chunk ID: \S+)[ \t]*$", re.MULTILINE)
_EXIT_CODE = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: status| code)?:?|exit_code[\"':=]+) ?(-?\d+)", re.I
)
_EXIT_LINE = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)
_VALIDATION = re.compile(
    r"(?:<tool_use_error>)?\s*(?:error: ?)?(?:inputvalidationerror"
    r"|invalid (?:arguments|input|parameters?)\b"
    r"|the \S+ tool was called with invalid arguments|missing required (?:parameter|argument|field)"
    r"|tool input validation failed|validation failed for tool)",
    re.I,
)
_ERROR = re.compile(r"(?:<tool_use_error>|error:|traceback \(most recent call last\))", re.I)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that was found. The model gets the hint first; if it goes on, the client gets the
    message."""

    tool: str
    count: int
    kind: Literal["repeat", "validation"]
    limit: int
    # The id of the earlier call, whose result the model has already.
    earlier: str = ""

    @property
    def hint(self) -> str:
        if self.kind == "validation":
            return (
                f"Not executed: the last {self.count} calls of {self.tool} failed because their "
                "arguments did not fit its schema. Read the schema and the errors above again."
            )
        return (
            f"Not executed: {self.tool} was called {self.count} times with these arguments and "
            f"gave the same result each time; it stands above, with the id {self.earlier}. Use it, "
            "or do something else."
        )

    @property
    def message(self) -> str:
        how = "failed validation" if self.kind == "validation" else "gave the same result"
        return (
            f"[cursor-gateway stopped a loop: {self.tool} {how} {self.count} times and was called "
            f"again. The limit is TOOL_LOOP_MAX_REPEAT={self.limit}.]"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "count": self.count,
            "kind": self.kind,
            "limit": self.limit,
            "setting": "TOOL_LOOP_MAX_REPEAT",
        }


@dataclass(frozen=True, slots=True)
class Step:
    tool: str
    call: str
    outcome: OutcomeClass
    result: str


class LoopGuard:
    def __init__(self, max_repeat: int, messages: Iterable[Message] = ()) -> None:
        self._limit = max_repeat
        self._seen: set[Step] = set()
        self._stale: list[Step] = []
        self._failing = ("", 0)
        self._latest: dict[str, str] = {}
        for step, call_id in _steps(messages):
            self.record(step, call_id)

    def record(self, step: Step, call_id: str = "") -> None:
        self._latest[step.call] = call_id
        if step in self._seen:
            self._stale.append(step)
        else:
            self._seen.add(step)
            self._stale.clear()
        tool, run = self._failing
        if step.outcome != "validation":
            self._failing = ("", 0)
        else:
            self._failing = (step.tool, run + 1 if step.tool == tool else 1)

    def judge(self, tool: str, arguments: Any) -> Loop | None:
        """Whether calling `tool` with `arguments` now would go on with a loop."""
        call = fingerprint(tool, arguments)
        repeats = sum(step.call == call for step in self._stale)
        if repeats >= self._limit and any(step.call == call for step in self._seen):
            return Loop(tool, repeats + 1, "repeat", self._limit, self._latest[call])
        failing, run = self._failing
        if failing == tool and run > self._limit:
            return Loop(tool, run, "validation", self._limit)
        return None


def fingerprint(tool: str, arguments: Any) -> str:
    """The same text for the same call, whatever the order of its keys and its spaces."""
    canonical = _canonical(arguments) if isinstance(arguments, str) else _sorted(arguments)
    return _digest(f"{tool}\0{canonical}")


def _canonical(written: str) -> str:
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return written
    return written if is_too_deep(arguments) else _sorted(arguments)


def _sorted(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True)


def step(tool: str, arguments: Any, outcome: OutcomeClass, result: str) -> Step:
    return Step(tool, fingerprint(tool, arguments), outcome, _digest(_FRAME.sub("", result)))


def classify(tool: str, text: str, *, is_error: bool = False) -> OutcomeClass:
    """How a call went: by structure first, and by words only where clients write their verdict.

    The payload is never searched: a file about invalid schemas was read successfully. A result says
    that arguments did not fit only if it is flagged, or names the tool or its schema.
    """
    first_line = text.lstrip().partition("\n")[0][:300]
    if _VALIDATION.match(text):
        about = re.compile(rf"\b(?:{re.escape(tool)}|tool|schema)\b", re.IGNORECASE)
        if is_error or text.startswith("<tool_use_error>") or about.search(first_line):
            return "validation"
    if is_error or _ERROR.match(text) or _says_error(text):
        return "error"
    last_line = text.rstrip().rpartition("\n")[2]
    code = _EXIT_CODE.search(last_line) if len(last_line) <= 200 else None
    code = code or _EXIT_LINE.search(text[:300])
    return "error" if code and code[1] != "0" else "success"


def _says_error(text: str) -> bool:
    """Whether `text` is a JSON object whose own fields say that it is an error."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    if body.get("error") or body.get("is_error") or body.get("isError"):
        return True
    code = body.get("exit_code", body.get("exitCode", 0))
    return body.get("success") is False or (isinstance(code, int) and code != 0)


def _steps(messages: Iterable[Message]) -> Iterator[tuple[Step, str]]:
    """The calls and their outcomes since the user last said something."""
    calls: dict[str, ToolCall] = {}
    # Calls with their results. They are digested at the end, since the user's next message clears
    # them.
    results: list[tuple[ToolCall, ToolResult]] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and part.id in calls:
                results.append((calls[part.id], part))
        if message.role == "user" and is_the_user_speaking(message):
            results.clear()
    for call, result in results:
        text = "\n".join(inner.text for inner in result.content if isinstance(inner, Text))
        outcome = classify(call.name, text, is_error=result.is_error)
        yield step(call.name, call.arguments, outcome, text), result.id


def is_the_user_speaking(message: Message) -> bool:
    """Whether the user wrote anything in `message`. Clients put reminders of their own beside
    results, in tags."""
    if not any(isinstance(part, ToolResult) for part in message.parts):
        return True
    texts = (part.text for part in message.parts if isinstance(part, Text))
    return any(text.strip() and not text.lstrip().startswith("<") for text in texts)


def outcome_of(result: Mapping[str, Any]) -> OutcomeClass:
    """The class of a result of the agent's own tools, which has one key: `success`, `error`,
    `rejected` and so on."""
    return "success" if "success" in result else "error"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
