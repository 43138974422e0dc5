"""Who is told a failure with which status and headers."""

from __future__ import annotations

import pytest

from cursor_gateway.dialects import chat, messages
from cursor_gateway.dialects.error_status import (
    HABITS,
    OFTEN,
    SDKS,
    ErrorStatus,
    habit_of,
    status_for,
)
from cursor_gateway.errors import (
    AgentFailed,
    CursorUnreachable,
    GatewayError,
    InvalidApiKey,
    NotAuthenticated,
    PlanRequired,
    QuotaExceeded,
    WebSocketRefused,
)

# As each of them was seen to introduce itself.
OPENCODE = "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14"
KILO = "Kilo-Code/7.7.7 ai-sdk/provider-utils/4.0.27 runtime/bun/1.3.14"
CODEX = "codex_exec/0.166.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.166.0)"
DROID = "factory-cli/0.215.0"
OMP = "omp/18.2.3"
QWEN = "QwenCode/0.24.4 (linux; x64)"
CLINE = "ai-sdk/openai-compatible/3.0.37 ai-sdk/provider-utils/5.0.30 runtime/bun/1.3.13"
CONTINUE = "ls/JS 5.23.2"
AGENTS = (OPENCODE, KILO, CODEX, DROID, OMP, QWEN, CLINE, CONTINUE)
CLAUDE = "claude-cli/2.1.325 (external, sdk-cli)"
SDK_AGENTS = ("OpenAI/Python 3.49.0", "AsyncOpenAI/Python 3.49.0", "OpenAI/JS 6.26.0", "")
FINAL = {"x-should-retry": "false"}


def told_in_chat(error: GatewayError, user_agent: str) -> ErrorStatus:
    return status_for(error, user_agent, is_anthropic=False)


@pytest.mark.parametrize("user_agent", AGENTS)
def test_agents_get_what_is_final_as_a_status_that_they_show(user_agent: str) -> None:
    for error in (QuotaExceeded("x"), AgentFailed("x").again("Twice.", 1)):
        answer = told_in_chat(error, user_agent)
        assert answer.status == 400
        assert answer.headers.items() >= FINAL.items()


def test_oh_my_pi_repeats_nothing_that_it_would_wait_too_long_for() -> None:
    assert told_in_chat(QuotaExceeded("x"), OMP).headers["Retry-After"] == "3600"


@pytest.mark.parametrize("user_agent", [OPENCODE, KILO])
def test_who_repeats_for_the_words_in_a_body_does_it_in_no_time(user_agent: str) -> None:
    assert told_in_chat(QuotaExceeded("x"), user_agent).headers["retry-after-ms"] == "1"


@pytest.mark.parametrize("user_agent", SDK_AGENTS)
def test_official_sdks_keep_their_types(user_agent: str) -> None:
    assert told_in_chat(QuotaExceeded("x"), user_agent) == ErrorStatus(429, FINAL)
    assert told_in_chat(PlanRequired("x"), user_agent) == ErrorStatus(402, FINAL)
    assert told_in_chat(AgentFailed("x").again("Twice.", 1), user_agent) == ErrorStatus(502, FINAL)


def test_who_asks_again_and_again_does_not_know_the_header() -> None:
    often = QuotaExceeded("x").again("", OFTEN)
    assert told_in_chat(often, SDK_AGENTS[0]).status == 400
    assert status_for(often, CLAUDE, is_anthropic=True).status == 422
    assert told_in_chat(NotAuthenticated("x").again("", OFTEN), SDK_AGENTS[0]).status == 401


@pytest.mark.parametrize("user_agent", [*AGENTS, *SDK_AGENTS])
def test_what_may_pass_says_when_to_everybody(user_agent: str) -> None:
    assert told_in_chat(AgentFailed("x"), user_agent) == ErrorStatus(502, {"Retry-After": "5"})


def test_codex_shows_nothing_but_a_400_at_once() -> None:
    for error in (NotAuthenticated("x"), PlanRequired("x"), InvalidApiKey("x")):
        assert told_in_chat(error, CODEX).status == 400
        assert told_in_chat(error, DROID).status == error.status


def test_codex_is_told_of_a_websocket_what_makes_it_go_on_over_http() -> None:
    assert told_in_chat(WebSocketRefused("x"), CODEX).status == 426


def test_a_401_is_a_403_for_anthropics_clients() -> None:
    assert status_for(NotAuthenticated("x"), CLAUDE, is_anthropic=True) == ErrorStatus(403, FINAL)


def test_a_fault_of_the_gateway_is_a_500_for_everybody() -> None:
    assert told_in_chat(GatewayError("x"), OPENCODE) == ErrorStatus(500, {})


def test_each_client_has_one_habit() -> None:
    assert {habit_of(each).clients for each in AGENTS} == {habit.clients for habit in HABITS}
    assert all(habit_of(each) is SDKS for each in SDK_AGENTS)


def test_the_body_fits_the_status_and_keeps_the_code() -> None:
    error = chat.render_error(QuotaExceeded("x"), "r1", 400)["error"]
    assert (error["code"], error["type"], error["status"]) == (
        "quota_exceeded",
        "invalid_request_error",
        400,
    )
    error = messages.render_error(QuotaExceeded("x"), "r1", 422)["error"]
    assert (error["code"], error["type"]) == ("quota_exceeded", "invalid_request_error")


def test_claude_code_is_not_told_that_what_is_final_is_overloaded() -> None:
    """It repeats what is of that type, whatever the status and the headers say."""
    error = CursorUnreachable("x")
    assert messages.render_error(error, "r1", 503)["error"]["type"] == "overloaded_error"
    assert messages.render_error(error.again("", 1), "r1", 503)["error"]["type"] == "api_error"
