"""Children: all processes that one gateway starts. None is forgotten, none outlives it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from psutil import Process

from cursor_gateway.background import in_background
from cursor_gateway.errors import AgentFailed, OutOfResources
from cursor_gateway.processes import linux, resources, tree
from cursor_gateway.processes.child import Child, Command
from cursor_gateway.processes.family import SWEEP_INTERVAL, SWEEPS
from cursor_gateway.processes.guardian import Guardian
from cursor_gateway.scratch import Scratch

log = logging.getLogger(__name__)


class LastWill(Protocol):
    """What is done when the gateway is gone: by us at a clean end, else by the guardian."""

    @property
    def program(self) -> Sequence[str]:
        """A program that needs the standard library only, and its arguments; empty for none."""
        ...

    @property
    def locks(self) -> Sequence[int]:
        """Descriptors that the guardian inherits, and so keeps locked."""
        ...

    def fulfil(self) -> None: ...


class NoWill:
    """Nothing is left to do."""

    program: Sequence[str] = ()
    locks: Sequence[int] = ()

    def fulfil(self) -> None: ...


class Children:
    """A child that nobody here started, where the whole process is the gateway's (`owns_process`),
    is an orphan of some agent. Whose, cannot be seen; but when all agents that ran when it was
    first seen are gone, its own is among them. Residents (MCP servers) are no agents: they stay for
    as long as the gateway and would keep every orphan alive, and what carries their mark is theirs.
    """

    def __init__(self, root: Scratch, *, owns_process: bool) -> None:
        self._owns_process = owns_process
        self._orphans: dict[Process, set[Child]] = {}
        self._id = secrets.token_hex(8)
        self._counter = 0
        self._alive: set[Child] = set()
        self._residents: set[Child] = set()
        # The pids of those that we started ourselves.
        self._pids: set[int] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self.root = root
        self.scratch = root.path
        linux.adopt_orphans()
        self._will: LastWill | None = None
        self._guardian: Guardian | None = None
        # How many descriptors programs may have here, where the gateway has taken more.
        self._their_limit = resources.raise_limit() if owns_process else None

    def guard(self, will: LastWill) -> None:
        """Start the guardian: should this process be killed, it ends what is left, and does `will`.
        Before the first agent is started."""
        self._will = will
        words = [f"{self._id}.", str(self.scratch), *will.program]
        self._guardian = Guardian(words, will.locks, self._pids)

    def spawn(self, command: Command) -> Child:
        """A new agent."""
        child = self._spawn(command, lambda data: None, self._look_after)
        self._alive.add(child)
        return child

    def spawn_resident(self, command: Command, hear: Callable[[bytes], object]) -> Child:
        """A child that is no agent and outlives them. `hear` is given all it writes to stderr."""
        child = self._spawn(command, hear, lambda child: None)
        self._residents.add(child)
        return child

    def _spawn(
        self,
        command: Command,
        hear: Callable[[bytes], object],
        on_exit: Callable[[Child], object],
    ) -> Child:
        self._counter += 1
        mark = f"{self._id}.{self._counter}."
        try:
            child = Child(command, hear, mark, self._pids, on_exit)
        except OSError as error:
            failed = OutOfResources if error.errno in resources.EXHAUSTED else AgentFailed
            raise failed(f"{command.argv[0]} cannot be started: {error.strerror}.") from error
        self._pids.add(child.pid)
        if self._their_limit is not None:
            resources.give_back_limit(child.pid, self._their_limit)
        return child

    def retire(
        self, child: Child, patience: float = 0.0, then: Callable[[], object] = lambda: None
    ) -> asyncio.Future[None]:
        """Stop `child`, whatever happens to the caller, then call `then`: in the background, unless
        it has left by itself."""
        if not child.is_over():
            return self._in_background(self._retire(child, patience, then))
        self._forget(child)
        then()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def close(self, grace: float) -> None:
        """Stop every agent now; remove the scratch directories, and do the last will."""
        for task in self._endings:
            task.cancel()
        await asyncio.gather(*self._endings, return_exceptions=True)
        everyone = self._alive | self._residents
        stops = (child.stop(grace=grace) for child in everyone)
        for child, error in zip(
            everyone, await asyncio.gather(*stops, return_exceptions=True), strict=True
        ):
            if error is not None:
                log.error("agent %d could not be stopped", child.pid, exc_info=error)
            self._forget(child)
        await self._end_orphans()
        await self.root.remove()
        if self._will is not None:
            await asyncio.to_thread(self._will.fulfil)
        if self._guardian is not None:
            await self._guardian.dismiss()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = in_background(work, "ending an agent")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    async def _retire(self, child: Child, patience: float, then: Callable[[], object]) -> None:
        try:
            await child.stop(patience)
            self._forget(child)
            if self._orphans:
                await self._end_orphans()
        finally:
            then()

    def _forget(self, child: Child) -> None:
        self._alive.discard(child)
        self._residents.discard(child)
        self._pids.discard(child.pid)

    async def _end_orphans(self) -> None:
        """End those whose agent is gone, and wait for their end: else they stay as zombies."""
        for _ in range(SWEEPS):
            self._find_orphans()
            ownerless = {o for o, owners in self._orphans.items() if not owners & self._alive}
            tree.signal_all((orphan.pid for orphan in ownerless), signal.SIGKILL)
            if not ownerless:
                break
            await asyncio.sleep(SWEEP_INTERVAL)

    def _look_after(self, child: Child) -> None:
        """Look for the processes that it leaves behind, which are ours from this moment."""
        looked = self._find_orphans()
        child.left_nobody = looked and not self._orphans

    def _find_orphans(self) -> bool:
        """Note who is new among them; whether all could be found."""
        if not self._owns_process or not linux.SHORTCUTS:
            return False
        try:
            found = tree.strangers(self._pids)
            if found:
                for resident in self._residents:
                    found -= set(resident.family.living())
        except OSError:  # too many open files; the next look may find them
            return False
        self._orphans = {orphan: self._orphans.get(orphan, set(self._alive)) for orphan in found}
        return True
