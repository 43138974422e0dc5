"""JSON text of any value that a request can hold, and how deep a value may be."""

from __future__ import annotations

import json
from typing import Any

import orjson

from cursor_gateway.errors import InvalidRequest

# Far deeper than any schema or argument that clients send, and far below the depth at which
# encoders and recursive functions fail.
MAX_DEPTH = 128


def to_json(value: Any) -> str:
    """`value` as JSON text. Lone surrogates and integers above 64 bits need
    the slower encoder."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return json.dumps(value)
    except RecursionError:
        raise InvalidRequest("A JSON value is nested too deeply.") from None


def is_too_deep(value: Any) -> bool:
    """Whether more than `MAX_DEPTH` arrays and objects are nested. This goes level by level, since
    a recursive function would be the first to fail."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        # This runs for each value of each request; a function for the inner part would take three
        # times as long.
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False
    return True
