"""What belongs to one run of the agent within a turn: made new with each run."""

from __future__ import annotations

from dataclasses import dataclass, field

from cursor_gateway.core.burst import Burst
from cursor_gateway.core.conversation import ToolCall, ToolResult
from cursor_gateway.core.events import AgentEvent, Usage
from cursor_gateway.core.loop_guard import Loop, LoopGuard
from cursor_gateway.core.written_calls import WrittenCalls


@dataclass(frozen=True, slots=True)
class LoopedCall:
    """A call that the loop guard holds back."""

    loop: Loop
    call: ToolCall
    # Whether the agent waits for its result.
    is_waited_for: bool


@dataclass(slots=True)
class TurnRun:
    # Guards the agent's own tools.
    guard: LoopGuard
    written: WrittenCalls
    burst: Burst = field(default_factory=Burst)
    loops: list[LoopedCall] = field(default_factory=list)
    # Text that the client may not get.
    held_text: list[str] = field(default_factory=list)
    # Calls for us to execute.
    bridged: list[ToolCall] = field(default_factory=list)
    # Results that we give ourselves.
    replies: list[ToolResult] = field(default_factory=list)
    unread: list[AgentEvent] = field(default_factory=list)
    has_finished: bool = False
    was_cut: bool = False
    usage: Usage | None = None

    @property
    def are_all_loops_waited_for(self) -> bool:
        return bool(self.loops) and all(looped.is_waited_for for looped in self.loops)
