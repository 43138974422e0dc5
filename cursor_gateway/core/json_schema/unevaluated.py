"""`unevaluatedProperties` and `unevaluatedItems`: what no other keyword has looked at.

Which keywords have looked at a value is derived from the schema again, with steps counted like all
others. So a schema without these two costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cursor_gateway.core.json_schema.evaluation import Evaluation, Place, Violation
from cursor_gateway.core.json_schema.patterns import occurs

Seen = set[str | int]


def unevaluated_properties(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Mapping[str, Any]
) -> Iterator[Violation]:
    if isinstance(value, dict):
        seen = _seen_names(run, schema, value) | _seen_by_others(run, schema, value, place)
        for name in (name for name in value if name not in seen):
            yield from run.violations(wanted, value[name], place.below(name))


def unevaluated_items(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Mapping[str, Any]
) -> Iterator[Violation]:
    if isinstance(value, list):
        seen = _seen_positions(run, schema, value, place)
        seen |= _seen_by_others(run, schema, value, place)
        for at in (at for at in range(len(value)) if at not in seen):
            yield from run.violations(wanted, value[at], place.below(at))


def _seen_names(run: Evaluation, schema: Mapping[str, Any], value: Mapping[str, Any]) -> Seen:
    run.steps.take(len(value))
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    if "additionalProperties" in schema:
        return set(value)
    seen: Seen = {name for name in value if isinstance(properties, dict) and name in properties}
    for pattern in patterns if isinstance(patterns, dict) else ():
        run.steps.take()
        # A name counts as seen if RE2 cannot say whether the pattern occurs in it.
        seen |= {name for name in value if occurs(pattern, name, run.steps) is not False}
    return seen


def _seen_positions(
    run: Evaluation, schema: Mapping[str, Any], value: list[Any], place: Place
) -> Seen:
    run.steps.take(len(value))
    items, first = schema.get("items"), schema.get("prefixItems")
    if isinstance(items, dict | bool) or (isinstance(items, list) and "additionalItems" in schema):
        return set(range(len(value)))
    before = items if isinstance(items, list) else first if isinstance(first, list) else []
    seen: Seen = set(range(min(len(before), len(value))))
    inside = schema.get("contains")
    if isinstance(inside, dict | bool):
        seen |= {at for at, entry in enumerate(value) if run.holds(inside, entry, place)}
    return seen


def _seen_by_others(run: Evaluation, schema: Mapping[str, Any], value: Any, place: Place) -> Seen:
    """What the schemas have seen that `schema` names for the same value and that the value fits."""
    seen: Seen = set()
    for inner, there in _named_for_the_same(run, schema, value, place):
        if isinstance(inner, dict) and run.holds(inner, value, there):
            seen |= _seen_by(run, inner, value, run.entered(inner, there)[0])
    return seen


def _seen_by(run: Evaluation, schema: Mapping[str, Any], value: Any, place: Place) -> Seen:
    if isinstance(value, dict):
        if "unevaluatedProperties" in schema:
            return set(value)
        return _seen_names(run, schema, value) | _seen_by_others(run, schema, value, place)
    if "unevaluatedItems" in schema:
        return set(range(len(value)))
    seen = _seen_positions(run, schema, value, place)
    return seen | _seen_by_others(run, schema, value, place)


def _named_for_the_same(
    run: Evaluation, schema: Mapping[str, Any], value: Any, place: Place
) -> Iterator[tuple[Any, Place]]:
    for name, wanted in run.entered(schema, place)[1]:
        run.steps.take()
        if name in ("allOf", "anyOf", "oneOf"):
            run.steps.take(len(wanted))
            yield from ((each, place) for each in wanted)
        elif name == "if":
            yield wanted, place
            yield schema.get("then" if run.holds(wanted, value, place) else "else"), place
        elif name in ("dependentSchemas", "dependencies"):
            run.steps.take(len(wanted))
            yield from ((each, place) for key, each in wanted.items() if key in value)
        elif name in ("$ref", "$dynamicRef", "$recursiveRef"):
            yield run.referred(name, wanted, place)
