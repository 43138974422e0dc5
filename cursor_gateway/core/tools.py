"""The client's tools: their schemas in plain words, and arguments that fit them.

Arguments are repaired only where the meaning is certain: a number written as text, an object
written as JSON text, a parameter that merely describes the call. Whatever could destroy something
when guessed wrong (a missing path, an empty text to replace) is left as it is, and fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from cursor_gateway.core.conversation import JsonOutput, ToolSpec
from cursor_gateway.core.structured import first_violation
from cursor_gateway.errors import InvalidRequest

# Parameters that only say what a call is for: filling them changes nothing that is done.
DESCRIPTIVE = frozenset({"description", "summary", "i", "intent", "explanation", "title", "reason"})

_SCHEMA_NOISE = frozenset(
    {"$schema", "$id", "title", "default", "additionalProperties", "examples"}
)
_INTEGER = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BOOLEANS = {"true": True, "false": False}
_MAX_DEPTH = 60


def find(name: str, tools: Iterable[ToolSpec]) -> ToolSpec | None:
    """The tool that is called `name`; capitals count only where they make a difference."""
    tools = tuple(tools)
    exact = [tool for tool in tools if tool.name == name]
    alike = exact or [tool for tool in tools if tool.name.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 or exact else None


def plain_schema(schema: Any, depth: int = 0) -> Any:
    """`schema` without what only validators need; a choice between a type and null is the type."""
    if isinstance(schema, list):
        return [plain_schema(entry, depth + 1) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if depth > _MAX_DEPTH:
        return {}
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            plain[key] = {name: plain_schema(entry, depth + 1) for name, entry in value.items()}
        elif key in ("anyOf", "oneOf") and len(choices := _not_null(value)) == 1:
            plain |= plain_schema(choices[0], depth + 1)
        elif key == "type" and isinstance(value, list) and len(_not_null(value)) == 1:
            plain[key] = _not_null(value)[0]
        elif key == "required" and value == []:
            continue
        elif key not in _SCHEMA_NOISE:
            plain[key] = value if key in ("enum", "const") else plain_schema(value, depth + 1)
    return plain


def _not_null(choices: Any) -> list[Any]:
    if not isinstance(choices, list):
        return [choices, choices]
    null = ("null", {"type": "null"})
    return [choice for choice in choices if choice not in null]


def fit(
    tool: ToolSpec, arguments: Mapping[str, Any], description: str = ""
) -> tuple[dict[str, Any], str]:
    """`arguments` as the tool's schema wants them, and why they cannot be; empty when they fit."""
    properties = tool.schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    fitted = {
        name: _repaired(value, known.get(name))
        for name, value in arguments.items()
        if not _is_empty_option(name, value, tool.schema)
    }
    if tool.schema.get("additionalProperties") is False:
        for name in DESCRIPTIVE & (fitted.keys() - known.keys()):
            del fitted[name]
    for name in _required(tool.schema):
        if name in DESCRIPTIVE and name not in fitted and _wants(known.get(name), "string"):
            fitted[name] = _describing(tool.name, known[name], description)
    return fitted, _violation(fitted, tool.schema)


def _describing(name: str, schema: Mapping[str, Any], description: str) -> str:
    """The description, or a sentence of our own where the schema wants one of another form."""
    plain = f"Call the {name} tool"
    return description if description and not _violation(description, schema) else plain


def _violation(value: Any, schema: Mapping[str, Any]) -> str:
    try:
        return first_violation(value, JsonOutput(schema))
    except Exception:
        # Clients send schemas that are none. They cannot be violated, and the client will judge.
        return ""


def to_json(value: Any) -> str:
    """`value` as JSON text, also where it holds what only the slower encoder can write."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return json.dumps(value)
    except RecursionError:
        raise InvalidRequest("A JSON value is nested too deeply.") from None


def _is_empty_option(name: str, value: Any, schema: Mapping[str, Any]) -> bool:
    """`null` for a parameter that may be left out and has no null: the model means "left out"."""
    if value is not None or name in _required(schema):
        return False
    properties = schema.get("properties")
    wanted = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(wanted, dict) and not _wants(wanted, "null")


def _required(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    return (
        [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    )


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    kind = schema.get("type")
    types = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        for choice in choices if isinstance(choices, list) else ():
            types |= _types(choice)
    return types


def _wants(schema: Any, kind: str) -> bool:
    return kind in _types(schema)


def _repaired(value: Any, schema: Any) -> Any:
    types = _types(schema)
    if not types:
        return value
    if isinstance(value, str) and "string" not in types:
        return _from_text(value, types)
    if types - {"null"} == {"string"} and isinstance(value, int | float) and value is not True:
        return value if isinstance(value, bool) else str(value)
    return value


def _from_text(text: str, types: set[str]) -> Any:
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if types & {"integer", "number"} and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text):
        return float(text)
    if types & {"object", "array"}:
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
        if isinstance(parsed, dict | list):
            return parsed
    return text
