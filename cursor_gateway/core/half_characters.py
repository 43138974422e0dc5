"""Text of programs that count in UTF-16, where a piece may end within a character."""

from __future__ import annotations


class HalfCharacters:
    """A piece may end after the first half of an emoji, which JSON then carries as a lone escape.
    The half waits for its other half; a half that stays alone becomes U+FFFD, since no UTF-8 stream
    can carry it."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """What can be passed on now."""
        if not text or (not self._half and text.isascii()):
            return text
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        if self._half:
            text = text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def close(self) -> str:
        """Nothing more comes, nor does the other half of a character."""
        rest, self._half = "\ufffd" if self._half else "", ""
        return rest
