from __future__ import annotations

from typing import Any

import pytest

from cursor_gateway.core.conversation import JsonOutput
from cursor_gateway.core.structured import check_schema, extract, problem_with
from cursor_gateway.errors import InvalidRequest

# Each definition asks twice for the one before it.
EXPENSIVE: dict[str, Any] = {
    "$ref": "#/$defs/d25",
    "$defs": {"d0": {}}
    | {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, 26)},
}
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.mark.parametrize(
    ("answer", "document"),
    [
        ('{"a":1}', '{"a":1}'),
        (' \n{"a":1}\n', '{"a":1}'),
        ('```json\n{"a":1}\n```', '{"a":1}'),
        ('```\n{"a":1}```\n', '{"a":1}'),
        ('Here: ```json\n{}\n```', 'Here: ```json\n{}\n```'),
    ],
)  # fmt: skip
def test_a_fence_around_everything_is_taken_off(answer: str, document: str) -> None:
    assert extract(answer) == document


@pytest.mark.parametrize(
    ("answer", "schema", "problem"),
    [
        ("{}", None, ""),
        ("[]", None, "not a JSON object"),
        ("{", None, "not JSON"),
        ('{"age": 3}', PERSON, ""),
        ('{"age": "3"}', PERSON, "at age, '3' is not of type 'integer'"),
        ("{}", PERSON, "at the document, 'age' is a required property"),
        ('"abc"', {"pattern": "^a"}, ""),
        ('"abc"', {"pattern": "^b"}, "'abc' does not match '^b'"),
        (f'"{"a" * 50}!"', {"pattern": r"^(\w+\s?){1,40}$"}, "does not match"),
        ('"é"', {"pattern": r"^\p{L}+$"}, ""),
        ("5", {"pattern": "^b"}, ""),
        ('"abc"', {"pattern": "("}, ""),
        ('{"a": 1}', {"patternProperties": {"(": {"type": "string"}}}, ""),
        ('{"a": 1}', {"patternProperties": {"^b": {"type": "string"}}}, ""),
        ('{"a": 1}', {"patternProperties": {"^a": {"type": "string"}}}, "at a, 1 is not of type"),
        (f'{{"{"a" * 50}!": 1}}', {"patternProperties": {r"^(\w+\s?){1,40}$": {}}}, ""),
        ('{"b": 1}', {"patternProperties": {"^a": {}}, "additionalProperties": False}, "['b']"),
        ('{"b": 1}', {"additionalProperties": False}, "Additional properties"),
        ("5", {"patternProperties": {"^a": {"type": "string"}}}, ""),
        ("[1]", EXPENSIVE, "too expensive"),
        ("[1]", {"$ref": "#"}, "nested too deeply"),
        ("{}", {"$ref": "https://example.com/s"}, "'https://example.com/s', which is not part"),
    ],
)
def test_a_document_is_held_against_its_schema(
    answer: str, schema: dict[str, Any] | None, problem: str
) -> None:
    found = problem_with(answer, JsonOutput(schema))
    assert problem in found
    assert bool(problem) == bool(found)


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not valid"):
        check_schema(JsonOutput({"type": "nonsense"}), "schema")
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"not": deep}
    with pytest.raises(InvalidRequest, match=r"`schema` is too large.*nested 128 deep"):
        check_schema(JsonOutput(deep), "schema")
    with pytest.raises(InvalidRequest, match=r"50000 values"):
        check_schema(JsonOutput({"allOf": [{}] * 50_000}), "schema")
    check_schema(JsonOutput(PERSON), "schema")
