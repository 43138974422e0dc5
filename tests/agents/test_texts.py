"""What the CLI says in plain text."""

from __future__ import annotations

import pytest

from cursor_gateway import errors
from cursor_gateway.agents import SignIn
from cursor_gateway.agents.cursor.texts import (
    classify_failure,
    is_config_race,
    parse_models,
    parse_status,
    parse_version,
)
from cursor_gateway.core.models import Model
from tests.conftest import RECORDINGS


def recording(name: str) -> str:
    return (RECORDINGS / name).read_text()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (recording("fail_trust.stderr"), errors.WorkspaceNotTrusted),
        (recording("fail_auth_required.stderr"), errors.NotAuthenticated),
        (recording("models_not_authenticated.stderr"), errors.NotAuthenticated),
        (recording("fail_invalid_key.stderr"), errors.AgentKeyInvalid),
        (recording("fail_keychain_macos.stderr"), errors.NotAuthenticated),
        (recording("fail_unknown_model.stderr"), errors.ModelNotFound),
        (recording("fail_usage_limit.stderr"), errors.QuotaExceeded),
        (recording("fail_midstream.stderr"), errors.CursorUnreachable),
        (recording("fail_unknown_option.stderr"), errors.AgentOutdated),
        (recording("fail_bad_resume_id.stderr"), errors.AgentFailed),
        ('I: AI Model Not Found Model name is not valid: "x"', errors.ModelNotFound),
        ("T: Named models unavailable Free plans can only use Auto.", errors.PlanRequired),
        ("RATE_LIMITED", errors.RateLimited),
        ("MODEL_BLOCKED", errors.ModelBlocked),
        ("socket hang up", errors.CursorUnreachable),
        ("The connection stalled 3 times.", errors.CursorUnreachable),
        ("", errors.AgentFailed),
        ("Segmentation fault", errors.AgentFailed),
    ],
)  # fmt: skip
def test_a_failure_is_known_by_its_words(words: str, kind: type[errors.GatewayError]) -> None:
    assert type(classify_failure(words)) is kind


def test_the_message_is_one_clean_line_of_bounded_length() -> None:
    message = str(classify_failure("\x1b[33mError: bad\x1b[39m\n  thing " + "x" * 5000))
    assert message.startswith("Cursor's agent failed: bad thing x")
    assert message.endswith("….") or message.endswith("…")
    assert len(message) < 700
    assert "\n" not in message and "\x1b" not in message


def test_of_a_long_text_both_ends_are_read() -> None:
    filler = "nothing of interest\n" * 20_000
    for words in (f"Error: rate limit\n{filler}", f"{filler}Error: rate limit"):
        assert isinstance(classify_failure(words), errors.RateLimited)


def test_an_exit_without_words_names_its_code() -> None:
    message = str(classify_failure("", exit_code=3))
    assert message == "Cursor's agent ended without a result (exit code 3)."
    assert str(classify_failure("")) == "Cursor's agent failed."


def test_the_config_race_is_told_from_other_failures() -> None:
    assert is_config_race("Error: ENOENT, rename '/h/.cursor/cli-config.json.tmp' -> x")
    assert not is_config_race(recording("fail_usage_limit.stderr"))


@pytest.mark.parametrize(
    ("output", "state"),
    [
        (recording("status_logged_in.txt"), SignIn(True, "user@example.com")),
        (recording("status_logged_in_ansi_2025.txt"), SignIn(True, "user@example.com")),
        (recording("status_logged_in.json"), SignIn(True, "user@example.com")),
        (recording("status_logged_out.txt"), SignIn(False)),
        (recording("status_logged_out.json"), SignIn(False)),
        ('{"isAuthenticated": true}', SignIn(True)),
        ('{"isAuthenticated": true, "userInfo": {"email": 5}}', SignIn(True)),
        ("✓ Logged in", SignIn(True)),
        ("error: unknown option '--format'", None),
        ("{} not logged in", SignIn(False)),
        ("{broken}", None),
        ("", None),
    ],
)
def test_status_is_read_in_words_and_in_json(output: str, state: SignIn | None) -> None:
    assert parse_status(output) == state


def test_models_are_read_by_the_line_rule() -> None:
    listed = parse_models(recording("models.txt"))
    assert listed.complete
    assert len(listed.models) == 16
    assert Model("auto", "Auto") in listed.models
    assert Model("composer-2.5", "Composer 2.5") in listed.models
    assert (
        Model("claude-fable-5-thinking-high", "Claude Fable 5 1M Thinking (NO ZDR)")
        in listed.models
    )
    current = parse_models(recording("models_current_default.txt"))
    assert current.models[0] == Model("auto", "Auto")


def test_a_list_without_its_tip_was_cut_short() -> None:
    assert not parse_models(recording("models.txt")[:300]).complete


def test_half_a_line_is_no_model_and_twice_the_same_is_one() -> None:
    listed = parse_models("a - A\na - A\nb - B (default)\nc - Compo")
    assert [model.id for model in listed.models] == ["a", "b"]


def test_the_models_refusal_reads_well() -> None:
    words = "Cannot use this model: gpt-99. Available models: auto, b"
    assert str(classify_failure(words)) == "Cursor's agent says: Cannot use this model: gpt-99."


def test_the_version_is_the_last_line() -> None:
    assert parse_version("notice\n2026.09.15-d2fe57e\n\n") == "2026.09.15-d2fe57e"
    assert parse_version("\n") == ""


@pytest.mark.parametrize("words", ["usage limit{}", "{}usage limit", "{}\nError: usage limit\n"])
def test_of_many_words_both_ends_are_read(words: str) -> None:
    assert type(classify_failure(words.format("x " * 200_000))) is errors.QuotaExceeded
