"""RelayedCalls: the calls that an agent makes over the relay, each of them once.

Theory of operation
-------------------
The agent tells of a call twice: it *announces* it in its stream, all calls of one moment together,
and the call *arrives* at the relay, one at a time, each after the one before it was answered. The
two have no id in common, and either may come first. But they have the same tool and the same
arguments, and the same order: the n-th announcement of a call is the n-th arrival of it. Arguments
that say nothing (null, empty, zero) are not compared: one of the two may have lost them.

Calls are for the client as soon as the agent really waits for one of them: what is announced and
never arrives was refused by the agent's own permissions, and comes back without us (`withdraw`).
An announcement without arguments is not counted where there should be some, as some versions leave
them out: the arrival will tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cursor_gateway.core.events import RelayedCall
from cursor_gateway.core.loop_guard import fingerprint


@dataclass(slots=True)
class _Call:
    content: RelayedCall
    has_arrived: bool = False
    is_answered: bool = False
    is_handed_out: bool = False


@dataclass(slots=True)
class _Alike:
    """The calls with one tool and one set of arguments, and how often each thing happened."""

    calls: list[_Call] = field(default_factory=list)
    announced: int = 0
    arrived: int = 0
    came_back: int = 0


class RelayedCalls:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._alike: defaultdict[str, _Alike] = defaultdict(_Alike)
        self._calls: dict[str, _Call] = {}

    def announce(self, name: str, arguments: Mapping[str, Any]) -> None:
        alike = self._alike[_likeness(name, arguments)]
        alike.announced += 1
        self._nth(alike, alike.announced, name, arguments)

    def arrive(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The id of the call that arrived."""
        alike = self._alike[_likeness(name, arguments)]
        alike.arrived += 1
        call = self._nth(alike, alike.arrived, name, arguments)
        call.has_arrived = True
        if not call.is_handed_out:
            call.content = replace(call.content, arguments=arguments)
        return call.content.id

    def withdraw(self, name: str, arguments: Mapping[str, Any]) -> None:
        """A call came back to the agent; where it never arrived here, nobody needs its result."""
        alike = self._alike[_likeness(name, arguments)]
        alike.came_back += 1
        if alike.came_back > alike.arrived and alike.came_back <= len(alike.calls):
            alike.arrived += 1
            call = alike.calls[alike.came_back - 1]
            call.is_answered = call.is_handed_out = True

    def answered(self, call_id: str) -> None:
        if call := self._calls.get(call_id):
            call.is_answered = True
            # A run may make many calls, with whole files in their arguments.
            call.content = replace(call.content, arguments={})

    def for_client(self, *, one_at_a_time: bool) -> list[RelayedCall]:
        """The calls to hand out now; each is told once."""
        open_calls = [call for call in self._calls.values() if not call.is_answered]
        if not any(call.has_arrived for call in open_calls):
            return []
        fresh = [call for call in open_calls if not call.is_handed_out]
        if one_at_a_time:
            fresh = fresh[: 1 if len(fresh) == len(open_calls) else 0]
        for call in fresh:
            call.is_handed_out = True
        return [call.content for call in fresh]

    def _nth(self, alike: _Alike, count: int, name: str, arguments: Mapping[str, Any]) -> _Call:
        if count > len(alike.calls):
            call = _Call(RelayedCall(self._new_id(), name, arguments))
            alike.calls.append(call)
            self._calls[call.content.id] = call
        return alike.calls[count - 1]


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
