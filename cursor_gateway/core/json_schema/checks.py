"""What each keyword of JSON Schema demands of a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cursor_gateway.core.json_schema.evaluation import Check, Evaluation, Place, Violation
from cursor_gateway.core.json_schema.limits import Steps
from cursor_gateway.core.json_schema.patterns import occurs
from cursor_gateway.core.json_schema.shapes import is_number
from cursor_gateway.core.json_schema.unevaluated import unevaluated_items, unevaluated_properties

Given = Mapping[str, Any]
Violations = Iterator[Violation]

_CHARACTERS_IN_A_STEP = 500


# Values


def _has_type(value: Any, name: str) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "number":
            return is_number(value)
    return is_number(value) and (isinstance(value, int) or value.is_integer())


def _type(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    names = [wanted] if isinstance(wanted, str) else wanted
    run.steps.take(len(names))
    if not any(_has_type(value, name) for name in names):
        yield Violation(place.path, "type", wanted, value)


def _equal_text(value: Any, steps: Steps) -> str:
    """The same text for equal values only: 1 is 1.0, but not true. Values are compared as text,
    because nobody can make many texts with the same hash."""
    pieces: list[str] = []

    def write(value: Any) -> None:
        steps.take()
        if isinstance(value, dict):
            pieces.append("{")
            for name in sorted(value):
                pieces.append(f"{name!r}:")
                steps.take(len(name) // _CHARACTERS_IN_A_STEP)
                write(value[name])
            pieces.append("}")
        elif isinstance(value, list):
            pieces.append("[")
            for entry in value:
                write(entry)
            pieces.append("]")
        else:
            whole = isinstance(value, float) and value.is_integer()
            pieces.append(f"{int(value) if whole else value!r},")
            steps.take(len(pieces[-1]) // _CHARACTERS_IN_A_STEP)

    write(value)
    return "".join(pieces)


def _enum(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    known = run.schema.memory.get(id(wanted))
    if known is None:
        known = frozenset(_equal_text(each, run.steps) for each in wanted)
        run.schema.memory[id(wanted)] = known
    if _equal_text(value, run.steps) not in known:
        yield Violation(place.path, "enum", wanted, value)


def _const(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    if _equal_text(value, run.steps) != _equal_text(wanted, run.steps):
        yield Violation(place.path, "const", wanted, value)


def _limit(keyword: str, exceeds: Callable[[Any, Any], bool], twin: str = "") -> Check:
    """A limit for numbers; in draft 4 its twin is true where the limit itself is excluded."""

    def check(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
        if not is_number(value) or isinstance(wanted, bool):
            return
        if exceeds(value, wanted) or (schema.get(twin) is True and value == wanted):
            yield Violation(place.path, keyword, wanted, value)

    return check


def _is_no_multiple(value: Any, factor: Any) -> bool:
    try:
        if isinstance(value, int) and isinstance(factor, int):
            return bool(value % factor)
        quotient = value / factor
        return bool(int(quotient) != quotient)
    except (OverflowError, ValueError):
        return False  # the quotient is not finite, so it cannot be checked


def _size(keyword: str, kind: type, exceeds: Callable[[Any, Any], bool]) -> Check:
    def check(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
        if isinstance(value, kind) and exceeds(len(value), wanted):  # type: ignore[arg-type]
            yield Violation(place.path, keyword, wanted, value)

    return check


def _pattern(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    """A pattern that RE2 does not know (JavaScript has more) counts as met."""
    if isinstance(value, str) and occurs(wanted, value, run.steps) is False:
        yield Violation(place.path, "pattern", wanted, value)


# Objects


def _properties(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    if not isinstance(value, dict):
        return
    run.steps.take(min(len(wanted), len(value)))
    for name in wanted if len(wanted) < len(value) else value:
        if name in wanted and name in value:
            yield from run.violations(wanted[name], value[name], place.below(name))


def _pattern_properties(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    if not isinstance(value, dict):
        return
    run.steps.take(len(wanted))
    for pattern, below in wanted.items():
        for name in value:
            if occurs(pattern, name, run.steps):
                yield from run.violations(below, value[name], place.below(name))


def _additional(run: Evaluation, schema: Given, value: Given) -> list[str]:
    """The names that neither `properties` nor `patternProperties` covers, as far as RE2 can say."""
    named, patterns = schema.get("properties"), schema.get("patternProperties")
    run.steps.take(len(value))
    names = [name for name in value if not isinstance(named, dict) or name not in named]
    for pattern in patterns if isinstance(patterns, dict) else ():
        run.steps.take()
        names = [name for name in names if occurs(pattern, name, run.steps) is False]
    return names


def _additional_properties(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    if not isinstance(value, dict):
        return
    names = _additional(run, schema, value)
    if names and wanted is False:
        yield Violation(place.path, "additionalProperties", names[:10], value)
    else:
        for name in names:
            yield from run.violations(wanted, value[name], place.below(name))


def _property_names(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    for name in value if isinstance(value, dict) else ():
        yield from run.violations(wanted, name, place)


def _required(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    if not isinstance(value, dict):
        return
    run.steps.take(len(wanted))
    for name in wanted:
        if name not in value:
            yield Violation(place.path, "required", name, value)


def _dependencies(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    """`dependencies`, `dependentRequired` and `dependentSchemas`."""
    if not isinstance(value, dict):
        return
    run.steps.take(len(wanted))
    for name in wanted:
        if name not in value:
            continue
        if isinstance(wanted[name], list):
            yield from _required(run, wanted[name], value, place, schema)
        else:
            yield from run.violations(wanted[name], value, place)


# Arrays


def _prefix_items(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    if isinstance(value, list):
        for at, (below, entry) in enumerate(zip(wanted, value, strict=False)):
            yield from run.violations(below, entry, place.below(at))


def _items(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    if isinstance(wanted, list):
        yield from _prefix_items(run, wanted, value, place, schema)
    else:
        yield from _rest_of_items(run, wanted, value, place, schema.get("prefixItems"))


def _additional_items(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    if isinstance(schema.get("items"), list):
        yield from _rest_of_items(run, wanted, value, place, schema["items"])


def _rest_of_items(
    run: Evaluation, wanted: Any, value: Any, place: Place, before: Any
) -> Violations:
    if isinstance(value, list):
        for at in range(len(before) if isinstance(before, list) else 0, len(value)):
            yield from run.violations(wanted, value[at], place.below(at))


def _contains(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    if not isinstance(value, list):
        return
    found = sum(run.holds(wanted, entry, place) for entry in value)
    least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
    if is_number(least) and found < least:
        yield Violation(place.path, "contains", least, value)
    elif is_number(most) and found > most:
        yield Violation(place.path, "maxContains", most, value)


def _unique_items(
    run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given
) -> Violations:
    if not wanted or not isinstance(value, list):
        return
    texts = {_equal_text(entry, run.steps) for entry in value}
    if len(texts) < len(value):
        yield Violation(place.path, "uniqueItems", wanted, value)


# Schemas of the same value


def _all_of(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    for each in wanted:
        yield from run.violations(each, value, place)


def _any_of(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    if not any(run.holds(each, value, place) for each in wanted):
        yield Violation(place.path, "anyOf", wanted, value)


def _one_of(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    fitting = sum(run.holds(each, value, place) for each in wanted)
    if fitting != 1:
        yield Violation(place.path, "oneOf", fitting, value)


def _not(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    if run.holds(wanted, value, place):
        yield Violation(place.path, "not", wanted, value)


def _if(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
    branch = schema.get("then" if run.holds(wanted, value, place) else "else", True)
    if isinstance(branch, dict | bool):
        yield from run.violations(branch, value, place)


def _reference(keyword: str) -> Check:
    def check(run: Evaluation, wanted: Any, value: Any, place: Place, schema: Given) -> Violations:
        target, there = run.referred(keyword, wanted, place)
        yield from run.violations(target, value, there)

    return check


CHECKS: dict[str, Check] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _limit("minimum", lambda value, least: value < least, "exclusiveMinimum"),
    "maximum": _limit("maximum", lambda value, most: value > most, "exclusiveMaximum"),
    "exclusiveMinimum": _limit("exclusiveMinimum", lambda value, least: value <= least),
    "exclusiveMaximum": _limit("exclusiveMaximum", lambda value, most: value >= most),
    "multipleOf": _limit("multipleOf", _is_no_multiple),
    "minLength": _size("minLength", str, lambda size, least: size < least),
    "maxLength": _size("maxLength", str, lambda size, most: size > most),
    "minItems": _size("minItems", list, lambda size, least: size < least),
    "maxItems": _size("maxItems", list, lambda size, most: size > most),
    "minProperties": _size("minProperties", dict, lambda size, least: size < least),
    "maxProperties": _size("maxProperties", dict, lambda size, most: size > most),
    "pattern": _pattern,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "required": _required,
    "dependencies": _dependencies,
    "dependentRequired": _dependencies,
    "dependentSchemas": _dependencies,
    "prefixItems": _prefix_items,
    "items": _items,
    "additionalItems": _additional_items,
    "contains": _contains,
    "uniqueItems": _unique_items,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "unevaluatedProperties": unevaluated_properties,
    "unevaluatedItems": unevaluated_items,
    "$ref": _reference("$ref"),
    "$dynamicRef": _reference("$dynamicRef"),
    "$recursiveRef": _reference("$recursiveRef"),
}
