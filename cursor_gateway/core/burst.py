"""Burst: the calls that a model makes at once, which reach the gateway one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cursor_gateway.core.events import (
    AgentCall,
    AgentEvent,
    RunFinished,
    TextDelta,
    ThinkingDelta,
)


@dataclass(frozen=True, slots=True)
class Announced:
    name: str
    arguments: dict[str, Any]
    # The id of the call at the relay.
    relayed: str = ""


class Burst:
    def __init__(self) -> None:
        self._calls: list[Announced] = []
        self._model_call = ""
        # How many of the agent's own calls have no result yet.
        self._unanswered = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: Announced, model_call: str = "") -> None:
        self._calls.append(call)
        self._model_call = model_call or self._model_call

    def agent_calls(self) -> None:
        self._unanswered += 1

    def agent_call_is_done(self) -> None:
        self._unanswered -= 1

    def ends_with(self, event: AgentEvent) -> bool:
        match event:
            case ThinkingDelta():
                # A model may think between calls that it makes at once. A thought after the results
                # of all calls belongs to the next model call.
                return bool(self._calls) and self._unanswered <= 0
            case AgentCall(model_call=model_call):
                # Calls of one model call are made at once. A call of another model call belongs to
                # the burst as long as a result is missing: a model goes on when it has them all.
                is_another = model_call != self._model_call and self._unanswered <= 0
                return bool(self._calls) and is_another
            case _:
                return bool(self._calls) and isinstance(event, TextDelta | RunFinished)

    def take(self) -> list[Announced]:
        calls, self._calls = self._calls, []
        return calls
