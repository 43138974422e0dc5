"""MessageMeter: how large the JSON messages in a stream of bytes are, before they are parsed.

A JSON parser blocks everything else until it is done, even in a thread, so a message that would
take long must be known before. Bytes alone do not show it: a picture of 60 MB is one value, read in
a tenth of a second; 60 MB of brackets are 30 million values, which take minutes and gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# What ends a message: nothing but the stream, a line, or the blank line after a server-sent event.
WHOLE: Sequence[bytes] = ()
LINES: Sequence[bytes] = (b"\n",)
EVENTS: Sequence[bytes] = (b"\n\n", b"\r\n\r\n", b"\r\r")

_ESCAPE = re.compile(rb"\\[^\r\n]")
# This matches text from which escapes were removed. A string ends with its line at the latest: JSON
# allows no line breaks in it, and text that is no JSON may hold single quotation marks.
_STRING = re.compile(rb'"[^"\r\n]*"?')


class MessageTooLarge(Exception):
    """A message is too large; the text says in which way."""


class MessageMeter:
    def __init__(self, ends: Sequence[bytes], max_bytes: int, max_values: int) -> None:
        self._ends = ends
        self._max_bytes = max_bytes
        self._max_values = max_values
        self._bytes = 0
        self._values = 0
        # A quotation mark or a backslash, if the last piece ended in a string or an escape.
        self._open = b""
        # The last bytes so far, since the end of a message may be cut in two.
        self._last = b""

    def feed(self, piece: bytes) -> None:
        """Count the next piece. Raises `MessageTooLarge`. A message that is complete within one
        piece is always small enough."""
        seam = self._last + piece
        self._last = seam[-3:]
        if end := self._last_end(seam):
            self._bytes, self._values, self._open = 0, 0, b""
            piece = seam[end:]
        self._bytes += len(piece)
        self._values += self._values_in(piece)
        if self._bytes > self._max_bytes:
            raise MessageTooLarge(f"more than {self._max_bytes // 1024 // 1024} MB in one message")
        if self._values > self._max_values:
            raise MessageTooLarge(f"more than {self._max_values:,} values in one message")

    def _last_end(self, text: bytes) -> int:
        """The position after the last end of a message; 0 if there is none."""
        return max((text.rfind(end) + len(end) for end in self._ends if end in text), default=0)

    def _values_in(self, piece: bytes) -> int:
        """Every value but the outermost follows a comma or an opening bracket."""
        text = _ESCAPE.sub(b"", self._open + piece)
        last_line = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
        self._open = b'"' * (last_line.count(b'"') % 2) + b"\\" * text.endswith(b"\\")
        outside = _STRING.sub(b"", text)
        return sum(outside.count(mark) for mark in (b",", b"[", b"{"))
