"""Every code of the bridge has a place in the gateway's tree of errors."""

from __future__ import annotations

from typing import Any

import pytest

from cursor_gateway import errors
from cursor_gateway.agents.sdk.texts import (
    BridgeOutdated,
    KeyInvalid,
    Refusal,
    error_for,
    fault,
    refusal_of,
)

SDK_CODES = {
    "UNAUTHORIZED": KeyInvalid,
    "API_KEY_NOT_FOUND": KeyInvalid,
    "PLAN_REQUIRED": errors.PlanRequired,
    "ROLE_FORBIDDEN": errors.AgentRefused,
    "FEATURE_UNAVAILABLE": errors.AgentRefused,
    "AGENT_NOT_FOUND": errors.AgentFailed,
    "RUN_NOT_FOUND": errors.AgentFailed,
    "VALIDATION_ERROR": errors.InvalidRequest,
    "INVALID_MODEL": errors.ModelNotFound,
    "INVALID_BRANCH_NAME": errors.InvalidRequest,
    "REPOSITORY_REQUIRED": errors.InvalidRequest,
    "REPOSITORY_ACCESS": errors.InvalidRequest,
    "PR_RESOLUTION_FAILED": errors.InvalidRequest,
    "USAGE_LIMIT_EXCEEDED": errors.QuotaExceeded,
    "AGENT_BUSY": errors.AgentFailed,
    "AGENT_ARCHIVED": errors.AgentFailed,
    "RUN_NOT_CANCELLABLE": errors.AgentFailed,
    "RATE_LIMIT_EXCEEDED": errors.RateLimited,
    "UPSTREAM_ERROR": errors.CursorUnreachable,
    "INTERNAL_ERROR": errors.AgentFailed,
    "CLIENT_CANCELLED": errors.AgentFailed,
}
CODES = {
    "unauthenticated": KeyInvalid,
    "permission_denied": errors.AgentRefused,
    "invalid_argument": errors.InvalidRequest,
    "failed_precondition": errors.AgentFailed,
    "unimplemented": BridgeOutdated,
    "resource_exhausted": errors.RateLimited,
    "unavailable": errors.CursorUnreachable,
    "deadline_exceeded": errors.CursorUnreachable,
    "data_loss": errors.CursorUnreachable,
    "internal": errors.AgentFailed,
    "unknown": errors.AgentFailed,
    "": errors.AgentFailed,
}


def refused(code: str, sdk_code: str = "", words: str = "so it is", **more: Any) -> Refusal:
    debug = {"message": words} | more
    debug |= {"sdkErrorCode": f"SDK_ERROR_CODE_{sdk_code}"} if sdk_code else {}
    details = [{"type": "sdk.v1.SdkErrorDetails", "debug": debug, "value": "…"}]
    return refusal_of({"code": code, "message": words, "details": details})


@pytest.mark.parametrize("sdk_code", SDK_CODES)
def test_each_code_of_the_sdk_has_its_error(sdk_code: str) -> None:
    error = error_for(refused("internal", sdk_code))
    assert type(error) is SDK_CODES[sdk_code]
    assert "so it is" in str(error)


@pytest.mark.parametrize("code", CODES)
def test_each_code_of_connect_has_its_error(code: str) -> None:
    assert type(error_for(refused(code))) is CODES[code]
    assert type(error_for(refused(code, "UNSPECIFIED"))) is CODES[code]


def test_where_the_codes_say_nothing_the_words_do() -> None:
    assert isinstance(
        error_for(refused("internal", words="Network request failed")), errors.CursorUnreachable
    )
    over = error_for(refused("internal", words="You have hit your usage limit"))
    assert isinstance(over, errors.QuotaExceeded)


def test_a_reader_that_fell_behind_has_no_rate_limit() -> None:
    error = error_for(refused("resource_exhausted", words="consumer fell behind"))
    assert isinstance(error, errors.AgentFailed)


def test_a_client_is_told_when_to_come_back_where_that_helps() -> None:
    assert error_for(refused("x", "RATE_LIMIT_EXCEEDED", retryAfter="16.5s")).retry_after == 17
    assert error_for(refused("x", "RATE_LIMIT_EXCEEDED", retryAfter="0s")).retry_after == 1
    assert error_for(refused("x", "PLAN_REQUIRED", retryAfter="9s")).retry_after is None
    for odd in ("soon", "-3s", "1e9s", None, [1], "nan"):
        assert refused("x", "RATE_LIMIT_EXCEEDED", retryAfter=odd).retry_after is None


def test_busy_and_gone_are_known_with_and_without_their_code() -> None:
    assert refused("failed_precondition", "AGENT_BUSY").is_busy
    assert refused("internal", words="Agent x already has active run").is_busy
    assert not refused("internal").is_busy
    assert refused("not_found", "AGENT_NOT_FOUND").is_unknown_agent
    assert refused("not_found").is_unknown_agent
    assert not refused("not_found", "INVALID_MODEL").is_unknown_agent


@pytest.mark.parametrize("details", [None, 7, [], [7], [{"debug": 7}], [{"value": "x"}]])
def test_details_may_be_missing_or_anything(details: Any) -> None:
    refusal = refusal_of({"code": "internal", "message": "words", "details": details})
    assert (refusal.code, refusal.sdk_code, refusal.words) == ("internal", "", "words")


def test_words_are_short_and_never_empty() -> None:
    assert str(error_for(Refusal("unavailable", "", "x" * 5000))).endswith("….")
    assert str(error_for(Refusal("unavailable", "", " "))) == "Cursor's agent failed."
    assert str(error_for(Refusal("", "plan_required", ""))) == "Cursor's agent says: plan_required."
    assert str(fault("it is gone")) == "Cursor's SDK bridge failed: it is gone."
