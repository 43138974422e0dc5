"""Two alphabets: what an agent does (`AgentEvent`), and what a client is answered (`AnswerEvent`).

A run of an agent is read as the first, by `Turn`; every dialect renders the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from cursor_gateway.core.conversation import ToolCall
from cursor_gateway.core.loop_guard import Loop

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(slots=True)
class TextDelta:
    text: str


@dataclass(slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class AgentCall:
    """The agent begins one of its own tools. `model_call` is the same for calls made at once."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    description: str = ""
    model_call: str = ""
    # Where the agent works, as it says itself: its paths may lie below.
    workspace: str = ""
    # The same call as one of the client's tools, by name and arguments, where the client has it.
    as_client_call: tuple[str, dict[str, Any]] | None = None

    @property
    def subject(self) -> str:
        """A few words on what it is about, for people."""
        words = (value for value in self.arguments.values() if isinstance(value, str) and value)
        return next(words, "").split("\n")[0][:120]


@dataclass(frozen=True, slots=True)
class AgentCallDone:
    """One of the agent's own tools came back."""

    tool: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any]
    # That of its `AgentCall`.
    id: str = ""


@dataclass(frozen=True, slots=True)
class Aside:
    """The agent did something that only parts its words: it looked up its tools, or one of the
    client's came back to it."""


@dataclass(frozen=True, slots=True)
class ClientCall:
    """The agent calls one of the client's tools, and waits for the result."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a whole answer. `input` counts everything the model read, cached or not."""

    input: int
    output: int
    cached: int = 0
    estimated: bool = False
    # How much of `output` nobody was shown; None where the agent does not tell.
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.estimated or other.estimated,
            _sum(self.reasoning, other.reasoning),
        )

    def beyond(self, reported: Usage) -> Usage | None:
        """What is left of this sum after `reported`; None where more was reported than this."""
        if self.input < reported.input or self.output < reported.output:
            return None
        return Usage(
            self.input - reported.input,
            self.output - reported.output,
            max(0, self.cached - reported.cached),
            self.estimated or reported.estimated,
            None if self.reasoning is None else max(0, self.reasoning - (reported.reasoning or 0)),
        )


def _sum(one: int | None, other: int | None) -> int | None:
    """Of what is known."""
    return None if one is None and other is None else (one or 0) + (other or 0)


ZERO_USAGE = Usage(0, 0)


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The agent has said all that it had to say. `usage` is that of its whole run, if it tells."""

    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every complete answer. An answer without it is a failure."""

    reason: FinishReason
    usage: Usage | None
    loop: Loop | None = None
    # The client's own stop sequence that ended the answer.
    stop_sequence: str | None = None

    @property
    def extension(self) -> dict[str, Any]:
        """What no dialect's own shape has a place for."""
        return {"cursor_gateway": {"loop_guard": self.loop.as_json()}} if self.loop else {}


class Quiet(Enum):
    """What is read of a run that did nothing for a moment."""

    SILENCE = "silence"


SILENCE: Final = Quiet.SILENCE

AgentEvent = (
    TextDelta | ThinkingDelta | AgentCall | AgentCallDone | Aside | ClientCall | RunFinished
)
AnswerEvent = TextDelta | ThinkingDelta | ToolCall | AgentCall | Finished
