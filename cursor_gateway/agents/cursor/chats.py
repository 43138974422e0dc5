"""Chats: conversations that the agent has finished, and the proof that it still has them.

The CLI takes up an unknown chat in silence, as an empty one under the same id, and was seen to take
up a known one without its history (2026.10.01). An answer that knows nothing of the conversation is
worse than a slow one. So a chat is taken up only where the CLI's own store of it is there and was
written to in its last turn; else the whole conversation is sent, which is never wrong.

That the history was really read shows only afterwards, in the tokens: a turn reads no fewer than
one step of the turn before. Where it reads far fewer, the history was not there, and this version
of the CLI is not trusted with a chat again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cursor_gateway.agents.cursor.files import config_folders
from cursor_gateway.agents.cursor.transcripts import chats_name
from cursor_gateway.agents.cursor.version_facts import KnownVersions
from cursor_gateway.workspaces import Workspace

log = logging.getLogger(__name__)

# Below, the counts say nothing: Cursor's own prompt alone has some 15,000 tokens, but not for every
# model. Above, a CLI that makes room in the model's context would look like one that forgets.
_TELLING_TOKENS = range(1_000, 100_000)
# How much of it the next turn reads at least. Results of tools may be left out later on; and
# Cursor's own prompt, which is read without any history, is most of a short conversation.
_LEAST_AFTER_TOOLS = 0.5
_LEAST_AFTER_WORDS = 0.75
_REMOTE = "the agent is remote (agent_command): its chats cannot be seen from here"
_SWITCHED_OFF = "session_reuse is off"
_FORGETS = (
    "this version of the CLI took up a chat without its history; whole conversations are sent"
)


@dataclass(frozen=True, slots=True)
class StoreState:
    """What the file system says of a chat's store. A turn may stand in SQLite's log beside it."""

    size: int
    written_at: int
    log_size: int = 0
    log_written_at: int = 0

    def has_grown_from(self, before: StoreState | None) -> bool:
        """Whether a turn may have been added. One that got smaller was begun anew, unless what is
        missing stood in the log, which is emptied into the store."""
        whole = self.size + self.log_size
        return whole > 0 and (before is None or (self != before and whole >= before.size))


@dataclass(slots=True, eq=False)
class StoredChat:
    """A conversation that the agent has finished and can take up again, in the same directory."""

    session_id: str
    workspace: Workspace
    # Its store as it was before its last turn.
    before: StoreState | None = None
    # How many tokens its next turn reads at least, if it has the history; 0 where nobody can tell.
    least_tokens: int = 0
    # Its store as it was last seen: before the turn that comes next.
    seen: StoreState | None = None
    # The ends of the processes that are in it: two at once in one chat do not get along.
    _inside: set[asyncio.Future[None]] = field(default_factory=set)

    def leaves(self, end: asyncio.Future[None]) -> None:
        """A process is on its way out; `end` is done when it is gone."""
        if not end.done():
            self._inside.add(end)
            end.add_done_callback(self._inside.discard)

    async def until_left(self) -> None:
        """Wait until nobody is in it."""
        while self._inside:
            await asyncio.wait(self._inside)

    def when_left(self, call: Callable[[], object]) -> None:
        if not self._inside:
            call()
        else:
            next(iter(self._inside)).add_done_callback(lambda _: self.when_left(call))


class Chats:
    """Which chats may be taken up. `is_wanted` is the user's word, `sees_stores` whether the agent
    keeps its files on this machine."""

    def __init__(
        self,
        env: Mapping[str, str],
        known: KnownVersions,
        *,
        is_wanted: bool,
        sees_stores: bool,
    ) -> None:
        self._folders = [folder / "chats" for folder in config_folders(env)]
        self._known = known
        self._is_wanted = is_wanted
        self._sees_stores = sees_stores

    @property
    def may_resume(self) -> bool:
        return not self._why_not()

    def is_there(self, chat: StoredChat) -> bool:
        """Whether the CLI surely has the chat, with its last turn."""
        chat.seen = self._look(chat.session_id, chat.workspace.path) if self.may_resume else None
        is_proven = chat.seen is not None and chat.seen.has_grown_from(chat.before)
        if not is_proven:
            log.debug("chat %s is not known to be there", chat.session_id)
        return is_proven

    def judge(self, chat: StoredChat, tokens_read: int | None) -> None:
        """A turn went on with `chat` and read that many tokens in all its steps."""
        if tokens_read is None or not chat.least_tokens:
            return
        kept = tokens_read >= chat.least_tokens
        if not kept:
            log.warning(
                "chats are not resumed with cursor-agent %s any more: a resumed answer read "
                "%d tokens, where its history alone has more than %d; whole conversations are "
                "sent from now on",
                self._known.version or "(version unknown)",
                tokens_read,
                chat.least_tokens,
            )
        # An answer that was on its way when another one showed it changes nothing.
        if self._known.facts.resume_keeps_history is not False:
            self._known.learn(resume_keeps_history=kept)

    def state(self) -> dict[str, Any]:
        """For people: whether chats are taken up, and if not, why."""
        return {"resume": self.may_resume, "reason": self._why_not() or None}

    def _why_not(self) -> str:
        if not self._is_wanted:
            return _SWITCHED_OFF
        if not self._sees_stores:
            return _REMOTE
        return _FORGETS if self._known.facts.resume_keeps_history is False else ""

    def _look(self, session_id: str, directory: Path) -> StoreState | None:
        folder = chats_name(os.path.realpath(directory))
        places = (place / folder / session_id / "store.db" for place in self._folders)
        return next(filter(None, map(_state_of, places)), None)


def least_tokens(tokens_read: int | None, steps: int) -> int:
    """How many a turn reads at least after one that read so many in, at most, so many steps."""
    step = (tokens_read or 0) // steps
    share = _LEAST_AFTER_WORDS if steps == 1 else _LEAST_AFTER_TOOLS
    return int(step * share) if step in _TELLING_TOKENS else 0


def _state_of(store: Path) -> StoreState | None:
    try:
        found = store.stat()
    except OSError:
        return None
    try:
        journal = store.with_name("store.db-wal").stat()
    except OSError:
        return StoreState(found.st_size, found.st_mtime_ns)
    return StoreState(found.st_size, found.st_mtime_ns, journal.st_size, journal.st_mtime_ns)
