"""TextLines: whether a growing text ends inside a Markdown code block, or at the start of a line.

A line begins with at most three blanks; four make it code. A code block begins with a line of three
or more backticks or tildes, and ends with one of at least as many and nothing else on it.
"""

from __future__ import annotations

import re

# A line that is longer than this begins and ends no code block.
_LONGEST = 200
_MARGIN = "   "
_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)(.*)", re.DOTALL)


class TextLines:
    def __init__(self) -> None:
        self._line = ""
        # Whether the line so far can no longer become a fence.
        self._is_prose = False
        # The backticks or tildes with which the code block began.
        self._fence = ""

    @property
    def in_code(self) -> bool:
        return bool(self._fence)

    @property
    def at_beginning(self) -> bool:
        return not self._is_prose and _MARGIN.startswith(self._line)

    def begin_line(self) -> None:
        self._end_line()
        self._line, self._is_prose = "", False

    def feed(self, text: str) -> None:
        if self._is_prose and "\n" not in text:
            return
        first, newline, rest = text.partition("\n")
        self._grow(first)
        if not newline:
            return
        self.begin_line()
        if "`" in rest or "~" in rest:
            for line in rest.split("\n")[:-1]:
                self._grow(line)
                self.begin_line()
        self._grow(rest.rpartition("\n")[2])

    def _grow(self, piece: str) -> None:
        if self._is_prose:
            return
        self._line = (self._line + piece)[:_LONGEST]
        begins = self._line.lstrip(" ")
        is_other = bool(begins) and begins[0] not in "`~"
        self._is_prose = is_other or len(self._line) == _LONGEST

    def _end_line(self) -> None:
        found = None if self._is_prose else _FENCE.fullmatch(self._line)
        if found is None:
            return
        signs, rest = found[1], found[2]
        if not self._fence:
            # Backticks that follow on the same line make it a code span.
            self._fence = "" if signs[0] == "`" and "`" in rest else signs
        elif signs.startswith(self._fence) and not rest.strip():
            self._fence = ""
