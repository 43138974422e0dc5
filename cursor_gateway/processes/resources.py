"""Resources: what this process and its machine have left for agents.

An agent that only waits holds a process of some hundred megabytes and half a dozen descriptors. How
many of them there may be is a setting; but a process may be allowed few descriptors, and a machine
may be full of other things. So agents that only wait give way before anything has run out: a
gateway without a descriptor could not even take the request that would make one give way.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import psutil

# A start fails with one of these where descriptors, processes or memory have run out.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})

# All slots, waiting agents and clients of one machine take fewer. macOS starts programs with 256,
# and takes no more than 10,240 here.
WANTED_DESCRIPTORS = 8192
# A process that has used so much of what it may have has few left for clients.
MOST_USED = 0.75
# The machine is short of memory when less than both of these is available.
LEAST_SHARE, LEAST_BYTES = 1 / 16, 512 * 1024 * 1024

CGROUPS = Path("/sys/fs/cgroup")

Limits = tuple[int, int]


def raise_limit() -> Limits | None:
    """Let this process have as many descriptors as it may need; what it had, if that is less."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # the system has a limit of its own, which it does not tell
        return None
    return soft, hard


def give_back_limit(pid: int, limits: Limits) -> None:
    """A program may rely on the limit that the user's programs have: `select` fails above 1,024.
    Where this cannot be done (macOS), it has more than it expects."""
    if hasattr(resource, "prlimit"):
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        except OSError:  # it is gone, or another user's by now
            return


def descriptors() -> dict[str, int]:
    """How many are in use, and how many may be."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 - the list itself takes one
    except OSError as error:
        used = limit if error.errno in EXHAUSTED else 0
    return {"used": used, "limit": limit}


def shortage() -> str:
    """What there is too little of for agents that only wait; empty where nothing is short."""
    found = descriptors()
    if 0 < found["limit"] < found["used"] / MOST_USED:
        return "descriptors"
    return "memory" if _memory_is_short() else ""


def _memory_is_short() -> bool:
    machine = psutil.virtual_memory()
    return _is_short(machine.available, machine.total) or _container_is_short()


def _container_is_short() -> bool:
    """Linux: whether the control group that this process is in has nearly all it may have."""
    try:
        place = CGROUPS / Path("/proc/self/cgroup").read_text().strip().rpartition("::/")[2]
        most = int((place / "memory.max").read_text())
        # Files that were read count as used until somebody needs the room.
        figures = (place / "memory.stat").read_text().split()
        unused = int(figures[figures.index("inactive_file") + 1])
        return _is_short(most - int((place / "memory.current").read_text()) + unused, most)
    except (OSError, ValueError):  # no limit, or no such groups
        return False


def _is_short(available: int, total: int) -> bool:
    return available < min(LEAST_SHARE * total, LEAST_BYTES)
