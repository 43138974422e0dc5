"""The checks that tell what is known of the installed version of the CLI, and what follows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cursor_gateway.agents.cursor.start_times import HELPS, NO_HELP, UNKNOWN
from cursor_gateway.agents.cursor.version_facts import VersionFacts
from cursor_gateway.findings import Finding

if TYPE_CHECKING:
    from cursor_gateway.agents.cursor.cli import CursorCli

INSTALL = "curl https://cursor.com/install -fsS | bash"
# The versions that docs/cursor-agent.md is about.
OLDEST_KNOWN = "2026.07.20"
NEWEST_KNOWN = "2026.10.01"
MEASURE = "cursor-gateway doctor --live"
_DATE = re.compile(r"\d{4}\.\d\d\.\d\d")
ISOLATED = "`isolate` keeps it from your files all the same."


async def agent_version(cli: CursorCli) -> Sequence[Finding]:
    version = await cli.version()
    date = version[: len(OLDEST_KNOWN)]
    if not _DATE.fullmatch(date):
        words = f"it does not say which version it is, but {version!r}"
        return [Finding("fault", words, fix=INSTALL)]
    if date < OLDEST_KNOWN:
        words = f"{version} is older than {OLDEST_KNOWN}"
        return [Finding("fault", words, fix=f"{cli.command} update")]
    if date > NEWEST_KNOWN:
        words = f"{version} is newer than {NEWEST_KNOWN}, the newest that is known"
        why = "What is new in it may differ; probes with a model show it."
        return [Finding("note", words, why, "cursor-gateway doctor --live")]
    return [Finding("ok", version)]


async def warm_starts(cli: CursorCli) -> Sequence[Finding]:
    if not cli.settings.warm:
        return [Finding("ok", "none are made (setting `warm`)")]
    await cli.version()
    facts = cli.known.facts
    if facts.boots_before_prompt is None:
        return [Finding("ok", f"{UNKNOWN}; runs will show it")]
    measured = _measured(facts)
    words = f"{HELPS if facts.boots_before_prompt else NO_HELP}{_seconds(facts)}"
    if facts.boots_before_prompt:
        return [Finding("ok", words, measured=measured)]
    why = "Every new conversation waits until the CLI has booted. Another look costs some requests."
    return [Finding("note", words, why, MEASURE, measured)]


async def obedience(cli: CursorCli) -> Sequence[Finding]:
    await cli.version()
    obeys = cli.known.facts.obeys_deny_list
    if obeys is None:
        return [Finding("ok", "not seen yet; `doctor --live` tries it")]
    if obeys:
        return [Finding("ok", "it was seen to obey it")]
    if cli.settings.isolate:
        return [Finding("note", "it was seen to disobey it", ISOLATED, MEASURE)]
    return [Finding("fault", "it was seen to disobey it", fix=f"{cli.command} update")]


def _seconds(facts: VersionFacts) -> str:
    if facts.cold_start_s is None or facts.warm_start_s is None:
        return ""
    return (
        f" (first output {facts.warm_start_s:.1f} s after the prompt, "
        f"{facts.cold_start_s:.1f} s in a cold start)"
    )


def _measured(facts: VersionFacts) -> dict[str, float | bool]:
    found = {"cold_start_s": facts.cold_start_s, "warm_start_s": facts.warm_start_s}
    return {name: seconds for name, seconds in found.items() if seconds is not None}
