"""WarmAgents: agents that are started before anybody asks, with their stdin open.

The CLI takes seconds to start. A spare has that behind it when the request comes, or a part of it,
and only reads its prompt. It can serve exactly one *kind* of request: everything on its command
line and in its workspace is fixed. So there are few, each for what is likely to come next; they
expire, and a request that finds none, or one that is dead, starts an agent as if there were no
spares. Once it has its prompt it is the agent of that run, like any other.

Where a version of the CLI boots only when its stdin has ended, spares are of no use and none are
made (`start_times.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from cursor_gateway.agents.cursor.chats import Chat
from cursor_gateway.agents.cursor.run import RunSpec, Starts
from cursor_gateway.agents.cursor.start_times import StartTimes
from cursor_gateway.background import in_background
from cursor_gateway.errors import GatewayError
from cursor_gateway.processes.child import Child
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.workspaces import Workspace

log = logging.getLogger(__name__)

LIFETIME = 300.0
# One that dies sooner will do it again.
WORTH_REPLACING_AFTER = 10.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where an agent works, the line by which it calls tools, and its process if it has one."""

    workspace: Workspace
    line: RelaySession | None
    child: Child | None = None
    # When that was started, if it was started ahead.
    born: float = 0.0


@dataclass(frozen=True, slots=True)
class _WarmAgent:
    order: RunSpec
    place: Prepared
    timer: asyncio.TimerHandle

    @property
    def child(self) -> Child:
        assert self.place.child is not None
        return self.place.child


@dataclass(frozen=True, slots=True)
class _Coming:
    order: RunSpec
    task: asyncio.Task[None]


class WarmAgents:
    def __init__(
        self,
        most: int,
        starts: Starts,
        launch: Callable[[RunSpec], Prepared],
        discard: Callable[[RunSpec, Prepared], asyncio.Future[None] | None],
        times: StartTimes,
    ) -> None:
        self._most = most
        self._starts = starts
        self._times = times
        self._launch = launch
        self._discard = discard
        self._ready: dict[Hashable, _WarmAgent] = {}
        self._coming: dict[Hashable, _Coming] = {}
        self._used = 0

    def want(self, order: RunSpec) -> None:
        """Have an agent ready for the next request of this kind, soon and in the background."""
        if not self._times.warm_helps:
            self.close()
        elif self._most and not self._times.cold_is_wanted and not self._is_there(order.kind):
            task = in_background(self._prepare(order), "starting an agent ahead")
            self._coming[order.kind] = _Coming(order, task)

    def _is_there(self, kind: Hashable) -> bool:
        return kind in self._ready or kind in self._coming

    def take(self, order: RunSpec) -> Prepared | None:
        """A spare for `order`, if there is one that lives, in a directory that is as it was. None
        is left behind in its chat."""
        self._give_up(order.kind)
        spare = self._take_out(order.kind)
        if spare is None:
            if order.chat is not None:
                self.leave(order.chat)
            return None
        # What it may not do stands in its directory. Where that is gone, nobody may work.
        if spare.child.exited.done() or not spare.place.workspace.is_as_left():
            self._discard(spare.order, spare.place)
            return None
        self._used += 1
        return spare.place

    def leave(self, chat: Chat) -> None:
        """Nobody may be in this chat any more, nor come into it."""
        orders = [spare.order for spare in self._ready.values()]
        orders += [coming.order for coming in self._coming.values()]
        for order in orders:
            if order.chat is chat:
                self._end(order.kind)

    def give_way(self) -> asyncio.Future[None] | None:
        """End the oldest; what it returns is done when that has ended. None if there is none."""
        spare = self._take_out(next(iter(self._ready), None))
        return self._discard(spare.order, spare.place) if spare else None

    def close(self) -> None:
        for kind in [*self._ready, *self._coming]:
            self._end(kind)

    def state(self) -> dict[str, Any]:
        state, reason = self._times.reason() if self._most else ("off", "the setting `warm` is 0")
        return {
            "most": self._most,
            "spares": len(self._ready),
            "used": self._used,
            **self._times.state(),
            "state": state,
            "reason": reason,
        }

    async def _prepare(self, order: RunSpec) -> None:
        if order.chat is not None:
            await order.chat.until_left()
        await self._starts.wait()
        del self._coming[order.kind]
        try:
            place = self._launch(order)
        except (GatewayError, OSError) as error:
            log.debug("no spare: %s", error)
            return
        while len(self._ready) >= self._most:
            self._end(next(iter(self._ready)))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(LIFETIME, self._end, order.kind)
        spare = self._ready[order.kind] = _WarmAgent(order, place, timer)
        spare.child.exited.add_done_callback(lambda _: self._died(spare))

    def _died(self, spare: _WarmAgent) -> None:
        if self._ready.get(spare.order.kind) is not spare:
            return
        self._end(spare.order.kind)
        lived = asyncio.get_running_loop().time() - spare.place.born
        if lived >= WORTH_REPLACING_AFTER and spare.order.chat is None:
            self.want(spare.order)

    def _take_out(self, kind: Hashable) -> _WarmAgent | None:
        spare = self._ready.pop(kind, None)
        if spare is not None:
            spare.timer.cancel()
        return spare

    def _give_up(self, kind: Hashable) -> None:
        if coming := self._coming.pop(kind, None):
            coming.task.cancel()

    def _end(self, kind: Hashable) -> None:
        self._give_up(kind)
        if spare := self._take_out(kind):
            self._discard(spare.order, spare.place)
