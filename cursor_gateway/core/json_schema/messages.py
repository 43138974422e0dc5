"""A violation in one sentence, for the model that wrote the document."""

from __future__ import annotations

from typing import Any

from cursor_gateway.core.json_schema.evaluation import Violation
from cursor_gateway.core.json_schema.paths import json_path

_LONGEST = 300
_LONGEST_VALUE = 150

_MESSAGES = {
    "false": "{value} is not allowed",
    "type": "{value} is not of type {wanted}",
    "enum": "{value} is not one of {wanted}",
    "const": "{wanted} was expected",
    "minimum": "{value} is less than the minimum of {wanted}",
    "maximum": "{value} is greater than the maximum of {wanted}",
    "exclusiveMinimum": "{value} is not greater than {wanted}",
    "exclusiveMaximum": "{value} is not less than {wanted}",
    "multipleOf": "{value} is not a multiple of {wanted}",
    "minLength": "{value} is shorter than {wanted} characters",
    "maxLength": "{value} is longer than {wanted} characters",
    "minItems": "{value} has fewer than {wanted} items",
    "maxItems": "{value} has more than {wanted} items",
    "minProperties": "{value} has fewer than {wanted} properties",
    "maxProperties": "{value} has more than {wanted} properties",
    "pattern": "{value} does not match {wanted}",
    "required": "{wanted} is a required property",
    "additionalProperties": "Additional properties are not allowed: {wanted}",
    "contains": "{value} does not contain {wanted} items that fit `contains`",
    "maxContains": "{value} contains more than {wanted} items that fit `contains`",
    "uniqueItems": "{value} has equal items",
    "anyOf": "{value} fits none of the schemas of `anyOf`",
    "oneOf": "{value} fits {wanted} of the schemas of `oneOf`",
    "not": "{value} fits the schema of `not`",
}


def sentence(violation: Violation) -> str:
    where = json_path(violation.path) or "the document"
    said = _MESSAGES[violation.keyword].format(
        value=_shown(violation.value), wanted=_shown(violation.wanted)
    )
    return f"at {where[:_LONGEST]}, {said[:_LONGEST]}."


def _shown(value: Any) -> str:
    """The beginning of a value that may be as long as a document."""
    if isinstance(value, str):
        value = value[:_LONGEST_VALUE]
    return repr(value)[:_LONGEST_VALUE]
