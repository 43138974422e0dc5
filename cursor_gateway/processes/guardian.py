"""Guardian: the process that clears up behind a gateway that is killed. One that dies is replaced.

What it does is in guardian_program.py. It is told nothing but the gateway's mark and folders, so
that another can take its place at any time.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("guardian_program.py")
# Where each guardian dies at once, the next is started later and later.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 60.0
# A guardian that has lived for so long counts as healthy.
PROBATION = 10.0
DISMISSAL_SECONDS = 3.0


def command(words: Sequence[str]) -> list[str]:
    """What starts the program for the mark, the scratch directory and more in `words`."""
    libraries = Path(psutil.__file__).parents[1]
    return [sys.executable, "-I", "-S", str(PROGRAM), str(libraries), *words]


class Guardian:
    """Use it only inside the event loop that made it. It puts its pid into `known`."""

    def __init__(self, words: Sequence[str], lock: Sequence[int], known: set[int]) -> None:
        self._command = command(words)
        self._lock = lock
        self._known = known
        self._loop = asyncio.get_running_loop()
        self._pause = SHORTEST_PAUSE
        self._starting: asyncio.TimerHandle | None = None
        self._process = self._start()

    async def dismiss(self) -> None:
        """Let it go after a clean end, which leaves it nothing to do."""
        if self._starting is not None:
            self._starting.cancel()
        self._close_pipe()
        await asyncio.to_thread(_wait, self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=self._lock,
        )
        assert process.stdin is not None
        # Nobody ever writes. When the guardian dies its end of the pipe closes, which wakes us.
        self._loop.add_reader(process.stdin.fileno(), self._replace)
        self._known.add(process.pid)
        self._since = self._loop.time()
        return process

    def _replace(self) -> None:
        self._close_pipe()
        self._process.kill()
        code = self._process.wait()
        self._known.discard(self._process.pid)
        log.warning("the guardian process ended (exit code %d) and is replaced", code)
        if self._loop.time() - self._since > PROBATION:
            self._pause = SHORTEST_PAUSE
        self._start_later()

    def _start_later(self) -> None:
        self._starting = self._loop.call_later(self._pause, self._start_again)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _start_again(self) -> None:
        try:
            self._process = self._start()
        except OSError as error:
            log.warning("no guardian process can be started: %s", error)
            self._start_later()

    def _close_pipe(self) -> None:
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            self._loop.remove_reader(pipe.fileno())
            pipe.close()


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(DISMISSAL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
