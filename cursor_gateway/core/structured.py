"""Structured output: ask for JSON, take it out of the answer, check it against the schema.

Agents have no such mode, so this is an instruction and a validation.
"""

from __future__ import annotations

import orjson

from cursor_gateway.core import json_schema
from cursor_gateway.core.conversation import JsonOutput
from cursor_gateway.errors import InvalidRequest

# Models put their JSON into a code block even though the instruction forbids it.
_FENCE, _FENCE_LINES = "```", ("```", "```json")


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
    return _violation_in(document, output)


def check_schema(output: JsonOutput, param: str) -> None:
    """Reject an invalid schema, before an agent is started for it."""
    check_size(output.schema, param)
    problem = json_schema.read(output.schema or {}).problem
    if problem:
        raise InvalidRequest(f"The JSON schema is not valid: {problem}.", param=param)


def check_size(schema: object, param: str, left: int = json_schema.MAX_NODES) -> int:
    """The number of values in the schema. Rejects one that has more than `left`."""
    try:
        return json_schema.nodes_within(schema, left)
    except json_schema.NotJudged:
        raise InvalidRequest(
            f"`{param}` is too large: a JSON schema, or all tools together, may consist of "
            f"{json_schema.MAX_NODES} values, nested {json_schema.MAX_DEPTH} deep.",
            param=param,
        ) from None


def _violation_in(document: object, output: JsonOutput) -> str:
    try:
        schema = json_schema.read(output.schema or {})
        violation = json_schema.first_violation(document, schema, json_schema.Steps())
    except json_schema.NotJudged as reason:
        return str(reason)
    return json_schema.sentence(violation) if violation else ""
