"""Seams: the places in an answer's text where the agent has acted, which the text does not show.

The agent writes "It is in `notes.txt`." before a tool call of its own and "It has 3 lines." after
it, without a space between them. A reader would see one sentence run into the next, so a paragraph
ends there, unless either side has a line break of its own. No character is added anywhere else:
what a model writes in one go may be a patch.
"""

from __future__ import annotations

_LINE_BREAKS = ("\n", "\r")


class Seams:
    def __init__(self) -> None:
        # The last character so far, and the last one that was sent to the client.
        self._ending = ""
        self._sent = ""
        self._has_acted = False
        self._is_open = False

    def begin(self) -> None:
        """Another run of the agent begins, in the same answer. The client may have got nothing of
        the run before."""
        self._ending = self._sent
        self.acted()

    def acted(self) -> None:
        """The agent did something, or something was done for it."""
        self._has_acted = True

    def speaks(self) -> None:
        """The agent writes text. Text that is joined without this call was written before the agent
        acted, and held back."""
        if self._has_acted:
            self._has_acted, self._is_open = False, True

    def sent(self) -> None:
        """All that was joined so far has been sent to the client."""
        self._sent = self._ending

    def joined(self, text: str) -> str:
        """`text` as it follows what came before it."""
        breaks = text.startswith(_LINE_BREAKS) or self._ending in ("", *_LINE_BREAKS)
        is_glued = self._is_open and not breaks
        self._ending, self._is_open = text[-1], False
        return f"\n\n{text}" if is_glued else text
