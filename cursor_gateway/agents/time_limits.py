"""TimeLimits: how long an agent may be silent, and what is said of one that stays so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cursor_gateway.errors import AgentTimedOut
from cursor_gateway.settings import Settings

# A tool of the agent's own may build or search for minutes without a word.
TOOL_PATIENCE = 4
# Between the calls that a model makes at once there is no thinking, only writing of lines.
MOMENT = 0.25


_NO_FIRST_WORD = "said nothing for {:g} seconds (first_event_timeout)"
_SILENT = "was silent for {:g} seconds (idle_timeout)"
_TOO_LONG = "did not finish within {:g} seconds (total_timeout)"


class Silence(Exception):
    """The agent said nothing for a moment."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What an agent may take now, and what is said of one that takes longer."""

    # By the event loop's clock.
    until: float
    complaint: str
    seconds: float

    @property
    def error(self) -> AgentTimedOut:
        """Made only where it is needed: an answer is read in many pieces."""
        return AgentTimedOut(f"Cursor's agent {self.complaint.format(self.seconds)}.")


class TimeLimits:
    """The three time-outs of one answer, each named in its error."""

    def __init__(self, settings: Settings, *, heard: bool = False) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        # When the whole answer must have ended.
        self.end = self._loop.time() + settings.total_timeout
        # Whether the agent has said anything yet.
        self.heard = heard

    @property
    def too_long(self) -> AgentTimedOut:
        return self._whole.error

    def next(self, *, tool_is_running: bool) -> Limit:
        """Until when the agent must say something."""
        first, idle = self._settings.first_event_timeout, self._settings.idle_timeout
        complaint, seconds = _NO_FIRST_WORD, first
        if self.heard:
            complaint, seconds = _SILENT, idle * (TOOL_PATIENCE if tool_is_running else 1)
        until = self._loop.time() + seconds
        return Limit(until, complaint, seconds) if until <= self.end else self._whole

    @property
    def _whole(self) -> Limit:
        return Limit(self.end, _TOO_LONG, self._settings.total_timeout)
