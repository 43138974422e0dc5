"""Structured output: ask for JSON, take it out of the answer, hold it against the schema.

The CLI has no such mode, so this is instruction plus validation. The schema comes from the network:
it may be anything, and it may never make us fetch something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from cursor_gateway.core.conversation import JsonOutput
from cursor_gateway.errors import InvalidRequest

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

# A model that was told not to still likes to put its JSON into a code block.
_FENCE, _FENCE_LINES = "```", ("```", "```json")

# The client's schema is checked while nothing else runs, so it gets only so much time and effort.
_PATTERN_SECONDS = 0.2
_MAX_REFERENCES = 5_000
_MAX_VIOLATIONS = 100


class SchemaTooExpensive(Exception):
    """A schema that would take for ever to check a document against."""


def instruction(output: JsonOutput) -> str:
    said = "Reply with one JSON document and nothing else: no prose, no code fence."
    if output.schema is None:
        return f"{said} The document must be a JSON object."
    schema = orjson.dumps(output.schema, option=orjson.OPT_INDENT_2).decode()
    return f"{said} It must be valid against this JSON Schema:\n{schema}"


def correction(problem: str) -> str:
    return f"That reply cannot be used: {problem} Write the whole reply again, corrected."


def extract(answer: str) -> str:
    """The JSON text of an answer, taken out of a code block where it stands in one."""
    text = answer.strip()
    first, _, rest = text.partition("\n")
    is_fenced = first.rstrip() in _FENCE_LINES and rest.endswith(_FENCE)
    return rest.removesuffix(_FENCE).strip() if is_fenced else text


def problem_with(answer: str, output: JsonOutput) -> str:
    """Why `answer` is not what was asked for, in one sentence; empty when it is."""
    try:
        document = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        return f"it is not JSON ({error})."
    if output.schema is None:
        return "" if isinstance(document, dict) else "it is not a JSON object."
    return first_violation(document, output)


def check_schema(output: JsonOutput, param: str) -> None:
    """Refuse a schema that cannot be one, before an agent is started for it."""
    from jsonschema.exceptions import SchemaError

    try:
        _validator(output).check_schema(output.schema or {})
    except (SchemaError, RecursionError) as error:
        detail = error.message if isinstance(error, SchemaError) else "it is nested too deeply"
        raise InvalidRequest(f"The JSON schema is not valid: {detail}.", param=param) from None


def _validator(output: JsonOutput) -> Any:
    # Imported here: 60 ms that only requests with a schema pay.
    from jsonschema.validators import Draft202012Validator, extend, validator_for
    from jsonschema_specifications import REGISTRY

    schema = dict(output.schema or {})
    kind = validator_for(schema, default=Draft202012Validator)
    guards = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional(kind.VALIDATORS["additionalProperties"]),
        "unevaluatedProperties": _additional(lambda *_: ()),
        "$ref": _counted(kind.VALIDATORS["$ref"]),
    }
    guarded: Any = extend(kind, guards)  # type: ignore[no-untyped-call]
    # With a registry of our own, a remote `$ref` is an error instead of a download.
    return guarded(schema, registry=REGISTRY)


def _pattern(
    validator: Any, pattern: object, value: object, schema: object
) -> Iterator[ValidationError]:
    """A pattern that is none here (JavaScript knows others) or takes too long counts as met."""
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and isinstance(pattern, str) and _found(pattern, value) is False:
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: object, value: object, schema: object
) -> Iterator[ValidationError]:
    if not isinstance(value, dict) or not isinstance(patterns, dict):
        return
    for pattern, wanted in patterns.items():
        for name in (name for name in value if _found(pattern, name)):
            yield from validator.descend(value[name], wanted, path=name, schema_path=pattern)


def _additional(check: Any) -> Any:
    """What is additional depends on the patterns, which the library would match unguarded."""

    def checked(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        return () if "patternProperties" in schema else check(validator, wanted, value, schema)

    return checked


def _found(pattern: str, text: str) -> bool | None:
    """Whether `pattern` occurs in `text`; None where that cannot be said, or not in time."""
    import regex

    try:
        return bool(regex.search(pattern, text, timeout=_PATTERN_SECONDS))
    except (regex.error, TimeoutError):
        return None


def _counted(follow: Any) -> Any:
    """References may double at every step; whoever follows so many is in such a schema."""
    left = _MAX_REFERENCES

    def followed(validator: Any, reference: Any, value: Any, schema: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise SchemaTooExpensive
        return follow(validator, reference, value, schema)

    return followed


def first_violation(
    document: object,
    output: JsonOutput,
    counts: Callable[[ValidationError], bool] = lambda _: True,
) -> str:
    """Why `document` does not fit the schema, in one sentence; empty when it does. The first
    violation that counts is told, or the hundredth: nobody looks through a million."""
    from referencing.exceptions import Unresolvable

    try:
        numbered = enumerate(_validator(output).iter_errors(document), 1)
        told = (each for at, each in numbered if at >= _MAX_VIOLATIONS or counts(each))
        violation = next(told, None)
    except Unresolvable as error:
        return f"its schema refers to {error.ref!r}, which is not part of it."
    except RecursionError:
        return "it is nested too deeply to be checked."
    except SchemaTooExpensive:
        return "its schema is too expensive to check."
    if violation is None:
        return ""
    where = violation.json_path.removeprefix("$").removeprefix(".") or "the document"
    return f"at {where}, {violation.message[:300]}."
