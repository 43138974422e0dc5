"""What is answered: the one vocabulary that every dialect renders from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(slots=True)
class TextDelta:
    text: str


@dataclass(slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class Activity:
    """The agent began one of its own tools. Nobody has to answer it; it is a sign of life."""

    tool: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a whole answer. `input` counts everything the model read, cached or not."""

    input: int
    output: int
    cached: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every complete answer. An answer without it is a failure."""

    reason: FinishReason
    usage: Usage | None


Event = TextDelta | ThinkingDelta | Activity | Finished
