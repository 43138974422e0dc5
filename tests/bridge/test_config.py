"""MCP servers as people write them down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.mcp_bridge.config import (
    ConfigFile,
    Configured,
    LocalServer,
    RemoteServer,
    Selection,
    parse,
)

ENV = {"TOKEN": "secret", "EMPTY": ""}


def read(path: str, named: str) -> str:
    if named == "missing":
        raise FileNotFoundError(2, "No such file or directory")
    if named == "binary":
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")
    return f"text of {named} beside {path}\n"


def configured(*texts: str | dict[str, Any], is_opencode: bool = True) -> Configured:
    files = [
        ConfigFile(f"{n}.json", text if isinstance(text, str) else json.dumps(text), is_opencode)
        for n, text in enumerate(texts)
    ]
    return parse(files, ENV, read)


def server(entry: dict[str, Any], **where: bool) -> Any:
    (found,) = configured({"mcp": {"it": entry}}, **where).servers
    return found


def warning(entry: Any) -> str:
    result = configured({"mcp": {"it": entry, "good": {"command": ["x"]}}})
    assert [each.name for each in result.servers] == ["good"]
    (only,) = result.warnings
    return str(only)


def test_opencodes_local_and_remote_servers() -> None:
    local = {"type": "local", "command": ["npx", "-y", "it"], "environment": {"A": "b", "N": 1}}
    assert server(local | {"timeout": 2500, "enabled": True, "cwd": "sub"}) == LocalServer(
        "it", "0.json", ("npx", "-y", "it"), {"A": "b", "N": "1"}, "sub", 2.5
    )
    remote = {"type": "remote", "url": "https://x.example/mcp", "headers": {"Authorization": "k"}}
    assert server(remote) == RemoteServer(
        "it", "0.json", "https://x.example/mcp", {"Authorization": "k"}
    )


def test_the_spelling_of_everybody_else() -> None:
    entries = {
        "a": {"command": "npx", "args": ["-y", "a"], "env": {"A": "b"}},
        "b": {"url": "http://127.0.0.1/mcp"},
        "c": {"type": "sse", "url": "http://127.0.0.1/sse"},
        "d": {"type": "streamable-http", "url": "http://127.0.0.1/mcp"},
    }
    a, b, c, d = configured({"mcpServers": entries}).servers
    assert isinstance(a, LocalServer) and a.command == ("npx", "-y", "a")
    assert a.environment == {"A": "b"}
    kinds = [each.transport for each in (b, c, d) if isinstance(each, RemoteServer)]
    assert kinds == ["auto", "sse", "http"]


def test_opencodes_second_version() -> None:
    entry = {"type": "local", "command": ["x"], "timeout": {"startup": 1, "request": 4000}}
    off = {"type": "local", "command": ["y"], "disabled": True}
    document = {"mcp": {"timeout": {}, "servers": {"it": entry, "off": off}}}
    (found,) = configured(document).servers
    assert (found.name, found.timeout) == ("it", 4.0)
    # In the first version a server may have that name.
    (found,) = configured({"mcp": {"servers": {"type": "local", "command": ["x"]}}}).servers
    assert found.name == "servers"


def test_comments_and_trailing_commas() -> None:
    text = """\ufeff{
      // a comment with a "quote
      "mcp": { /* several
                  lines, */ "it": {"command": ["x", "http://not/a/comment", "a, ]", "\\"//",],},
      },
    }"""
    (found,) = configured(text).servers
    assert isinstance(found, LocalServer)
    assert found.command == ("x", "http://not/a/comment", "a, ]", '"//')


def test_a_later_file_overrides_and_may_switch_on_and_off() -> None:
    user = {"mcp": {"a": {"command": ["a"], "enabled": False}, "b": {"command": ["b"]}}}
    project = {"mcp": {"a": {"enabled": True}, "b": {"enabled": False}, "c": {"command": ["c"]}}}
    nearer = {"mcp": {"c": {"url": "http://c"}}}
    a, c = configured(user, project, nearer).servers
    assert (a.name, a.origin, c.origin) == ("a", "0.json", "2.json")
    assert isinstance(c, RemoteServer)


def test_a_file_that_spoils_an_entry_of_another_is_named() -> None:
    user = {"mcp": {"a": {"command": ["a"]}, "b": {"command": ["b"], "enabled": "false"}}}
    project = {"mcp": {"a": {"timeout": "bad"}}}
    first, second = map(str, configured(user, project).warnings)
    assert first.startswith("0.json: mcp.a (changed in 1.json): ")
    assert second == "0.json: mcp.b: `enabled` must be true or false"


def test_variables_and_files_are_put_in() -> None:
    found = server(
        {
            "command": ["x", "{env:TOKEN}-{env:TOKEN}", "${TOKEN}"],
            "environment": {"F": "{file:key.txt}"},
            "timeout": 1,
        }
    )
    assert found.command == ("x", "secret-secret", "${TOKEN}")
    assert found.environment == {"F": "text of key.txt beside 0.json"}


def test_other_files_write_variables_in_their_own_way() -> None:
    words = ["${TOKEN}", "${env:TOKEN}", "${NO:-default}", "${EMPTY:-default}", "{env:TOKEN}"]
    found = server({"command": words}, is_opencode=False)
    assert found.command == ("secret", "secret", "default", "default", "{env:TOKEN}")


def test_a_variable_that_is_not_set_is_empty_and_told_once() -> None:
    result = configured({"mcp": {"it": {"command": ["x", "{env:NO}{env:NO}", "{env:NOR}"]}}})
    assert isinstance(result.servers[0], LocalServer)
    assert result.servers[0].command == ("x", "", "")
    told = "0.json: mcp.it: NO, NOR: not set in the environment, and so empty"
    assert list(map(str, result.warnings)) == [told]


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("x", "must be an object"),
        ({}, "`command` must be"),
        ({"command": []}, "`command` must be"),
        ({"command": [""]}, "`command` must be"),
        ({"command": "x", "args": "y"}, "`command` must be"),
        ({"command": ["x", 1]}, "`command` and `args` may hold only texts"),
        ({"command": ["x\0"]}, "`command` and `args` may hold only texts"),
        ({"type": "pigeon", "command": ["x"]}, "`type` must be"),
        ({"type": "remote"}, "`url` must be"),
        ({"url": "ftp://x"}, "`url` must be"),
        ({"url": "http://x", "headers": {"A": None}}, "`headers.A` must be a text"),
        ({"command": ["x"], "environment": ["A=b"]}, "`environment` must be an object"),
        ({"command": ["x"], "env": {"A=": "b"}}, "`environment.A=` must be a text"),
        ({"command": ["x"], "timeout": "soon"}, "`timeout` must be"),
        ({"command": ["x"], "timeout": True}, "`timeout` must be"),
        ({"command": ["x"], "timeout": 0}, "`timeout` must be"),
        ({"command": ["x"], "cwd": 1}, "`cwd` must be"),
        ({"command": ["{file:missing}"]}, "{file:missing} cannot be read: No such file"),
        ({"command": ["{file:binary}"]}, "{file:binary} cannot be read: not a text"),
    ],
)
def test_a_bad_entry_is_one_warning_and_the_others_work(entry: Any, complaint: str) -> None:
    assert warning(entry).startswith(f"0.json: mcp.it: {complaint}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"mcp": {},\n "x": }', "0.json: not valid JSON: Expecting value: line 2 column 7"),
        ("[" * 100_000, "0.json: not valid JSON"),
        ('{"mcp": []}', "0.json: mcp: must be an object"),
    ],
)
def test_a_bad_file_is_one_warning(text: str, complaint: str) -> None:
    result = configured(text, {"mcp": {"good": {"command": ["x"]}}})
    assert len(result.servers) == 1
    assert len(result.warnings) == 1 and str(result.warnings[0]).startswith(complaint)


def test_a_file_without_servers_is_none_of_our_business() -> None:
    assert configured({"theme": "dark"}, "[]", '"x"') == Configured()


@given(st.text(max_size=60))
def test_no_text_is_too_strange(text: str) -> None:
    configured(text)


def test_secrets_are_known() -> None:
    local = LocalServer("x", "", ("x",), {"KEY": "secret"})
    assert local.secrets == ("secret",)
    remote = RemoteServer("x", "", "http://x/mcp?key=abc&b=c", {"Authorization": "Bearer secret"})
    assert remote.secrets == ("Bearer", "secret", "key", "abc", "b", "c")


def test_what_is_called_a_secret_is_told_from_what_may_be_one() -> None:
    local = LocalServer("x", "", ("x",), {"API_KEY": "12345678", "DB": "postgres"})
    assert local.named_secrets == ("12345678", "12345678")
    remote = RemoteServer("x", "", "http://x/mcp?key=abcdefgh&b=c", {"X-Token": "hgfedcba"})
    assert set(remote.named_secrets) == {"", "hgfedcba", "abcdefgh"}


@pytest.mark.parametrize(
    ("allow", "deny", "server", "tool", "allowed", "wanted"),
    [
        ((), (), "a", "x", True, True),
        (("a",), (), "a", "x", True, True),
        (("a",), (), "b", "x", False, False),
        (("a/get_*",), (), "a", "get_x", True, True),
        (("a/get_*",), (), "a", "put_x", False, True),
        (("*/get_*",), (), "a", "get_x", True, True),
        ((), ("a/put_*",), "a", "put_x", False, True),
        ((), ("a/put_*",), "a", "get_x", True, True),
        ((), ("a",), "a", "x", False, False),
        (("a",), ("a/x",), "a", "x", False, True),
    ],
)
def test_allow_and_deny(
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    server: str,
    tool: str,
    allowed: bool,
    wanted: bool,
) -> None:
    selection = Selection(allow, deny)
    assert selection.allows(server, tool) is allowed
    assert selection.wants(server) is wanted


@pytest.mark.parametrize("timeout", [10**400, float("inf"), float("nan"), -1, True, "1"])
def test_a_timeout_that_is_no_time_costs_its_entry(timeout: object) -> None:
    assert "`timeout` must be" in warning({"command": ["x"], "timeout": timeout})


@pytest.mark.parametrize("kind", [[], {}, 1])
def test_a_type_that_is_no_text_costs_its_entry(kind: object) -> None:
    assert "`type` must be" in warning({"command": ["x"], "type": kind})


def test_an_entry_that_is_nested_too_deeply_costs_itself() -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    entries = {"good": {"command": ["x"]}, "it": {"command": ["x"], "more": "deep"}}
    result = configured(json.dumps({"mcp": entries}).replace('"deep"', deep))
    assert [each.name for each in result.servers] == ["good"]
    assert "nested too deeply" in str(result.warnings[0])


@pytest.mark.parametrize("text", ["/* never ends", '{"never ends', '{"never ends\\'])
def test_what_does_not_end_is_not_valid(text: str) -> None:
    assert "not valid JSON" in str(configured(text).warnings[0])
