"""What only Linux offers, behind one switch.

A gateway asks these at every answer: who is new among its own children, who is below an agent, has
it exited. Each has a portable counterpart (tree.py, child.py), which macOS runs and which
`make test-portable` runs here, with SHORTCUTS off. What they save is in
docs/decisions/0017-psutil.md.

Two of them are more than shortcuts. Linux makes the gateway the parent of orphans, and it lets an
agent and all its descendants carry the number of their run in place of a limit that no kernel
obeys. Both find processes that have dropped their environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

# The variable is for tests only.
SHORTCUTS = sys.platform == "linux" and "TEST_PORTABLE_PROCESSES" not in os.environ
# Some kernels are built without these lists.
LISTS_CHILDREN = SHORTCUTS and Path("/proc/thread-self/children").exists()

_PR_SET_CHILD_SUBREAPER = 36
# Of locks on files; obeyed by Linux 2.4 only, and inherited ever since.
_RLIMIT_LOCKS = 10
# So many runs of one gateway have numbers of their own.
_RUNS = 1 << 31


def adopt_orphans() -> None:
    """Make this process the parent of whatever its agents leave behind (a "child subreaper")."""
    if SHORTCUTS:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pidfd_of(pid: int) -> int:
    """A descriptor that tells of its exit; -1 where there are none: outside Linux, with a kernel
    before 5.3, in a sandbox that does not know the call."""
    if sys.platform != "linux" or not SHORTCUTS:
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return -1
        raise


def put_number(pid: int, mark: str) -> None:
    """Give a process that was just started, and so all its descendants, the number of `mark`."""
    if sys.platform == "linux" and SHORTCUTS:
        hard = resource.getrlimit(_RLIMIT_LOCKS)[1]
        # The machine may not let us, or the process may have ended.
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, _RLIMIT_LOCKS, (_numbers(mark).start, hard))


def has_number(pid: int, mark: str) -> bool:
    """Whether it carries the number of the run, or one of the gateway, that `mark` stands for."""
    if sys.platform == "linux" and SHORTCUTS:
        with contextlib.suppress(OSError):
            return resource.prlimit(pid, _RLIMIT_LOCKS)[0] in _numbers(mark)
    return False


def own_children() -> list[int]:
    """Those of this thread, which starts the agents, and of the main one, which adopts orphans."""
    pid = os.getpid()
    return children_of(pid, {pid, threading.get_native_id()})


def children_of(pid: int, threads: Iterable[int | str] | None = None) -> list[int]:
    """By the kernel's own lists; only where it LISTS_CHILDREN."""
    found: list[int] = []
    # What a look says at a process that has ended, or at one of another user.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for thread in threads or os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - see _read
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _numbers(mark: str) -> range:
    """The number of a run's mark; all those of a gateway's; none for other words."""
    gateway, _, run = mark.rstrip(".").partition(".")
    try:
        first = int(gateway, 16) % (1 << 32) * _RUNS
        return range(first + int(run), first + int(run) + 1) if run else range(first, first + _RUNS)
    except ValueError:
        return range(0)


def _read(path: str) -> bytes:
    """A file of /proc. Several are read at every answer's end, at a third of what a Path costs."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = os.read(fd, 64 * 1024)
        while more := os.read(fd, 64 * 1024):
            data += more
        return data
    finally:
        os.close(fd)
