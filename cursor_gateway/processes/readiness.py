"""Readiness: who is told when a descriptor can be read.

asyncio's `add_reader` makes a handle, a key and two entries in mappings for each descriptor, and an
agent has three; that was a twentieth of all that is done for an answer. On Linux they stand in one
epoll set of our own instead, which is the one descriptor that asyncio watches.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable


class Readiness:
    """Use it only inside the event loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, Callable[[], object]] = {}
        if sys.platform == "linux":
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._tell)

    def watch(self, fd: int, call: Callable[[], object]) -> None:
        """Call again and again for as long as there is something to read, or the end. One call for
        each descriptor: another takes its place."""
        if sys.platform == "linux":
            if fd not in self._calls:
                self._epoll.register(fd, select.EPOLLIN)
            self._calls[fd] = call
        else:
            self._loop.add_reader(fd, call)

    def unwatch(self, fd: int) -> None:
        """Before `fd` is closed."""
        if sys.platform == "linux":
            if self._calls.pop(fd, None):
                self._epoll.unregister(fd)
        else:
            self._loop.remove_reader(fd)

    def close(self) -> None:
        if sys.platform == "linux":
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _tell(self) -> None:
        """Where a call fails, asyncio says so, and the others are told the next time."""
        for fd, _ in self._epoll.poll(0):
            # Another one's call may have ended the watch just now.
            if call := self._calls.get(fd):
                call()
