"""Where MCP servers are looked for, and which file wins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.mcp_bridge.config import Configured, LocalServer
from cursor_gateway.mcp_bridge.files import read_configuration
from cursor_gateway.settings_sources import load


def put(path: Path, **commands: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    servers = {name: {"type": "local", "command": [word]} for name, word in commands.items()}
    key = "mcp" if "opencode" in path.name else "mcpServers"
    path.write_text(json.dumps({key: servers}))


def found(home: Path, project: Path, env: dict[str, str] | None = None, **flags: Any) -> Configured:
    project.mkdir(parents=True, exist_ok=True)
    variables = {"HOME": str(home)} | (env or {})
    settings = load({"workspace": str(project)} | flags, variables).settings
    return read_configuration(settings, variables)


def commands(result: Configured) -> dict[str, str]:
    assert result.warnings == ()
    return {each.name: each.command[0] for each in result.servers if isinstance(each, LocalServer)}


def test_the_nearer_file_wins(tmp_path: Path) -> None:
    home, outer = tmp_path / "home", tmp_path / "outer"
    project = outer / "repo" / "sub"
    (outer / "repo" / ".git").mkdir(parents=True)
    put(home / ".config/opencode/opencode.json", a="user", b="user", c="user", d="user", e="user")
    put(tmp_path / "xdg/opencode/opencode.jsonc", b="xdg", c="xdg", d="xdg", e="xdg")
    put(tmp_path / "named.json")
    (tmp_path / "named.json").write_text('{"mcp": {"c": {"command": ["named"]}}}')
    put(outer / "opencode.json", a="outside of the repository")
    put(outer / "repo/opencode.json", d="repository", e="repository")
    put(project / ".opencode/opencode.jsonc", e="project")
    env = {
        "XDG_CONFIG_HOME": str(tmp_path / "xdg"),
        "OPENCODE_CONFIG": str(tmp_path / "named.json"),
    }
    assert commands(found(home, project, env)) == {
        "a": "user", "b": "xdg", "c": "named", "d": "repository", "e": "project"
    }  # fmt: skip


def test_without_a_repository_all_parents_count(tmp_path: Path) -> None:
    put(tmp_path / "opencode.json", a="parent")
    assert commands(found(tmp_path / "home", tmp_path / "some" / "project")) == {"a": "parent"}


def test_other_programs_files_are_read_if_the_user_says_so(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    put(home / ".cursor/mcp.json", a="cursor", b="cursor", c="cursor")
    put(project / ".mcp.json", b="project")
    put(project / "opencode.json", c="opencode")
    assert commands(found(home, project)) == {"c": "opencode"}
    assert commands(found(home, project, mcp_other_files=True)) == {
        "a": "cursor", "b": "project", "c": "opencode"
    }  # fmt: skip


def test_files_named_in_a_file_are_beside_it_or_at_home(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    put(project / "opencode.json", a="{file:key}", b="{file:~/key}", c="{file:/nonexistent/key}")
    (project / "key").write_text("beside\n")
    home.mkdir()
    (home / "key").write_text("home\n")
    result = found(home, project)
    assert [each.command for each in result.servers if isinstance(each, LocalServer)] == [
        ("beside",),
        ("home",),
    ]
    assert len(result.warnings) == 1


def test_a_file_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "opencode.json", a="evil")
    if os.getuid() == 0:
        os.chown(tmp_path / "opencode.json", 4242, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4242)
    result = found(tmp_path / "home", tmp_path / "project")
    assert result.servers == ()
    assert "belongs to another user" in str(result.warnings[0])


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "opencode.json").mkdir(parents=True)
    (project / "opencode.jsonc").write_bytes(b"\xff\xfe")
    (project / ".opencode").touch()
    (tmp_path / "home/.config/opencode").mkdir(parents=True)
    os.mkfifo(tmp_path / "home/.config/opencode/opencode.json")
    (tmp_path / "opencode.json").write_text(" " * 5_000_000)
    result = found(tmp_path / "home", project, {"OPENCODE_CONFIG": str(tmp_path / "missing")})
    told = {str(warning).rpartition("/")[2] for warning in result.warnings}
    assert len(result.warnings) == 5
    assert "missing: named by OPENCODE_CONFIG, but not there" in told
    assert "opencode.json: cannot be read: it is too long" in told
    assert "opencode.json: cannot be read: it is not a file" in told
