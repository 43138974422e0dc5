"""Documents are held against schemas as the drafts say, in a bounded number of steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from benchmarks.fuzz_schemas import documents, schemas
from cursor_gateway.core.json_schema import (
    MAX_DEPTH,
    MAX_NODES,
    NotJudged,
    Schema,
    Steps,
    TooDeep,
    TooExpensive,
    first_violation,
    nodes_within,
    read,
    sentence,
)

DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}


def problem(schema: Any, document: Any, steps: int = 200_000) -> str:
    violation = first_violation(document, Schema(schema), Steps(steps))
    return sentence(violation) if violation else ""


def steps_for(schema: Any, document: Any) -> int:
    steps = Steps(10_000_000)
    first_violation(document, Schema(schema), steps)
    return 10_000_000 - steps.left


CLOSED = {"additionalProperties": False}
# A reference means another place where an `$id` is between it and the whole.
INNER = {"$id": "http://x/", "$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"maximum": 5}}}
OTHER_BASE = {"$ref": "#/$defs/a/$defs/b", "$defs": {"a": INNER}}
A_TREE = {
    "$id": "http://x/tree",
    "$dynamicAnchor": "node",
    "properties": {"inner": {"$dynamicRef": "#node"}},
}
STRICT_TREE = {
    "$id": "http://x/strict",
    "$dynamicAnchor": "node",
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {"tree": A_TREE},
}
RECURSIVE_TREE = DRAFT_2019 | {
    "$id": "http://x/strict",
    "$recursiveAnchor": True,
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {
        "tree": {
            "$id": "tree",
            "$recursiveAnchor": True,
            "properties": {"inner": {"$recursiveRef": "#"}},
        }
    },
}


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"type": "null"}, None, 0),
        ({"type": "boolean"}, True, 1),
        ({"type": ["string", "integer"]}, 1.0, 1.5),
        ({"type": "number"}, 1.5, True),
        ({"type": "object"}, {}, []),
        ({"type": "array"}, [], {}),
        ({"enum": [1, "a", {"b": [1, None]}]}, {"b": [1.0, None]}, {"b": [True, None]}),
        ({"enum": [[[1, 2]]]}, [[1, 2]], [1, [2]]),
        ({"items": {"enum": [1, 2]}}, [2, 1.0], [1, True]),
        ({"const": {"a": 1, "b": 2}}, {"b": 2, "a": 1}, {"a": 1}),
        ({"minimum": 1}, 1, 0),
        ({"maximum": 1}, "a", 2),
        ({"exclusiveMinimum": 1}, 2, 1),
        ({"exclusiveMaximum": 1}, 0, 1),
        (DRAFT_4 | {"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"multipleOf": 3}, 9, 10),
        ({"multipleOf": 0.0001}, 0.0075, 0.00751),
        ({"multipleOf": 1e-308}, 1e308, None),
        ({"minLength": 2}, "éé", "é"),
        ({"maxLength": 2}, "éé", "ééé"),
        ({"minItems": 1}, [1], []),
        ({"maxItems": 1}, [1], [1, 2]),
        ({"minProperties": 1}, {"a": 1}, {}),
        ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}),
        ({"pattern": r"^\u0061\p{L}$"}, "aé", "aaa"),
        ({"pattern": "^(?=a)b"}, "anything: nobody here knows look-ahead", None),
        ({"pattern": "x" * 1001}, "anything: it is too long", None),
        ({"properties": {"a": {"type": "string"}}}, {"b": 1}, {"a": 1, "b": 2}),
        ({"properties": {"a": {"type": "string"}}}, "a", {"a": 1}),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"b": 1}, {"ab": 1}),
        ({"patternProperties": {"^a": {"type": "string"}}}, 1, {"ab": 1}),
        (
            {"properties": {"a": {}}, "patternProperties": {"^b": {}}} | CLOSED,
            {"a": 1, "bc": 1},
            {"cb": 1},
        ),
        ({"patternProperties": {"(": {}}, "additionalProperties": False}, {"a": 1}, None),
        ({"additionalProperties": {"type": "string"}}, {"a": "b"}, {"a": 1}),
        ({"additionalProperties": False}, [], {"a": 1}),
        ({"additionalProperties": True}, {"a": 1}, None),
        ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
        ({"propertyNames": False}, [1], {"ab": 1}),
        ({"required": ["a"]}, {"a": None}, {}),
        ({"required": ["a"]}, [], {}),
        ({"dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}),
        ({"dependentSchemas": {"a": {"maxProperties": 1}}}, {"a": 1}, {"a": 1, "b": 1}),
        ({"dependencies": {"a": ["b"], "c": False}}, [], {"c": 1}),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
        ({"prefixItems": [{"type": "string"}]}, 1, [1]),
        ({"items": {"type": "string"}}, ["a"], ["a", 1]),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", 1]),
        ({"additionalItems": False}, [1], None),
        ({"contains": {"type": "string"}}, [1, "a"], [1]),
        ({"contains": {"type": "string"}, "maxContains": 1}, 1, ["a", "b"]),
        ({"contains": {"type": "string"}, "minContains": 2}, ["a", "b"], ["a", 1]),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}], [{"a": 1}, {"a": 1.0}]),
        ({"uniqueItems": False}, [1, 1], None),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 2, 3),
        ({"anyOf": [{"minimum": 3}, {"maximum": 1}]}, 3, 2),
        ({"oneOf": [{"minimum": 1}, {"maximum": 2}]}, 3, 2),
        ({"not": {"type": "string"}}, 1, "a"),
        ({"if": {"minimum": 1}, "then": {"maximum": 2}, "else": False}, 2, 3),
        ({"if": {"minimum": 1}, "then": {"maximum": 2}, "else": False}, 1, 0),
        ({"if": {"minimum": 1}}, 0, None),
        ({"items": False}, [], [1]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "a", 1),
        ({"$ref": "#/x~1y/1/%61", "x/y": [0, {"a": {"type": "string"}}]}, "a", 1),
        ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "string"}}}, "a", 1),
        (DRAFT_7 | {"$ref": "#b", "definitions": {"a": {"$id": "#b", "type": "null"}}}, None, 1),
        (DRAFT_7 | {"allOf": [{"$ref": "#/x", "minimum": 9}], "x": {"maximum": 5}}, 1, 6),
        (DRAFT_4 | {"id": "http://x/a", "items": {"$ref": "a#/not"}, "not": {"type": "null"}},
         [None], [1]),
        ({"$id": "http://x/", "$ref": "b", "$defs": {"a": {"$id": "b", "maximum": 5}}}, 5, 6),
        (OTHER_BASE, 5, 6),
        (A_TREE, {"inner": {"typo": 1}}, None),
        (STRICT_TREE, {"inner": {"inner": {}}}, {"inner": {"typo": 1}}),
        (RECURSIVE_TREE, {"inner": {"inner": {}}}, {"inner": {"typo": 1}}),
        (DRAFT_2019 | {"properties": {"a": {"$recursiveRef": "#"}, "b": False}},
         {"a": {}}, {"a": {"b": 1}}),
        ({"items": {"$recursiveAnchor": True, "$recursiveRef": "#"}, "maxItems": 1},
         [[]], [[1, 2]]),
    ],
)  # fmt: skip
def test_a_keyword_demands_what_the_drafts_say(schema: Any, fits: Any, does_not: Any) -> None:
    assert Schema(schema).problem == ""
    assert problem(schema, fits) == ""
    if does_not is not None:
        assert problem(schema, does_not) != ""


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"properties": {"a": {}}}, {"a": 1}, {"b": 1}),
        ({"patternProperties": {"^a": {}}}, {"ab": 1}, {"b": 1}),
        ({"patternProperties": {"(": {}}}, {"ab": 1}, None),
        ({"additionalProperties": {}}, {"b": 1}, None),
        ({"allOf": [{"properties": {"a": {}}}, True]}, {"a": 1}, {"b": 1}),
        ({"anyOf": [{"required": ["b"], "properties": {"a": {}}}, {}]}, {}, {"a": 1}),
        ({"allOf": [{"unevaluatedProperties": {}}]}, {"a": 1}, None),
        ({"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}}, {"a": 1}, {"b": 1}),
        ({"dependentSchemas": {"a": {"properties": {"a": {}}}, "b": {}}}, {"a": 1}, {"c": 1}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {}}}}}, {"a": 1}, {"b": 1}),
        ({}, 1, {"a": 1}),
    ],
)
def test_what_no_keyword_looks_at_is_unevaluated(schema: Any, fits: Any, does_not: Any) -> None:
    strict = schema | {"unevaluatedProperties": False}
    assert problem(strict, fits) == ""
    if does_not is not None:
        assert problem(strict, does_not) != ""


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"prefixItems": [{}]}, [1], [1, 2]),
        ({"items": [{}]}, [1], [1, 2]),
        ({"items": [{}], "additionalItems": {}}, [1, 2], None),
        ({"items": {}}, [1, 2], None),
        ({"contains": {"type": "string"}}, ["a"], ["a", 1]),
        ({"allOf": [{"prefixItems": [{}]}]}, [1], [1, 2]),
        ({"allOf": [{"unevaluatedItems": {}}]}, [1], None),
        ({}, 1, [1]),
    ],
)
def test_items_that_no_keyword_looks_at_are_unevaluated(
    schema: Any, fits: Any, does_not: Any
) -> None:
    strict = schema | {"unevaluatedItems": False}
    assert problem(strict, fits) == ""
    if does_not is not None:
        assert problem(strict, does_not) != ""


@settings(max_examples=80, deadline=None)
@given(schemas, documents)
def test_it_agrees_with_a_library(schema: Any, document: Any) -> None:
    """Where both say something; the library knows only one draft at a time, and other patterns."""
    text = json.dumps(schema)
    odd = ("attern", "$schema", "$id", "$rec", "additionalItems", "dependencies", '"id"')
    if not isinstance(schema, dict) or any(word in text for word in odd):
        return
    try:
        Draft202012Validator.check_schema(schema)
        expected = Draft202012Validator(schema).is_valid(document)
        found = problem(schema, document)
    except (SchemaError, NotJudged, Exception):
        return
    assert bool(found) != expected, (schema, document, found)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"$schema": 5}, "`$schema` must be a string"),
        ({"$schema": ["a"]}, "`$schema` must be a string"),
        ({"$id": 5}, "`$id` must be a string"),
        ({"properties": {"a": {"type": "text"}}}, "at properties.a, `type` must be one or several"),
        ({"properties": {"a b": {"enum": 1}}}, "at properties['a b'], `enum` must be a list"),
        ({"allOf": [{}, {"items": 5}]}, "at allOf[1], `items` must be a schema or a list"),
        ({"allOf": []}, "`allOf` must be a list of schemas"),
        ({"properties": {"a": 5}}, "`properties` must be an object of schemas"),
        ({"not": "a"}, "`not` must be a schema"),
        ({"required": "a"}, "`required` must be a list of strings"),
        ({"dependencies": 1}, "`dependencies` must be"),
        ({"dependencies": {"a": 1}}, "`dependencies` must be"),
        ({"dependentRequired": {"a": 1}}, "`dependentRequired` must be"),
        ({"maxItems": -1}, "`maxItems` must be a whole number"),
        ({"multipleOf": 0}, "`multipleOf` must be a number above 0"),
        ({"uniqueItems": 1}, "`uniqueItems` must be true or false"),
        ({"$schema": "http://json-schema.org/draft-03/schema#", "required": True}, ""),
    ],
)
def test_a_keyword_of_another_shape_is_named(schema: Any, where: str) -> None:
    found = Schema(schema).problem
    assert found.startswith(where) and bool(found) == bool(where)


def test_a_keyword_of_another_shape_is_not_checked() -> None:
    schema = {
        **{"type": "text", "required": True, "properties": 1, "patternProperties": 2},
        **{"additionalProperties": {"type": "string"}, "if": {}, "then": 3, "items": {}},
        **{"prefixItems": 1, "unevaluatedProperties": {}, "unevaluatedItems": {}, "contains": 1},
    }
    assert problem(schema, {"a": "b"}) == ""
    assert problem(schema, {"a": 1}) != ""
    assert problem(schema, [1]) == ""
    assert problem({"contains": {}, "minContains": "a", "maxContains": "b"}, []) == ""


@pytest.mark.parametrize(
    "reference",
    [
        *("#/nothing", "#/a/b", "#/list/7", "#/list/x", "#/list/99999999999", "#nothing"),
        *("http://example.com/schema", "http://[", "#" + "/a" * 1000, "#/title"),
    ],
)
def test_a_reference_that_leads_nowhere_is_said(reference: str) -> None:
    with pytest.raises(NotJudged, match="which is not part of it"):
        problem({"$ref": reference, "list": [{}], "a": 5, "title": "x"}, 1)


def test_an_id_that_is_none_changes_nothing() -> None:
    schema = {
        "$id": "http://x/",
        "not": {"$id": "http://["},
        "allOf": [{"$ref": "#/$defs/a"}],
        "$defs": {"a": {"maximum": 1}},
    }
    assert problem(schema, 2) != ""


def test_a_message_is_short_and_says_where() -> None:
    assert problem({"type": "string"}, {"a": "b" * 10_000}).startswith("at the document, {'a': 'b")
    inner = {"items": {"properties": {"b": {"maxLength": 3}}}}
    said = problem({"properties": {"a": inner}}, {"a": [{}, {"b": "c" * 10_000}]})
    assert said.startswith("at a[1].b, 'ccc") and len(said) < 400
    assert "longer than 3 characters" in said


# Steps


def test_equal_items_are_found_in_as_many_steps_as_there_are_items() -> None:
    def unlike(count: int) -> list[Any]:
        return [{"a": number, "b": [number]} for number in range(count)]

    small, large = (steps_for({"uniqueItems": True}, unlike(size)) for size in (300, 3000))
    assert large < 11 * small


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"items": {"pattern": r"^(\w+\s?){1,40}$"}}, ["a" * 10_000] * 1000),
        ({"items": {"enum": [["a" * 100] * 100]}}, [["a" * 100] * 100] * 3000),
        ({"items": {"type": ["null"] * 1000 + ["string"]}}, ["a"] * 1000),
        ({"patternProperties": {rf"[\pL\pN]{{10}}{at}": {} for at in range(300)}}, {"a": 1}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}}, 1),
    ],
)
def test_what_takes_too_many_steps_is_not_judged(schema: Any, document: Any) -> None:
    with pytest.raises(NotJudged):
        problem(schema, document)


def test_a_pattern_that_would_be_huge_is_not_judged() -> None:
    """Compiled as it stands it has a thousand million places."""
    assert problem({"pattern": "((a{1000}){1000}){1000}"}, "b") == ""


def test_only_so_many_patterns_are_remembered() -> None:
    for at in range(300):
        assert problem({"pattern": f"^{at}$"}, str(at)) == ""
        assert problem({"pattern": f"^{at}$"}, "x") != ""


def test_a_value_is_measured_before_it_is_read() -> None:
    assert nodes_within({"a": [1, 2, {}], "b": 1}) == 6
    with pytest.raises(TooExpensive):
        nodes_within([0] * MAX_NODES)
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert nodes_within(deep) == MAX_DEPTH
    with pytest.raises(TooDeep):
        nodes_within([[deep]])


def test_a_schema_that_was_read_is_remembered_unless_it_is_large() -> None:
    small: dict[str, Any] = {"properties": {"remembered": {}}}
    assert read(small) is read(json.loads(json.dumps(small)))
    large = {"enum": list(range(6000))}
    assert read(large) is not read(large)
