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

The gateway always passes the flag. A CLI that sends no deltas all the same sends each segment once,
at the same four places: its buffer is then empty before each, so a segment is new text, whole.

At `result`, text that never arrived as a delta is recovered from the complete answer.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

_AFTER_A_REPETITION = frozenset({"interaction_query", "retry", "connection"})
_EMPTIES_THE_BUFFER = frozenset({"interaction_query", "retry"})
# What only a turn that goes on brings. Notices (`system`) are none of it, nor is the end of a call:
# both come of what runs in the background.
_GOES_ON = frozenset({"assistant", "thinking", "interaction_query", "retry", "connection"})


class DeltaTracker:
    def __init__(self) -> None:
        # All words so far, as a file: growing a string would cost quadratic time, and a list of
        # pieces many times their length. What stands after `_flushed` is the CLI's buffer.
        self._said = io.StringIO()
        self._flushed = 0
        self._pending_units = 0
        self._held = ""
        # The turn's closing repetition came, and it repeats what was said: the text is whole.
        self.turn_ended = False

    def event(self, kind: str, event: Mapping[str, Any]) -> str:
        """The words that an event of the agent adds to the answer."""
        if kind in _GOES_ON:
            self.turn_ended = False
        if kind == "assistant":
            return self._assistant(event)
        settled = self._settle(kind) if self._held else ""
        if kind == "result":
            return settled + self._missing_from(event.get("result"))
        if kind in _EMPTIES_THE_BUFFER:
            self._forget_pending()
        elif kind == "tool_call" and event.get("subtype") == "started":
            self._forget_pending()
            self.turn_ended = False
        return settled

    def delta(self, text: str) -> str:
        """The words of a delta, as far as it is known to be one."""
        self.turn_ended = False
        settled = self._settle("assistant") if self._held else ""
        may_repeat = _units(text) == self._pending_units
        if may_repeat and text == self._pending():
            self._held = text
            return settled
        return settled + self._emit(text)

    def deltas(self, written: Sequence[bytes]) -> str:
        """The words of many deltas, each as it stands in JSON between its quotation marks.

        None of them can repeat a buffer that is longer than each, and no text has more units than
        its JSON has bytes: from there on they are read together.
        """
        said = []
        longest = max(map(len, written), default=0)
        for at, delta in enumerate(written):
            if self._pending_units > longest and not self._held:
                said.append(self._emit(_unquoted(written[at:])))
                break
            said.append(self.delta(_unquoted([delta])))
        return "".join(said)

    def close(self) -> str:
        """The stream ended: a held delta was text after all."""
        return self._settle("end") if self._held else ""

    @property
    def text(self) -> str:
        return _joined(self._said.getvalue())

    def _assistant(self, event: Mapping[str, Any]) -> str:
        text = _text_of(event)
        if "timestamp_ms" not in event or event.get("model_call_id"):
            settled = self._settle("assistant") if self._held else ""
            closes = not event.keys() & {"timestamp_ms", "model_call_id"}
            return settled + self._flush(text, closes=closes) if text else settled
        return self.delta(text)

    def _settle(self, next_kind: str) -> str:
        held, self._held = self._held, ""
        if next_kind in _AFTER_A_REPETITION:
            self._forget_pending()
            return ""
        return self._emit(held)

    def _flush(self, text: str, *, closes: bool) -> str:
        """The whole buffer again; what we lack of it (older CLIs send no deltas) is new."""
        pending = self._pending()
        fits = text.startswith(pending)
        self._forget_pending()
        added = self._emit(text[len(pending) :]) if fits else ""
        self._forget_pending()
        self.turn_ended = closes and fits
        return added

    def _missing_from(self, answer: object) -> str:
        if not isinstance(answer, str):
            return ""
        sent = self.text
        return self._emit(answer[len(sent) :]) if answer.startswith(sent) else ""

    def _emit(self, text: str) -> str:
        self._said.write(text)
        self._pending_units += _units(text)
        return text

    def _pending(self) -> str:
        return _joined(self._said.getvalue()[self._flushed :])

    def _forget_pending(self) -> None:
        self._flushed = self._said.tell()
        self._pending_units = 0


def _unquoted(deltas: Sequence[bytes]) -> str:
    """What stands in JSON strings, of which the quotation marks were cut off."""
    joined = b"".join(deltas)
    if joined.isascii():
        return str(orjson.loads(b'"%b"' % joined))
    strings = b'["%b"]' % b'","'.join(deltas)
    try:
        texts: list[str] = orjson.loads(strings)
    except orjson.JSONDecodeError:  # not UTF-8, and then each delta has its own problems
        texts = json.loads(strings.decode("utf-8", "replace"))
    return "".join(texts)


def _joined(text: str) -> str:
    """As the CLI joins it: it counts in UTF-16, so a character may be cut between two deltas and
    whole in their repetition."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _units(text: str) -> int:
    """Its length as the CLI counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _text_of(event: Mapping[str, Any]) -> str:
    try:
        [block] = event["message"]["content"]
        if block["type"] == "text" and isinstance(block["text"], str):
            return block["text"]
    except (KeyError, TypeError, ValueError):
        pass  # not the one block of text that every delta of today's CLI is
    message = event.get("message")
    content = message.get("content") if isinstance(message, dict) else event.get("text")
    if isinstance(content, str):
        return content
    return "".join(map(_text_of_block, content)) if isinstance(content, list) else ""


def _text_of_block(block: object) -> str:
    if isinstance(block, dict) and block.get("type") == "text":
        text = block.get("text")
        return text if isinstance(text, str) else ""
    return ""
