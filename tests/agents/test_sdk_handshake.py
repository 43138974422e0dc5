"""The line by which the bridge tells that it is ready."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursor_gateway.agents.sdk.handshake import ReadyLine, check_version, without_ready_line
from cursor_gateway.agents.sdk.texts import BridgeFault, BridgeOutdated

TOLD: dict[str, Any] = {
    "schemaVersion": 1,
    "transport": "tcp",
    "protocol": "connect",
    "host": "127.0.0.1",
    "port": 4000,
    "url": "http://127.0.0.1:4000",
    "authTokenFile": "/tmp/token",
    "pid": 7,
    "newField": {},
}


def line(**changes: Any) -> bytes:
    return b"cursor-sdk-bridge ready " + json.dumps(TOLD | changes).encode() + b"\n"


def test_the_line_is_found_among_others_in_any_pieces() -> None:
    data, ready = b"a warning\n" + line() + b"more\n", ReadyLine()
    told = [found for at in range(len(data)) if (found := ready.feed(data[at : at + 1]))]
    assert [(each.url, each.token_file, each.pid) for each in told] == [
        ("http://127.0.0.1:4000", "/tmp/token", 7)
    ]
    assert ready.feed(line()) is None


def test_an_address_may_stand_in_parts() -> None:
    found = ReadyLine().feed(line(url="", host="::1", pid="x"))
    assert found is not None and (found.url, found.pid) == ("http://[::1]:4000", 0)


@pytest.mark.parametrize("field", ["schemaVersion", "transport", "protocol"])
def test_another_version_is_one_that_must_be_updated(field: str) -> None:
    with pytest.raises(BridgeOutdated, match=field):
        ReadyLine().feed(line(**{field: "other"}))
    with pytest.raises(BridgeOutdated, match="sdk"):
        check_version({"protocolVersion": "sdk.v2"})
    assert check_version({"protocolVersion": "sdk.v1", "bridgeVersion": "1.1"}) == "1.1"


@pytest.mark.parametrize(
    "url", ["http://example.com:80", "https://127.0.0.1:1", "http://127.0.0.1", "http://[::"]
)
def test_the_key_goes_to_this_machine_only(url: str) -> None:
    with pytest.raises(BridgeFault, match="somewhere else"):
        ReadyLine().feed(line(url=url))


@pytest.mark.parametrize("rest", [b"{", b"[]", b"7"])
def test_a_line_that_is_no_object_is_a_fault(rest: bytes) -> None:
    with pytest.raises(BridgeFault, match="no JSON"):
        ReadyLine().feed(b"cursor-sdk-bridge ready " + rest + b"\n")


def test_what_it_writes_before_is_bounded() -> None:
    ready = ReadyLine()
    assert ready.feed(b"x" * 1024 * 1024) is None
    with pytest.raises(BridgeFault, match="does not get ready"):
        ready.feed(b"x")


def test_what_people_are_shown_is_without_that_line() -> None:
    assert without_ready_line("one\n" + line(authToken="s").decode() + "two") == "one\ntwo"
