"""The checks of the user's own configuration of Cursor, as far as it changes what agents do.

The files are read, up to a size, and never shown: they may hold commands and secrets.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cursor_gateway import foreign_files
from cursor_gateway.account import cursor_files
from cursor_gateway.doctor.examination import EDITOR, DoctorContext, Finding

_MAX_BYTES = 1024 * 1024
_ELSEWHERE = Finding("ok", "not looked at: the files of an agent elsewhere are elsewhere")


async def hooks(context: DoctorContext) -> Sequence[Finding]:
    if context.settings.agent_command:
        return [_ELSEWHERE]
    found = await asyncio.to_thread(lambda: list(_hooks(context.env)))
    return found or [Finding("ok", "there are none")]


def _hooks(env: Mapping[str, str]) -> Iterator[Finding]:
    for file in _hook_files(env):
        if events := _events(_content(file)):
            words = f"{file} has hooks: {', '.join(events)}"
            why = (
                "The CLI runs them in the gateway's runs, too, before it looks at permissions. "
                "They may refuse a call or rewrite it."
            )
            yield Finding("note", words, why, f"{EDITOR} {shlex.quote(str(file))}")


def _hook_files(env: Mapping[str, str]) -> list[Path]:
    """Cursor's own, and those of Claude Code, which the CLI runs as well."""
    home = Path(env.get("HOME", "~")).expanduser()
    folders = dict.fromkeys([*(file.parent for file in cursor_files(env)), home / ".cursor"])
    of_claude = [home / ".claude" / name for name in ("settings.json", "settings.local.json")]
    return [*(folder / "hooks.json" for folder in folders), *of_claude]


def _events(content: Mapping[str, Any]) -> list[str]:
    """For which events there are hooks; their names are Cursor's, so they can be shown."""
    found = content.get("hooks")
    events = found.items() if isinstance(found, dict) else ()
    return [name[:40] for name, commands in list(events)[:20] if commands]


async def approval(context: DoctorContext) -> Sequence[Finding]:
    if context.settings.agent_command:
        return [_ELSEWHERE]
    found = await asyncio.to_thread(lambda: list(_unrestricted(context.env)))
    return found or [Finding("ok", "nothing is approved beforehand")]


def _unrestricted(env: Mapping[str, str]) -> Iterator[Finding]:
    for file in cursor_files(env):
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
