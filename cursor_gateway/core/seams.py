"""Seams: between two texts of one answer the agent may have acted, and nothing shows it.

The CLI writes "It is in `notes.txt`." before a tool of its own and "It has 3 lines." behind it, and
joins them in `result` without a space. Readers would see one sentence run into the next, so a
paragraph ends there, unless either side has a line break of its own. Nowhere else is a character
added: what a model writes in one go may be a patch.
"""

from __future__ import annotations

_LINE_BREAKS = ("\n", "\r")


class Seams:
    def __init__(self) -> None:
        # The last character so far, and the last that the client surely gets.
        self._ending = ""
        self._told = ""
        self._has_acted = False
        self._is_open = False

    def begin(self) -> None:
        """Another run of the agent begins, in the same answer. Of the one before the client may
        have got nothing."""
        self._ending = self._told
        self.acted()

    def acted(self) -> None:
        """The agent did something, or something was done for it."""
        self._has_acted = True

    def speaks(self) -> None:
        """Text comes. What is joined without it was said before the agent acted, and held back."""
        if self._has_acted:
            self._has_acted, self._is_open = False, True

    def told(self) -> None:
        """What was joined so far has been passed on."""
        self._told = self._ending

    def joined(self, text: str) -> str:
        """`text` as it follows what came before it."""
        breaks = text.startswith(_LINE_BREAKS) or self._ending in ("", *_LINE_BREAKS)
        is_glued = self._is_open and not breaks
        self._ending, self._is_open = text[-1], False
        return f"\n\n{text}" if is_glued else text
