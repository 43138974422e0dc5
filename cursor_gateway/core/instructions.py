"""What `Turn` has the gateway do next, one instruction at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cursor_gateway.core.conversation import Message, ToolCall, ToolResult
from cursor_gateway.core.events import AgentEvent, AnswerEvent, Usage


@dataclass(frozen=True, slots=True)
class Read:
    """Read the run, and feed the turn. While a burst of calls is open, silence ends it."""

    burst_open: bool


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give the client these events; more follow."""

    events: list[AnswerEvent]


@dataclass(frozen=True, slots=True)
class Reply:
    """Give the run these results: they answer calls that the client never sees."""

    results: Sequence[ToolResult]


@dataclass(frozen=True, slots=True)
class RunTools:
    """Execute these calls of bridged tools, then tell the turn what came of them (`executed`)."""

    calls: tuple[ToolCall, ...]
    # The client's calls that the model made together with them, by their ids.
    beside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Have another run read these messages after the client's, and begin the turn with it."""

    messages: tuple[Message, ...]
    # Whether the run before it has finished by itself, so that its chat may be resumed.
    run_finished: bool


# What the run is doing when the answer is over: it waits for the results of all calls that the
# client was given, it has finished and everything that it said was read, or neither.
RunIs = Literal["waiting", "finished", "unfinished"]


@dataclass(frozen=True, slots=True)
class Done:
    """The answer ends with these events, of which the last one is `Finished`."""

    events: list[AnswerEvent]
    run_is: RunIs
    usage: Usage
    # What was read of the run and belongs to its next answer.
    unread: list[AgentEvent]


Instruction = Read | Deliver | Reply | RunTools | AskAgain | Done
