"""Tool calls in text: how a model is told to write them, and the parser that takes them out.

Theory of operation
-------------------
The form is one JSON object between two tags, which many models know from their training:

    <tool_call>
    {"name": "bash", "arguments": {"command": "ls"}}
    </tool_call>

The parser reads the stream once. In TEXT everything passes except an ending that may still become a
tag; so text is never later than the tag is long. In TAG the tag's attributes pass by (models copy
the ids they see in the history). In BODY the JSON is followed by its brackets and strings, so that
a tag inside a string is data. In AFTER the closing tag is expected, but a model that forgets it is
understood; in GAP the white space behind a call is dropped.

A tag that no JSON follows is prose about tags, unless the answer ends there. JSON that is none, or
is no call, is `Garbled`, and so is a call that never ends. When the model goes on to write a result
of its own call, or the user's next turn, it imagines them: the answer ends there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import orjson

INSTRUCTION = """\
To call a tool, write this, with nothing else on its lines:

<tool_call>
{"name": "the tool's name", "arguments": {"parameter": "value"}}
</tool_call>

The text between the tags is one JSON object; `arguments` fits the tool's schema. You may say \
something first, and you may make several calls one after the other. Then end your turn: the \
results come with the next one. Never write a result yourself."""

OPENING = "<tool_call"
CLOSING = "</tool_call>"
_IMAGINED = ("<tool_result", "<turn from=")
_TAGS = (OPENING, *_IMAGINED)
# Room for the attributes that a model may copy into the tag.
_MAX_TAG = 200
_TAG_SO_FAR = re.compile(OPENING + r'(?: +\w+="[^"\n]*")*(?: +\w*(?:="?[^"\n>]*)?)? *>?')
_LEAD = re.compile(r"\s*(?:```\w*\s*)?")
_BRACKETS = re.compile(r'["\\{}\[\]<]')


def unreadable(problems: Iterable[str], count: int) -> str:
    """What a model is told of calls that it made and nobody could read."""
    what = "That call was" if count == 1 else f"Those {count} calls were"
    return (
        f"{what} not made: {' '.join(problems)} Make {'it' if count == 1 else 'all of them'} again."
    )


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as the model wrote it: whether there is such a tool is not known here."""

    name: str
    arguments: dict[str, Any]
    raw: str


@dataclass(frozen=True, slots=True)
class Garbled:
    raw: str
    problem: str


@dataclass(frozen=True, slots=True)
class Imagined:
    """The model began to answer its own call."""


Piece = Said | Asked | Garbled | Imagined


class _State(Enum):
    TEXT = auto()
    TAG = auto()
    BODY = auto()
    AFTER = auto()
    GAP = auto()
    OVER = auto()


class ToolTextParser:
    def __init__(self) -> None:
        self._state = _State.TEXT
        # What was read and not yet given: an ending that may become a tag, or the tag itself.
        self._held = ""
        self._body: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._called = False
        self._steps = {
            _State.TEXT: self._text,
            _State.TAG: self._tag,
            _State.BODY: self._in_body,
            _State.AFTER: self._after,
            _State.GAP: self._gap,
            _State.OVER: self._over,
        }

    def feed(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        rest = self._held + text
        self._held = ""
        while rest:
            rest = self._steps[self._state](rest, pieces)
        return pieces

    def close(self) -> list[Piece]:
        """The stream ended: what was held back is text, an unfinished call is garbled."""
        state, self._state = self._state, _State.TEXT
        held, self._held = self._held, ""
        if state is _State.BODY or (state is _State.TAG and held):
            return [Garbled(self._take_body() + held, "the call does not end.")]
        return [Said(held)] if held and state is not _State.AFTER else []

    def _text(self, text: str, pieces: list[Piece]) -> str:
        at, tag = _first_tag(text, _TAGS if self._called else (OPENING,))
        if tag is None:
            safe = len(text) - _overlap(text)
            _say(text[:safe], pieces)
            self._held = text[safe:]
            return ""
        _say(text[:at], pieces)
        if tag != OPENING:
            pieces.append(Imagined())
            self._state = _State.OVER
            return ""
        self._state = _State.TAG
        return text[at:]

    def _tag(self, text: str, pieces: list[Piece]) -> str:
        """`text` begins with the tag; what follows it decides whether it is a call."""
        end = text.find(">", 0, _MAX_TAG)
        if _may_be_tag(text[: end + 1] if end > 0 else text):
            # Models put their JSON into a code block even here.
            lead = _LEAD.match(text, end + 1) if end > 0 else None
            body = text[lead.end() :] if lead else ""
            if body.startswith(("{", "[")):
                self._state = _State.BODY
                self._body = [text[: len(text) - len(body)]]
                return body
            if body in ("", "`", "``") and len(text) < 2 * _MAX_TAG:
                self._held = text
                return ""
        self._state = _State.TEXT
        _say(text[: len(OPENING)], pieces)
        return text[len(OPENING) :]

    def _in_body(self, text: str, pieces: list[Piece]) -> str:
        end, is_end = self._scan(text)
        self._body.append(text[:end])
        if not is_end:
            self._held = text[end:]
            return ""
        pieces.append(_call(self._take_body()))
        self._called = self._called or isinstance(pieces[-1], Asked)
        self._state = _State.AFTER
        return text[end:]

    def _scan(self, text: str) -> tuple[int, bool]:
        """How far `text` belongs to the JSON, and whether it ends there. A closing tag outside of a
        string shows that it never will; what may become one is read again with what follows."""
        skip = 0
        if self._escaped:
            skip, self._escaped = 1, False
        for found in _BRACKETS.finditer(text, skip):
            at, sign = found.start(), found[0]
            if at < skip:
                continue
            if self._in_string:
                if sign == "\\":
                    skip = at + 2
                elif sign == '"':
                    self._in_string = False
            elif sign == '"':
                self._in_string = True
            elif sign in "{[":
                self._depth += 1
            elif sign in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return at + 1, True
            elif text.startswith(CLOSING, at):
                return at, True
            elif CLOSING.startswith(text[at:]):
                return at, False
        self._escaped = skip > len(text)
        return len(text), False

    def _take_body(self) -> str:
        raw = "".join(self._body)
        self._body = []
        self._depth = 0
        self._in_string = self._escaped = False
        return raw

    def _after(self, text: str, pieces: list[Piece]) -> str:
        rest = text.lstrip()
        if any(end.startswith(rest) and rest != end for end in (CLOSING, "```")):
            self._held = rest
            return ""
        if rest.startswith("```"):
            return rest.removeprefix("```")
        self._state = _State.GAP
        return rest.removeprefix(CLOSING)

    def _gap(self, text: str, pieces: list[Piece]) -> str:
        rest = text.lstrip()
        if rest:
            self._state = _State.TEXT
        return rest

    def _over(self, text: str, pieces: list[Piece]) -> str:
        return ""


def _call(raw: str) -> Asked | Garbled:
    body = raw[_LEAD.match(raw, raw.index(">") + 1).end() :]  # type: ignore[union-attr]
    try:
        # `strict=False`: models write newlines into strings as they are.
        call = json.loads(body, strict=False, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return Garbled(raw, f"the text between the tags is not JSON ({error}).")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Garbled(raw, 'it is not one object with a "name".')
    # Arguments in another place would be lost, and a call without them may do something else.
    others = call.keys() - {"name", "arguments", "id"}
    if others:
        return Garbled(raw, f'it has {sorted(others)} beside "name" and "arguments".')
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _object_in(arguments)
    if not isinstance(arguments, dict):
        return Garbled(raw, '"arguments" must be an object.')
    return Asked(call["name"], arguments, raw)


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{number} is too large")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _object_in(text: str) -> object:
    try:
        return orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None


def _say(text: str, pieces: list[Piece]) -> None:
    if text:
        pieces.append(Said(text))


def _first_tag(text: str, tags: tuple[str, ...]) -> tuple[int, str | None]:
    found = [(at, tag) for tag in tags if (at := text.find(tag)) >= 0]
    return min(found) if found else (len(text), None)


def _may_be_tag(head: str) -> bool:
    """`<tool_call>`, `<tool_call id="...">` or a beginning of them, but not `<tool_callback>`."""
    return bool(_TAG_SO_FAR.fullmatch(head))


def _overlap(text: str) -> int:
    """How many characters at the end of `text` may be the beginning of a tag."""
    at = text.rfind("<", max(0, len(text) - max(map(len, _TAGS)) + 1))
    return len(text) - at if at >= 0 and any(tag.startswith(text[at:]) for tag in _TAGS) else 0
