"""Finished responses that clients may refer back to: in memory only, and bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import orjson


class ResponseStore:
    """JSON values under ids. What was not used for longest makes room for what is new.

    Values are kept as JSON text: its length is what they cost, and nobody can change them.
    """

    def __init__(self, max_bytes: int, max_count: int = 1000) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._values: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, response_id: str) -> Any:
        """The value, or None where it is gone or never was."""
        if response_id not in self._values:
            return None
        self._values.move_to_end(response_id)
        return orjson.loads(self._values[response_id])

    def put(self, response_id: str, value: dict[str, Any]) -> None:
        packed = orjson.dumps(value)
        if len(packed) > self._max_bytes:
            return
        self._values[response_id] = packed
        self._bytes += len(packed)
        while self._bytes > self._max_bytes or len(self._values) > self._max_count:
            self.remove(next(iter(self._values)))

    def remove(self, response_id: str) -> None:
        self._bytes -= len(self._values.pop(response_id))
