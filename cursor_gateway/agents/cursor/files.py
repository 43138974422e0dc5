"""Cursor's own files: where its CLI keeps them, by what it is told and by default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cursor_gateway.foreign_files import home

_FOLDER = ".cursor"
# What the CLI may do in a directory, below it.
PERMISSIONS = f"{_FOLDER}/cli.json"


def config_folders(env: Mapping[str, str]) -> list[Path]:
    """Where a CLI may keep its files, by what it is told and by default."""
    xdg = env.get("XDG_CONFIG_HOME") or home(env) / ".config"
    return list(dict.fromkeys((default_folder(env), Path(xdg) / "cursor", home(env) / _FOLDER)))


def default_folder(env: Mapping[str, str]) -> Path:
    return Path(env.get("CURSOR_CONFIG_DIR") or home(env) / _FOLDER)


def mcp_file(folder: Path) -> Path:
    """The MCP servers that are named for a project, or for the user in the home directory."""
    return folder / _FOLDER / "mcp.json"
