"""Which status and headers a failure has, and for whom.

The status says what failed, and the official SDKs have a type for each. But most coding agents
repeat a 429 or a 5xx for minutes without showing it, each in its own way, and few of them know
`x-should-retry`. So a final failure that a client would repeat gets a status that it shows.
The figures are in docs/decisions/0015.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cursor_gateway.errors import GatewayError

# Statuses below 500 that clients repeat by themselves.
_REPEATED = frozenset({408, 409, 429})
# Statuses that no client repeats, in OpenAI's dialects and in Anthropic's: Claude Code sends five
# more variants of a request after a 400, and takes a 403 for a problem of its own sign-in.
SHOWN, SHOWN_IN_MESSAGES = 400, 422
# A client that repeats a final failure this often does not know `x-should-retry`.
OFTEN = 3


@dataclass(frozen=True, slots=True)
class Habit:
    """What the clients of one kind do with a failure that is final."""

    clients: str
    user_agent: str
    # The statuses that they show at once; they repeat all others.
    shows: frozenset[int]
    why: str
    headers: Mapping[str, str] = field(default_factory=dict)


_MOST = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422, 426})
_EVERY = frozenset(range(400, 600))

SDKS = Habit(
    "the official SDKs, and all that are not named here",
    "",
    _EVERY,
    "They have a type of error for each status, and obey `x-should-retry`.",
)
HABITS = (
    Habit(
        "OpenCode, Kilo",
        r"(?:opencode|Kilo-Code)/",
        _MOST,
        "They repeat whatever has words such as “rate limit” or “server error” in its body, five "
        "times, and wait for as long as `retry-after-ms` says.",
        {"retry-after-ms": "1"},
    ),
    Habit(
        "Codex",
        r"codex",
        # Codex tries a WebSocket first, and at a 426 goes on over HTTP.
        frozenset({400, 426}),
        "It repeats everything but a 400 five times, and replaces the text of a 429 or 5xx.",
    ),
    Habit(
        "oh-my-pi",
        r"omp/",
        _MOST,
        "It repeats whatever has such words in its message, ten times, but nothing for which it "
        "would have to wait longer than five minutes.",
        {"Retry-After": "3600"},
    ),
    Habit(
        "Factory Droid, Qwen Code",
        r"(?:factory-cli|QwenCode)/",
        _MOST,
        "They repeat a 429 and a 5xx in silence for a minute or more.",
    ),
    Habit(
        "Cline and others on the AI SDK",
        r"ai-sdk/",
        _MOST,
        "The AI SDK repeats a 429 and a 5xx twice, and Cline repeats that.",
    ),
    Habit(
        "Continue and others that were packed with an SDK inside",
        r"\w{1,3}/JS ",
        _MOST,
        "The name of the SDK is lost in packing, and Continue repeats a 429 and a 5xx in silence.",
    ),
)
_PATTERNS = tuple((re.compile(habit.user_agent), habit) for habit in HABITS)


def habit_of(user_agent: str) -> Habit:
    return next((habit for pattern, habit in _PATTERNS if pattern.match(user_agent)), SDKS)


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    status: int
    headers: Mapping[str, str]


def status_for(error: GatewayError, user_agent: str, *, is_anthropic: bool) -> ErrorStatus:
    """The status and headers with which that client gets `error`."""
    # Claude Code repeats a 401 for over a minute without showing it.
    status = 403 if is_anthropic and error.status == 401 else error.status
    if not error.is_final:
        waits = error.retry_after is not None
        return ErrorStatus(status, {"Retry-After": str(error.retry_after)} if waits else {})
    habit = habit_of(user_agent)
    is_repeated = status >= 500 or status in _REPEATED
    if status not in habit.shows or (is_repeated and error.repeats >= OFTEN):
        status = SHOWN_IN_MESSAGES if is_anthropic else SHOWN
    return ErrorStatus(status, {"x-should-retry": "false", **habit.headers})
