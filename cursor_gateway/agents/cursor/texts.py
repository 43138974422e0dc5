"""What the CLI says in plain text: failures, `status`, `models`, `--version`.

Exit codes lie in both directions (a refusal may exit 0, a success may be killed), so everything
here is decided by words. The patterns and their order come from docs/cursor-agent.md.
"""

from __future__ import annotations

import re

import orjson

from cursor_gateway import errors
from cursor_gateway.agents import ModelList, SignIn
from cursor_gateway.core.models import Model

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_EXCERPT = 600
# Both ends together are longer than what is kept of stderr and stdout. A failed `result` may hold
# megabytes, and everybody waits while it is read.
_READ_AT_EACH_END = 100_000

# The most specific first: a model's refusal may mention quotas, a quota text may mention plans.
_FAILURES: tuple[tuple[type[errors.GatewayError], str], ...] = (
    (errors.WorkspaceNotTrusted, r"workspace trust required"),
    (
        errors.AgentKeyInvalid,
        r"api key is invalid|invalid api key|bad_api_key|bad_user_api_key",
    ),
    (
        errors.NotAuthenticated,
        r"authentication required|not logged in|not_logged_in|agent_requires_login"
        r"|auth_token_expired|\bunauthorized\b|\[unauthenticated\]|secitemcopymatching failed",
    ),
    (
        errors.ModelNotFound,
        r"cannot use this model|model not found|model name is not valid|unknown model",
    ),
    (errors.ModelBlocked, r"model_blocked|max_mode_required|unsupported_region"),
    (
        errors.PlanRequired,
        r"named models unavailable|free plans can only|upgrade plans to continue"
        r"|usage_pricing_required|pro_user_only|plan_required",
    ),
    (
        errors.QuotaExceeded,
        r"usage limit|user_usage_limit|free requests limit|spend limit"
        r"|upgrade your plan to continue",
    ),
    (
        errors.RateLimited,
        r"rate limit|rate_limit|resource_exhausted|rate_limited|slow_pool|too many requests",
    ),
    (
        errors.ContextTooLong,
        r"conversation_too_long|conversation is too long|context length|prompt is too long",
    ),
    (
        errors.CursorUnreachable,
        r"retriableerror|\[unavailable\]|\[canceled\]|\[deadline_exceeded\]"
        r"|connection (?:failed|stalled)|enotfound|econnre|etimedout|eai_again|nghttp2"
        r"|socket hang up|http/2 stream closed|failed to load models|network connection",
    ),
    (errors.AgentOutdated, r"error: unknown option|outdated_client|error: unknown command"),
)
_CLASSIFIERS = tuple((kind, re.compile(pattern)) for kind, pattern in _FAILURES)

_MODEL_LIST = "Available models:"
# Nothing is given back once it has matched (`+`): a long line of blanks would be read again from
# each of them.
_EVENT = re.compile(r"\s*+(?:stdout|stderr)?+\s*+\{")
_LEADING_LABEL = re.compile(r"^(?:[A-Z]|Error|ERROR|error|\w+Error): ")


def plain(text: str) -> str:
    """`text` without colours and cursor movements, which the CLI writes into pipes too."""
    return _ANSI.sub("", text)


def classify_failure(text: str, *, exit_code: int | None = None) -> errors.GatewayError:
    """The error that the CLI's last words mean."""
    words = _words(text)
    in_lower_case = words.lower()
    for kind, pattern in _CLASSIFIERS:
        if found := pattern.search(in_lower_case):
            # What stands on the lines before it is about something else.
            begins = words.rfind("\n", 0, found.start()) + 1
            return kind(_sentence("Cursor's agent says:", words[begins:]), quotes_agent=True)
    if exit_code is None:
        return errors.AgentFailed(_sentence("Cursor's agent failed:", words), quotes_agent=True)
    return errors.AgentFailed(
        _sentence(f"Cursor's agent ended without a result (exit code {exit_code}).", words),
        quotes_agent=True,
    )


def is_config_race(text: str) -> bool:
    """All agents that start at the same moment rewrite one file; the loser dies of its absence."""
    lines = [line for line in _words(text).lower().splitlines() if "cli-config.json" in line]
    return any("enoent" in line or "rename" in line for line in lines)


def _words(text: str) -> str:
    """Without events, whole or half: some versions mirror them, and one echoes the prompt."""
    lines = plain(_both_ends(text)).splitlines()
    return "\n".join(line for line in lines if not _EVENT.match(line))


def _both_ends(text: str) -> str:
    if len(text) <= 2 * _READ_AT_EACH_END:
        return text
    return f"{text[:_READ_AT_EACH_END]}\n{text[-_READ_AT_EACH_END:]}"


def _without_models(words: str) -> str:
    """The CLI names all models that there are when it does not know one."""
    said, found, _ = words.partition(_MODEL_LIST)
    return said.rstrip().removesuffix(".") + "." if found else words


def _sentence(start: str, words: str) -> str:
    lines = [line.strip() for line in _without_models(words).splitlines()]
    excerpt = _LEADING_LABEL.sub("", " ".join(filter(None, lines)))
    if len(excerpt) > _EXCERPT:
        excerpt = excerpt[:_EXCERPT].rstrip() + "…"
    if not excerpt:
        return start.rstrip(":") + ("" if start.endswith(".") else ".")
    return f"{start} {excerpt}" if excerpt.endswith((".", "!", "?", "*")) else f"{start} {excerpt}."


def parse_status(output: str) -> SignIn | None:
    """`status`, in JSON (newer CLIs) or in words; None when it says neither yes nor no."""
    words = plain(output)
    try:
        status = orjson.loads(words[words.index("{") : words.rindex("}") + 1])
    except (ValueError, orjson.JSONDecodeError):
        return _parse_status_words(words)
    if not isinstance(status, dict) or not isinstance(status.get("isAuthenticated"), bool):
        return _parse_status_words(words)
    user = status.get("userInfo")
    email = user.get("email") if isinstance(user, dict) else None
    return SignIn(status["isAuthenticated"], email if isinstance(email, str) else "")


_LOGGED_IN_AS = re.compile(r"logged in as\s+(\S+)", re.IGNORECASE)
_LOGGED_OUT = re.compile(r"not logged in|authentication required", re.IGNORECASE)
_LOGGED_IN = re.compile(r"✓\s*logged in", re.IGNORECASE)


def _parse_status_words(words: str) -> SignIn | None:
    if found := _LOGGED_IN_AS.search(words):
        return SignIn(True, found[1])
    if _LOGGED_OUT.search(words):
        return SignIn(False)
    return SignIn(True) if _LOGGED_IN.search(words) else None


_MODEL_LINE = re.compile(r"^(\S+) - (.+?)(?: \((?:current|default|current, default)\))?$")


def parse_models(output: str) -> ModelList:
    # What stands behind the last newline may be half a line.
    lines = [line.strip() for line in plain(output).split("\n")[:-1]]
    found = (_MODEL_LINE.match(line) for line in lines)
    models = {match[1]: Model(id=match[1], name=match[2]) for match in found if match}
    complete = any(line.startswith("Tip:") for line in plain(output).split("\n"))
    return ModelList(tuple(models.values()), complete)


def parse_version(output: str) -> str:
    """The first word of the last line: some builds print notices before it."""
    lines = plain(output).split("\n")
    words = next((line.split() for line in reversed(lines) if line.strip()), [])
    return words[0] if words else ""
