"""Lines of the log: each names its request, and holds no secrets and no control characters."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from functools import lru_cache

from cursor_gateway.core.visible import one_line, visible
from cursor_gateway.redaction import OUTGOING

# The id of the request that is being served.
CURRENT: ContextVar[str] = ContextVar("request", default="")


class LogLines(logging.Formatter):
    """A line has the time, the level, the message and the request's id. Some messages have the id
    already, for users with a formatter of their own. Each request writes a line, so this does
    without the steps of the general formatter."""

    def format(self, line: logging.LogRecord) -> str:
        known = CURRENT.get()
        of_request = f" [{known}]" if known and known not in (line.args or ()) else ""
        words = one_line(OUTGOING(line.getMessage()))
        text = f"{_clock(int(line.created))} {line.levelname[0]} {words}{of_request}"
        return f"{text}\n{self._traceback(line)}" if line.exc_info else text

    def _traceback(self, line: logging.LogRecord) -> str:
        """The traceback is indented, since an exception's text may have lines that look like those
        of the log."""
        assert line.exc_info
        text = visible(OUTGOING(self.formatException(line.exc_info)))
        return "\n".join(f"  {row}" for row in text.split("\n"))


@lru_cache(maxsize=1)
def _clock(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))
