"""The checks of the CLI that ask no model: cheap, and they change nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cursor_gateway.agents.cursor import isolation
from cursor_gateway.agents.cursor.doctor.cursor_files import approval, config_race, hooks
from cursor_gateway.agents.cursor.doctor.probes import probed
from cursor_gateway.agents.cursor.doctor.versions import (
    INSTALL,
    agent_version,
    obedience,
    warm_starts,
)
from cursor_gateway.errors import AgentNotFound
from cursor_gateway.findings import Finding, Row
from cursor_gateway.settings import SettingsError
from cursor_gateway.settings_sources import undo_command

if TYPE_CHECKING:
    from cursor_gateway.agents.cursor.cli import CursorCli


async def isolated(cli: CursorCli) -> Sequence[Finding]:
    if not cli.settings.isolate:
        return [Finding("ok", "not asked for (setting `isolate`)")]
    try:
        await asyncio.to_thread(isolation.check, cli.env)
    except SettingsError as error:
        why = "The gateway does not start so. This switches isolation off."
        return [Finding("fault", str(error), why, undo_command("isolate", cli.env))]
    return [Finding("ok", "bubblewrap works")]


async def agent(cli: CursorCli) -> Sequence[Finding]:
    settings, env = cli.settings, cli.env
    folders = [*env.get("PATH", os.defpath).split(os.pathsep), "~/.local/bin"]
    looked = f"looked in {', '.join(filter(None, dict.fromkeys(folders)))}"
    try:
        program = cli.program()
    except AgentNotFound as error:
        named = "agent_command" if settings.agent_command else "agent_executable"
        if not getattr(settings, named):
            return [Finding("fault", f"{error} ({looked})", fix=INSTALL)]
        return [Finding("fault", str(error), fix=undo_command(named, env))]
    if program.is_built_in:
        words = "the demo agent answers, no model (setting `demo`)"
        return [Finding("note", words, "Its answers are canned.", undo_command("demo", env))]
    path = program.located.path
    return [Finding("ok", path if program.prefix else f"{path} ({looked})")]


CHECKS: tuple[Row[CursorCli], ...] = (
    Row("isolation", "the isolation of agents", "The gateway does not start.", isolated),
    Row("agent", "cursor-agent", "No request can be answered without it.", agent, ("scratch",)),
    Row(
        "agent-version",
        "its version",
        "The gateway passes options that older versions do not know.",
        agent_version,
        ("agent",),
    ),
    Row(
        "warm",
        "warm agents, started before anybody asks",
        "They save the time that the CLI takes to boot.",
        warm_starts,
        ("agent-version",),
        is_from_memory=True,
    ),
    Row(
        "obedience",
        "whether it obeys the deny list",
        "The deny list keeps a model from your files.",
        obedience,
        ("agent-version",),
        is_from_memory=True,
    ),
    Row(
        "config-race",
        "traces of the config race",
        "Agents that start together may stop each other; the gateway then starts them one by one.",
        config_race,
    ),
    Row("hooks", "hooks of your own", "They run in every request.", hooks),
    Row("approval", "what you approved beforehand", "Agents may do it.", approval),
    Row("probed", "what was probed before", "", probed, ("agent",), is_from_memory=True),
)
