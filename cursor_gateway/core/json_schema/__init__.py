"""Law: JSON Schema, drafts 4 to 2020-12, in a bounded number of steps.

Anybody may send a schema and a document, and nothing else runs while one is checked against the
other. So every subschema that is tried, and every name, item and character that is looked at, is a
step, and the number of steps is limited. Reading a schema takes linear time. Why this is not left
to a library: docs/decisions/0016-json-schema.md.

The keywords of the drafts do not contradict each other, so all drafts are checked at once. A
keyword whose value does not have the right shape is not checked, and neither is `format`. A remote
`$ref` is never fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cursor_gateway.core.json_schema.checks import CHECKS
from cursor_gateway.core.json_schema.evaluation import Evaluation, Place, Violation
from cursor_gateway.core.json_schema.limits import (
    MAX_NODES,
    NotJudged,
    Steps,
    TooDeep,
    TooExpensive,
    nodes_within,
)
from cursor_gateway.core.json_schema.messages import sentence
from cursor_gateway.core.json_schema.paths import keys_of
from cursor_gateway.core.json_schema.schema import Schema
from cursor_gateway.core.json_text import MAX_DEPTH, to_json

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "NotJudged",
    "Schema",
    "Steps",
    "TooDeep",
    "TooExpensive",
    "Violation",
    "first_violation",
    "keys_of",
    "nodes_within",
    "read",
    "sentence",
]

# A larger schema is not cached but read each time: many of them would fill the memory.
_NODES_TO_CACHE = 5_000
_MAX_VIOLATIONS = 100


@dataclass(frozen=True, slots=True)
class _Written:
    text: str
    schema: Mapping[str, Any] = field(compare=False)


def read(schema: Mapping[str, Any]) -> Schema:
    """Raises NotJudged for a schema that is too large."""
    if nodes_within(schema) > _NODES_TO_CACHE:
        return Schema(schema)
    return _cached(_Written(to_json(schema), schema))


@lru_cache(maxsize=32)
def _cached(written: _Written) -> Schema:
    return Schema(written.schema)


def first_violation(
    document: object,
    schema: Schema,
    steps: Steps,
    *,
    below: tuple[str, ...] = (),
    counts: Callable[[Violation], bool] = lambda _: True,
) -> Violation | None:
    """The first violation for which `counts` is true, of the schema or of the part of it `below`
    these keys. The search ends with the hundredth violation. Raises NotJudged."""
    nodes_within(document, steps.left)
    part: Any = schema.root
    for key in below:
        part = part[key]
    found = Evaluation(schema, CHECKS, steps).violations(part, document, Place())
    numbered = enumerate(found, 1)
    return next((each for at, each in numbered if at >= _MAX_VIOLATIONS or counts(each)), None)
