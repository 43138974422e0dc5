"""A document on its way through a schema, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from cursor_gateway.core.json_schema.limits import Steps, TooDeep
from cursor_gateway.core.json_schema.paths import Path
from cursor_gateway.core.json_schema.schema import Schema

# How deep subschemas may be nested while they are tried. This is more than the levels of a
# document, since references lead from one subschema to the next at the same level.
_MAX_DEPTH = 200


class Violation(NamedTuple):
    path: Path
    keyword: str
    wanted: Any
    value: Any


class Place(NamedTuple):
    """A place in the document and in the schema's resources."""

    path: Path = None
    base: str = ""
    # The resources that were entered on the way here, the outermost first.
    scope: tuple[str, ...] = ()
    depth: int = 0

    def below(self, key: str | int) -> Place:
        return Place((self.path, key), self.base, self.scope, self.depth)


Check = Callable[["Evaluation", Any, Any, Place, Mapping[str, Any]], Iterator[Violation]]


class Evaluation:
    """The check of a document against a schema."""

    def __init__(self, schema: Schema, checks: Mapping[str, Check], steps: Steps) -> None:
        self.schema = schema
        self.steps = steps
        self._checks = checks

    def violations(self, schema: Any, value: Any, place: Place) -> Iterator[Violation]:
        self.steps.take()
        if schema is False:
            yield Violation(place.path, "false", False, value)
        elif schema is not True:
            place, keywords = self.entered(schema, place)
            self.steps.take(len(keywords))
            for name, wanted in keywords:
                if check := self._checks.get(name):
                    yield from check(self, wanted, value, place, schema)

    def entered(self, schema: Any, place: Place) -> tuple[Place, list[tuple[str, Any]]]:
        if place.depth >= _MAX_DEPTH:
            raise TooDeep
        base, keywords = self.schema.node(schema, place.base)
        scope = place.scope if place.scope[-1:] == (base,) else (*place.scope, base)
        return Place(place.path, base, scope, place.depth + 1), keywords

    def referred(self, keyword: str, reference: str, place: Place) -> tuple[Any, Place]:
        if keyword == "$ref":
            target, base = self.schema.referred(reference, place.base)
        else:
            self.steps.take(len(place.scope))
            target, base = self.schema.dynamically_referred(reference, place.base, place.scope)
        return target, place._replace(base=base)

    def holds(self, schema: Any, value: Any, place: Place) -> bool:
        return next(self.violations(schema, value, place), None) is None
