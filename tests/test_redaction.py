"""Secrets, taken out of what is said."""

from __future__ import annotations

import pytest

from cursor_gateway.redaction import (
    Redaction,
    named_secrets,
    secrets_in_address,
    secrets_in_command,
)

KEY = "a/secret+of ours"


def test_a_secret_is_found_in_each_form_it_is_written_in() -> None:
    redacted = Redaction([KEY, "another-one", 'with "quotes"'])
    for said in (KEY, "a%2Fsecret%2Bof%20ours", "another-one", r"with \"quotes\""):
        assert redacted(f"the key {said} is bad") == "the key *** is bad"


def test_the_longer_secret_goes_first_and_short_ones_are_words() -> None:
    redacted = Redaction(["secret-1", "secret-1-and-more", "true", ""])
    assert redacted("secret-1-and-more, secret-1, true") == "***, ***, true"


@pytest.mark.parametrize("end", ["", "…", "….", "."])
def test_a_secret_that_was_cut_off_is_not_shown_in_part(end: str) -> None:
    redacted = Redaction(["key-0123456789"])
    for length in range(6, 15):
        assert redacted(f"bad {'key-0123456789'[:length]}{end}") == f"bad ***{end}"
    assert redacted(f"bad key-{end}") == f"bad key-{end}"


@pytest.mark.parametrize(
    "token",
    [
        "crsr_0123456789abcdef0123456789",
        "key_0123456789abcdef0123456789",
        "sk-proj-0123456789abcdefghij",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    ],
)
def test_tokens_are_known_by_their_shape(token: str) -> None:
    assert Redaction()(f"it said {token}, twice: {token}") == "it said ***, twice: ***"
    assert Redaction()("Authorization: Bearer abc.def-0123~x") == "Authorization: Bearer ***"


@pytest.mark.parametrize(
    "text",
    [
        "key_of_something_without_digits",
        "Bearer authentication required",
        "sk-learn",
        "`Authorization: Bearer KEY`",
        "eyJ is how each begins",
    ],
)
def test_words_are_no_tokens(text: str) -> None:
    assert Redaction()(text) == text


def test_names_tell_what_is_secret() -> None:
    named = {"GITHUB_TOKEN": "ghp-12345678", "PATH": "/usr/bin:/bin"}
    headers = {"Authorization": "Bearer 12345678", "Accept": "application/json"}
    assert set(named_secrets(named)) == {"ghp-12345678"}
    assert set(named_secrets(headers)) == {"Bearer 12345678", "12345678"}
    assert set(named_secrets({"DB_PASSWORD": "postgre"})) == set()
    command = "docker exec -e CURSOR_API_KEY=12345678 -e LANG=C.UTF-8-long box cursor-agent"
    assert set(secrets_in_command(command)) == {"12345678"}
    assert set(secrets_in_command("ssh 'box")) == set()
    address = "https://me:passw0rd@host/mcp?api_key=12345678&page=123456789"
    assert set(secrets_in_address(address)) == {"passw0rd", "12345678"}
    assert set(secrets_in_address("http://[")) == set()


def test_long_texts_take_time_in_proportion() -> None:
    """Each of these was made to be searched anew from every place in it."""
    redacted = Redaction(["aaaaaaaaaaab"])
    for piece in ("eyJ-", "key_", "sk-a", "Bearer ", "a", "eyJaaaaaaaaaa."):
        text = piece * (400_000 // len(piece))
        assert len(redacted(text)) <= len(text) + 3
