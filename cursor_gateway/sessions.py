"""Sessions: which live run or finished chat goes on with this conversation?

A *parked run* waits for results of calls that were handed out; the ids of those calls find it. A
*finished chat* waits for the user to go on; the history finds it. Either is used only where the
conversation is what the agent has read and said, plus something new. Everything else is answered by
a fresh run that reads the whole transcript: that is never wrong, only slower. So whatever does not
fit exactly is left to it, without an error.

Whoever is found is taken out: two requests never share a run or a chat. What nobody asks for
expires. A run that waits is a live process: there are `most` of them, and the one that has waited
for longest gives way to the next, or where the machine has no room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cursor_gateway.agents import Agent, Chat, Run
from cursor_gateway.core.call_ids import CallIds
from cursor_gateway.core.client_habits import ends_the_task, with_calls_from_text
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult
from cursor_gateway.core.history import History, history_of, reminders, session_name, split
from cursor_gateway.processes import resources

log = logging.getLogger(__name__)

# Far more than a person has open at once; what is beyond it gives way to the newer.
MAX_CHATS = 256

# A client that has what it wanted comes back at once, to complain of it, or never.
_COMPLAINS_WITHIN = 2.0
_LEFT_OUT = (
    "No result: the client left this call out of the conversation, and most likely did not make it."
    " Call again if it is still needed."
)


@dataclass(frozen=True)
class TurnRequest:
    """A conversation, and all that must be the same for it to go on."""

    conversation: Conversation
    model: str
    directory: Path | None
    # Whose request it is: a digest of the key that it came with. Nobody else can name its calls.
    caller: str = ""
    may_resume: bool = True

    @property
    def scope(self) -> Hashable:
        return self.model, self.directory, self.caller

    @property
    def scope_with_tools(self) -> Hashable:
        return self.scope, tuple(tool.digest for tool in self.conversation.callable_tools)

    @cached_property
    def past_and_new(self) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """The messages up to the assistant's last turn, and those since; only for comparing."""
        return split(with_calls_from_text(self.conversation.messages))

    @cached_property
    def past(self) -> History:
        return history_of(self.past_and_new[0])

    @property
    def whole(self) -> History:
        return history_of(self.past_and_new[1], self.past)


@dataclass(slots=True)
class _Parked:
    run: Run
    caller: str
    scope: Hashable
    seen: History
    calls: frozenset[str]
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Stored:
    chat: Chat
    seen: History
    keys: tuple[Hashable, ...]
    until: float


class Sessions:
    def __init__(self, agent: Agent, call_ids: CallIds, seconds: float, most: int) -> None:
        self._agent = agent
        self._call_ids = call_ids
        self._seconds = seconds
        self._most = most
        self._gave_way = 0
        agent.make_room = self._make_room_for_start
        # By the ids of the calls that each waits for; a run with several calls is here as often.
        self._parked: dict[str, _Parked] = {}
        # The oldest first, which are the first to expire: one timer does for all.
        self._stored: dict[Hashable, _Stored] = {}
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def chats(self) -> int:
        return len({id(stored) for stored in self._stored.values()})

    def state(self) -> dict[str, Any]:
        return {
            "parked": len(self._runs()),
            "most_parked": self._most,
            "gave_way": self._gave_way,
            "chats": self.chats,
        }

    def close(self) -> None:
        for parked in self._runs():
            self._stop(parked)
        while self._stored:
            self._forget(self._oldest())
        if self._expiry is not None:
            self._expiry.cancel()

    # Runs that wait for results

    def park(
        self, request: TurnRequest, run: Run, seen: History, calls: Sequence[ToolCall]
    ) -> None:
        self._make_room_for_waiting()
        if not self._most:
            self._agent.end(run)
            return
        parked = _Parked(
            run, request.caller, request.scope, seen, frozenset(call.id for call in calls)
        )
        seconds = self._seconds
        if ends_the_task(request.conversation, [call.name for call in calls]):
            seconds = min(seconds, _COMPLAINS_WITHIN)
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(seconds, lambda: self._stop(parked))
        run.when_over(lambda: self._stop(parked))
        self._parked |= dict.fromkeys(parked.calls, parked)

    def _make_room_for_waiting(self) -> None:
        if len(self._runs()) >= self._most:
            self._give_way()
        elif what := resources.shortage():
            log.info("%s run short; an agent that waits gives way", what)
            _ = self._agent.give_way() or self._give_way()

    async def _make_room_for_start(self) -> bool:
        """End somebody who only waits, a warm agent first; whether there was anybody."""
        ended = self._agent.give_way() or self._give_way()
        if ended is not None:
            await asyncio.wait({ended})
        return ended is not None

    def _give_way(self) -> asyncio.Future[None] | None:
        """End the run that has waited for longest; what it returns is done when that has ended."""
        oldest = next(iter(self._parked.values()), None)
        if oldest is None:
            return None
        self._gave_way += 1
        return self._stop(oldest)

    def continued(self, request: TurnRequest) -> Run | None:
        """The run that waits for the results that `request` brings; it has them now."""
        past, new_messages = request.past_and_new
        if not past and not self._parked:
            return None
        results = [part for m in new_messages for part in m.parts if isinstance(part, ToolResult)]
        # Calls without a result, too: their client has moved on.
        asked = [part.id for m in past[-1:] for part in m.parts if isinstance(part, ToolCall)]
        ids = [*asked, *(result.id for result in results)]
        waiting = (p for each in ids if (p := self._parked.get(each)))
        found = {id(parked): parked for parked in waiting if parked.caller == request.caller}
        if not found:
            if any(self._call_ids.is_ours(result.id) for result in results):
                log.debug("nothing waits for these results any more")
            return None
        parked = next(iter(found.values()))
        reason = "two runs at once"
        if len(found) == 1:
            reason = self._mismatch(parked, request, results, new_messages)
        if reason:
            log.info("a waiting run is replaced by a fresh one: %s", reason)
            for each in found.values():
                self._stop(each)
            return None
        self._take_out(parked)
        return parked.run

    def _mismatch(
        self,
        parked: _Parked,
        request: TurnRequest,
        results: Sequence[ToolResult],
        new_messages: Sequence[Message],
    ) -> str:
        """Why the run cannot go on with `request`; empty if it does."""
        if parked.scope != request.scope:
            return "another model or workspace"
        if not request.past.goes_on_from(parked.seen):
            return "another history"
        brought = {result.id for result in results}
        if not request.past.calls or not brought >= set(request.past.calls):
            return "results are missing"
        if reminders(new_messages) is None:
            return "the user said more"
        left_out = parked.calls - set(request.past.calls)
        return parked.run.resume(
            [*_with_reminders(results, new_messages), *map(_without_result, left_out)],
            request.conversation.callable_tools,
            parallel_calls=request.conversation.parallel_calls,
        )

    def stop(self, run: Run) -> None:
        """The client did not get the calls for which the run was parked."""
        for parked in self._runs():
            if parked.run is run:
                self._stop(parked)

    def _runs(self) -> list[_Parked]:
        return list({id(parked): parked for parked in self._parked.values()}.values())

    def _take_out(self, parked: _Parked) -> None:
        if parked.timer is not None:
            parked.timer.cancel()
        for call in parked.calls:
            if self._parked.get(call) is parked:
                del self._parked[call]

    def _stop(self, parked: _Parked) -> asyncio.Future[None] | None:
        if any(self._parked.get(call) is parked for call in parked.calls):
            self._take_out(parked)
            return self._agent.end(parked.run)
        return None

    # Chats that wait for the user

    def keep(self, request: TurnRequest, run: Run, seen: History) -> Chat | None:
        if not request.may_resume:
            self._agent.end(run)
            return None
        chat = self._agent.keep(run)
        if chat is None:
            return None
        # Each has a key or two.
        if len(self._stored) >= MAX_CHATS and self.chats >= MAX_CHATS:
            self._forget(self._oldest())
        keys: tuple[Hashable, ...] = ((self._scope(request), seen.key),)
        if name := session_name(request.conversation):
            keys = (*keys, (self._scope(request), name, _instructions(request)))
        loop = asyncio.get_running_loop()
        stored = _Stored(chat, seen, keys, loop.time() + self._seconds)
        if self._expiry is None:
            self._expiry = loop.call_at(stored.until, self._forget_expired)
        for key in keys:
            if earlier := self._stored.get(key):
                self._forget(earlier)
            self._stored[key] = stored
        return chat

    def resumed(self, request: TurnRequest) -> tuple[Chat | None, int]:
        """The chat that `request` goes on with, if any, and how many messages are in there."""
        if not request.may_resume:
            return None, 0
        messages = request.conversation.messages
        past, _ = request.past_and_new
        stored, known = None, 0
        if past:
            stored = self._stored.get((self._scope(request), request.past.key))
            stored = stored if stored and request.past.goes_on_from(stored.seen) else None
            known = len(past)
        elif name := session_name(request.conversation):
            # A client that names its session may send only what is new.
            stored = self._stored.get((self._scope(request), name, _instructions(request)))
            known = sum(message.role == "system" for message in messages)
        if stored is None or known == len(messages):
            return None, 0
        self._take(stored)
        if not self._agent.still_has(stored.chat):
            self._agent.forget(stored.chat)
            return None, 0
        return stored.chat, known

    def _scope(self, request: TurnRequest) -> Hashable:
        takes_tools = self._agent.capabilities.chats_take_tools
        return request.scope if takes_tools else request.scope_with_tools

    def _take(self, stored: _Stored) -> None:
        for key in stored.keys:
            if self._stored.get(key) is stored:
                del self._stored[key]

    def _forget(self, stored: _Stored) -> None:
        self._take(stored)
        self._agent.forget(stored.chat)

    def _forget_expired(self) -> None:
        loop, self._expiry = asyncio.get_running_loop(), None
        while self._stored and self._oldest().until <= loop.time():
            self._forget(self._oldest())
        if self._stored:
            self._expiry = loop.call_at(self._oldest().until, self._forget_expired)

    def _oldest(self) -> _Stored:
        return next(iter(self._stored.values()))


def _instructions(request: TurnRequest) -> History:
    """What its system messages say: a named session with others is another one."""
    return history_of(m for m in request.conversation.messages if m.role == "system")


def _without_result(call_id: str) -> ToolResult:
    return ToolResult(call_id, (Text(_LEFT_OUT),), is_error=True)


def _with_reminders(
    results: Sequence[ToolResult], new_messages: Sequence[Message]
) -> list[ToolResult]:
    """What the client put beside the results goes with the last of them."""
    last = results[-1]
    extra = ToolResult(last.id, (*last.content, *(reminders(new_messages) or ())), last.is_error)
    return [*results[:-1], extra]
