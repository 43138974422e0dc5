"""JSON text of any value that a request can hold."""

from __future__ import annotations

import json
from typing import Any

import orjson

from cursor_gateway.errors import InvalidRequest


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
