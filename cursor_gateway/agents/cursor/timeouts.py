"""Timeouts: how long an agent may be silent, and what is said of one that is silent for longer."""

from __future__ import annotations

import asyncio
import math

from cursor_gateway.agents.cursor.stream import AgentStream
from cursor_gateway.errors import AgentTimedOut
from cursor_gateway.processes.child import Child, NoOutput
from cursor_gateway.settings import Settings

# After the turn's closing repetition `result` follows at once. Where a background shell keeps the
# CLI from sending it (2026.08.25), it never comes, and the client waits for no more than the end.
END_OF_TURN_GRACE = 5.0
# A tool of the agent's own may build or search for minutes without a word.
TOOL_PATIENCE = 4
# Between the calls that a model makes at once there is no thinking, only writing of lines.
MOMENT = 0.25

_TOO_LONG = "did not finish within {:g} seconds (total_timeout)"


class Silence(Exception):
    """The agent said nothing for a moment."""


class NoResult(Exception):
    """The turn has ended, its text is whole, and no `result` follows."""


class Timeouts:
    """The three time-outs of one answer, each named in its error."""

    def __init__(self, settings: Settings, *, heard: bool = False) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + settings.total_timeout
        self._heard = heard
        # When the turn's closing repetition is old enough. Notices that follow it change nothing.
        self._result_due = math.inf

    async def read(
        self, child: Child, stream: AgentStream, moment: float | None = None
    ) -> bytes | NoOutput:
        """What the agent writes next. Raises Silence when there is nothing for a `moment`, if one
        is named."""
        self._note_end_of_turn(stream)
        now = self._loop.time()
        if now > self._end and not child.exited.done():
            raise NoResult if stream.turn_ended else _late(_TOO_LONG, self._settings.total_timeout)
        data = child.read_now()
        if data is None:
            # Only now: a client that reads slowly may have kept us from a `result` that is there.
            if now >= self._result_due:
                raise NoResult
            data = await self._wait(child, stream, moment)
        self._heard = True
        return data

    async def _wait(
        self, child: Child, stream: AgentStream, moment: float | None
    ) -> bytes | NoOutput:
        seconds, complaint = self._limit(stream) if moment is None else (moment, "")
        deadline = min(self._loop.time() + seconds, self._result_due)
        if deadline > self._end:
            deadline, seconds, complaint = self._end, self._settings.total_timeout, _TOO_LONG
        try:
            return await child.read(deadline)
        except TimeoutError:
            if self._loop.time() >= self._result_due:
                raise NoResult from None
            if not complaint:
                raise Silence from None
            raise _late(complaint, seconds) from None

    def _note_end_of_turn(self, stream: AgentStream) -> None:
        if not stream.turn_ended:
            self._result_due = math.inf
        elif self._result_due == math.inf:
            self._result_due = min(self._loop.time() + END_OF_TURN_GRACE, self._end)

    def _limit(self, stream: AgentStream) -> tuple[float, str]:
        first, idle = self._settings.first_event_timeout, self._settings.idle_timeout
        if not self._heard:
            return first, "said nothing for {:g} seconds (first_event_timeout)"
        if stream.tool_is_running:
            idle *= TOOL_PATIENCE
        return idle, "was silent for {:g} seconds (idle_timeout)"


def _late(complaint: str, seconds: float) -> AgentTimedOut:
    return AgentTimedOut(f"Cursor's agent {complaint.format(seconds)}.")
