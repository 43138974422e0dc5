"""ChatSessions: the sessions of finished chats, and how many of their processes live on.

A chat whose process lives goes on at once; each costs some hundred megabytes, though. So there are
a few of them, and the one that nobody has come back to for longest ends its process. What was said
is in the CLI's store then, and is loaded when the chat goes on, which takes seconds.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from cursor_gateway.agents.acp.session import AcpSession

# A person has few conversations at a time, and a machine has to hold their processes.
MOST_ALIVE = 4


class Keeper(Protocol):
    """Whoever started the sessions, as far as they are ended here."""

    def end(self, session: AcpSession) -> asyncio.Future[None]: ...
    def may_reopen(self, session: AcpSession) -> bool: ...


class ChatSessions:
    def __init__(self, most_alive: int, launcher: Keeper) -> None:
        self._most_alive = most_alive
        self._launcher = launcher
        # Those whose process was alive when they were added, the oldest first.
        self._idle: dict[AcpSession, None] = {}

    def add(self, session: AcpSession) -> None:
        session.rest()
        self._idle[session] = None
        if len(self._idle) > self._most_alive:
            self.give_way()

    def take_out(self, session: AcpSession) -> None:
        """It goes on, or is given up."""
        self._idle.pop(session, None)

    def still_has(self, session: AcpSession) -> bool:
        return session.is_there or self._launcher.may_reopen(session)

    def give_way(self) -> asyncio.Future[None] | None:
        """End the oldest process; what it returns is done when that has ended. None where there is
        none."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return None
        self.take_out(oldest)
        return self._launcher.end(oldest)
