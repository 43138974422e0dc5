"""Schemas with every keyword of every draft, checked against documents under a clock of work.

The clock does not trust the steps that the code counts itself: it counts the lines of Python that
ran. A limited number of lines is allowed for each step, and for each value of the schema and the
document; a loop that does not count its steps is a finding, however fast the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import strategies as st

from cursor_gateway.core.json_schema import NotJudged, Steps, first_violation, read, sentence
from cursor_gateway.core.json_schema.patterns import occurs
from cursor_gateway.core.json_schema.shapes import SHAPES

STEPS = 1_000
LINES_AT_LEAST = 1_000
LINES_PER_STEP = 25
LINES_PER_VALUE = 40

_Trace = Any


class TooMuchWork(AssertionError):
    pass


@contextmanager
def clock_of_work(lines: int) -> Iterator[None]:
    left = lines

    def count(frame: FrameType, event: str, argument: object) -> _Trace:
        nonlocal left
        left -= event == "line"
        if left < 0:
            raise TooMuchWork(f"more than {lines} lines")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


# RE2 is imported at its first use, so this happens before any clock runs.
occurs("a", "a", Steps())


def nodes_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(nodes_of, inner))


def hold_against(schema: Any, document: Any) -> str:
    """The document's problem, or why it cannot be checked. Raises if that took too much work."""
    nodes = nodes_of(schema) + nodes_of(document)
    lines = LINES_AT_LEAST + LINES_PER_STEP * STEPS + LINES_PER_VALUE * nodes
    with clock_of_work(lines):
        try:
            violation = first_violation(document, read(schema), Steps(STEPS))
        except NotJudged as reason:
            return str(reason)
    return sentence(violation) if violation else ""


def read_schema(given: tuple[Any, Any]) -> None:
    schema, document = given
    hold_against(schema if isinstance(schema, dict) else {"not": schema}, document)


# Values

names = st.sampled_from(["a", "b", "c", "", "a b"])


def lists_of(entries: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Short lists of different entries, and long lists of the same entry."""
    same = st.builds(lambda entry, count: [entry] * count, entries, st.integers(most // 2, most))
    return st.one_of(st.lists(entries, max_size=4), same)


documents = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.sampled_from([0.5, 1.0, 1e308, -0.0, 2**63, 10**400]),
        st.sampled_from(["", "a", "ab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "é"]),
    ),
    lambda inner: st.one_of(
        lists_of(inner, 60),
        st.dictionaries(names, inner, max_size=4),
    ),
    max_leaves=12,
)

_DIALECTS = (
    *("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"),
    *("https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-06/schema#"),
    *("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-03/schema#", "x"),
)
_REFERENCES = (
    *("#", "#/$defs/a", "#/definitions/b", "#/properties/a", "#a", "#b", "a", "http://x/a#a"),
    *("#/allOf/0", "#/items", "#/x~1y", "http://[", "", "a/" * 501),
)
_PATTERNS = (
    "^a",
    "(a+)+$",
    "(",
    "((a{1000}){1000}){1000}",
    r"\p{L}+",
    "(?=a)",
    "a" * 2000,
    r"\u0061",
)


def _schemas_with(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    named = st.dictionaries(names, inner, max_size=3)
    by_words: dict[str, st.SearchStrategy[Any]] = {
        "a schema": inner,
        "a list of schemas": lists_of(inner, 400),
        "an object of schemas": named,
        "a schema or a list of schemas": st.one_of(inner, lists_of(inner, 400)),
        "an object of schemas or lists of strings": st.one_of(
            named, st.dictionaries(names, st.lists(names))
        ),
        "an object of lists of strings": st.dictionaries(names, st.lists(names, max_size=3)),
        "a list of strings": lists_of(names, 400),
        "a list": lists_of(documents, 400),
        "a string": st.sampled_from(_REFERENCES),
        "true or false": st.booleans(),
    }
    by_name: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(["object", "array", "string", "integer", ["null"] * 400]),
        "pattern": st.sampled_from(_PATTERNS),
        "$schema": st.sampled_from(_DIALECTS),
        "$anchor": names,
        "$dynamicAnchor": names,
        "patternProperties": st.dictionaries(st.sampled_from(_PATTERNS), inner, max_size=3),
    }
    numbers = st.sampled_from([0, 1, 2, 0.5, True])
    keywords = [
        st.tuples(st.just(name), by_name.get(name, by_words.get(shape.words, numbers)))
        for name, shape in SHAPES.items()
    ]
    of_another_shape = st.tuples(
        st.sampled_from([*SHAPES, "id", "extends", "disallow", "divisibleBy", "x"]),
        st.one_of(documents, inner),
    )
    entries = st.one_of(*keywords, of_another_shape)
    # Deferred, because Hypothesis writes strategies out, and this one is long.
    return st.deferred(lambda: st.lists(entries, max_size=5).map(dict))


schemas = st.recursive(
    st.one_of(st.booleans(), _schemas_with(st.booleans())), _schemas_with, max_leaves=10
)
schemas_and_documents = st.tuples(schemas, documents)


# Schemas that refer at every level twice to the next one.

_TWICE: dict[str, Any] = {
    "allOf": lambda inner: {"allOf": [inner, inner]},
    "anyOf": lambda inner: {"anyOf": [{"allOf": [inner, False]}, inner]},
    "oneOf": lambda inner: {"oneOf": [inner, {"not": inner}]},
    "not": lambda inner: {"not": {"not": inner}, "allOf": [inner]},
    "if": lambda inner: {"if": inner, "then": inner, "else": inner},
    "dependentSchemas": lambda inner: {"dependentSchemas": {"a": inner, "b": inner}},
    "dependencies": lambda inner: {"dependencies": {"a": inner, "b": inner}},
    "unevaluatedProperties": lambda inner: {"unevaluatedProperties": False, "anyOf": [inner] * 2},
    "properties": lambda inner: {"properties": {"a": inner}, "patternProperties": {"a": inner}},
    "additionalProperties": lambda inner: {"additionalProperties": inner, "allOf": [inner]},
    "propertyNames": lambda inner: {"propertyNames": inner, "allOf": [inner]},
    "items": lambda inner: {"items": inner, "prefixItems": [inner], "allOf": [inner]},
    "contains": lambda inner: {"contains": inner, "allOf": [inner]},
    "additionalItems": lambda inner: {"items": [inner], "additionalItems": inner, "not": inner},
    "unevaluatedItems": lambda inner: {"unevaluatedItems": inner, "allOf": [inner]},
}
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
LEVELS = 40


def doubling(keyword: str, reference: str) -> dict[str, Any]:
    """Up to forty levels, which take more steps than any machine can do."""
    levels = {
        f"d{level}": {"$dynamicAnchor": f"d{level}"}
        | _TWICE[keyword](_to(level - 1, reference) if level else True)
        for level in range(LEVELS)
    }
    if reference != "$recursiveRef":
        return {"$defs": levels} | _to(LEVELS - 1, reference)
    # The reference always leads to the whole schema; the depth of the document ends the check.
    whole: dict[str, Any] = _TWICE[keyword](_to(0, reference))
    return whole | {"$schema": _DIALECTS[2], "$recursiveAnchor": True}


def _to(level: int, reference: str) -> dict[str, Any]:
    target = {"$ref": f"#/$defs/d{level}", "$dynamicRef": f"#d{level}", "$recursiveRef": "#"}
    return {reference: target[reference]}


def nested(levels: int = 30) -> Any:
    """Alternating objects and arrays, so that every keyword descends into some of them."""
    document: Any = 1
    for level in range(levels):
        document = [document, 1] if level % 4 == 0 else {"a": document, "b": 1}
    return document


DOUBLING_KEYWORDS = tuple(_TWICE)


# Keywords with large values, tried for each of many document values.

MANY = 200
_WIDE_BY_WORDS: dict[str, Any] = {
    "a schema": {"enum": ["x"] * MANY},
    "a list of schemas": [True] * MANY,
    "an object of schemas": {f"a{at}": True for at in range(MANY)},
    "a schema or a list of schemas": [True] * MANY,
    "an object of schemas or lists of strings": {f"a{at}": True for at in range(MANY)},
    "an object of lists of strings": {"a": ["a"] * MANY},
    "a list of strings": ["a"] * MANY,
    "a list": ["x"] * MANY,
    "a string": "#/$defs/a",
    "true or false": True,
}
_WIDE_BY_NAME: dict[str, Any] = {
    "type": ["null"] * MANY,
    "const": ["x"] * MANY,
    "pattern": "(a+)+$",
    "patternProperties": {f"(?=a{at})": True for at in range(MANY)},
    "dependentSchemas": {"a": {"required": ["a"] * MANY}},
}
WIDE_VALUES: tuple[Any, ...] = (1, "a", {}, {"a": 1}, [1] * 20)


def wide(keyword: str) -> list[dict[str, Any]]:
    """Schemas with a large value of `keyword`, alone and together with `unevaluated...`. A value
    that does not fit does not end the check, so all values are tried."""
    value = _WIDE_BY_NAME.get(keyword, _WIDE_BY_WORDS.get(SHAPES[keyword].words, 1))
    unevaluated: dict[str, Any] = {"unevaluatedProperties": {}, "unevaluatedItems": {}}
    besides: tuple[dict[str, Any], ...] = ({}, unevaluated, {"additionalProperties": False})
    return [
        {"items": {"anyOf": [other | {keyword: value}, True]}, "$defs": {"a": {}}}
        for other in besides
    ]
