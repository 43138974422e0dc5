"""The client's tools: their schemas in plain words, and arguments that fit them.

Arguments are repaired only where the meaning is certain: a number written as text, an object
written as JSON text, a parameter that merely describes the call. Whatever could destroy something
when guessed wrong (a missing path, an empty text to replace) is left as it is, and fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from cursor_gateway.core.conversation import JsonOutput, ToolSpec
from cursor_gateway.core.structured import first_violation

# Parameters that may only say what a call is for: filling them changes nothing that is done.
DESCRIPTIVE = frozenset({"i", "intent", "summary", "description", "title", "explanation", "reason"})
_ALWAYS_DESCRIPTIVE = frozenset({"i", "intent"})
# In other tools such a parameter may be data (the title of an issue); its own description tells.
_DESCRIBES_THE_CALL = re.compile(
    r"\bintent\b|what (?:this|the) (?:command|call|tool|action)|of the (?:command|call|task)\b"
    r"|(?:short|brief|concise)\b.{0,40}\b(?:description|summary|label|explanation)",
    re.IGNORECASE,
)
_COMMANDS = frozenset({"command", "cmd", "script"})

_SCHEMA_NOISE = frozenset({"$schema", "$id", "title", "default", "examples"})
# Below these stand names, not words of the schema's language.
_NAMED = frozenset(
    "properties $defs definitions patternProperties dependentSchemas dependentRequired".split()
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


def plain_schema(schema: Any, depth: int = 0, *, keep_null: bool = False) -> Any:
    """`schema` without what only validators need. A choice between a type and null is the type,
    unless the parameter is required: then null is how a model leaves it out."""
    if depth > _MAX_DEPTH:
        return {}
    if isinstance(schema, list):
        return [plain_schema(entry, depth + 1) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    required = _required(schema)
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            plain[key] = {
                name: plain_schema(entry, depth + 1, keep_null=name in required)
                for name, entry in value.items()
            }
        elif key in ("anyOf", "oneOf") and not keep_null and len(_not_null(value)) == 1:
            plain |= plain_schema(_not_null(value)[0], depth + 1)
        elif key == "type" and not keep_null and len(_not_null(value)) == 1:
            plain[key] = _not_null(value)[0]
        elif not _says_nothing(key, value):
            plain[key] = value if key in ("enum", "const") else plain_schema(value, depth + 1)
    return plain


def _says_nothing(key: str, value: Any) -> bool:
    if key == "additionalProperties":
        return isinstance(value, bool)
    return key in _SCHEMA_NOISE or (key == "required" and value == [])


def _not_null(choices: Any) -> list[Any]:
    """The choices besides null; two of nothing where there is no choice at all."""
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
        if not _is_left_out(name, value, tool.schema, known)
    }
    if tool.schema.get("additionalProperties") is False:
        for name in DESCRIPTIVE & (fitted.keys() - known.keys()):
            description = description or str(fitted[name])
            del fitted[name]
    for name in _required(tool.schema):
        if name not in fitted and _only_describes(name, known):
            fitted[name] = _describing(tool.name, known[name], description)
    return fitted, _violation(fitted, tool.schema)


def _only_describes(name: str, properties: Mapping[str, Any]) -> bool:
    schema = properties.get(name)
    if name not in DESCRIPTIVE or not isinstance(schema, dict) or "string" not in _types(schema):
        return False
    if name in _ALWAYS_DESCRIPTIVE or _COMMANDS & properties.keys():
        return True
    return bool(_DESCRIBES_THE_CALL.search(str(schema.get("description", ""))))


def _describing(name: str, schema: Mapping[str, Any], description: str) -> str:
    """The description, or a sentence of our own where the schema wants one of another form."""
    plain = f"Call the {name} tool"
    return description if description and not _violation(description, schema) else plain


def _violation(value: Any, schema: Mapping[str, Any]) -> str:
    """Clients send schemas that are none, or none that can be checked; they will judge by them."""
    try:
        problem = first_violation(value, JsonOutput(schema))
    except Exception:
        return ""
    return "" if problem.startswith("its schema ") else problem


def _is_left_out(
    name: str, value: Any, schema: Mapping[str, Any], properties: Mapping[str, Any]
) -> bool:
    """`null` for a parameter that may be left out and knows no null: the model means "left out"."""
    if value is not None or name in _required(schema):
        return False
    return isinstance(properties.get(name), dict) and bool(_violation(None, properties[name]))


def _required(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    return (
        [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    )


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    kind = schema.get("type")
    listed = kind if isinstance(kind, list) else [kind]
    types = {entry for entry in listed if isinstance(entry, str)}
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        for choice in choices if isinstance(choices, list) else ():
            types |= _types(choice)
    return types


def _repaired(value: Any, schema: Any) -> Any:
    types = _types(schema)
    if not types:
        return value
    if isinstance(value, str) and "string" not in types:
        return _from_text(value, types)
    if types - {"null"} == {"string"} and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
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
