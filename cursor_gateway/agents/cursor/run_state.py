"""What a run is made of: its state, where it works, one process of it, and one answer of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from cursor_gateway.agents.cursor.stream import AgentStream
from cursor_gateway.agents.cursor.timeouts import Timeouts
from cursor_gateway.processes.child import Child
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.workspaces import Workspace


class RunState(Enum):
    # Nobody has read it: it has no process, or a warm one that has no prompt.
    NEW = "new"
    # It works on an answer.
    WORKING = "working"
    # It waits for results that the client's next request brings.
    PARKED = "parked"
    # It was stopped, or has finished and was let go.
    ENDED = "ended"


NEXT_STATES = {
    RunState.NEW: {RunState.WORKING, RunState.ENDED},
    RunState.WORKING: {RunState.PARKED, RunState.ENDED},
    RunState.PARKED: {RunState.WORKING, RunState.ENDED},
    RunState.ENDED: set[RunState](),
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where a run works, the relay's session by which it calls tools, and its process if it is
    warm: started before anybody asked."""

    workspace: Workspace
    session: RelaySession | None
    child: Child | None = None
    # When that was started.
    born: float = 0.0


@dataclass(slots=True)
class Attempt:
    """One process, and what it writes."""

    child: Child | None = None
    is_warm: bool = False
    stream: AgentStream = field(default_factory=AgentStream)
    # When it got its prompt; None once its output has begun.
    prompted_at: float | None = None

    def began_with(self, child: Child, *, is_warm: bool, now: float) -> None:
        self.child, self.is_warm, self.prompted_at = child, is_warm, now


@dataclass(slots=True)
class AnswerState:
    """What the run does for one request."""

    timeouts: Timeouts
    # Whether the client came back with results for it.
    is_continued: bool = False
    has_spoken: bool = False
    # Since when its first words are held back.
    held_since: float | None = None
