"""JSON text of any value that a request can hold."""

from __future__ import annotations

import json
from typing import Any

import orjson

from cursor_gateway.errors import InvalidRequest

# Far deeper than any schema or argument that was seen, and far from where encoders and recursive
# functions give up.
MAX_DEPTH = 128


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


def is_too_deep(value: Any) -> bool:
    """Whether more than `MAX_DEPTH` arrays and objects stand in each other. Looked at level by
    level, since a function that calls itself would be the first to fail."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        # One step for each value of each request: a function for the inner part costs three times.
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False
    return True
