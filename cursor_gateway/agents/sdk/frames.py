"""The frames of a Connect stream: a byte of flags, four bytes of length, and a message in JSON."""

from __future__ import annotations

import json
from typing import Any

import orjson

from cursor_gateway.agents.sdk.texts import BridgeFault, Refusal, refusal_of
from cursor_gateway.core.json_text import to_json

# The bridge's own messages have some kilobytes; a tool's result that it repeats may have megabytes.
LARGEST_FRAME = 64 * 1024 * 1024

_HEAD = 5
_LAST = 0x02


class Frames:
    """Takes bytes as they come, gives whole messages."""

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self._largest = largest
        self._bytes = bytearray()
        # Whether the last frame has come, and why the request failed, if that says so.
        self.ended = False
        self.refusal: Refusal | None = None

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        self._bytes += data
        messages, at = [], 0
        while not self.ended and (size := self._size(at)) is not None:
            start, at = at + _HEAD, at + _HEAD + size
            message = message_of(bytes(self._bytes[start:at]))
            if self._bytes[start - _HEAD] & _LAST:
                self._end(message)
            else:
                messages.append(message)
        del self._bytes[:at]
        return messages

    def _size(self, at: int) -> int | None:
        """The size of the message at `at`; None while it is not there as a whole."""
        head = self._bytes[at : at + _HEAD]
        if len(head) < _HEAD:
            return None
        if head[0] & ~_LAST:
            raise BridgeFault("it sent a frame that nobody asked for")
        size = int.from_bytes(head[1:], "big")
        if size > self._largest:
            raise BridgeFault(f"it sent a message of {size} bytes")
        return size if len(self._bytes) >= at + _HEAD + size else None

    def _end(self, message: dict[str, Any]) -> None:
        self.ended = True
        error = message.get("error")
        self.refusal = refusal_of(error) if isinstance(error, dict) else None


def frame(message: dict[str, Any]) -> bytes:
    """A request of one message, as a stream."""
    data = to_json(message).encode()
    return b"\0" + len(data).to_bytes(4, "big") + data


def message_of(data: bytes) -> dict[str, Any]:
    """The bridge cuts text between the halves of a character, which strict JSON refuses, too."""
    try:
        message = orjson.loads(data or b"{}")
    except orjson.JSONDecodeError:
        message = _leniently(data)
    if not isinstance(message, dict):
        raise BridgeFault("it sent something that is no message")
    return message


def _leniently(data: bytes) -> object:
    """What is nested so deeply that nobody could write it again says nothing."""
    try:
        return json.loads(data)
    except RecursionError:
        return {}
    except ValueError:
        raise BridgeFault("it sent something that is no JSON") from None
