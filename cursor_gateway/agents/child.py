"""Child: the life and death of one agent process and everything it starts.

Theory of operation
-------------------
The pipes are read and written directly, without asyncio's transports, for three reasons. Reading
only when someone asks is all the backpressure there is: a slow client fills the agent's pipe and
the agent waits. Lines may be of any length. And the end is decided by the process, not by its
pipe: a grandchild that holds stdout open would keep a stream "alive" for ever, so once the agent
has exited, what is in the pipe is read and then it is the end. (`asyncio`'s own `wait()` waits for
the pipe too.)

Stopping: where the agent has said its last word it gets a moment to leave by itself. Then SIGTERM
to the whole tree, a grace, SIGKILL to the whole tree, and the sweep looks until nobody is left.
Meanwhile its output is read and thrown away, because a process blocked on a full pipe cannot exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from cursor_gateway.agents import process_tree
from cursor_gateway.agents.process_tree import Process
from cursor_gateway.errors import AgentFailed

log = logging.getLogger(__name__)

# Large enough that a fast agent costs few system calls, small enough to stay in the cache.
READ_BYTES = 256 * 1024
# The reason of a failure stands at the end of stderr; a model list may stand before it.
STDERR_TAIL_BYTES = 64 * 1024
# The promise is two seconds from the client's leaving to the last process's end.
TERM_GRACE = 1.0
SWEEP_INTERVAL = 0.02
SWEEPS = 40


class Child:
    """Use it only inside the event loop that spawned it."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        mark: str,
        stdout: int,
        hear: Callable[[bytes], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # In its environment, and so in that of all its descendants.
        self.mark = mark
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**env, process_tree.MARK: mark},
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stderr is not None
        self._stdin = self._process.stdin
        self._stdout_fd = self._process.stdout.fileno() if self._process.stdout else -1
        self._stderr_fd = self._process.stderr.fileno()
        self._stderr = bytearray()
        self._hear = hear
        self._feeding: asyncio.Task[None] | None = None
        self._woken = False
        self._waiting: asyncio.Future[None] | None = None
        self._closed = False
        self._exited: asyncio.Future[int] = self._loop.create_future()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(self._stderr_fd, self._collect_stderr)
        self._watch_exit()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exited(self) -> asyncio.Future[int]:
        return self._exited

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr."""
        if self._exited.done() and not self._closed:
            self._collect_stderr()
        return self._stderr.decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        """Write all of `data` to its stdin, in the background, and close it."""
        self._feeding = self._loop.create_task(self._feed(data))

    async def write(self, data: bytes) -> bool:
        """Write `data` to its stdin; False when it ended or stopped reading before it had all."""
        rest, fd = memoryview(data), self._stdin.fileno()
        try:
            while rest and not self._exited.done():
                try:
                    rest = rest[os.write(fd, rest[:READ_BYTES]) :]
                except BlockingIOError:
                    await self._ready(self._loop.add_writer, self._loop.remove_writer, fd)
        except BrokenPipeError:
            # It stopped reading. Why, its own words or its exit will say.
            pass
        return not rest

    async def read(self) -> bytes | None:
        """What it wrote to stdout since the last call; empty once it ended, None after `wake`."""
        while True:
            over = self._exited.done()
            try:
                return os.read(self._stdout_fd, READ_BYTES)
            except BlockingIOError:
                if over:
                    return b""
            # Only now: what it wrote before comes before what it did then.
            if self._woken:
                self._woken = False
                return None
            await self._ready(self._loop.add_reader, self._loop.remove_reader, self._stdout_fd)

    def wake(self) -> None:
        """Something else has happened that whoever reads, now or next, should see."""
        self._woken = True
        if self._waiting is not None:
            _resolve(self._waiting)

    async def exit_code(self, within: float) -> int | None:
        """Its exit code; None when it has not exited `within` seconds."""
        return self._exited.result() if await self._exits_within(within) else None

    async def stop(self, patience: float = 0.0, grace: float = TERM_GRACE) -> None:
        """End the whole tree: `patience` seconds until SIGTERM, then `grace` until SIGKILL."""
        if self._closed:
            return
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.wait({self._feeding})
        self._stdin.close()
        if self._stdout_fd >= 0:
            self._loop.add_reader(self._stdout_fd, self._discard_stdout)
        family = self.family()
        if not await self._exits_within(patience):
            family |= self.family()
            process_tree.signal_all(family, signal.SIGTERM)
            await self._exits_within(grace)
        await self._sweep(family)
        self._close()

    def family(self) -> set[Process]:
        """The living processes of its tree, itself among them."""
        return process_tree.members(self.pid, self.mark)

    async def _feed(self, data: bytes) -> None:
        try:
            await self.write(data)
        finally:
            self._stdin.close()

    async def _sweep(self, family: set[Process]) -> None:
        """Until none of `family` is left, nor of those who were born meanwhile."""
        for _ in range(SWEEPS):
            family = process_tree.still_alive(family) | self.family()
            if not family and self._exited.done():
                return
            process_tree.signal_all(family, signal.SIGKILL)
            await self._exits_within(SWEEP_INTERVAL)
            process_tree.reap(process for process in family if process.pid != self.pid)
            if self._exited.done():
                await asyncio.sleep(SWEEP_INTERVAL)
        log.warning("agent %d left processes that SIGKILL does not end", self.pid)

    async def _exits_within(self, seconds: float) -> bool:
        if not self._exited.done() and seconds > 0:
            await asyncio.wait({self._exited}, timeout=seconds)
        return self._exited.done()

    async def _ready(
        self, add: Callable[..., object], remove: Callable[[int], object], fd: int
    ) -> None:
        """Until `fd` can be used, or the process has exited."""
        ready = self._waiting = self._loop.create_future()
        add(fd, _resolve, ready)
        wake = _resolving(ready)
        self._exited.add_done_callback(wake)
        try:
            await ready
        finally:
            remove(fd)
            self._exited.remove_done_callback(wake)

    def _watch_exit(self) -> None:
        if sys.platform == "linux":
            pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(pidfd, self._on_pidfd, pidfd)
        else:
            threading.Thread(target=self._wait_in_thread, daemon=True).start()

    def _on_pidfd(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        self._exited.set_result(self._process.wait())

    def _wait_in_thread(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop may be closed by then
            self._loop.call_soon_threadsafe(self._exited.set_result, code)

    def _collect_stderr(self) -> None:
        """One read, which empties the pipe; who writes faster must not hold the event loop."""
        try:
            data = os.read(self._stderr_fd, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._stderr_fd)
        self._stderr += data
        del self._stderr[:-STDERR_TAIL_BYTES]
        self._hear(data)

    def _discard_stdout(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(self._stdout_fd, READ_BYTES):
                self._loop.remove_reader(self._stdout_fd)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                self._loop.remove_reader(pipe.fileno())
                pipe.close()


class Children:
    """All agents of one gateway: none is forgotten, none outlives it.

    Where the whole process is the gateway's (`owns_process`), a child that nobody here started is
    an orphan of some agent. Whose, cannot be seen; but when all agents that ran when it was first
    seen are gone, its own is among them. Residents (MCP servers) are no agents: they stay for as
    long as the gateway and would keep every orphan alive, and what carries their mark is theirs.
    """

    def __init__(self, *, owns_process: bool) -> None:
        self._owns_process = owns_process
        self._orphans: dict[Process, set[Child]] = {}
        self._id = secrets.token_hex(8)
        self._counter = 0
        self._alive: set[Child] = set()
        self._residents: set[Child] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self.scratch = Path(tempfile.mkdtemp(prefix="cursor-gateway-")).resolve()
        process_tree.adopt_orphans()
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", process_tree.__file__, f"{self._id}.", str(self.scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        stdout: int = subprocess.PIPE,
    ) -> Child:
        child = self._spawn(argv, env, cwd, stdout, hear=lambda data: None)
        self._alive.add(child)
        # What it leaves behind is ours from this moment, and shall be known before anything else.
        child.exited.add_done_callback(lambda _: self._find_orphans())
        return child

    def spawn_resident(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        hear: Callable[[bytes], object],
    ) -> Child:
        """A child that is no agent and outlives them. `hear` is given all it writes to stderr."""
        child = self._spawn(argv, env, cwd, subprocess.PIPE, hear)
        self._residents.add(child)
        return child

    def _spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        stdout: int,
        hear: Callable[[bytes], object],
    ) -> Child:
        self._counter += 1
        mark = f"{self._id}.{self._counter}."
        try:
            return Child(argv, env, cwd, mark, stdout, hear)
        except OSError as error:
            raise AgentFailed(f"{argv[0]} cannot be started: {error.strerror}.") from error

    def retire(
        self, child: Child, patience: float = 0.0, then: Callable[[], object] = lambda: None
    ) -> asyncio.Task[None]:
        """Stop `child` in the background, whatever happens to the caller; then call `then`."""
        return self._in_background(self._retire(child, patience, then))

    async def close(self, grace: float) -> None:
        """Stop every agent now and remove the scratch directories."""
        for task in self._endings:
            task.cancel()
        await asyncio.gather(*self._endings, return_exceptions=True)
        everyone = self._alive | self._residents
        await asyncio.gather(*(child.stop(grace=grace) for child in everyone))
        self._alive.clear()
        self._residents.clear()
        await self._end_orphans()
        shutil.rmtree(self.scratch, ignore_errors=True)
        await asyncio.to_thread(self._dismiss_guardian)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    async def _retire(self, child: Child, patience: float, then: Callable[[], object]) -> None:
        try:
            await child.stop(patience)
            self._alive.discard(child)
            self._residents.discard(child)
            await self._end_orphans()
        finally:
            then()

    async def _end_orphans(self) -> None:
        """End those whose agent is gone, and wait for their end: else they stay as zombies."""
        self._find_orphans()
        ownerless = {o for o, owners in self._orphans.items() if not owners & self._alive}
        process_tree.signal_all(ownerless, signal.SIGKILL)
        for _ in range(SWEEPS):
            process_tree.reap(self._orphans)
            if not process_tree.still_alive(ownerless):
                break
            await asyncio.sleep(SWEEP_INTERVAL)
        process_tree.reap(ownerless)

    def _find_orphans(self) -> None:
        """Note who is new among them, and tell the guardian: once we are gone, nothing shows that
        they were ours."""
        if not self._owns_process:
            return
        known = {child.pid for child in self._alive | self._residents} | {self._guardian.pid}
        found = process_tree.strangers(known)
        for resident in self._residents:
            found -= resident.family()
        process_tree.tell_guardian(self._guardian, found - self._orphans.keys())
        self._orphans = {orphan: self._orphans.get(orphan, set(self._alive)) for orphan in found}

    def _dismiss_guardian(self) -> None:
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian.wait()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _resolving(future: asyncio.Future[None]) -> Callable[[object], None]:
    return lambda _: _resolve(future)
