"""The checks that tell what is known of the installed version of the CLI, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

from cursor_gateway.agents.start_times import HELPS, NO_HELP, UNKNOWN
from cursor_gateway.agents.version_facts import VersionFacts
from cursor_gateway.doctor import Bench, Finding

MEASURE = "cursor-gateway doctor --live"


async def warm_starts(bench: Bench) -> Sequence[Finding]:
    if not bench.settings.warm:
        return [Finding("ok", "none are made (setting `warm`)")]
    await bench.agent.version()
    facts = bench.agent.known.facts
    if facts.boots_before_prompt is None:
        return [Finding("ok", f"{UNKNOWN}; runs will show it")]
    measured = _measured(facts)
    words = f"{HELPS if facts.boots_before_prompt else NO_HELP}{_seconds(facts)}"
    if facts.boots_before_prompt:
        return [Finding("ok", words, measured=measured)]
    why = "Every new conversation waits until the CLI has booted. Another look costs some requests."
    return [Finding("note", words, why, MEASURE, measured)]


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
