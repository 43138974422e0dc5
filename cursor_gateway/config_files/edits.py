"""Edits by splices, for every format whose parser says where each value is in the text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class Unreadable(Exception):
    """The text is not in its format, or written in a way that cannot be changed safely."""


@dataclass(slots=True)
class Node:
    """A value and its place in the text; an object has `members`, a list has `items`."""

    start: int
    end: int
    value: Any
    members: dict[str, Node] | None = None
    items: list[Node] | None = None
    # Where a member or a list item begins, including its name or its dash.
    begins: int = 0
    # Whether the value is written with brackets, and whether it is inside the brackets of another.
    flow: bool = True
    in_brackets: bool = False

    @property
    def children(self) -> list[Node]:
        return list(self.members.values()) if self.members is not None else self.items or []


@dataclass(frozen=True, slots=True)
class Splice:
    start: int
    end: int
    text: str


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """`text` with all splices. Insertions at the same place keep their order, inner ones first."""
    parts, done = [], 0
    for splice in sorted(splices, key=lambda splice: (splice.start, splice.end)):
        parts += [text[done : splice.start], splice.text]
        done = splice.end
    return "".join([*parts, text[done:]])


def identity(item: Any) -> str | None:
    """The `id` or `name` of an object in a list."""
    found = (item.get("id") or item.get("name")) if isinstance(item, Mapping) else None
    return found if isinstance(found, str) else None


def named(items: Any) -> dict[str, Any]:
    """The objects of a list that have an identity, by their identity."""
    found = [(identity(item), item) for item in items] if isinstance(items, list) else []
    return {key: item for key, item in found if key is not None}


def merges_with(item: Any, wanted: Any) -> bool:
    """Whether `wanted` is merged into `item`, instead of replacing it."""
    if isinstance(wanted, Mapping):
        return isinstance(item, Mapping)
    return bool(named(wanted)) and isinstance(item, list)


@dataclass(frozen=True, slots=True)
class IfMissing:
    """A value that is set only if there is none."""

    value: Any


def plain(wanted: Any) -> Any:
    if isinstance(wanted, IfMissing):
        return wanted.value
    if isinstance(wanted, Mapping):
        return {name: plain(value) for name, value in wanted.items()}
    return [plain(item) for item in wanted] if isinstance(wanted, list) else wanted


class SplicedText(ABC):
    """A `ConfigFormat` that changes texts by splices."""

    @abstractmethod
    def parse(self, text: str) -> Node:
        """The object that makes up the whole text."""

    @abstractmethod
    def replace(self, text: str, node: Node, value: Any) -> Iterator[Splice]: ...

    @abstractmethod
    def add(
        self, text: str, node: Node, members: Mapping[str, Any], items: list[Any]
    ) -> Iterator[Splice]:
        """Put members at the end of an object, or items at the end of a list."""

    @abstractmethod
    def remove(self, text: str, node: Node, gone: list[Node]) -> Iterator[Splice]:
        """Take children out of an object or a list."""

    def read(self, text: str) -> Any:
        return self.parse(text).value

    def merged(self, text: str, wanted: Mapping[str, Any]) -> str:
        return spliced(text, list(self._merge(text, self.parse(text), wanted)))

    def restored(self, text: str, before: Any, written: Any) -> str:
        return spliced(text, list(self._restore(text, self.parse(text), before, written)))

    def _merge(self, text: str, node: Node, wanted: Mapping[str, Any]) -> Iterator[Splice]:
        missing = {}
        for name, value in wanted.items():
            child = (node.members or {}).get(name)
            if child is None:
                missing[name] = plain(value)
            elif not isinstance(value, IfMissing):
                yield from self._merge_value(text, child, value)
        if missing:
            yield from self.add(text, node, missing, [])

    def _merge_value(self, text: str, node: Node, wanted: Any) -> Iterator[Splice]:
        if not merges_with(node.value, wanted):
            if node.value != plain(wanted):
                yield from self.replace(text, node, plain(wanted))
        elif isinstance(wanted, Mapping):
            yield from self._merge(text, node, wanted)
        else:
            there = {identity(item.value): item for item in node.items or []}
            for key, value in named(wanted).items():
                if key in there:
                    yield from self._merge(text, there[key], value)
            missing = [plain(value) for key, value in named(wanted).items() if key not in there]
            if missing:
                yield from self.add(text, node, {}, missing)

    def _restore(self, text: str, node: Node, before: Any, written: Any) -> Iterator[Splice]:
        """`before` and `written` are objects or lists of named objects. Other lists are replaced as
        a whole."""
        if isinstance(written, Mapping):
            there: dict[Any, Node] = dict(node.members or {})
        else:
            there = {identity(item.value): item for item in node.items or []}
            before, written = named(before), named(written)
        gone = []
        for name, value in written.items():
            if name not in there or (name in before and before[name] == value):
                continue
            child = there[name]
            if name not in before and _is_all_ours(child.value, value):
                gone.append(child)
            elif merges_with(child.value, value) and merges_with(before.get(name, value), value):
                yield from self._restore(text, child, before.get(name, type(value)()), value)
            elif name in before and child.value == value:
                yield from self.replace(text, child, before[name])
        if gone:
            yield from self.remove(text, node, gone)


def _is_all_ours(now: Any, written: Any) -> bool:
    """Whether `now` holds nothing beyond what `written` has. In an object, the values of members
    may have changed."""
    if isinstance(now, Mapping) and isinstance(written, Mapping):
        return all(
            name in written
            and (_is_all_ours(value, written[name]) or not merges_with(value, value))
            for name, value in now.items()
        )
    if named(now) and named(written):
        return _is_all_ours(named(now), named(written))
    return bool(now == written)
