"""ActiveRequests: the work that a shutdown waits for, and the end of taking more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from cursor_gateway.errors import ShuttingDown


class ActiveRequests:
    def __init__(self) -> None:
        self.count = 0
        self._is_closed = False
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """The shutdown waits for what is done within this."""
        if self._is_closed:
            raise ShuttingDown("The gateway is shutting down.")
        self.count += 1
        self._none.clear()
        try:
            yield
        finally:
            self.count -= 1
            if not self.count:
                self._none.set()

    def refuse_new(self) -> None:
        self._is_closed = True

    async def finished(self) -> None:
        await self._none.wait()
