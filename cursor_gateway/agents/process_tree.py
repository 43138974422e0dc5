"""Finding and ending every process that an agent left behind.

A process group is not enough: the CLI's background shells and helpers move into groups and
sessions of their own, and may outlive it. So each agent carries a *mark* in its environment, which
all its descendants inherit, and the gateway adopts orphans (on Linux, as a "child subreaper"): what
an agent leaves behind becomes our own child, where one cheap look finds it. A descendant may have
been given an environment without the mark; it is found below its parents, and once it has lost
them, as a child of ours that we did not start.

Run as a program, this file is the guardian: it waits until the gateway's end of its stdin closes,
then ends every process with the gateway's mark, removes the scratch directories, and becomes the
program that removes what the CLI kept of them (transcripts.py). That is how a gateway killed with
SIGKILL leaves nothing. It therefore imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "CURSOR_GATEWAY_RUN"

_LINUX = sys.platform == "linux"
# Whether what an agent leaves behind becomes our own child, so that a look at those tells.
ADOPTS = _LINUX
_KERNEL_LISTS_CHILDREN = Path("/proc/thread-self/children").exists()
_PR_SET_CHILD_SUBREAPER = 36
_GUARDIAN_SECONDS = 5.0


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


def members(root: int, mark: str, others: Collection[int] = ()) -> set[Process]:
    """The living processes of the tree that began with `root` and carries `mark`.

    `others` are known to have begun other trees, which spares a look at each of them.
    """
    if not _LINUX:
        return {Process(pid, "") for pid in marked(mark)}
    children = _own_children()
    adopted = {pid for pid in children if pid not in others and _has_mark(pid, mark)}
    return _alive(_with_descendants((adopted | {root}) & set(children)))


def tree(root: int) -> set[Process]:
    """`root` and its living descendants; a cheaper look, which misses those that were orphaned."""
    own = _alive([root]) if _LINUX else set()
    return own and own | _alive(_with_descendants(_children(root)))


def strangers(known: Collection[int]) -> set[Process]:
    """Our own children, dead or alive, that we did not start: orphans that we adopted."""
    children = _own_children() if _LINUX else []
    return {Process(pid, _start_of(_stat(pid))) for pid in children if pid not in known}


def still_alive(processes: Iterable[Process]) -> set[Process]:
    """Those of `processes` that live, and are not others that got the same number later."""
    return _alive(process.pid for process in processes) & set(processes)


def _alive(pids: Iterable[int]) -> set[Process]:
    found = ((pid, _stat(pid)) for pid in pids)
    return {Process(pid, _start_of(stat)) for pid, stat in found if not _means_dead(stat)}


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


def signal_all(processes: Iterable[Process], number: int) -> None:
    for pid in (process.pid for process in processes):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(processes: Iterable[Process]) -> None:
    """Collect adopted orphans that died; they would stay zombies for as long as we live."""
    for pid in (process.pid for process in processes):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _with_descendants(pids: Iterable[int]) -> Iterator[int]:
    for pid in pids:
        yield pid
        yield from _with_descendants(_children(pid))


def _own_children() -> list[int]:
    """Those of this thread, which starts the agents, and of the main one, which adopts orphans."""
    pid = os.getpid()
    return _children(pid, {pid, threading.get_native_id()})


def _children(pid: int, threads: Iterable[int | str] | None = None) -> list[int]:
    if not _KERNEL_LISTS_CHILDREN:
        return [child for child in _all() if _stat(child)[1:2] == [str(pid).encode()]]
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may end while we look
        for thread in threads or os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - see _read
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def _has_mark(pid: int, mark: str) -> bool:
    try:
        environment = _read(f"/proc/{pid}/environ")
    except OSError:
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
    except OSError:
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


def tell_guardian(guardian: subprocess.Popen[bytes], orphans: Iterable[Process]) -> None:
    assert guardian.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        for orphan in orphans:
            guardian.stdin.write(f"{orphan.pid} {orphan.started}\n".encode())
        guardian.stdin.flush()


def guard(mark: str, scratch: Path) -> None:
    """Wait for the gateway's end, then clear up behind it. A clean end leaves nothing to do.

    Until then it is told which processes without a mark were left to the gateway. Agents that die
    of its end leave others, of which nobody can tell it; where they work gives them away.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = bytearray()
    while data := os.read(0, 4096):
        told += data
    orphans = {Process(int(pid), started) for pid, started in map(str.split, _lines(told))}
    deadline = time.monotonic() + _GUARDIAN_SECONDS
    while time.monotonic() < deadline:
        left = [*marked(mark), *_pids(still_alive(orphans)), *_working_in(scratch)]
        if not left:
            break
        # With their descendants, which need not carry the mark, and from the root down, so that
        # none is told of the death of another.
        signal_all(_alive(_with_descendants(left)), signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(scratch, ignore_errors=True)


def _working_in(folder: Path) -> list[int]:
    inside = f"{folder}{os.sep}"
    return [pid for pid in _all() if _directory(pid).startswith(inside)] if _LINUX else []


def _directory(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _lines(text: bytearray) -> list[str]:
    return text.decode().splitlines()


def _pids(processes: Iterable[Process]) -> list[int]:
    return [process.pid for process in processes]


if __name__ == "__main__":
    guard(sys.argv[1], Path(sys.argv[2]))
    # A gateway that ended by itself has removed its note.
    if len(sys.argv) > 3 and Path(sys.argv[-1]).exists():
        os.execv(sys.executable, [sys.executable, "-I", "-S", *sys.argv[3:]])  # noqa: S606
