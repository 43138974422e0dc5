"""Which request a line of the log is about, and what a line may hold."""

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
    """Lines of the log: when, how grave, what, and of which request. Some lines name it themselves,
    for those who write the log in a way of their own. Each request has a line, so it is put
    together at once, without all that the general formatter can do."""

    def format(self, line: logging.LogRecord) -> str:
        known = CURRENT.get()
        of_request = f" [{known}]" if known and known not in (line.args or ()) else ""
        words = one_line(OUTGOING(line.getMessage()))
        text = f"{_clock(int(line.created))} {line.levelname[0]} {words}{of_request}"
        return f"{text}\n{self._traceback(line)}" if line.exc_info else text

    def _traceback(self, line: logging.LogRecord) -> str:
        """Indented: the words of an exception may have lines, and none shall pass for one of the
        log."""
        assert line.exc_info
        text = visible(OUTGOING(self.formatException(line.exc_info)))
        return "\n".join(f"  {row}" for row in text.split("\n"))


@lru_cache(maxsize=1)
def _clock(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))
