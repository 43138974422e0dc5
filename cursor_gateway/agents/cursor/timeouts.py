"""Timeouts: how long the CLI is read before its silence means something."""

from __future__ import annotations

import asyncio
import math

from cursor_gateway.agents.cursor.stream import AgentStream
from cursor_gateway.agents.time_limits import Silence, TimeLimits
from cursor_gateway.processes.child import Child, NoOutput
from cursor_gateway.settings import Settings

# After the turn's closing repetition `result` follows at once. Where a background shell keeps the
# CLI from sending it (2026.08.25), it never comes, and the client waits for no more than the end.
END_OF_TURN_GRACE = 5.0


class NoResult(Exception):
    """The turn has ended, its text is whole, and no `result` follows."""


class Timeouts:
    """The time limits of one answer, and the end of a turn without a `result`."""

    def __init__(self, settings: Settings, *, heard: bool = False) -> None:
        self._limits = TimeLimits(settings, heard=heard)
        self._loop = asyncio.get_running_loop()
        # When the turn's closing repetition is old enough. Notices that follow it change nothing.
        self._result_due = math.inf

    async def read(
        self, child: Child, stream: AgentStream, moment: float | None = None
    ) -> bytes | NoOutput:
        """What the agent writes next. Raises Silence when there is nothing for a `moment`, if one
        is named."""
        self._note_end_of_turn(stream)
        now = self._loop.time()
        if now > self._limits.end and not child.exited.done():
            raise NoResult if stream.turn_ended else self._limits.too_long
        data = child.read_now()
        if data is None:
            # Only now: a client that reads slowly may have kept us from a `result` that is there.
            if now >= self._result_due:
                raise NoResult
            data = await self._wait(child, stream, moment)
        self._limits.heard = True
        return data

    async def _wait(
        self, child: Child, stream: AgentStream, moment: float | None
    ) -> bytes | NoOutput:
        limit = self._limits.next(tool_is_running=stream.tool_is_running)
        quiet = math.inf if moment is None else self._loop.time() + moment
        try:
            return await child.read(min(limit.until, quiet, self._result_due))
        except TimeoutError:
            if self._loop.time() >= self._result_due:
                raise NoResult from None
            if quiet <= self._limits.end:
                raise Silence from None
            raise limit.error from None

    def _note_end_of_turn(self, stream: AgentStream) -> None:
        if not stream.turn_ended:
            self._result_due = math.inf
        elif self._result_due == math.inf:
            self._result_due = min(self._loop.time() + END_OF_TURN_GRACE, self._limits.end)
