"""Which request a line of the log is about."""

from __future__ import annotations

import logging
from contextvars import ContextVar

# The id of the request that is being served.
CURRENT: ContextVar[str] = ContextVar("request", default="")


class RequestIds(logging.Filter):
    """Gives each line of the log the id of its request. Some lines name it themselves, for those
    who write the log in a way of their own."""

    def filter(self, line: logging.LogRecord) -> bool:
        known = CURRENT.get()
        is_named = not known or known in (line.args or ())
        line.of_request = "" if is_named else f" [{known}]"
        return True
