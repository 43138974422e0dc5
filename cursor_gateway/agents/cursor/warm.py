"""WarmAgents: agents that are started before anybody asks, with their stdin open.

The CLI takes seconds to start. A warm agent has that behind it when the request comes, or a part of
it, and only reads its prompt. It can serve exactly one *kind* of request: everything on its command
line and in its workspace is fixed. So there are few, each for what is likely to come next; they
expire, and a request that finds none, or one that is dead, starts an agent as if there were none.
Once it has its prompt it is the agent of that run, like any other.

Where a version of the CLI boots only when its stdin has ended, warm agents are of no use and none
are made (`start_times.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from cursor_gateway.agents import Chat, RunSpec
from cursor_gateway.agents.cursor.chats import StoredChat
from cursor_gateway.agents.cursor.run_state import Prepared
from cursor_gateway.agents.cursor.start_times import StartTimes
from cursor_gateway.agents.cursor.starts import Starts
from cursor_gateway.background import in_background
from cursor_gateway.errors import GatewayError
from cursor_gateway.processes.child import Child

log = logging.getLogger(__name__)

LIFETIME = 300.0
# One that dies sooner will do it again.
WORTH_REPLACING_AFTER = 10.0


@dataclass(frozen=True, slots=True)
class _WarmAgent:
    spec: RunSpec
    prepared: Prepared
    timer: asyncio.TimerHandle

    @property
    def child(self) -> Child:
        assert self.prepared.child is not None
        return self.prepared.child


@dataclass(frozen=True, slots=True)
class _Coming:
    spec: RunSpec
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

    def want(self, spec: RunSpec) -> None:
        """Have an agent ready for the next request of this kind, soon and in the background."""
        if not self._times.warm_helps:
            self.close()
        elif self._most and not self._times.cold_is_wanted and not self._is_there(spec.kind):
            task = in_background(self._prepare(spec), "starting a warm agent")
            self._coming[spec.kind] = _Coming(spec, task)

    def _is_there(self, kind: Hashable) -> bool:
        return kind in self._ready or kind in self._coming

    def take(self, spec: RunSpec) -> Prepared | None:
        """A warm agent for `spec`, if there is one that lives, in a directory that is as it was. No
        other is left behind in its chat."""
        self._give_up(spec.kind)
        warm = self._take_out(spec.kind)
        if warm is None:
            if spec.chat is not None:
                self.leave(spec.chat)
            return None
        # What it may not do stands in its directory. Where that is gone, nobody may work.
        if warm.child.exited.done() or not warm.prepared.workspace.is_as_left():
            self._discard(warm.spec, warm.prepared)
            return None
        self._used += 1
        return warm.prepared

    def leave(self, chat: Chat) -> None:
        """Nobody may be in this chat any more, nor come into it."""
        specs = [warm.spec for warm in self._ready.values()]
        specs += [coming.spec for coming in self._coming.values()]
        for spec in specs:
            if spec.chat is chat:
                self._end(spec.kind)

    def give_way(self) -> asyncio.Future[None] | None:
        """End the oldest; what it returns is done when that has ended. None if there is none."""
        warm = self._take_out(next(iter(self._ready), None))
        return self._discard(warm.spec, warm.prepared) if warm else None

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

    async def _prepare(self, spec: RunSpec) -> None:
        if isinstance(spec.chat, StoredChat):
            await spec.chat.until_left()
        await self._starts.wait()
        del self._coming[spec.kind]
        try:
            prepared = self._launch(spec)
        except (GatewayError, OSError) as error:
            log.debug("no warm agent: %s", error)
            return
        while len(self._ready) >= self._most:
            self._end(next(iter(self._ready)))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(LIFETIME, self._end, spec.kind)
        warm = self._ready[spec.kind] = _WarmAgent(spec, prepared, timer)
        warm.child.exited.add_done_callback(lambda _: self._died(warm))

    def _died(self, warm: _WarmAgent) -> None:
        if self._ready.get(warm.spec.kind) is not warm:
            return
        self._end(warm.spec.kind)
        lived = asyncio.get_running_loop().time() - warm.prepared.born
        if lived >= WORTH_REPLACING_AFTER and warm.spec.chat is None:
            self.want(warm.spec)

    def _take_out(self, kind: Hashable) -> _WarmAgent | None:
        warm = self._ready.pop(kind, None)
        if warm is not None:
            warm.timer.cancel()
        return warm

    def _give_up(self, kind: Hashable) -> None:
        if coming := self._coming.pop(kind, None):
            coming.task.cancel()

    def _end(self, kind: Hashable) -> None:
        self._give_up(kind)
        if warm := self._take_out(kind):
            self._discard(warm.spec, warm.prepared)
