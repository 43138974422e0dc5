"""Regular expressions that anybody may have written, searched in linear time.

RE2 does not backtrack: a search takes as many steps as the text and the compiled pattern are long.
It knows neither look-around nor back references; such a pattern cannot be judged here.
"""

from __future__ import annotations

import re
from typing import Any

from cursor_gateway.core.json_schema.limits import Steps

# The memory that one compiled pattern may take. A longer or larger pattern is not checked.
_PATTERN_BYTES = 256 * 1024
_LONGEST_PATTERN = 1000
_PATTERNS_IN_MEMORY = 256
# A step is about a microsecond. A pattern that RE2 refuses costs so many steps, and a search costs
# one step for so many characters times instructions.
_REFUSED = 10_000
_SEARCHED_IN_A_STEP = 500
_JAVASCRIPT_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)

_compiled: dict[str, Any] = {}


def occurs(pattern: str, text: str, steps: Steps) -> bool | None:
    """Whether `pattern` occurs in `text`; None if RE2 cannot say."""
    steps.take()
    if len(pattern) > _LONGEST_PATTERN:
        return None
    if pattern not in _compiled:
        if len(_compiled) >= _PATTERNS_IN_MEMORY:
            del _compiled[next(iter(_compiled))]
        _compiled[pattern] = _compile(pattern)
        steps.take(_cost_of_compiling(_compiled[pattern]))
    engine = _compiled[pattern]
    if engine is None:
        return None
    steps.take(4 + len(text) * engine.programsize // _SEARCHED_IN_A_STEP)
    return engine.search(text.encode("utf-8", "replace")) is not None


def _compile(pattern: str) -> Any:
    # Only schemas with patterns need RE2, so it is imported late.
    import re2

    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.never_capture = True
    options.log_errors = False
    known = _JAVASCRIPT_ESCAPE.sub(_as_re2_writes_it, pattern)
    try:
        return re2.compile(known.encode("utf-8", "replace"), options)
    except re2.error:
        return None


def _as_re2_writes_it(escape: re.Match[str]) -> str:
    return f"\\x{{{escape[1]}}}" if escape[1] else escape[0]


def _cost_of_compiling(engine: Any) -> int:
    return _REFUSED if engine is None else int(engine.programsize)
