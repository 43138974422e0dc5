"""What the bridge refuses, in the gateway's words: one table of its codes, old and new.

A refusal carries a Connect code and mostly one of `sdk.v1`'s own, which says more. Where both say
nothing (`internal`), the words do, as with the CLI: they come from the same servers. How the real
bridge differs from its protocol stands beside the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cursor_gateway import errors
from cursor_gateway.agents.cursor.texts import classify_failure

INSTALL = "pip install 'cursor-gateway[sdk]'"


class BridgeNotFound(errors.AgentNotFound):
    hint = f"Install it with `{INSTALL}`, or name it in CURSOR_SDK_BRIDGE_BIN."


class BridgeOutdated(errors.AgentOutdated):
    hint = f"Run `{INSTALL} --upgrade`."


class KeyMissing(errors.NotAuthenticated):
    hint = "Set CURSOR_API_KEY for the gateway; cursor.com/dashboard has one."


class KeyInvalid(errors.AgentKeyInvalid):
    hint = "Correct CURSOR_API_KEY; cursor.com/dashboard has your keys."


class BridgeFault(Exception):
    """The bridge is gone, or does not keep its protocol. The words go on from "Cursor's SDK bridge
    failed: "."""


@dataclass(eq=False)
class Refusal(Exception):
    """An answer of the bridge's that says no."""

    # The Connect code, and that of `sdk.v1` without its prefix; empty where there is none.
    code: str
    sdk_code: str
    words: str
    # Seconds.
    retry_after: int | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the agent has another run. The bridge says so in words, without its code
        (1.1.0)."""
        return self.sdk_code == "agent_busy" or "already has active run" in self.words

    @property
    def is_unknown_agent(self) -> bool:
        """Whether the agent is gone. What the bridge itself does not know has no code (1.1.0)."""
        return self.sdk_code in _GONE or (self.code == "not_found" and not self.sdk_code)


_GONE = frozenset({"agent_not_found", "agent_archived", "run_not_found"})
_PREFIX = "SDK_ERROR_CODE_"
_MOST_SECONDS = 3600

# The codes of `sdk.v1`. None: the words may say more.
_BY_SDK_CODE: Mapping[str, type[errors.GatewayError] | None] = {
    "unspecified": None,
    "unauthorized": KeyInvalid,
    "api_key_not_found": KeyInvalid,
    "plan_required": errors.PlanRequired,
    "role_forbidden": errors.AgentRefused,
    "feature_unavailable": errors.AgentRefused,
    "agent_not_found": errors.AgentFailed,
    "run_not_found": errors.AgentFailed,
    "validation_error": errors.InvalidRequest,
    "invalid_model": errors.ModelNotFound,
    "invalid_branch_name": errors.InvalidRequest,
    "repository_required": errors.InvalidRequest,
    "repository_access": errors.InvalidRequest,
    "pr_resolution_failed": errors.InvalidRequest,
    "usage_limit_exceeded": errors.QuotaExceeded,
    "agent_busy": errors.AgentFailed,
    "agent_archived": errors.AgentFailed,
    "run_not_cancellable": errors.AgentFailed,
    "rate_limit_exceeded": errors.RateLimited,
    "upstream_error": errors.CursorUnreachable,
    "internal_error": None,
    "client_cancelled": errors.AgentFailed,
}
# The codes of Connect, and those that the SDK puts into a failed run.
_BY_CODE: Mapping[str, type[errors.GatewayError]] = {
    "unauthenticated": KeyInvalid,
    "permission_denied": errors.AgentRefused,
    "invalid_argument": errors.InvalidRequest,
    "out_of_range": errors.InvalidRequest,
    "failed_precondition": errors.AgentFailed,
    "unimplemented": BridgeOutdated,
    "rate_limited": errors.RateLimited,
    "resource_exhausted": errors.RateLimited,
    "unavailable": errors.CursorUnreachable,
    "deadline_exceeded": errors.CursorUnreachable,
    "data_loss": errors.CursorUnreachable,
}
# Words of the bridge's own, which the CLI does not use.
_UNREACHABLE = re.compile(r"network request failed|fetch failed|getaddrinfo", re.IGNORECASE)
_FELL_BEHIND = re.compile(r"consumer fell behind|stream_buffer_overflow", re.IGNORECASE)
_EXCERPT = 600


def refusal_of(error: Mapping[str, Any]) -> Refusal:
    """A Connect error: `{"code": ..., "message": ..., "details": [...]}`."""
    detail = _detail(error.get("details"))
    return Refusal(
        _string(error.get("code")).lower(),
        _string(detail.get("sdkErrorCode")).removeprefix(_PREFIX).lower(),
        _string(detail.get("message")) or _string(error.get("message")),
        _seconds(detail.get("retryAfter")),
    )


def error_for(refusal: Refusal) -> errors.GatewayError:
    """What the client is told."""
    words, kind = refusal.words, _kind_of(refusal)
    if kind is None:
        error = _by_words(words)
    else:
        error = kind(_sentence(words or refusal.sdk_code or refusal.code), quotes_agent=True)
    if refusal.retry_after is not None and error.retry_after is not None:
        error.retry_after = refusal.retry_after
    return error


def fault(words: object) -> errors.AgentFailed:
    """The bridge itself failed."""
    return errors.AgentFailed(f"Cursor's SDK bridge failed: {words}.")


def _kind_of(refusal: Refusal) -> type[errors.GatewayError] | None:
    if _FELL_BEHIND.search(refusal.words):
        return errors.AgentFailed
    if _BY_SDK_CODE.get(refusal.sdk_code):
        return _BY_SDK_CODE[refusal.sdk_code]
    # A code that is newer than this table is often named as one that is in it.
    return _BY_CODE.get(refusal.sdk_code) or _BY_CODE.get(refusal.code)


def _by_words(words: str) -> errors.GatewayError:
    if _UNREACHABLE.search(words):
        return errors.CursorUnreachable(_sentence(words), quotes_agent=True)
    return classify_failure(words)


def _sentence(words: str) -> str:
    said = " ".join(words.split())
    said = said if len(said) <= _EXCERPT else said[:_EXCERPT] + "…"
    return f"Cursor's agent says: {said.rstrip('.')}." if said else "Cursor's agent failed."


def _detail(details: object) -> Mapping[str, Any]:
    """That of `sdk.v1`, which is readable in `debug`; `value` holds the same as bytes."""
    listed = details if isinstance(details, list) else []
    readable = (entry.get("debug") for entry in listed if isinstance(entry, dict))
    found = [each for each in readable if isinstance(each, dict)]
    return next((each for each in found if "sdkErrorCode" in each), found[0] if found else {})


def _seconds(value: object) -> int | None:
    """A duration as JSON writes it, `"1.5s"`; a plain number counts, too."""
    text = str(value).removesuffix("s") if isinstance(value, str | int | float) else ""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return max(1, int(seconds + 0.999)) if 0 <= seconds <= _MOST_SECONDS else None


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
