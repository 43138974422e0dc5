"""What `Turn` is made of: the rules of all runs, and what belongs to one run of the agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from cursor_gateway.core.burst import Burst
from cursor_gateway.core.conversation import Conversation, ToolCall, ToolResult, ToolSpec
from cursor_gateway.core.events import AgentEvent, Usage
from cursor_gateway.core.limits import OutputLimits
from cursor_gateway.core.loop_guard import Loop, LoopGuard
from cursor_gateway.core.tools import fit
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
    """Made new with each run of the agent."""

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


@dataclass(frozen=True)
class TurnRules:
    """What the conversation and the settings ask of every run of the turn."""

    conversation: Conversation
    max_repeat: int
    new_id: Callable[[], str]
    show_activity: bool

    @cached_property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(self.conversation.callable_tools)

    @cached_property
    def bridged(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.conversation.tools if tool.bridged)

    @cached_property
    def must_call(self) -> bool:
        """Ours do not count: the client waits for a call."""
        is_required = self.conversation.tool_choice.kind == "required"
        return is_required and not all(tool.bridged for tool in self.tools)

    @cached_property
    def fit(self) -> Callable[..., tuple[dict[str, Any], str]]:
        """A client that names the tool wants its arguments as they are, and no repaired ones."""
        return partial(fit, exactly=self.conversation.tool_choice.name is not None)

    def new_run(self) -> TurnRun:
        # The model knows the form of a call wherever there are tools. It may use it though it may
        # not call.
        reads_calls = bool(self.conversation.tools)
        written = WrittenCalls(self.tools, self.fit, reads_calls=reads_calls)
        return TurnRun(LoopGuard(self.max_repeat), written)

    def new_limits(self) -> OutputLimits:
        return OutputLimits(self.conversation.stop, self.conversation.max_tokens)
