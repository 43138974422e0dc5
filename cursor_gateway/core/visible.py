"""Text of others, so that it can be shown: what would steer a terminal or break a line is escaped.

Control characters can move the cursor, change the title, hide what was written before; the marks of
right-to-left writing can make a name read as another one.
"""

from __future__ import annotations

import re

# C0 and C1, line and paragraph separators, embeddings, overrides and isolates, halves of pairs.
_STEERS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_STEERS}]")
# A name has no lines, and nothing in it that cannot be seen.
_IN_LINE = re.compile(rf"[{_STEERS}\t\n\u061c\u200b\u200e\u200f\u2060\ufeff]")
_IN_JSON = re.compile(f"[{_STEERS}]".replace(r"\x00-\x08\x0b-\x1f", ""))


def visible(text: str) -> str:
    """Lines and tabs stay."""
    return text if text.isprintable() else _IN_TEXT.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Of a text that cannot begin a line of its own."""
    return text if text.isprintable() else _IN_LINE.sub(_escaped, text)


def visible_json(text: str) -> str:
    """The same JSON; what it lets stand in strings is escaped, too."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
