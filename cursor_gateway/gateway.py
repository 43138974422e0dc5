"""The program in one function: `Gateway.answer`."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cursor_gateway import __version__
from cursor_gateway.account import Account
from cursor_gateway.agents.child import TERM_GRACE, Children
from cursor_gateway.agents.cursor_cli import CursorCli
from cursor_gateway.core.conversation import Conversation
from cursor_gateway.core.events import Event, Finished
from cursor_gateway.core.turn import Turn
from cursor_gateway.errors import AgentNotFound, GatewayError, NotAuthenticated, TooManyRequests
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspaces

log = logging.getLogger(__name__)


class Gateway:
    """Owns everything that lives longer than a request. Made and used inside one event loop."""

    def __init__(
        self, settings: Settings, env: Mapping[str, str], *, owns_process: bool = False
    ) -> None:
        self._settings = settings
        self._children = Children(owns_process=owns_process)
        self.workspaces = Workspaces(
            self._children.scratch, settings.workspace, settings.workspace_roots
        )
        self.agent = CursorCli(settings, env, self._children, self.workspaces)
        self.account = Account(self.agent, settings)
        self._slots = _Slots(settings.slots, settings.queue)
        self._loops_stopped = 0

    async def answer(
        self, conversation: Conversation, directory: Path | None
    ) -> AsyncGenerator[list[Event], None]:
        """The answer to `conversation`, in batches of events; the last event is `Finished`.

        `directory` is a real workspace that was allowed, or None for an empty one.
        """
        self.agent.locate()
        model = await self.account.resolve(conversation.model)
        await self.account.require_sign_in()
        turn = Turn(
            conversation,
            max_repeat=self._settings.tool_loop_max_repeat,
            new_id=_new_call_id,
            show_activity=self._settings.show_activity,
        )
        async with self._slots.take():
            while not turn.over:
                asked = replace(conversation, messages=conversation.messages + turn.retry)
                turn.begin(asked)
                run = self.agent.run(asked, model, directory, lambda: turn.restless)
                async with aclosing(run) as batches:
                    try:
                        async for batch in batches:
                            if events := turn.feed(batch):
                                self._note_loop(events[-1])
                                yield events
                            if not turn.wants_more:
                                self.account.trust_sign_in()
                                break
                    except NotAuthenticated:
                        self.account.doubt_sign_in()
                        raise

    def _note_loop(self, event: Event) -> None:
        if isinstance(event, Finished) and event.loop is not None:
            self._loops_stopped += 1
            log.warning("loop guard stopped %s: %s", event.loop.tool, event.loop.as_json())

    def health(self) -> dict[str, Any]:
        """What scripts ask: from memory, in no time."""
        problem: GatewayError | None
        try:
            located = self.agent.locate()
            agent: dict[str, Any] = {"kind": located.kind, "path": located.path}
            agent["version"] = self.account.version
            problem = self.account.problem()
        except AgentNotFound as missing:
            agent, problem = {"kind": None, "path": None, "version": None}, missing
        state: dict[str, Any] = {
            "status": "error" if problem else "ok",
            "version": __version__,
            "auth": "authenticated" if self.account.authenticated else "not_authenticated",
            "mcp": {"enabled": False, "servers": 0, "tools": 0},
            "agent": agent,
            "slots": self._slots.state(),
            "loops_stopped": self._loops_stopped,
        }
        if problem:
            state["error"] = {"code": problem.code, "message": problem.message}
        return state

    async def close(self, *, at_once: bool = False) -> None:
        """Stop every agent. `at_once` gives none of them time to leave by itself."""
        await self.account.close()
        await self._children.close(0.0 if at_once else TERM_GRACE)


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class _Slots:
    """How many agents run at once. Who comes later waits in line and may leave it at any time."""

    def __init__(self, slots: int, queue: int) -> None:
        self._slots = slots
        self._queue = queue
        self._free = asyncio.Semaphore(slots)
        self._inside = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        if self._inside >= self._slots + self._queue:
            raise TooManyRequests(
                f"{self._slots} agents are running and {self._queue} requests are waiting."
            )
        self._inside += 1
        try:
            async with self._free:
                yield
        finally:
            self._inside -= 1

    def state(self) -> dict[str, int]:
        running = min(self._inside, self._slots)
        return {"total": self._slots, "busy": running, "waiting": self._inside - running}
