"""Child: the life and death of one agent process and everything it starts.

Theory of operation
-------------------
The pipes are read and written directly, without asyncio's transports, for three reasons. Reading
only when someone asks is all the backpressure there is: a slow client fills the agent's pipe and
the agent waits. Lines may be of any length. And the end is decided by the process, not by its
pipe: a grandchild that holds stdout open would keep a stream "alive" for ever, so once the agent
has exited, what is in the pipe is read and then it is the end. (`asyncio`'s own `wait()` waits for
the pipe too.)

Stopping: an agent that has written its last line gets a moment to exit by itself. Then the whole
tree gets SIGTERM, a grace, and SIGKILL until nobody is left (family.py). Meanwhile its output is
read and thrown away, because a process blocked on a full pipe cannot exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from psutil import Process

from cursor_gateway.background import in_background
from cursor_gateway.processes import linux, tree
from cursor_gateway.processes.family import Family

log = logging.getLogger(__name__)

# A pipe holds as much.
READ_BYTES = 64 * 1024
# The reason of a failure stands at the end of stderr; the CLI may list all models before it.
STDERR_TAIL_BYTES = 64 * 1024
# The last process shall have ended two seconds after its client has left.
TERM_GRACE = 1.0


# An environment is encoded once, and not for each process that is started with it.
Environment = Mapping[bytes, bytes]


def encoded(env: Mapping[str, str]) -> Environment:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


class NoOutput(Enum):
    """Why a read of a child's output brings none."""

    # Its output is over: the pipe is closed, or the process has exited and the pipe is empty.
    ENDED = "ended"
    # Somebody called `Child.wake`.
    WOKEN = "woken"


ENDED: Final = NoOutput.ENDED
WOKEN: Final = NoOutput.WOKEN


@dataclass(frozen=True, slots=True)
class Command:
    argv: Sequence[str]
    env: Environment
    cwd: Path
    # Its stdin brings this; None leaves stdin open for `Child.feed`.
    prompt: bytes | None = None
    # Its stdout goes to this file; None makes a pipe, which `Child.read` reads.
    stdout: int | None = None


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


# No agent may ask or be interrupted at the user's terminal, so each gets a session of its own.
# Where there is none a process group will do: Linux schedules every session as a group (autogroup),
# and on a busy machine a new group waits for its turn for as long as a short answer takes.
_HAS_TERMINAL = _has_terminal()


class Child:
    """Use it only inside the event loop that spawned it."""

    def __init__(
        self,
        command: Command,
        hear: Callable[[bytes], object],
        mark: str,
        siblings: Collection[int],
        on_exit: Callable[[Child], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self.mark = mark
        self._stderr = bytearray()
        self._hear = hear
        self._feeding: asyncio.Task[None] | None = None
        self._woken = False
        # These futures wait for a pipe; these pipes are read whenever there is something in them.
        self._waiting: set[asyncio.Future[None]] = set()
        self._listening: set[int] = set()
        # Once it has exited: whether it is known that nobody of its tree is left.
        self.left_nobody = False
        self._closed = False
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._stdin_fd = self._stdout_fd = self._stderr_fd = self._pidfd = -1
        self._start(command)
        self.family = Family(self.pid, mark, siblings, self._exited)
        try:
            self._watch_exit()
        except OSError:  # no descriptor is left for it
            self._process.kill()
            self._process.wait()
            self._abandon()
            raise
        self._listen(self._stderr_fd, self._collect_stderr)

    def _start(self, command: Command) -> None:
        """The pipes are our own, since `Popen` would put a buffered file around each. The prompt is
        in its pipe before the process exists, which would have to be woken for it, twice."""
        its_ends: list[int] = []
        try:
            its_stdin, self._stdin_fd = os.pipe()
            its_ends.append(its_stdin)
            self._stderr_fd, its_stderr = os.pipe()
            its_ends.append(its_stderr)
            if (stdout := command.stdout) is None:
                self._stdout_fd, stdout = os.pipe()
                its_ends.append(stdout)
            for fd in self._pipes():
                os.set_blocking(fd, False)
            if command.prompt is not None:
                self.feed(command.prompt)
            self._process = subprocess.Popen(
                command.argv,
                stdin=its_stdin,
                stdout=stdout,
                stderr=its_stderr,
                cwd=command.cwd,
                env={**command.env, tree.MARK.encode(): self.mark.encode()},
                start_new_session=_HAS_TERMINAL,
                process_group=None if _HAS_TERMINAL else 0,
            )
            linux.put_number(self.pid, self.mark)
        except BaseException:
            self._abandon()
            raise
        finally:
            for fd in its_ends:
                os.close(fd)

    def _abandon(self) -> None:
        """Undo a start that failed."""
        if self._feeding is not None:
            self._feeding.cancel()
        self._close_pipes()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exited(self) -> asyncio.Future[int]:
        return self._exited

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr."""
        if self._exited.done() and self._stderr_fd in self._listening:
            self._collect_stderr()
        return self._stderr.decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        """Write all of `data` to its stdin and close it, in the background if that takes time."""
        rest = self._write(memoryview(data))
        if rest:
            self._feeding = in_background(self._feed(rest), "handing an agent its prompt")
        else:
            self._close_stdin()

    async def write(self, data: bytes | memoryview) -> bool:
        """Write `data` to its stdin; False when it ended or stopped reading before it had all."""
        rest = self._write(memoryview(data))
        while rest and not self._exited.done():
            ready: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_writer(self._stdin_fd, _resolve, ready)
            try:
                await self._wait_for(ready)
            finally:
                self._loop.remove_writer(self._stdin_fd)
            rest = self._write(rest)
        return rest is not None and not rest

    async def read(self, until: float = math.inf) -> bytes | NoOutput:
        """What it wrote to stdout since the last call. Raises TimeoutError when there is nothing
        `until` then, by the event loop's clock."""
        while (data := self.read_now()) is None:
            # This comes after the read: what it wrote before it was woken comes first.
            if self._woken:
                self._woken = False
                return WOKEN
            if until <= self._loop.time():
                raise TimeoutError
            ready: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_reader(self._stdout_fd, _resolve, ready)
            try:
                await self._wait_for(ready, until)
            finally:
                self._loop.remove_reader(self._stdout_fd)
        return data

    def read_now(self) -> bytes | NoOutput | None:
        """As `read`, without waiting: None while there is nothing."""
        over = self._exited.done()
        try:
            return os.read(self._stdout_fd, READ_BYTES) or ENDED
        except BlockingIOError:
            return ENDED if over else None

    def wake(self) -> None:
        """Let whoever reads, now or next, look at something else that has happened."""
        self._woken = True
        self._stop_waiting()

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
        self._close_stdin()
        self._look_for_exit()
        left = [] if self._exited.done() else await self._see_off(patience, grace)
        if left or not self._exited.done() or not self.left_nobody:
            await self.family.sweep(left)
        self._close()

    def is_over(self) -> bool:
        """Whether it has left by itself, and all that it started, so that there is nobody to stop.
        Then it is closed."""
        self._look_for_exit()
        if self._feeding is not None or not self._exited.done() or not self.left_nobody:
            return False
        self._close_stdin()
        self._close()
        return True

    async def _see_off(self, patience: float, grace: float) -> list[Process]:
        """Wait for its exit, then ask for it; whom it may have left behind."""
        if self._stdout_fd >= 0:
            self._listen(self._stdout_fd, self._discard_stdout)
        # This look comes first: those without a mark can be found below it only while it lives.
        family = await self.family.below()
        if not await self._exits_within(patience):
            family = await self.family.terminate(family)
            await self._exits_within(grace)
        if self._exited.done():
            family = [process for process in family if process.pid != self.pid]
        return family

    async def _feed(self, rest: memoryview) -> None:
        try:
            await self.write(rest)
        finally:
            self._close_stdin()

    def _write(self, rest: memoryview) -> memoryview | None:
        """What its stdin does not take now; None when it takes nothing any more."""
        try:
            while rest:
                rest = rest[os.write(self._stdin_fd, rest[:READ_BYTES]) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            # It stopped reading; its output or its exit will say why.
            return None
        return rest

    def _close_stdin(self) -> None:
        if self._stdin_fd >= 0:
            os.close(self._stdin_fd)
            self._stdin_fd = -1

    async def _exits_within(self, seconds: float) -> bool:
        if not self._exited.done() and seconds > 0:
            await asyncio.wait({self._exited}, timeout=seconds)
        return self._exited.done()

    async def _wait_for(self, ready: asyncio.Future[None], until: float = math.inf) -> None:
        """Wait until `ready`, its exit, or the time `until`."""
        timer = self._loop.call_at(until, _resolve, ready) if until < math.inf else None
        self._waiting.add(ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            if timer is not None:
                timer.cancel()

    def _stop_waiting(self) -> None:
        for ready in self._waiting:
            _resolve(ready)

    def _listen(self, fd: int, read: Callable[[], object]) -> None:
        self._loop.add_reader(fd, read)
        self._listening.add(fd)

    def _stop_listening(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        self._listening.discard(fd)

    def _watch_exit(self) -> None:
        self._pidfd = linux.pidfd_of(self.pid)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._look_for_exit)
        else:
            threading.Thread(target=self._wait_in_thread, daemon=True).start()

    def _look_for_exit(self) -> None:
        """The event loop calls this; others do so earlier, since an agent that has written its last
        line has often exited, and then need not be stopped."""
        if self._pidfd >= 0 and (code := self._process.poll()) is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
            self._note_exit(code)

    def _wait_in_thread(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop may be closed by then
            self._loop.call_soon_threadsafe(self._note_exit, code)

    def _note_exit(self, code: int) -> None:
        """Look for what it leaves behind before anybody learns that it has exited."""
        try:
            self._on_exit(self)
        finally:
            self._exited.set_result(code)
            self._stop_waiting()

    def _collect_stderr(self) -> None:
        """Read once, which empties the pipe: a fast writer must not hold the event loop."""
        try:
            data = os.read(self._stderr_fd, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._stop_listening(self._stderr_fd)
            return
        self._stderr += data
        del self._stderr[:-STDERR_TAIL_BYTES]
        self._hear(data)

    def _discard_stdout(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(self._stdout_fd, READ_BYTES):
                self._stop_listening(self._stdout_fd)

    def _close(self) -> None:
        if self._stderr_fd in self._listening:
            self._collect_stderr()
        self._closed = True
        for fd in tuple(self._listening):
            self._stop_listening(fd)
        self._close_pipes()

    def _pipes(self) -> list[int]:
        return [fd for fd in (self._stdin_fd, self._stdout_fd, self._stderr_fd) if fd >= 0]

    def _close_pipes(self) -> None:
        for fd in self._pipes():
            os.close(fd)
        self._stdin_fd = self._stdout_fd = self._stderr_fd = -1


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
