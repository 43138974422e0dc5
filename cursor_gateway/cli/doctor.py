"""`cursor-gateway doctor`: what is wrong here, why it matters, and the command that fixes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cursor_gateway.cli.terminal import (
    complete,
    config_option,
    json_option,
    print_json,
    say,
    say_styled,
    working,
)
from cursor_gateway.settings import Settings, SettingsError
from cursor_gateway.settings_row import Limits
from cursor_gateway.settings_sources import load

if TYPE_CHECKING:
    from cursor_gateway.agents import Agent
    from cursor_gateway.findings import Check, Finding

Found = list[tuple[str, "Finding"]]

_HOLDS = Limits(0.1, 3600)

_STYLES = {"ok": "green", "note": "yellow", "fault": "bold red", "skipped": "dim"}
# What people read; scripts read the verdict itself.
_LABELS = {"fault": "problem"}


class _Hold(click.ParamType[float]):
    """Click's own range lets `nan` through."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(click.FLOAT.convert(value, param, ctx))
        if not _HOLDS.allow(seconds):
            self.fail(f"{value} is not {_HOLDS}.", param, ctx)
        return seconds


@click.command()
@click.option(
    "--live", is_flag=True, help="Also have a model work: takes some minutes and some requests."
)
@click.option("--model", default="auto", show_default=True, help="Model for --live.")
@click.option(
    "--hold",
    "holds",
    type=_Hold(),
    multiple=True,
    default=(45.0, 70.0),
    show_default=True,
    metavar="SECONDS",
    help="How long --live holds a call; the option may be repeated.",
)
@json_option
@config_option
def doctor(
    live: bool, model: str, holds: tuple[float, ...], as_json: bool, config_file: Path | None
) -> None:
    """Find problems and say how to fix them. The exit code is 0 only if there are none.

    The doctor changes nothing and shows no secrets. It stores the results of --live for each
    version of the CLI.
    """
    from cursor_gateway.doctor.checks import settings_fault

    try:
        settings = load({}, os.environ, config_file).settings
    except SettingsError as error:
        found = [("settings", settings_fault(error, config_file, os.environ))]
        if not as_json:
            _print("settings", [found[0][1]])
    else:
        _keep_quiet(settings)
        found = complete(_examined(settings, live, model, holds, as_json))
    is_healthy = all(finding.verdict != "fault" for _, finding in found)
    if as_json:
        findings = [{"check": check, **finding.as_json()} for check, finding in found]
        print_json({"healthy": is_healthy, "findings": findings})
    else:
        _print_sum(found)
    sys.exit(0 if is_healthy else 1)


def _keep_quiet(settings: Settings) -> None:
    """The findings say better what the gateway's own log would say."""
    import logging

    if not settings.debug:
        logging.disable(logging.CRITICAL)


async def _examined(
    settings: Settings, live: bool, model: str, holds: tuple[float, ...], as_json: bool
) -> Found:
    from cursor_gateway.doctor.checks import all_checks, checks_with_probes
    from cursor_gateway.doctor.examination import DoctorContext, examine

    found: Found = []
    async with DoctorContext(settings, os.environ) as context:
        checks = checks_with_probes(context, model, holds) if live else all_checks(context)
        with working() as show:

            def begun(check: Check) -> None:
                show(f"looking at {check.title} …")

            async for check, findings in examine(checks, context, begun):
                found += [(check.name, finding) for finding in findings]
                if not as_json:
                    _print(check.name, findings)
        if live and any(check == "live-answer" for check, _ in found):
            _store(context.agent, await context.agent.version(), found)
    return found


def _store(agent: Agent, version: str, found: Found) -> None:
    """Stores the results for the next `doctor`, which says what this version can do."""
    from datetime import UTC, datetime

    findings = [
        {"check": check, **finding.as_json()}
        for check, finding in found
        if check.startswith("live-")
    ]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        agent.store_probes(version, at, findings)
    except OSError as error:
        say(f"The results cannot be stored: {error.filename}: {error.strerror}", err=True)


def _print(name: str, findings: Sequence[Finding]) -> None:
    for finding in findings:
        shown = _LABELS.get(finding.verdict, finding.verdict)
        label = (f"{shown:8}", _STYLES[finding.verdict])
        say_styled(label, f"{name:14}{finding.what}")
        if finding.why and finding.verdict != "ok":
            say_styled((f"{'':22}{finding.why}", "dim"))
        if finding.fix:
            say_styled(f"{'':22}$ ", (finding.fix, "bold cyan"))


def _print_sum(found: Found) -> None:
    problems = sum(finding.verdict == "fault" for _, finding in found)
    say()
    if problems > 1:
        say(f"{problems} problems. Fix the first one first.")
    elif problems:
        say("1 problem.")
    else:
        say("All is well.")
