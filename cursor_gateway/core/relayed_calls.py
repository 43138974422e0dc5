"""RelayedCalls: the calls that an agent makes over the relay, each of them once.

Theory of operation
-------------------
The agent tells of a call twice: it *announces* it in its stream, all calls of one moment together,
and the call *arrives* at the relay, one at a time, each after the one before it was answered. The
two have no id in common, and either may come first. They have the same tool, the same order, and
mostly the same arguments. Arguments that say nothing (null, empty, zero) are not compared: one of
the two may have lost them.

The user's hooks may rewrite a call in between (CLI 2026.10.01). So an arrival is the first open
announcement with its arguments; else the first one that came without any, as some versions leave
them out; else the first one of its tool, rewritten. The same holds for an announcement that comes
after its call. What has no counterpart yet is a call of its own. So there are never more calls than
announcements that stay open and arrivals, whatever the arguments are.

Calls are for the client as soon as the agent really waits for one of them: what is announced and
never arrives was refused by the agent's own permissions, and comes back without us (`came_back`).
That the others will arrive as they were announced is a bet. It is lost when a call was rewritten,
and not made again: from then on, only what has arrived is handed out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cursor_gateway.core.events import ClientCall
from cursor_gateway.core.loop_guard import fingerprint


@dataclass(slots=True, eq=False)
class _Call:
    content: ClientCall
    # Its tool and arguments, to compare; empty while the arguments are not known.
    likeness: str = ""
    has_arrived: bool = False
    is_handed_out: bool = False
    # Whether the agent got a result for it, or a ticket.
    is_replied: bool = False


class RelayedCalls:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        # Those whose result is still needed.
        self._open: dict[str, _Call] = {}
        # By the id that the agent's stream has for it, until it comes back there.
        self._announced: dict[str, _Call] = {}
        # By tool, the oldest first: those that were only announced, and those that only arrived.
        self._awaited: defaultdict[str, list[_Call]] = defaultdict(list)
        self._unannounced: defaultdict[str, list[_Call]] = defaultdict(list)
        # Whether a call arrived with other arguments than it was announced with.
        self.were_rewritten = False

    def announce(self, stream_id: str, name: str, arguments: Mapping[str, Any] | None) -> None:
        """The agent's stream tells of a call; without `arguments` where it does not tell them."""
        if stream_id in self._announced:
            return
        likeness = "" if arguments is None else _likeness(name, arguments)
        call = self._counterpart(self._unannounced[name], likeness)
        if call is None:
            call = self._new(name, arguments or {}, likeness)
            self._awaited[name].append(call)
        self._announced[stream_id] = call

    def arrive(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The id of the call that arrived."""
        likeness = _likeness(name, arguments)
        call = self._counterpart(self._awaited[name], likeness)
        if call is None:
            call = self._new(name, arguments, likeness)
            self._unannounced[name].append(call)
        call.has_arrived = True
        if not call.is_handed_out:
            call.content = replace(call.content, arguments=arguments)
        return call.content.id

    def came_back(self, stream_id: str) -> None:
        """A call came back to the agent."""
        call = self._announced.pop(stream_id, None)
        if call is None:
            return
        awaited = self._awaited[call.content.name]
        if call in awaited:
            # It never arrived here, so nobody needs its result.
            self._withdraw(call)
        elif not call.is_replied and awaited:
            # It cannot be the one that arrived, for that still waits: it was refused, and the next
            # announcement is that of the arrival.
            self._unite(call, _alike(awaited, call.likeness) or awaited[0])

    def replied(self, call_id: str) -> None:
        """The agent has a ticket for it, or is about to get its result."""
        if call := self._open.get(call_id):
            call.is_replied = True

    def answered(self, call_id: str) -> None:
        """The client brought its result."""
        self.replied(call_id)
        if call := self._open.pop(call_id, None):
            # A run may make many calls, with whole files in their arguments.
            call.content = replace(call.content, arguments={})

    def for_client(self, *, one_at_a_time: bool, as_announced: bool = True) -> list[ClientCall]:
        """The calls to hand out now; each is told once. Those that have not arrived are among them
        if they shall be executed `as_announced`."""
        open_calls = self._open.values()
        if not any(call.has_arrived for call in open_calls):
            return []
        only_arrived = one_at_a_time or not as_announced or self.were_rewritten
        fresh = [
            call
            for call in open_calls
            if not call.is_handed_out and (call.has_arrived or (call.likeness and not only_arrived))
        ]
        if one_at_a_time:
            fresh = fresh[: 0 if any(call.is_handed_out for call in open_calls) else 1]
        for call in fresh:
            call.is_handed_out = True
        return [call.content for call in fresh]

    def _new(self, name: str, arguments: Mapping[str, Any], likeness: str) -> _Call:
        call = _Call(ClientCall(self._new_id(), name, arguments), likeness)
        self._open[call.content.id] = call
        return call

    def _counterpart(self, calls: list[_Call], likeness: str) -> _Call | None:
        """The one of `calls` that is the same call, taken from them."""
        if not calls:
            return None
        found = _alike(calls, likeness) or _alike(calls, "")
        if found is None:
            found = calls[0]
            self.were_rewritten |= bool(likeness)
        calls.remove(found)
        return found

    def _withdraw(self, call: _Call) -> None:
        self._awaited[call.content.name].remove(call)
        self._open.pop(call.content.id, None)

    def _unite(self, arrived: _Call, announced: _Call) -> None:
        """Two calls were taken for one another, and are one."""
        self._withdraw(announced)
        for stream_id, call in self._announced.items():
            if call is announced:
                self._announced[stream_id] = arrived


def _alike(calls: Iterable[_Call], likeness: str) -> _Call | None:
    return next((call for call in calls if call.likeness == likeness), None)


def _likeness(name: str, arguments: Mapping[str, Any]) -> str:
    return fingerprint(name, _telling(arguments))


def _telling(value: Any) -> Any:
    """`value` without what says nothing, and with one way to write a number."""
    if isinstance(value, Mapping):
        inner = {key: _telling(entry) for key, entry in value.items()}
        return {key: entry for key, entry in inner.items() if entry not in (None, "", 0, [], {})}
    if isinstance(value, list):
        return [_telling(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
