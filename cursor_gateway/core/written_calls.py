"""WrittenCalls: what a model writes in one run, with the calls taken out and read.

Calls are held until the run ends: if one cannot be read, the model makes all of them again.

A quoted call is text. But a model may put a call into the wrong place, and then end its turn to
wait for the result. So a quotation is held until text follows. If nothing follows but other
quotations, ends of code blocks and calls, it was meant as a call, which was not made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cursor_gateway.core.call_block import Asked, Garbled
from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.tool_text import Imagined, Piece, Quoted, Said, ToolTextParser, unreadable
from cursor_gateway.core.tools import find

# What may follow a quotation without being text: white space and fences of code blocks. The second
# one also matches what may become that.
_SILENCE = re.compile(r"\s*+(?:(?:```|~~~)\w*+\s*+)*+")
_SILENCE_SO_FAR = re.compile(r"\s*+(?:(?:```|~~~)\w*+\s*+)*+(?:``?|~~?)?+")
_LONGEST_SILENCE = 200

Fit = Callable[[ToolSpec, Mapping[str, Any]], tuple[dict[str, Any], str]]


@dataclass(frozen=True, slots=True)
class Unmade:
    """Texts that were written as calls, or like calls, but could not be made."""

    pieces: tuple[Garbled | Quoted, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pieces)

    @property
    def as_written(self) -> str:
        return "\n".join(each.raw for each in self.pieces)

    @property
    def is_quotation(self) -> bool:
        """Whether all of it is quoted. If the model calls nothing when it is asked about it, it is
        a part of the answer."""
        return bool(self) and all(isinstance(each, Quoted) for each in self.pieces)


@dataclass(frozen=True, slots=True)
class Written:
    name: str
    arguments: dict[str, Any]
    raw: str


class WrittenCalls:
    def __init__(self, tools: Sequence[ToolSpec], fit: Fit, *, reads_calls: bool) -> None:
        self._tools = tools
        self._fit = fit
        self._parser = ToolTextParser() if reads_calls else None
        self.calls: list[Written] = []
        self.garbled: list[Garbled] = []
        # Quotations that no text has followed yet, and the white space and fences after them.
        self._quoted: list[Quoted] = []
        self._silence = ""

    def feed(self, text: str) -> Iterator[Said | Written | Imagined]:
        if self._parser is None:
            yield Said(text)
        else:
            yield from self._read(self._parser.feed(text))

    def close(self) -> Iterator[Said | Written | Imagined]:
        if self._parser is not None:
            yield from self._read(self._parser.close())
            if not _SILENCE.fullmatch(self._silence):
                yield from self._let_go("")

    def begin_line(self) -> None:
        """The agent acted, so its next text begins a new line."""
        if self._parser is not None:
            self._parser.begin_line()

    @property
    def unmade(self) -> Unmade:
        if not self._quoted:
            return Unmade(tuple(self.garbled))
        *others, last = self._quoted
        return Unmade((*self.garbled, *others, Quoted(last.raw + self._silence, last.problem)))

    def take(self) -> list[Written]:
        calls, self.calls = self.calls, []
        return calls

    def correction(self) -> tuple[str, str]:
        """What the model wrote, and the correction that it gets."""
        unmade = self.unmade.pieces
        said = [*(call.raw for call in self.calls), *(each.raw for each in unmade)]
        problems = [each.problem for each in unmade]
        return "\n".join(said), unreadable(problems, len(said), quotes=bool(self._quoted))

    def _read(self, pieces: Sequence[Piece]) -> Iterator[Said | Written | Imagined]:
        for piece in pieces:
            if isinstance(piece, Imagined):
                yield piece
            elif isinstance(piece, Said):
                yield from self._said(piece)
            elif isinstance(piece, Quoted):
                yield from self._quote(piece)
            elif self._tools:
                call = self._checked(piece) if isinstance(piece, Asked) else piece
                if isinstance(call, Garbled):
                    self.garbled.append(call)
                else:
                    self.calls.append(call)
                    yield call

    def _said(self, said: Said) -> Iterator[Said]:
        if not self._quoted:
            yield said
            return
        silence = self._silence + said.text
        if len(silence) <= _LONGEST_SILENCE and _SILENCE_SO_FAR.fullmatch(silence):
            self._silence = silence
        else:
            yield from self._let_go(said.text)

    def _quote(self, quoted: Quoted) -> Iterator[Said]:
        if not self._tools:
            yield Said(quoted.raw)
            return
        if self._quoted:
            last = self._quoted.pop()
            self._quoted.append(Quoted(last.raw + self._silence, last.problem))
        self._quoted.append(quoted)
        self._silence = ""

    def _let_go(self, text: str) -> Iterator[Said]:
        """Text follows the quotations, so they are text, too."""
        quoted = "".join(each.raw for each in self._quoted)
        yield Said(f"{quoted}{self._silence}{text}")
        self._quoted, self._silence = [], ""

    def _checked(self, asked: Asked) -> Written | Garbled:
        tool = find(asked.name, self._tools)
        if tool is None:
            return Garbled(asked.raw, f"there is no tool {asked.name!r}.")
        arguments, problem = self._fit(tool, asked.arguments)
        if problem:
            return Garbled(asked.raw, f"the arguments of {tool.name}: {problem}")
        return Written(tool.name, arguments, asked.raw)
