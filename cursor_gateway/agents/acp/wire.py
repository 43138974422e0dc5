"""Wire: bytes in, messages of JSON-RPC out, and the other way round.

Whatever is no message is passed over: the CLI writes banners to its stdout (`Using worktree: …`),
and its own reader swallows what it cannot read, too. The CLI counts its requests from 0, as anybody
may, so ids of both sides meet: what has an id and no method is an answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cursor_gateway.core.json_text import is_too_deep, to_json
from cursor_gateway.core.line_buffer import LineBuffer

# A tool of the agent's that reads a file tells all of it, in one line.
LONGEST_LINE = 64 * 1024 * 1024

METHOD_NOT_FOUND = -32601

Json = Mapping[str, Any]
RequestId = int | str


@dataclass(eq=False)
class RpcError(Exception):
    """An answer that says no. `words` is all that it says."""

    code: int
    words: str


@dataclass(frozen=True, slots=True)
class Answer:
    """To a request of ours."""

    id: RequestId
    result: Json
    error: RpcError | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the agent's, which waits for an answer."""

    id: RequestId
    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Told:
    """A notification."""

    method: str
    params: Json


Message = Answer | Asked | Told


class Wire:
    def __init__(self, longest_line: int = LONGEST_LINE) -> None:
        self._lines = LineBuffer(longest_line)

    def feed(self, data: bytes) -> list[Message]:
        """Raises AgentFailed where a line does not end."""
        return list(_messages(self._lines.feed(data)))


def request(request_id: int, method: str, params: Json) -> bytes:
    return _line({"id": request_id, "method": method, "params": params})


def notification(method: str, params: Json) -> bytes:
    return _line({"method": method, "params": params})


def answer(request_id: RequestId, result: Json | None) -> bytes:
    """None says that there is no such method."""
    if result is None:
        error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
        return _line({"id": request_id, "error": error})
    return _line({"id": request_id, "result": result})


def _line(message: Json) -> bytes:
    return to_json({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _messages(lines: bytes) -> Iterator[Message]:
    for line in lines.split(b"\n"):
        # Most lines that are none begin with another letter.
        if line[:1] == b"{" and (message := _message(_parsed(line))):
            yield message


def _parsed(line: bytes) -> Json:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        found = _parsed_leniently(line)
    return found if isinstance(found, dict) and not is_too_deep(found) else {}


def _parsed_leniently(line: bytes) -> object:
    """Strict JSON refuses half an emoji, of which the other half comes with the next delta."""
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _message(found: Json) -> Message | None:
    request_id, method = found.get("id"), found.get("method")
    params = json_object(found.get("params"))
    if not isinstance(request_id, int | str):
        return Told(method, params) if isinstance(method, str) else None
    if isinstance(method, str):
        return Asked(request_id, method, params)
    return Answer(request_id, json_object(found.get("result")), _error(found.get("error")))


def _error(error: object) -> RpcError | None:
    """`data` is `{"message": ...}`, `{"details": ...}`, or a list of what does not fit."""
    if not isinstance(error, dict):
        return None
    code, data = error.get("code"), error.get("data")
    said = data.get("message") or data.get("details") if isinstance(data, dict) else data
    words = [error.get("message"), said if isinstance(said, str) else to_json(said) if said else ""]
    told = [word for word in words if isinstance(word, str) and word]
    # The longer one mostly repeats the other.
    text = told[-1] if len(told) == 2 and told[1].startswith(told[0]) else ": ".join(told)
    return RpcError(code if isinstance(code, int) else 0, text)


def json_object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""
