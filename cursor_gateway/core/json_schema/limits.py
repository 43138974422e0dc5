"""How large a schema or a document may be, and how many steps one may take."""

from __future__ import annotations

from typing import Any

from cursor_gateway.core.json_text import MAX_DEPTH

# Far beyond what models and their providers accept. Values within this limit are safe to recurse
# into.
MAX_NODES = 50_000
# About a fifth of a second.
MAX_STEPS = 200_000


class NotJudged(Exception):
    """It cannot be decided whether a document fits its schema; the message says why."""


class TooExpensive(NotJudged):
    def __init__(self) -> None:
        super().__init__("its schema is too expensive to check.")


class TooDeep(NotJudged):
    def __init__(self) -> None:
        super().__init__("it is nested too deeply to be checked.")


class Unresolvable(NotJudged):
    def __init__(self, reference: str) -> None:
        super().__init__(f"its schema refers to {reference[:200]!r}, which is not part of it.")


class Steps:
    """The steps that are left; each takes about a microsecond."""

    def __init__(self, left: int = MAX_STEPS) -> None:
        self.left = left

    def take(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise TooExpensive


def nodes_within(value: Any, most: int = MAX_NODES) -> int:
    """How many values `value` consists of; raises before it has looked at more than `most`, or at
    more than MAX_DEPTH levels."""
    nodes, level = 1, [value]
    containers = (dict, list)
    for _ in range(MAX_DEPTH):
        level = [entry for entry in level if isinstance(entry, containers) and entry]
        if not level:
            return nodes
        nodes += sum(map(len, level))
        if nodes > most:
            raise TooExpensive
        level = [
            inner
            for entry in level
            for inner in (entry.values() if isinstance(entry, dict) else entry)
        ]
    raise TooDeep
