"""OutputLimits: ends the text of an answer at a `stop` sequence or at `max_tokens`."""

from __future__ import annotations

from typing import Literal

CutReason = Literal["stop", "length"]

# The gateway has no tokenizer for models it does not know. Four bytes of UTF-8 per token are near
# enough for a limit, and every figure that rests on this is marked as an estimate.
BYTES_PER_TOKEN = 4


def estimate_tokens(size: int) -> int:
    """Tokens in `size` bytes of text."""
    return -(-size // BYTES_PER_TOKEN)


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class OutputLimits:
    def __init__(self, stop: tuple[str, ...], max_tokens: int | None) -> None:
        self._stop = stop
        self._room = None if max_tokens is None else max_tokens * BYTES_PER_TOKEN
        # The end of the text so far, if it may still become a stop sequence.
        self._held = ""
        # The stop sequence that was found.
        self.found: str | None = None

    def feed(self, text: str) -> tuple[str, CutReason | None]:
        """As much of `text` as may pass, and the reason why nothing more may."""
        text, stopped = self._until_stop(text)
        text, full = self._within_room(text)
        return text, "length" if full else "stop" if stopped else None

    def close(self) -> tuple[str, CutReason | None]:
        held, self._held = self._held, ""
        text, full = self._within_room(held)
        return text, "length" if full else None

    def _until_stop(self, text: str) -> tuple[str, bool]:
        if not self._stop:
            return text, False
        text = self._held + text
        found = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            at, self.found = min(found)
            self._held = ""
            return text[:at], True
        safe = len(text) - max(_overlap(text, stop) for stop in self._stop)
        self._held = text[safe:]
        return text[:safe], False

    def _within_room(self, text: str) -> tuple[str, bool]:
        if self._room is None:
            return text, False
        encoded = text.encode()
        room, self._room = self._room, max(0, self._room - len(encoded))
        if len(encoded) <= room:
            return text, False
        # "ignore" drops the character that the limit falls into.
        return encoded[:room].decode(errors="ignore"), True


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are a beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
