"""Family: an agent and all processes that it has started, found and ended together.

There may be thousands, so the event loop gets its turn after each few. When a look fails, the agent
and its process group are ended nevertheless.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import os
import signal
from collections.abc import Collection, Iterable, Iterator

from psutil import Process

from cursor_gateway.processes import linux, tree

log = logging.getLogger(__name__)

SWEEP_INTERVAL = 0.02
# So many sweeps in a row may end nobody before we give up.
SWEEPS = 40
# So many looks must agree that nobody is left.
LOOKS = 3
# So many processes are looked at without a break, which takes a few milliseconds.
LOOKS_AT_ONCE = 50


class Family:
    """Use it only inside the event loop that started the agent."""

    def __init__(
        self, root: int, mark: str, others: Collection[int], exited: asyncio.Future[int]
    ) -> None:
        self._root = root
        # All of the family carry it in their environment and, on Linux, among their limits.
        self._mark = mark
        self._others = others
        self._exited = exited

    def living(self) -> Iterator[Process]:
        """All of the family who live, the agent among them."""
        return tree.members(self._root, self._mark, self._others)

    async def below(self) -> list[Process]:
        """A cheaper look: the agent, and whoever still has it for an ancestor."""
        return await self._look_at(tree.tree(self._root)) or []

    async def terminate(self, known: list[Process]) -> list[Process]:
        """Send SIGTERM to all of them, `known` before or not; who they are."""
        family = await self._look_at(self.living(), iter(known)) or known
        tree.signal_all((process.pid for process in family), signal.SIGTERM)
        return family

    async def sweep(self, known: list[Process]) -> None:
        """Send SIGKILL until none of `known` is left, nor any who was started meanwhile."""
        family, ever = known, {process.pid for process in known}
        in_vain, fewest = 0, math.inf
        while in_vain < SWEEPS:
            found = await self._survivors(family)
            tree.reap(ever - {self._root, *self._others})
            if found == [] and self._exited.done():
                return
            family = family if found is None else found
            ever |= {process.pid for process in family}
            in_vain = 0 if len(family) < fewest else in_vain + 1
            fewest = min(fewest, len(family))
            self._kill(family)
            await asyncio.wait({self._exited}, timeout=SWEEP_INTERVAL)
            if self._exited.done():
                await asyncio.sleep(SWEEP_INTERVAL)
        log.warning("agent %d left processes that SIGKILL does not end", self._root)

    async def _survivors(self, known: list[Process]) -> list[Process] | None:
        """Who of the family lives; None when looking failed. One look may miss somebody who starts
        another and ends meanwhile, so several must agree that there is nobody."""
        found: list[Process] | None = []
        for _ in range(LOOKS):
            found = await self._look_at(self.living(), tree.still_alive(known))
            if found != []:
                break
        return found

    def _kill(self, family: list[Process]) -> None:
        tree.signal_all((process.pid for process in family), signal.SIGKILL)
        if not self._exited.done():  # after its exit, another process may get its number
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root, signal.SIGKILL)

    async def _look_at(self, *found: Iterator[Process]) -> list[Process] | None:
        """All who are found, each once; None when looking failed, which may pass."""
        family: dict[Process, None] = {}
        looks: Iterable[Process] = itertools.chain(*found)
        try:
            if not linux.LISTS_CHILDREN:
                # This looks at every process of the machine, which takes too long for the loop.
                looks = await asyncio.to_thread(list, looks)
            for process in looks:
                family[process] = None
                if len(family) % LOOKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except OSError as error:
            log.debug("the processes of agent %d cannot be listed: %s", self._root, error)
            return None
        return list(family)
