"""Sending: one message to an agent of the bridge, and what the bridge tells of it.

It is read on, whether anybody reads here or not: a bridge whose reader falls behind breaks the
stream off. So what nobody has read yet is kept, up to a bound; beyond that the run has failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from cursor_gateway.agents.sdk.stream import BridgeStream
from cursor_gateway.agents.sdk.texts import BridgeFault, Refusal
from cursor_gateway.agents.sdk.tool_calls import ToolCalls
from cursor_gateway.background import in_background
from cursor_gateway.core.events import AgentEvent, TextDelta, ThinkingDelta

log = logging.getLogger(__name__)

MOST_EVENTS = 65_536
MOST_CHARACTERS = 16 * 1024 * 1024
# The id of a run comes with its first message; and a run that was cancelled ends at once.
ID_SECONDS = 2.0
END_SECONDS = 2.0


class Sending:
    def __init__(
        self, messages: AsyncGenerator[list[dict[str, Any]], None], calls: ToolCalls
    ) -> None:
        self.stream = BridgeStream(calls.tools.get)
        # Why it ended, if not by a result.
        self.failure: Exception | None = None
        self._calls = calls
        self._events: list[AgentEvent] = []
        self._characters = 0
        self._news = asyncio.Event()
        self._has_id = asyncio.Event()
        self.over = in_background(self._read(messages), "reading from the SDK bridge")

    def take(self) -> Sequence[AgentEvent]:
        events, self._events, self._characters = self._events, [], 0
        return events

    async def news(self, until: float) -> None:
        """Return when there is something to look at. Raises TimeoutError."""
        async with asyncio.timeout_at(until):
            await self._news.wait()
        self._news.clear()

    def wake(self) -> None:
        """Something else has happened that its reader must look at."""
        self._news.set()

    async def run_id(self) -> str:
        """The bridge's name of the run; empty if it tells none."""
        has_id = asyncio.ensure_future(self._has_id.wait())
        waited = {has_id, self.over}
        await asyncio.wait(waited, timeout=ID_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        has_id.cancel()
        return self.stream.run_id

    async def close(self) -> None:
        """Wait for its end, for a moment, and then no longer."""
        await asyncio.wait({self.over}, timeout=END_SECONDS)
        self.over.cancel()
        await asyncio.wait({self.over})

    def bridge_ended(self) -> None:
        """What it still sent is read for a moment. That a connection breaks off was not always
        noticed (aiohttp 3.14, once in thousands of deaths)."""
        asyncio.get_running_loop().call_later(END_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if not self.over.done():
            self.over.cancel()
            self.failure = BridgeFault("it has ended")
            self.wake()

    async def _read(self, messages: AsyncGenerator[list[dict[str, Any]], None]) -> None:
        try:
            self.failure = await self._failure_of(messages)
        except Exception:
            # A bug of ours must not leave somebody waiting for what nobody reads.
            log.exception("what the SDK bridge sent could not be read")
            self.failure = BridgeFault("what it sent could not be read")
        finally:
            self._has_id.set()
            self._news.set()

    async def _failure_of(
        self, messages: AsyncGenerator[list[dict[str, Any]], None]
    ) -> Exception | None:
        """Read all of it. Its last frame may say more of a failure than its result."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit, aclosing(messages):
                async for batch in messages:
                    self._take_in(batch)
                    del batch  # the next one may be long in coming
                    if self.stream.failure and limit.when() is None:
                        limit.reschedule(loop.time() + END_SECONDS)
        except Refusal as refusal:
            return None if self.stream.finished else refusal
        except (BridgeFault, TimeoutError) as error:
            return None if self.stream.finished else self.stream.failure or error
        if self.stream.finished:
            return None
        return self.stream.failure or BridgeFault("it ended a stream without a result")

    def _take_in(self, batch: Sequence[Mapping[str, Any]]) -> None:
        for message in batch:
            events = self.stream.feed(message)
            self._events += events
            self._characters += sum(map(_size, events))
        if any(batch):  # a message without anything only keeps the connection alive
            self._news.set()
        if self.stream.run_id:
            self._has_id.set()
        if len(self._events) > MOST_EVENTS or self._characters > MOST_CHARACTERS:
            raise BridgeFault("its answer came faster than the client has read it")


def _size(event: AgentEvent) -> int:
    return len(event.text) if isinstance(event, TextDelta | ThinkingDelta) else 0
