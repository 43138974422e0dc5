"""What the CLI says of failures over ACP, in the gateway's words.

What the protocol refuses has a code. What fails in a turn (a limit, a model, the connection) has
none: it arrives as the answer's last words, after which the turn ends as if it had succeeded
(2026.08). So words that may be a failure are held back until it is clear whether they are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursor_gateway import errors
from cursor_gateway.agents.acp.wire import RpcError
from cursor_gateway.agents.cursor.texts import classify_failure

AUTH_REQUIRED = -32000
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

# Both a fault that passes, and what a key that is not valid comes to.
NO_SERVICES = "failed to initialize session services"
# Nobody but the CLI writes more than that into one failure, and whoever waits sees it late.
MOST_HELD = 1000

# Where a failure may begin: with a line, or with a piece, whatever stands before it.
_BEGINNINGS = ("Error: ", "Upgrade your plan to continue", "You've hit your usage limit")
_BEGINNING = re.compile(f"^(?:{'|'.join(_BEGINNINGS)})", re.MULTILINE)
# How those begin that were seen. `T:` and `I:` are names of classes that its builder has shortened.
# Any other "Error: " may be an answer about errors.
_FAILURE = re.compile(
    r"Error: (?:[A-Z]: |\[[a-z_]{1,40}\]|(?:Retriable|ActionRequired|NonRetriable|Connect)Error: "
    r"|Aborted\s*\Z|You've hit your usage limit|Upgrade your plan to continue)"
    r"|Upgrade your plan to continue|You've hit your usage limit"
)


class LastWords:
    """The text of an answer on its way, without what may turn out to be a failure."""

    def __init__(self) -> None:
        self._held = ""
        self._has_passed = False

    def feed(self, text: str) -> str:
        """What can be passed on now."""
        text = self._held + text
        start = next(_beginnings(text, len(text) - MOST_HELD), len(text) - self._half(text))
        # The line breaks before a failure are a part of it: with nothing but them before it, it has
        # no answer before it either.
        end = max(len(text[:start].rstrip("\n")), len(text) - MOST_HELD)
        self._held, self._has_passed = text[end:], self._has_passed or end > 0
        return text[:end]

    def _half(self, text: str) -> int:
        """How much of its last line may be the first half of a beginning."""
        _, line_break, line = text.rpartition("\n")
        is_whole = line_break or not self._has_passed
        return len(line) if is_whole and any(b.startswith(line) for b in _BEGINNINGS) else 0

    def let_go(self) -> str:
        """Something follows, so that what was held was an answer."""
        held, self._held = self._held, ""
        return held

    def close(self) -> tuple[str, errors.GatewayError | None]:
        """The turn has ended: what can be passed on, and the failure that it ended with."""
        held = self.let_go()
        for start in _beginnings(held, 0):
            if _FAILURE.match(held, start):
                return held[:start].rstrip("\n"), classify_failure(held[start:])
        return held, None


def _beginnings(text: str, least: int) -> Iterator[int]:
    return (found.start() for found in _BEGINNING.finditer(text) if found.start() >= least)


def error_for(error: RpcError, *, has_key: bool = False) -> errors.GatewayError:
    """What the client is told of a refusal."""
    words = error.words or f"error {error.code}"
    if error.code == AUTH_REQUIRED:
        return errors.NotAuthenticated("Cursor's agent is not signed in.")
    if is_transient(error):
        # Without a key somebody has signed in, which is known to be valid.
        kind = errors.AgentKeyInvalid if has_key else errors.CursorUnreachable
        return kind(f"Cursor's agent says: {words.rstrip('.')}.", quotes_agent=True)
    if error.code == INVALID_PARAMS and "model" in words.lower():
        return errors.ModelNotFound(f"Cursor's agent says: {words.rstrip('.')}.", quotes_agent=True)
    return classify_failure(words)


def is_transient(error: RpcError) -> bool:
    """Whether the same may succeed when it is tried once more."""
    return error.code == INTERNAL_ERROR and NO_SERVICES in error.words.lower()
