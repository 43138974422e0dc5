"""WarmAgents: whatever a conversation needs, created before anybody asks.

To create it takes seconds. It can serve exactly one *kind* of request, since model and tools are
fixed with it. So there are few, each for a kind that was seen; they expire, and a request that
finds none creates its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from cursor_gateway.agents import RunSpec
from cursor_gateway.background import in_background
from cursor_gateway.errors import GatewayError

log = logging.getLogger(__name__)

# Sign-ins of agents that nobody used were seen to expire after 15 minutes (SDK 1.0.19).
LIFETIME = 300.0


class Warm(Protocol):
    @property
    def is_there(self) -> bool:
        """Whether it can still be used."""
        ...


W = TypeVar("W", bound=Warm)


class WarmAgents(Generic[W]):
    def __init__(
        self,
        most: int,
        create: Callable[[RunSpec], Awaitable[W]],
        discard: Callable[[W], asyncio.Future[None]],
        failures: tuple[type[Exception], ...] = (),
    ) -> None:
        self._most = most
        self._create = create
        self._discard = discard
        # What `create` may raise.
        self._failures: tuple[type[Exception], ...] = (GatewayError, *failures)
        self._ready: dict[Hashable, tuple[W, asyncio.TimerHandle]] = {}
        self._coming: dict[Hashable, asyncio.Task[None]] = {}
        self._used = 0

    def want(self, spec: RunSpec) -> None:
        """Have one ready for the next conversation of this kind, soon and in the background."""
        # A chat's own agent is ready for it.
        spec = replace(spec, chat=None, known=0)
        if self._most and spec.kind not in self._ready and spec.kind not in self._coming:
            task = in_background(self._prepare(spec), "creating a warm agent")
            self._coming[spec.kind] = task

    def take(self, spec: RunSpec) -> W | None:
        agent = self._take_out(spec.kind)
        if agent is not None and not agent.is_there:
            self._discard(agent)
            return None
        self._used += agent is not None
        return agent

    def give_way(self) -> asyncio.Future[None] | None:
        """End the oldest; what it returns is done when that has ended. None if there is none."""
        agent = self._take_out(next(iter(self._ready), None))
        return self._discard(agent) if agent else None

    def close(self) -> None:
        self._most = 0
        for task in self._coming.values():
            task.cancel()
        while self.give_way():
            pass

    def state(self) -> dict[str, Any]:
        state, reason = ("on", "") if self._most else ("off", "the setting `warm` is 0")
        return {
            "most": self._most,
            "spares": len(self._ready),
            "used": self._used,
            "state": state,
            "reason": reason,
        }

    async def _prepare(self, spec: RunSpec) -> None:
        try:
            agent = await self._create(spec)
        except self._failures as error:
            log.debug("no warm agent: %s", error)
            return
        finally:
            del self._coming[spec.kind]
        while len(self._ready) >= self._most:
            if self.give_way() is None:
                self._discard(agent)
                return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(LIFETIME, self._expire, spec.kind)
        self._ready[spec.kind] = agent, timer

    def _expire(self, kind: Hashable) -> None:
        if agent := self._take_out(kind):
            self._discard(agent)

    def _take_out(self, kind: Hashable) -> W | None:
        agent, timer = self._ready.pop(kind, (None, None))
        if timer is not None:
            timer.cancel()
        return agent
