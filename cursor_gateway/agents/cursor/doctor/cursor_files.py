"""The checks of the user's own configuration of Cursor, as far as it changes what agents do.

The files are read, up to a size, and never shown: they may hold commands and secrets.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursor_gateway import foreign_files
from cursor_gateway.agents.cursor.files import config_folders
from cursor_gateway.findings import EDITOR, Finding
from cursor_gateway.foreign_files import home

if TYPE_CHECKING:
    from cursor_gateway.agents.cursor.cli import CursorCli

_MAX_BYTES = 1024 * 1024
_CLAUDE_CODE_FILES = ("settings.json", "settings.local.json")
# The CLI writes this file in a moment; one that is older was left by a start that failed.
TMP_IS_STALE_AFTER = 60.0
_REMOTE = Finding("ok", "not looked at: the files of a remote agent are remote")


async def hooks(cli: CursorCli) -> Sequence[Finding]:
    if cli.settings.agent_command:
        return [_REMOTE]
    found = await asyncio.to_thread(lambda: list(_hooks(cli)))
    return found or [Finding("ok", "there are none")]


def _hooks(cli: CursorCli) -> Iterator[Finding]:
    for file in _hook_files(cli):
        if events := _events(_content(file)):
            words = f"{file} has hooks: {', '.join(events)}"
            why = (
                "The CLI runs them in the gateway's runs, too, before it looks at permissions. "
                "They may refuse a call or rewrite it."
            )
            yield Finding("note", words, why, f"{EDITOR} {shlex.quote(str(file))}")


def _hook_files(cli: CursorCli) -> list[Path]:
    """Cursor's own, and those of Claude Code, which the CLI runs as well."""
    of_claude = (home(cli.env) / ".claude" / name for name in _CLAUDE_CODE_FILES)
    return [*(folder / "hooks.json" for folder in config_folders(cli.env)), *of_claude]


def _events(content: Mapping[str, Any]) -> list[str]:
    """For which events there are hooks; their names are Cursor's, so they can be shown."""
    found = content.get("hooks")
    events = found.items() if isinstance(found, dict) else ()
    return [name[:40] for name, commands in list(events)[:20] if commands]


async def approval(cli: CursorCli) -> Sequence[Finding]:
    if cli.settings.agent_command:
        return [_REMOTE]
    found = await asyncio.to_thread(lambda: list(_unrestricted(cli)))
    return found or [Finding("ok", "nothing is approved beforehand")]


def _unrestricted(cli: CursorCli) -> Iterator[Finding]:
    for file in cli.files(cli.settings, cli.env):
        if file.name != "cli-config.json":
            continue
        if _content(file).get("approvalMode") == "unrestricted":
            words = f"{file} says `approvalMode: unrestricted`"
            why = (
                "What no list names is allowed then: a model may call the tools of your own MCP "
                "servers. What the deny list names stays forbidden. `allowlist` ends it."
            )
            yield Finding("note", words, why, f"{EDITOR} {shlex.quote(str(file))}")


def _content(file: Path) -> Mapping[str, Any]:
    """Of a JSON file; nothing where it is none, or longer than such files are."""
    try:
        found = json.loads(foreign_files.read(file, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


async def config_race(cli: CursorCli) -> Sequence[Finding]:
    """CLIs that start at the same moment rewrite one file, and may break it."""
    if cli.settings.agent_command:
        return [_REMOTE]
    files = [file for file in cli.files(cli.settings, cli.env) if file.name == "cli-config.json"]
    found = [finding for file in files for finding in _race_traces(file)]
    is_there = any(file.exists() for file in files)
    state = "cli-config.json is whole" if is_there else "there is no cli-config.json yet"
    return found or [Finding("ok", f"{state}, and no start has failed over it")]


def _race_traces(file: Path) -> Iterator[Finding]:
    draft, broken = file.with_name("cli-config.json.tmp"), file.with_name("cli-config.json.bad")
    try:
        if file.exists():
            json.loads(foreign_files.read(file))
    except (OSError, ValueError, RecursionError) as error:
        words = f"{file} is not JSON; agents started together broke it"
        if isinstance(error, OSError):
            words = f"{file} cannot be read: {error.strerror}"
        yield Finding("fault", words, fix=shlex.join(["mv", "--", str(file), str(broken)]))
    if draft.exists() and time.time() - draft.stat().st_mtime > TMP_IS_STALE_AFTER:
        fix = shlex.join(["rm", "--", str(draft)])
        yield Finding("fault", f"{draft} was left by a start that failed", fix=fix)
    elif broken.exists():
        fix = shlex.join(["rm", "--", str(broken)])
        yield Finding("note", f"{broken} was broken once, and put aside", fix=fix)
