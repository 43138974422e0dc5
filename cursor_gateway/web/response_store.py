"""Finished responses that clients may refer back to: in memory only, bounded, and each visible only
to the caller who got it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import orjson

# A caller and the id of a response.
Key = tuple[str, str]

# Parsing one value takes as long as this many bytes of text. Only what is hardly text costs more
# than its length.
_BYTES_PER_VALUE = 20


class ResponseStore:
    """JSON values by id. The least recently used ones make room for new ones.

    Values are stored as JSON text: its length is known, and no caller can change it.
    """

    def __init__(self, max_bytes: int, max_count: int = 1000) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._values: OrderedDict[Key, bytes] = OrderedDict()
        self._bytes = 0

    def of(self, caller: str) -> ResponsesOf:
        """The view of one caller, to whom the responses of others do not exist."""
        return ResponsesOf(self, caller)

    def get(self, key: Key) -> Any:
        """The value, or None if it is gone or never was."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return orjson.loads(self._values[key])

    def put(self, key: Key, value: dict[str, Any]) -> None:
        packed = orjson.dumps(value)
        if _cost(packed) > self._max_bytes:
            return
        self._values[key] = packed
        self._bytes += _cost(packed)
        while self._bytes > self._max_bytes or len(self._values) > self._max_count:
            self.remove(next(iter(self._values)))

    def remove(self, key: Key) -> None:
        self._bytes -= _cost(self._values.pop(key))


class ResponsesOf:
    """The responses of one caller."""

    def __init__(self, store: ResponseStore, caller: str) -> None:
        self._store = store
        self._caller = caller

    def get(self, response_id: str) -> Any:
        return self._store.get((self._caller, response_id))

    def put(self, response_id: str, value: dict[str, Any]) -> None:
        self._store.put((self._caller, response_id), value)

    def remove(self, response_id: str) -> None:
        self._store.remove((self._caller, response_id))


def _cost(packed: bytes) -> int:
    """The length of the text, or more if it holds so many values that parsing it takes longer than
    its length suggests: one request may refer to everything that is stored."""
    return max(len(packed), _BYTES_PER_VALUE * sum(map(packed.count, (b",", b"[", b"{"))))
