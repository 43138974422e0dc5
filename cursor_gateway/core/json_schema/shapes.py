"""What each keyword of JSON Schema may hold, in every draft, and where schemas stand in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

# The schemas in a keyword's value, each with its name or position (None if the value itself is the
# schema); None instead of all of them if the value does not have the shape.
Subschemas = Iterable[tuple[str | int | None, Any]] | None


@dataclass(frozen=True, slots=True)
class Shape:
    words: str
    subschemas: Callable[[Any], Subschemas]


def is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _leaf(words: str, fits: Callable[[Any], bool]) -> Shape:
    return Shape(words, lambda value: () if fits(value) else None)


def _one(value: Any) -> Subschemas:
    return [(None, value)] if is_schema(value) else None


def _listed(value: Any) -> Subschemas:
    if not isinstance(value, list) or not value or not all(map(is_schema, value)):
        return None
    return list(enumerate(value))


def _named(value: Any) -> Subschemas:
    if not isinstance(value, dict) or not all(map(is_schema, value.values())):
        return None
    return list(value.items())


def _one_or_listed(value: Any) -> Subschemas:
    return [] if value == [] else _listed(value) if isinstance(value, list) else _one(value)


def _dependencies(value: Any) -> Subschemas:
    if not isinstance(value, dict):
        return None
    if not all(is_schema(entry) or _is_strings(entry) for entry in value.values()):
        return None
    return [(name, entry) for name, entry in value.items() if is_schema(entry)]


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _is_named_strings(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_strings, value.values()))


def _is_type(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(isinstance(entry, str) and entry in TYPES for entry in listed)


def _is_count(value: Any) -> bool:
    return is_number(value) and value >= 0 and value == value // 1


_SCHEMA = Shape("a schema", _one)
_SCHEMAS = Shape("a list of schemas", _listed)
_NAMED_SCHEMAS = Shape("an object of schemas", _named)
_ITEMS = Shape("a schema or a list of schemas", _one_or_listed)
_STRING = _leaf("a string", lambda value: isinstance(value, str))
_STRINGS = _leaf("a list of strings", _is_strings)
_BOOLEAN = _leaf("true or false", lambda value: isinstance(value, bool))
_NUMBER = _leaf("a number", is_number)
_POSITIVE = _leaf("a number above 0", lambda value: is_number(value) and value > 0)
_LIMIT = _leaf("a number", lambda value: is_number(value) or isinstance(value, bool))
_COUNT = _leaf("a whole number that is not negative", _is_count)
_LIST = _leaf("a list", lambda value: isinstance(value, list))
_ANYTHING = _leaf("anything", lambda value: True)

SHAPES: dict[str, Shape] = {
    "type": _leaf(f"one or several of {', '.join(sorted(TYPES))}", _is_type),
    "enum": _LIST,
    "const": _ANYTHING,
    "required": _STRINGS,
    "dependentRequired": _leaf("an object of lists of strings", _is_named_strings),
    "dependencies": Shape("an object of schemas or lists of strings", _dependencies),
    "items": _ITEMS,
    "multipleOf": _POSITIVE,
    # In draft 4 these are true or false, and say whether the limit itself is excluded.
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _LIMIT),
    **dict.fromkeys(("minimum", "maximum"), _NUMBER),
    **dict.fromkeys(
        "minLength maxLength minItems maxItems minProperties maxProperties minContains "
        "maxContains".split(),
        _COUNT,
    ),
    **dict.fromkeys(
        "pattern format title description $comment $schema $id $ref $dynamicRef $recursiveRef "
        "$anchor $dynamicAnchor contentEncoding contentMediaType".split(),
        _STRING,
    ),
    **dict.fromkeys("uniqueItems readOnly writeOnly deprecated $recursiveAnchor".split(), _BOOLEAN),
    **dict.fromkeys(
        "not if then else contains propertyNames additionalProperties additionalItems "
        "unevaluatedItems unevaluatedProperties contentSchema".split(),
        _SCHEMA,
    ),
    **dict.fromkeys("allOf anyOf oneOf prefixItems".split(), _SCHEMAS),
    **dict.fromkeys(
        "properties patternProperties dependentSchemas $defs definitions".split(), _NAMED_SCHEMAS
    ),
}
