"""Finding and ending every process that an agent left behind.

A process group is not enough: the CLI's background shells and helpers move into groups and
sessions of their own, and may outlive it. So each agent carries a *mark*, which all its descendants
inherit: in its environment and, on Linux, as a number in place of a limit that no kernel obeys. A
descendant may have been given another environment, but its limits stay. And the gateway adopts
orphans (on Linux, as a "child subreaper"): what an agent leaves behind becomes our own child, where
one cheap look finds it.

Run as a program, this file is the guardian: it waits until the gateway's end of its stdin closes,
then ends every process with the gateway's mark, removes the scratch directories, and becomes the
program that removes what the CLI kept of them (transcripts.py). That is how a gateway killed with
SIGKILL leaves nothing. It therefore imports nothing but the standard library.

A look that fails for want of descriptors or memory raises OSError: it must not pass for one that
found nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "CURSOR_GATEWAY_RUN"

_LINUX = sys.platform == "linux"
# Whether what an agent leaves behind becomes our own child, so that a look at those tells.
ADOPTS = _LINUX
_KERNEL_LISTS_CHILDREN = Path("/proc/thread-self/children").exists()
_PR_SET_CHILD_SUBREAPER = 36
# Of locks on files; obeyed by Linux 2.4 only, and inherited ever since.
_RLIMIT_LOCKS = 10
# So many runs of one gateway have numbers of their own.
_RUNS = 1 << 31
_GUARDIAN_SECONDS = 30.0
_GUARDIAN_INTERVAL = 0.02
# What a look at a process that has ended says, or at one of another user.
_OUT_OF_REACH = (FileNotFoundError, ProcessLookupError, PermissionError)


class Process(NamedTuple):
    pid: int
    started: str


def adopt_orphans() -> None:
    """Make this process the parent of whatever its agents leave behind."""
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pidfd_of(pid: int) -> int:
    """A descriptor that tells of its exit; -1 where there are none: outside Linux, with a kernel
    before 5.3, in a sandbox that does not know the call."""
    if sys.platform != "linux":
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return -1
        raise


def put_number(pid: int, mark: str) -> None:
    """Give a process that was just started, and so all its descendants, the number of `mark`."""
    if sys.platform == "linux":
        hard = resource.getrlimit(_RLIMIT_LOCKS)[1]
        # The machine may not let us, or it may have ended.
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, _RLIMIT_LOCKS, (_numbers(mark).start, hard))


def members(root: int, mark: str, others: Collection[int] = ()) -> Iterator[Process]:
    """The living processes of the tree that began with `root` and carries `mark`, parents first.

    `others` are known to have begun other trees, which spares a look at each of them.
    """
    if not _LINUX:
        yield from (Process(pid, "") for pid in marked(mark))
        return

    def belongs(pid: int) -> bool:
        return pid == root or (pid not in others and _has_mark(pid, mark))

    yield from _alive(_with_descendants(filter(belongs, _own_children())))


def tree(root: int) -> Iterator[Process]:
    """`root` and its living descendants; a cheaper look, which misses those that were orphaned."""
    yield from _alive(_with_descendants([root])) if _LINUX else ()


def strangers(known: Collection[int]) -> set[Process]:
    """Our own living children that we did not start: orphans that we adopted. Those who died are
    buried on the way; they would stay zombies for as long as we live."""
    children = _own_children() if _LINUX else []
    return set(_alive(pid for pid in children if pid not in known and not _bury(pid)))


def still_alive(processes: Iterable[Process]) -> Iterator[Process]:
    """Those of `processes` that live, and are not others that got the same number later."""
    for process in processes:
        yield from (found for found in _alive([process.pid]) if found == process)


def _alive(pids: Iterable[int]) -> Iterator[Process]:
    for pid in pids:
        stat = _stat(pid)
        if not _means_dead(stat):
            yield Process(pid, _start_of(stat))


def marked(mark: str) -> list[int]:
    """All living processes whose environment holds a mark that begins with `mark`."""
    if not _LINUX:
        return _marked_by_ps(mark)
    return [pid for pid in _all() if _has_mark(pid, mark) and not _is_dead(pid)]


def ownerless() -> list[int]:
    """All marked processes whose gateway is gone, and its guardian, which outlives it, as well."""
    found = set(marked(""))
    for mark in _guarded():
        found -= set(marked(mark))
    return sorted(found & set(marked("")))


def _guarded() -> Iterator[str]:
    """The marks that a living guardian has in its care."""
    for words in map(bytes.split, _commands()):
        for program, mark in itertools.pairwise(words):
            if program.endswith(b"/process_tree.py"):
                yield mark.decode()


def _commands() -> Iterator[bytes]:
    if not _LINUX:
        listing = ["ps", "axww", "-o", "command="]
        yield from subprocess.run(listing, capture_output=True, check=False).stdout.splitlines()
        return
    for pid in _all():
        with contextlib.suppress(OSError):
            yield _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ")


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(pids: Iterable[int]) -> None:
    """Bury those of them that we adopted and that died."""
    for pid in pids:
        _bury(pid)


def _bury(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def _with_descendants(pids: Iterable[int]) -> Iterator[int]:
    """Each once, parents first: so signalled, none is told of its child's death and starts another.
    A tree may be deeper than Python's stack."""
    children_of = _children if _KERNEL_LISTS_CHILDREN else _children_by_parent()
    seen: set[int] = set()
    generation = pids
    while generation:
        following: list[int] = []
        for pid in generation:
            if pid not in seen:
                seen.add(pid)
                yield pid
                following += children_of(pid)
        generation = following


def _own_children() -> list[int]:
    """Those of this thread, which starts the agents, and of the main one, which adopts orphans."""
    pid = os.getpid()
    return _children(pid, {pid, threading.get_native_id()})


def _children(pid: int, threads: Iterable[int | str] | None = None) -> list[int]:
    if not _KERNEL_LISTS_CHILDREN:
        return _children_by_parent()(pid)
    found: list[int] = []
    with contextlib.suppress(*_OUT_OF_REACH):
        for thread in threads or os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - see _read
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _children_by_parent() -> Callable[[int], list[int]]:
    found: dict[int, list[int]] = {}
    for pid in _all():
        for parent in map(int, _stat(pid)[1:2]):
            found.setdefault(parent, []).append(pid)
    return lambda pid: found.get(pid, [])


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def _has_mark(pid: int, mark: str) -> bool:
    return _number(pid) in _numbers(mark) or _has_mark_in_environment(pid, mark)


def _numbers(mark: str) -> range:
    """The number of a run's mark; all those of a gateway's; none for other words."""
    gateway, _, run = mark.rstrip(".").partition(".")
    try:
        first = int(gateway, 16) % (1 << 32) * _RUNS
        return range(first + int(run), first + int(run) + 1) if run else range(first, first + _RUNS)
    except ValueError:
        return range(0)


def _number(pid: int) -> int:
    with contextlib.suppress(OSError):
        if sys.platform == "linux":
            return resource.prlimit(pid, _RLIMIT_LOCKS)[0]
    return -1


def _has_mark_in_environment(pid: int, mark: str) -> bool:
    try:
        environment = _read(f"/proc/{pid}/environ")
    except _OUT_OF_REACH:
        return False
    wanted = f"{MARK}={mark}".encode()
    return environment.startswith(wanted) or b"\0" + wanted in environment


def _is_dead(pid: int) -> bool:
    return _means_dead(_stat(pid))


def _means_dead(stat: list[bytes]) -> bool:
    return stat[:1] in ([], [b"Z"], [b"X"])


def _start_of(stat: list[bytes]) -> str:
    """When it was started: with its number, that names a process for ever."""
    return b"".join(stat[19:20]).decode()


def _stat(pid: int) -> list[bytes]:
    """State, parent and more; nothing when the process is gone. Names may contain anything."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except _OUT_OF_REACH:
        return []


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


def _marked_by_ps(mark: str) -> list[int]:
    listing = subprocess.run(
        ["ps", "axeww", "-o", "pid=,command="], capture_output=True, check=False
    ).stdout
    wanted = f" {MARK}={mark}".encode()
    return [int(line.split()[0]) for line in listing.splitlines() if wanted in line]


def guard(mark: str, scratch: Path) -> None:
    """Wait for the gateway's end, then clear up behind it. A clean end leaves nothing to do."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    deadline = time.monotonic() + _GUARDIAN_SECONDS
    while time.monotonic() < deadline and not _end_all(mark, scratch):
        time.sleep(_GUARDIAN_INTERVAL)
    shutil.rmtree(scratch, ignore_errors=True)


def _end_all(mark: str, scratch: Path) -> bool:
    """Kill whom the gateway left; whether there was nobody."""
    try:
        left = [*marked(mark), *_working_in(scratch)]
    except OSError:  # it is tried again
        return False
    family = list(left)
    with contextlib.suppress(OSError):
        # They need not carry the mark.
        family = list(_with_descendants(left))
    signal_all(family, signal.SIGKILL)
    return not left


def _working_in(folder: Path) -> list[int]:
    inside = f"{folder}{os.sep}"
    return [pid for pid in _all() if _directory(pid).startswith(inside)] if _LINUX else []


def _directory(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


if __name__ == "__main__":
    guard(sys.argv[1], Path(sys.argv[2]))
    # A gateway that ended by itself has removed its note.
    if len(sys.argv) > 3 and Path(sys.argv[-1]).exists():
        os.execv(sys.executable, [sys.executable, "-I", "-S", *sys.argv[3:]])  # noqa: S606
