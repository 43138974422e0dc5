"""UsageMeter: the tokens of one answer, counted by the agent where it does, else estimated."""

from __future__ import annotations

from cursor_gateway.core.conversation import Conversation
from cursor_gateway.core.events import ZERO_USAGE, Usage
from cursor_gateway.core.limits import estimate_tokens, size_of


class UsageMeter:
    def __init__(self) -> None:
        # Of the runs before the present one.
        self._earlier = ZERO_USAGE

    def begin(self, asked: Conversation, told: Usage) -> None:
        """A run starts, or goes on whose earlier answers `told` the client of that much."""
        self._asked = asked
        self._told = told
        self._made = 0

    def say(self, text: str) -> None:
        self._made += size_of(text)

    def end_run(self, usage: Usage | None) -> None:
        self._earlier += self._of_run(usage)

    def total(self, usage: Usage | None) -> Usage:
        return self._earlier + self._of_run(usage)

    def _of_run(self, usage: Usage | None) -> Usage:
        # The agent counts its whole run, of which earlier answers have told their part.
        if usage is not None and (rest := usage.beyond(self._told)):
            return rest
        given = sum(map(size_of, self._asked.texts()))
        return Usage(estimate_tokens(given), estimate_tokens(self._made), estimated=True)
