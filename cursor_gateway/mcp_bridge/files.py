"""The files that configure MCP servers: OpenCode's, and those of other programs if a setting asks
for them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from cursor_gateway import foreign_files
from cursor_gateway.agents.cursor.files import mcp_file
from cursor_gateway.mcp_bridge.config import ConfigFile, Configured, ConfigWarning, parse
from cursor_gateway.settings import Settings

_NAMES = ("opencode.json", "opencode.jsonc")


def read_configuration(settings: Settings, env: Mapping[str, str]) -> Configured:
    """All servers that the user and the project have configured."""
    files: list[ConfigFile] = []
    warnings: list[ConfigWarning] = []
    for path, is_opencode in _candidates(settings, env):
        try:
            files.append(ConfigFile(str(path), _own_text(path), is_opencode))
        except FileNotFoundError:
            if path == Path(env.get("OPENCODE_CONFIG") or "/"):
                what = "named by OPENCODE_CONFIG, but not there"
                warnings.append(ConfigWarning(str(path), what, "OPENCODE_CONFIG"))
        except NotADirectoryError:
            continue
        except (OSError, ValueError) as error:
            warnings.append(ConfigWarning(str(path), f"cannot be read: {error}"))
    home = foreign_files.home(env)
    configured = parse(files, env, lambda file, named: _named_text(home, file, named))
    return Configured(configured.servers, (*warnings, *configured.warnings))


def project_directory(settings: Settings) -> Path:
    return Path(settings.workspace).expanduser() if settings.workspace else Path.cwd()


def _candidates(settings: Settings, env: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """From the weakest to the strongest, and whether it is OpenCode's."""
    home, folders = foreign_files.home(env), _project_folders(project_directory(settings).resolve())
    if settings.mcp_other_files:
        yield mcp_file(home), False
        for folder in folders:
            yield mcp_file(folder), False
            yield folder / ".mcp.json", False
    bases = [home / ".config"]
    if named := env.get("XDG_CONFIG_HOME"):
        bases.append(Path(named))
    for base in dict.fromkeys(bases):
        yield from ((base / "opencode" / name, True) for name in _NAMES)
    if named := env.get("OPENCODE_CONFIG"):
        yield Path(named), True
    for folder in folders:
        yield from ((folder / name, True) for name in _NAMES)
        yield from ((folder / ".opencode" / name, True) for name in _NAMES)


def _project_folders(project: Path) -> list[Path]:
    """The project's directory and its parents, outermost first, up to the repository's root."""
    folders: list[Path] = []
    for folder in (project, *project.parents):
        folders.insert(0, folder)
        if (folder / ".git").exists():
            break
    return folders


def _own_text(path: Path) -> str:
    """These files hold commands, and another user may have put one into a parent folder. The
    gateway runs only commands of its own user and of root."""
    owner = path.stat().st_uid
    if owner not in (os.getuid(), 0):
        raise PermissionError("it belongs to another user, so its commands are not run")
    return _text(path)


def _named_text(home: Path, file: str, named: str) -> str:
    if named.startswith("~/"):
        return _text(home / named[2:])
    return _text(Path(file).parent / named)


def _text(path: Path) -> str:
    return foreign_files.read(path).decode()
