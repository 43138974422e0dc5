"""The client's tools: their schemas in plain words, and arguments that fit them.

Arguments are repaired only where the meaning is certain: a number written as text, an object
written as JSON text, a parameter that merely describes the call. The client itself rejects what
then still does not fit: it may be less strict than its schema (one wants three words or more for
the `summary` of a command, and takes two), and it says best what it wants. A call is held back here
in two cases:

- The tool could destroy something, and the call is not whole: a missing path, an empty text to
  replace, a parameter that nobody knows. A client that is not strict would act on it.
- The client wants nothing but this call (it names the tool): it would not let the model correct it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import orjson

from cursor_gateway.core import json_schema
from cursor_gateway.core.conversation import ToolSpec

# Parameters that may only say what a call is for: their value changes nothing that the call does.
DESCRIPTIVE = frozenset({"i", "intent", "summary", "description", "title", "explanation", "reason"})
_ALWAYS_DESCRIPTIVE = frozenset({"i", "intent"})
# In some tools such a parameter is data (the title of an issue); its own description shows which.
_DESCRIBES_THE_CALL = re.compile(
    r"\bintent\b|what (?:this|the) (?:command|call|tool|action)|of the (?:command|call|task)\b"
    r"|(?:short|brief|concise)\b.{0,40}\b(?:description|summary|label|explanation)",
    re.IGNORECASE,
)
_COMMANDS = frozenset({"command", "cmd", "script"})
# Tools that act have one of these in their name, anywhere (`deletefile`) or as a separate word, or
# have one of these parameters.
_ACTS = re.compile(
    r"append|apply|bash|command|create|delete|edit|execute|insert|kill|overwrite|patch|remove"
    r"|rename|replace|shell|terminal|truncate|update|write",
    re.IGNORECASE,
)
_ACTS_AS_WORDS = frozenset("cmd drop eval exec move mv reset rm run save sql stop".split())
_ACTING_PARAMETERS = _COMMANDS | frozenset(
    "code content contents edits file_text new_str new_string newString old_str old_string "
    "oldString patch".split()
)
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
# A value that is too long or not of the wanted form is still the value that the model meant.
_LIMITS = frozenset(
    "pattern format maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf "
    "maxItems uniqueItems maxProperties".split()
)

_SCHEMA_NOISE = frozenset({"$schema", "$id", "title", "default", "examples"})
# The keys below these are names that the schema's author chose, and no keywords.
_NAMED = frozenset(
    "properties $defs definitions patternProperties dependentSchemas dependentRequired".split()
)
_INTEGER = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BOOLEANS = {"true": True, "false": False}
_MAX_DEPTH = 60


def find(name: str, tools: Iterable[ToolSpec]) -> ToolSpec | None:
    """The tool that is called `name`; capitals matter only if two names differ by nothing else."""
    tools = tuple(tools)
    exact = [tool for tool in tools if tool.name == name]
    alike = exact or [tool for tool in tools if tool.name.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 or exact else None


def plain_schema(schema: Any, depth: int = 0, *, keep_null: bool = False) -> Any:
    """`schema` without what only validators need. A choice between a type and null becomes the
    type, unless the parameter is required: then a model leaves it out by null."""
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
    """The choices besides null; two of them if `choices` is no list, so that nothing is
    replaced."""
    if not isinstance(choices, list):
        return [choices, choices]
    null = ("null", {"type": "null"})
    return [choice for choice in choices if choice not in null]


def fit(
    tool: ToolSpec, arguments: Mapping[str, Any], description: str = "", *, exactly: bool = False
) -> tuple[dict[str, Any], str]:
    """`arguments` as the tool's schema wants them, and the reason to hold the call back, which is
    empty if there is none. `exactly` is for clients that cannot reject a call, and for calls that
    the gateway translates itself."""
    properties = tool.schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    judge = _Judge(tool.schema)
    fitted = {
        name: _repaired(value, known.get(name))
        for name, value in arguments.items()
        if not _is_left_out(name, value, tool.schema, judge)
    }
    if tool.schema.get("additionalProperties") is False:
        for name in DESCRIPTIVE & (fitted.keys() - known.keys()):
            description = description or str(fitted[name])
            del fitted[name]
    for name in _required(tool.schema):
        if not isinstance(fitted.get(name), str) and _only_describes(name, known):
            # A sentence of our own where there is none, or the schema wants one of another form.
            is_usable = description and judge.allows(name, description)
            fitted[name] = description if is_usable else f"Call the {tool.name} tool"
    if exactly or could_destroy(tool):
        return fitted, judge.problem_with(fitted, _that_counts(known, exactly=exactly))
    return fitted, ""


class _Judge:
    """Checks one call against its tool's schema, in a bounded number of steps. What cannot be
    checked counts as no problem: clients send invalid schemas, too, and judge by them
    themselves."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._given = schema
        self._steps = json_schema.Steps()

    @cached_property
    def _schema(self) -> json_schema.Schema | None:
        try:
            return json_schema.read(self._given)
        except json_schema.NotJudged:
            return None

    def problem_with(
        self, arguments: Mapping[str, Any], counts: Callable[[json_schema.Violation], bool]
    ) -> str:
        violation = self._violation(arguments, (), counts)
        return json_schema.sentence(violation) if violation else ""

    def allows(self, name: str, value: Any) -> bool:
        """Whether the parameter `name` may have this value."""
        return self._violation(value, ("properties", name), lambda _: True) is None

    def _violation(
        self, value: Any, below: tuple[str, ...], counts: Callable[[json_schema.Violation], bool]
    ) -> json_schema.Violation | None:
        if self._schema is None:
            return None
        try:
            return json_schema.first_violation(
                value, self._schema, self._steps, below=below, counts=counts
            )
        except json_schema.NotJudged:
            return None


def could_destroy(tool: ToolSpec) -> bool:
    """Whether an incomplete call of `tool` could do more harm than a wrong answer."""
    properties = tool.schema.get("properties")
    known = properties.keys() if isinstance(properties, dict) else set()
    words = {part.lower() for part in _NAME_PARTS.findall(tool.name)}
    return bool(_ACTS.search(tool.name) or words & _ACTS_AS_WORDS or known & _ACTING_PARAMETERS)


def _that_counts(
    properties: Mapping[str, Any], *, exactly: bool
) -> Callable[[json_schema.Violation], bool]:
    """Violations in a parameter that only describes the call do no harm, so they do not count."""

    def counts(violation: json_schema.Violation) -> bool:
        path = json_schema.keys_of(violation.path)
        if path and _only_describes(str(path[0]), properties):
            return False
        return exactly or violation.keyword not in _LIMITS

    return counts


def _only_describes(name: str, properties: Mapping[str, Any]) -> bool:
    schema = properties.get(name)
    if name not in DESCRIPTIVE or not isinstance(schema, dict) or "string" not in _types(schema):
        return False
    if name in _ALWAYS_DESCRIPTIVE or _COMMANDS & properties.keys():
        return True
    return bool(_DESCRIBES_THE_CALL.search(str(schema.get("description", ""))))


def _is_left_out(name: str, value: Any, schema: Mapping[str, Any], judge: _Judge) -> bool:
    """Whether the model wrote `null` for an optional parameter that allows no null, which means
    "left out"."""
    if value is not None or name in _required(schema):
        return False
    properties = schema.get("properties")
    is_known = isinstance(properties, dict) and isinstance(properties.get(name), dict)
    return is_known and not judge.allows(name, None)


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
