"""Finding and ending every process that an agent left behind.

A process group is not enough: the CLI's background shells and helpers move into groups and
sessions of their own, and may outlive it. So each agent carries a *mark* in its environment, which
all its descendants inherit. A process belongs to an agent that carries its mark, or whose parent,
group or session belongs to it. On Linux there is more to go by (linux.py): orphans become our own
children, and a number among their limits shows whose they are.

A process is a `psutil.Process`: its number, and when it was started. Two are equal only when both
are, so nobody is taken for another that got the same number later.

A look that fails for want of descriptors or memory raises OSError: it must not pass for one that
found nobody.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator

import psutil
from psutil import Process

from cursor_gateway.processes import linux

MARK = "CURSOR_GATEWAY_RUN"


def members(root: int, mark: str, others: Collection[int] = ()) -> Iterator[Process]:
    """The living processes of the tree that began with `root` and carries `mark`, parents first.

    `root` is or was a child of ours. `others` are known to have begun other trees, which spares a
    look at each of them.
    """
    if not linux.LISTS_CHILDREN:
        yield from _alive(with_followers([*_unless_reused(root), *marked(mark)]))
        return

    def belongs(pid: int) -> bool:
        return pid == root or (pid not in others and _has_mark(pid, mark))

    yield from _alive(_each_once(filter(belongs, linux.own_children()), linux.children_of))


def tree(root: int) -> Iterator[Process]:
    """`root` and its living descendants; a cheaper look, which misses those that were orphaned."""
    if linux.LISTS_CHILDREN:
        yield from _alive(_each_once([root], linux.children_of))
    else:
        yield from _alive(with_followers(_unless_reused(root)))


def strangers(known: Collection[int]) -> set[Process]:
    """Our own living children that we did not start: orphans that we adopted. Those who died are
    buried on the way; they would stay zombies for as long as we live."""
    if linux.LISTS_CHILDREN:
        children = linux.own_children()
    else:
        children = [child.pid for child in Process().children()]
    return set(_alive(pid for pid in children if pid not in known and not _bury(pid)))


def still_alive(processes: Iterable[Process]) -> Iterator[Process]:
    """Those of `processes` that live, and are not others that got the same number later."""
    for process in processes:
        yield from (found for found in _alive([process.pid]) if found == process)


def is_alive(pid: int) -> bool:
    """A zombie is dead; only its parent has not asked for its exit code."""
    return _living(pid) is not None


def marked(mark: str) -> list[int]:
    """All living processes whose mark begins with `mark`."""
    return [pid for pid in psutil.pids() if _has_mark(pid, mark) and is_alive(pid)]


def working_in(folder: str) -> list[int]:
    """All processes whose working directory is below `folder`, which has no links in its path."""
    return [pid for pid in psutil.pids() if _directory(pid).startswith(f"{folder}{os.sep}")]


def ownerless() -> list[int]:
    """All marked processes whose gateway is gone, and its guardian, which outlives it, as well."""
    found = {pid: _mark(pid) or "" for pid in marked("")}
    # A guardian of any version has the mark of its gateway in its command line.
    words = set(itertools.chain.from_iterable(map(_words, psutil.pids())))
    left = (pid for pid, mark in found.items() if _mark_of_gateway(mark) not in words)
    return [process.pid for process in _alive(left)]


def with_followers(pids: Iterable[int]) -> Iterator[int]:
    """Each of them, and whoever has one of them for a parent or leader, or for an ancestor."""
    followers: dict[int, list[int]] = {}
    for pid in psutil.pids():
        for leader in _leaders(pid):
            followers.setdefault(leader, []).append(pid)
    return _each_once(pids, lambda pid: followers.get(pid, []))


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


def _alive(pids: Iterable[int]) -> Iterator[Process]:
    for pid in pids:
        if process := _living(pid):
            yield process


def _living(pid: int) -> Process | None:
    with contextlib.suppress(psutil.Error):
        process = Process(pid)
        if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return process
    return None


def _each_once(pids: Iterable[int], next_to: Callable[[int], list[int]]) -> Iterator[int]:
    """Parents first: so signalled, none is told of its child's death and starts another. A tree may
    be deeper than Python's stack."""
    seen: set[int] = set()
    generation = pids
    while generation:
        following: list[int] = []
        for pid in generation:
            if pid not in seen:
                seen.add(pid)
                yield pid
                following += next_to(pid)
        generation = following


def _unless_reused(root: int) -> list[int]:
    """`root`, also when it is dead, for it may lead a group still; but not when its number is
    another's by now, who is no child of ours."""
    with contextlib.suppress(psutil.Error):
        return [root] if Process(root).ppid() == os.getpid() else []
    return [root]


def _leaders(pid: int) -> set[int]:
    """Its parent, and the leaders of its group and session. No number of a leader is given to
    another process while its group or session exists."""
    try:
        return {Process(pid).ppid(), os.getpgid(pid), os.getsid(pid)} - {pid}
    except (psutil.Error, ProcessLookupError, PermissionError):
        return set()


def _has_mark(pid: int, mark: str) -> bool:
    if linux.has_number(pid, mark):
        return True
    found = _mark(pid)
    return found is not None and found.startswith(mark)


def _mark(pid: int) -> str | None:
    with contextlib.suppress(psutil.Error):
        return Process(pid).environ().get(MARK)
    return None


def _mark_of_gateway(mark: str) -> str:
    return mark.partition(".")[0] + "."


def _directory(pid: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        return Process(pid).cwd()
    return ""


def _words(pid: int) -> list[str]:
    """Its command line."""
    with contextlib.suppress(psutil.Error):
        return Process(pid).cmdline()
    return []
