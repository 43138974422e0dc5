"""WrittenCalls: what a model writes in one run, with the calls taken out and read.

Calls are kept until the run ends, so that one that cannot be read is mended together with the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.tool_text import Asked, Garbled, Imagined, Said, ToolTextParser, unreadable
from cursor_gateway.core.tools import find

Fit = Callable[[ToolSpec, Mapping[str, Any]], tuple[dict[str, Any], str]]


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

    def feed(self, text: str) -> Iterator[Said | Written | Imagined]:
        if self._parser is None:
            yield Said(text)
        else:
            yield from self._read(self._parser.feed(text))

    def close(self) -> Iterator[Said | Written | Imagined]:
        if self._parser is not None:
            yield from self._read(self._parser.close())

    def take(self) -> list[Written]:
        calls, self.calls = self.calls, []
        return calls

    def correction(self) -> tuple[str, str]:
        """What the model wrote, and what it is told about it."""
        said = [*(call.raw for call in self.calls), *(garbled.raw for garbled in self.garbled)]
        problems = [garbled.problem for garbled in self.garbled]
        return "\n".join(said), unreadable(problems, len(said))

    def _read(
        self, pieces: Sequence[Said | Asked | Garbled | Imagined]
    ) -> Iterator[Said | Written | Imagined]:
        for piece in pieces:
            if isinstance(piece, Said | Imagined):
                yield piece
            elif self._tools:
                call = self._understood(piece) if isinstance(piece, Asked) else piece
                if isinstance(call, Garbled):
                    self.garbled.append(call)
                else:
                    self.calls.append(call)
                    yield call

    def _understood(self, asked: Asked) -> Written | Garbled:
        tool = find(asked.name, self._tools)
        if tool is None:
            return Garbled(asked.raw, f"there is no tool {asked.name!r}.")
        arguments, problem = self._fit(tool, asked.arguments)
        if problem:
            return Garbled(asked.raw, f"the arguments of {tool.name}: {problem}")
        return Written(tool.name, arguments, asked.raw)
