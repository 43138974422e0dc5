"""Tool calls in text: how a model is told to write them, and the parser that takes them out.

Theory of operation
-------------------
The form is one JSON object between two tags, which many models know from their training:

    <tool_call>
    {"name": "bash", "arguments": {"command": "ls"}}
    </tool_call>

A call stands alone on its lines: the opening tag begins a line, outside of code blocks, and so does
the closing tag, or the line ends behind it. Whatever looks like a call in another place, in a
sentence, a code span or a code block, is `Quoted`, and nobody executes it.

The parser reads the stream once. In TEXT everything passes except an ending that may still become a
tag; so text is never later than the tag is long. In TAG the tag's attributes pass by (models copy
the ids they see in the history). In BODY the JSON is followed by its brackets and strings, so that
a tag inside a string is data. In AFTER the closing tag is expected, but a model that forgets it is
understood, and so is one that writes a bracket too many, or the next call without tags of its own.
In CLOSING the tag's own end is waited for, in GAP the end of its line, where that matters; the
white space there is dropped.

A tag that no JSON follows is prose about tags, unless the answer ends there. Invalid JSON, JSON
that is no call, and a call that never ends are `Garbled`. When the model goes on to write a result
of its own call, or the user's next turn, it imagines them: the answer ends there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from cursor_gateway.core.call_block import CLOSING, ENDLESS, FENCE, Asked, CallBlock, Garbled
from cursor_gateway.core.text_lines import TextLines

INSTRUCTION = """\
To call a tool, write this, with nothing else on its lines:

<tool_call>
{"name": "the tool's name", "arguments": {"parameter": "value"}}
</tool_call>

The text between the tags is one JSON object; `arguments` fits the tool's schema. The opening tag \
begins a line and stands in no code block: what stands in a sentence or in a code block is only \
quoted, and not executed. You may say something first, and you may make several calls one after \
the other. Then end your turn: the results come with the next one. Never write a result yourself."""

OPENING = "<tool_call"
_IMAGINED = ("<tool_result", "<turn from=")
_TAGS = (OPENING, *_IMAGINED)
# Room for the attributes that a model may copy into the tag, and for what it puts before the JSON.
_MAX_TAG = 200
_MAX_LEAD = 2 * _MAX_TAG
# Longer texts are read in pieces, since the rest of a piece is copied at each tag.
_MAX_PIECE = 8192
_TAG_SO_FAR = re.compile(OPENING + r'(?: +\w+="[^"\n]*")*(?: +\w*(?:="?[^"\n>]*)?)? *>?')
_LEAD = re.compile(r"\s*(?:```\w*\s*)?")
_BRACKETS = re.compile(r'["\\{}\[\]<]')
# White space behind the JSON, and a bracket or a comma too many.
_STRAY = re.compile(r"[\s}\],]*")
_IN_CODE = "it stands in a code block."
_NOT_ALONE = "it does not stand alone on its lines."


def unreadable(problems: Iterable[str], count: int, *, quotes: bool = False) -> str:
    """The message to a model about calls that could not be read."""
    what = "That call was" if count == 1 else f"Those {count} calls were"
    again = "it" if count == 1 else "all of them"
    words = f"{what} not made: {' '.join(dict.fromkeys(problems))} Make {again} again."
    return f"{words} If you have only quoted it, say so in one word." if quotes else words


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """Text that looks like a call, but stands where calls are not made."""

    raw: str
    problem: str


@dataclass(frozen=True, slots=True)
class Imagined:
    """The model began to answer its own call."""


Piece = Said | Asked | Garbled | Quoted | Imagined


class _State(Enum):
    TEXT = auto()
    TAG = auto()
    BODY = auto()
    AFTER = auto()
    CLOSING = auto()
    GAP = auto()
    OVER = auto()


class ToolTextParser:
    def __init__(self) -> None:
        self._state = _State.TEXT
        # Text that was read but not returned yet: an end that may become a tag, or the tag itself.
        self._held = ""
        self._lines = TextLines()
        self._block = CallBlock("", "", "")
        self._depth = 0
        self._in_string = False
        self._escaped = False
        # Whether a call was made: a result that follows is imagined.
        self._called = False
        self._just_quoted = False
        self._has_next_line = False
        self._steps = {
            _State.TEXT: self._text,
            _State.TAG: self._tag,
            _State.BODY: self._in_body,
            _State.AFTER: self._after,
            _State.CLOSING: self._closing,
            _State.GAP: self._gap,
            _State.OVER: self._over,
        }

    def feed(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        if self._state is _State.TEXT and not self._held and "<" not in text:
            # Nearly all deltas take this path: no tag begins in them.
            self._say(text, pieces)
            return pieces
        for at in range(0, len(text), _MAX_PIECE):
            rest = self._held + text[at : at + _MAX_PIECE]
            self._held = ""
            while rest:
                rest = self._steps[self._state](rest, pieces)
        return pieces

    def begin_line(self) -> None:
        """The next text begins a new line, though no line break shows it."""
        if self._state is _State.TEXT and not self._held:
            self._lines.begin_line()

    def close(self) -> list[Piece]:
        """The stream ended: what was held back is text, an unfinished call is garbled."""
        pieces: list[Piece] = []
        state, self._state = self._state, _State.TEXT
        held, self._held = self._held, ""
        if state is _State.TAG and held and not self._block.problem:
            pieces.append(Garbled(held, ENDLESS))
        elif state in (_State.TEXT, _State.TAG):
            self._say(held, pieces)
        elif state is _State.BODY:
            self._end_body(held)
            self._settle(pieces, is_whole=False)
        elif state is _State.GAP and held:
            self._settle_quoted(pieces)
            self._say(held, pieces)
        elif state is not _State.OVER and self._block.bodies:
            self._block.source.append(held)
            self._settle(pieces)
        return pieces

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if text:
            pieces.append(Said(text))
            self._lines.feed(text)
            self._just_quoted = self._just_quoted and text.isspace()

    def _text(self, text: str, pieces: list[Piece]) -> str:
        may_imagine = self._called or self._just_quoted
        at, tag = _first_tag(text, _TAGS if may_imagine else (OPENING,))
        if tag is None:
            safe = len(text) - _overlap(text)
            self._say(text[:safe], pieces)
            self._held = text[safe:]
            return ""
        self._say(text[:at], pieces)
        if tag != OPENING:
            if self._called or self._just_quoted:
                pieces.append(Imagined())
                self._state = _State.OVER
                return ""
            self._say(tag, pieces)
            return text[at + len(tag) :]
        self._state = _State.TAG
        at_beginning = self._lines.at_beginning
        problem = _IN_CODE if self._lines.in_code else "" if at_beginning else _NOT_ALONE
        self._block = CallBlock("", "", problem)
        return text[at:]

    def _tag(self, text: str, pieces: list[Piece]) -> str:
        """`text` begins with the tag; what follows it decides whether it is a call."""
        end = text.find(">", 0, _MAX_TAG) + 1
        head = text[: end or _MAX_TAG]
        if _may_be_tag(head) and (end or len(text) < _MAX_TAG):
            # Models put their JSON into a code block even between the tags.
            lead = _LEAD.match(text, end, _MAX_LEAD) if end else None
            begins = lead.end() if lead else len(text)
            if begins < _MAX_LEAD and text[begins : begins + 1] in ("{", "["):
                self._state = _State.BODY
                self._block = CallBlock(head, text[:begins], self._block.problem)
                return text[begins:]
            if text[begins:] in ("", "`", "``") and len(text) < _MAX_LEAD:
                self._held = text
                return ""
        self._state = _State.TEXT
        self._say(text[: len(OPENING)], pieces)
        return text[len(OPENING) :]

    def _in_body(self, text: str, pieces: list[Piece]) -> str:
        end, is_end = self._scan(text)
        self._block.body.append(text[:end])
        if not is_end:
            self._held = text[end:]
            return ""
        self._end_body()
        self._state = _State.AFTER
        return text[end:]

    def _scan(self, text: str) -> tuple[int, bool]:
        """How much of `text` belongs to the JSON, and whether the JSON ends there. A closing tag
        outside of a string ends it, too; what may become such a tag is read again with the next
        text."""
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
            elif CLOSING.startswith(tag := text[at : at + len(CLOSING)]):
                return at, tag == CLOSING
        self._escaped = skip > len(text)
        return len(text), False

    def _end_body(self, held: str = "") -> None:
        self._block.end_body(held)
        self._depth = 0
        self._in_string = self._escaped = False

    def _after(self, text: str, pieces: list[Piece]) -> str:
        stray = _STRAY.match(text)[0]  # type: ignore[index]
        self._block.pass_by(stray)
        rest = text[len(stray) :]
        if rest.startswith("{"):
            self._state = _State.BODY
            return rest
        if rest.startswith(CLOSING):
            self._state = _State.CLOSING
            self._block.source.append(CLOSING)
            return rest.removeprefix(CLOSING)
        if rest.startswith(FENCE) and self._block.is_fenced:
            self._block.source.append(FENCE)
            return rest.removeprefix(FENCE)
        if CLOSING.startswith(rest) or (self._block.is_fenced and FENCE.startswith(rest)):
            self._held = rest
            return ""
        self._end_block(pieces)
        return rest

    def _closing(self, text: str, pieces: list[Piece]) -> str:
        rest = text.lstrip(" \t")
        self._block.source.append(text[: len(text) - len(rest)])
        if rest:
            self._block.source.append(">" if rest.startswith(">") else "")
            self._end_block(pieces)
        return rest.removeprefix(">")

    def _end_block(self, pieces: list[Piece]) -> None:
        self._state = _State.GAP
        if self._block.problem:
            self._settle(pieces)
            self._state = _State.TEXT

    def _gap(self, text: str, pieces: list[Piece]) -> str:
        rest = text.lstrip()
        blank = text[: len(text) - len(rest)]
        if self._block.bodies:
            self._block.pass_by(blank)
            if self._block.is_line_over or rest.startswith(_TAGS):
                self._settle(pieces)
            elif rest and any(tag.startswith(rest) for tag in _TAGS):
                self._held = rest
                return ""
            elif rest:
                self._settle_quoted(pieces)
        self._pass_gap(blank)
        if rest:
            self._state = _State.TEXT
        return rest

    def _pass_gap(self, blank: str) -> None:
        """White space after a call is dropped, but it may indent the next line."""
        _, newline, indent = blank.rpartition("\n")
        if newline:
            self._lines.begin_line()
            self._has_next_line = True
        if self._has_next_line:
            self._lines.feed(indent)

    def _over(self, text: str, pieces: list[Piece]) -> str:
        return ""

    def _settle(self, pieces: list[Piece], *, is_whole: bool = True) -> None:
        """The block is complete: it holds calls, or quotes some."""
        block = self._block
        if block.problem:
            self._settle_quoted(pieces)
            return
        read = list(block.calls(is_whole))
        pieces += read
        self._called = self._called or any(isinstance(piece, Asked) for piece in read)
        self._block = CallBlock("", "", "")
        self._lines.begin_line()
        self._has_next_line = False

    def _settle_quoted(self, pieces: list[Piece]) -> None:
        quoted = "".join(self._block.source)
        pieces.append(Quoted(quoted, self._block.problem or _NOT_ALONE))
        self._block = CallBlock("", "", "")
        self._lines.feed(quoted)
        self._just_quoted = True


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
