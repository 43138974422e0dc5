"""DeltaTracker: every word of the answer exactly once.

Theory of operation
-------------------
With `--stream-partial-output` the CLI sends each batch of tokens as a delta, and keeps a buffer of
what it has sent since its last flush. At four places it sends that buffer again, whole:

    before the first `tool_call` of a batch   with `model_call_id`           plain to see
    at the end of the turn                    without `timestamp_ms`         plain to see
    before each `interaction_query`           `timestamp_ms` only            looks like a delta
    before each `retry`                       `timestamp_ms` only            looks like a delta

So an event with `timestamp_ms` only, whose text equals the whole buffer, is either a repetition or
a model that says "ha" after "ha". Only the next event tells: before an `interaction_query`, `retry`
or `connection` it was a repetition, before anything else it was text. Such an event is *held* for
one event. Comparing text alone loses repeated words; the fields alone double sentences.

Without the flag each `assistant` event is a segment of its own and none is repeated, whatever its
fields. Which of the two holds is known from our own command line and is never guessed.

At `result`, text that never arrived as a delta is recovered from the complete answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_AFTER_A_REPETITION = frozenset({"interaction_query", "retry", "connection"})
_EMPTIES_THE_BUFFER = frozenset({"interaction_query", "retry"})


class DeltaTracker:
    def __init__(self, *, partial: bool) -> None:
        self._partial = partial
        # The CLI's buffer, in pieces: growing one string would cost quadratic time.
        self._pending: list[str] = []
        self._pending_length = 0
        self._held = ""
        self._emitted: list[str] = []

    def feed(self, event: Mapping[str, Any]) -> str:
        """The words that this event adds to the answer."""
        kind = event["type"]
        settled = self._settle(kind) if self._held else ""
        if kind == "assistant":
            return settled + self._assistant(event)
        if kind in _EMPTIES_THE_BUFFER:
            self._forget_pending()
        elif kind == "tool_call" and event.get("subtype") == "started":
            self._forget_pending()
        elif kind == "result":
            return settled + self._missing_from(event.get("result"))
        return settled

    def close(self) -> str:
        """The stream ended: a held delta was text after all."""
        return self._settle("end") if self._held else ""

    @property
    def text(self) -> str:
        return "".join(self._emitted)

    def _assistant(self, event: Mapping[str, Any]) -> str:
        text = _text_of(event)
        if not text:
            return ""
        if not self._partial:
            return self._emit(text)
        if "timestamp_ms" not in event or event.get("model_call_id"):
            return self._flush(text)
        if len(text) == self._pending_length and text == "".join(self._pending):
            self._held = text
            return ""
        return self._delta(text)

    def _settle(self, next_kind: str) -> str:
        held, self._held = self._held, ""
        if next_kind in _AFTER_A_REPETITION:
            self._forget_pending()
            return ""
        return self._delta(held)

    def _flush(self, text: str) -> str:
        """The whole buffer again; what we lack of it (older CLIs send no deltas) is new."""
        pending = "".join(self._pending)
        self._forget_pending()
        return self._emit(text[len(pending) :]) if text.startswith(pending) else ""

    def _delta(self, text: str) -> str:
        self._pending.append(text)
        self._pending_length += len(text)
        return self._emit(text)

    def _missing_from(self, answer: object) -> str:
        if not isinstance(answer, str):
            return ""
        sent = self.text
        return self._emit(answer[len(sent) :]) if answer.startswith(sent) else ""

    def _emit(self, text: str) -> str:
        if text:
            self._emitted.append(text)
        return text

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_length = 0


def _text_of(event: Mapping[str, Any]) -> str:
    message = event.get("message")
    content = message.get("content") if isinstance(message, dict) else event.get("text")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    if len(content) == 1:
        return _text_of_block(content[0])
    return "".join(map(_text_of_block, content))


def _text_of_block(block: object) -> str:
    if isinstance(block, dict) and block.get("type") == "text":
        text = block.get("text")
        return text if isinstance(text, str) else ""
    return ""
