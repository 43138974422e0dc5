"""Makes text of others safe to show: what would control a terminal or break a line is escaped.

Control characters can hide what was written before and change the title of a terminal; the marks of
right-to-left writing can make a name read as another one.
"""

from __future__ import annotations

import re

# C0 and C1, line and paragraph separators, embeddings, overrides and isolates, halves of pairs.
_STEERS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_STEERS}]")
# A text on one line may have no line breaks and no invisible characters.
_IN_LINE = re.compile(rf"[{_STEERS}\t\n\u061c\u200b\u200e\u200f\u2060\ufeff]")
_IN_JSON = re.compile(f"[{_STEERS}]".replace(r"\x00-\x08\x0b-\x1f", ""))


def visible(text: str) -> str:
    """`text` with control characters escaped; line breaks and tabs stay."""
    return text if text.isprintable() else _IN_TEXT.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """`text` on one line, with line breaks and invisible characters escaped, too."""
    return text if text.isprintable() else _IN_LINE.sub(_escaped, text)


def visible_json(text: str) -> str:
    """The same JSON, with control characters escaped that JSON allows in strings."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
