"""The table of failures in docs/clients/failures.md, of what `make failure-matrix` measured."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.clients.failure_matrix import CELLS, FAILURES, WATCHED_SECONDS, Cell, rows
from tests.clients.programs import Program

PAGE = Path(__file__).parents[2] / "docs" / "clients" / "failures.md"
TITLES = {
    "sign-in": "not signed in",
    "plan": "plan without this model",
    "usage-limit": "usage limit",
    "rate-limit": "rate limit",
    "unknown-model": "unknown model",
    "network": "no network",
    "dies-at-once": "agent dies at once",
    "dies-in-mid-answer": "agent dies in mid-answer",
}
LINE_CHARACTERS = 200
_NAMES_OF_ONE_RUN = re.compile(r"\b[0-9a-f]{20,}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
HEAD = f"""\
<!-- Written by `make failure-matrix`; edit tests/clients/failure_table.py instead. -->

# What clients show of failures

Real clients, in the versions that `make clients` installs, ran against a gateway whose agent
failed the same way whatever it was asked. Each was watched for {WATCHED_SECONDS:.0f} seconds from
its first request on. A cell says after how many seconds the gateway's message could be read in what
the client printed, how many requests the client made, and how many agents were started for them.
Seconds are those of one run on a busy machine.

"""
ENDINGS = """
## What could be read

"""


def measured() -> dict[tuple[str, str], Cell]:
    cells = [Cell(**json.loads(file.read_text())) for file in sorted(CELLS.glob("*.json"))]
    return {(cell.client, cell.failure): cell for cell in cells}


def name_of(program: Program) -> str:
    return program.row or program.name


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def summary(cell: Cell | None) -> str:
    if cell is None:
        return "not measured"
    seconds = cell.shown_after
    shown = "not shown" if seconds is None else f"{round(seconds)} s" if seconds >= 1 else "< 1 s"
    return f"{shown}, {counted(cell.requests, 'request')}, {counted(cell.agents, 'agent')}"


def table(cells: dict[tuple[str, str], Cell]) -> str:
    lines = [["client", *TITLES.values()], ["---"] * (len(TITLES) + 1)]
    for program in rows():
        found = [cells.get((name_of(program), failure.name)) for failure in FAILURES]
        if any(found):
            lines.append([program.title, *map(summary, found)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def told(cell: Cell) -> str:
    line = _NAMES_OF_ONE_RUN.sub("…", cell.shown.replace("`", "'"))
    line = f"{line[:LINE_CHARACTERS]}…" if len(line) > LINE_CHARACTERS else line
    said = f"`{line}`" if line else "nothing of the message"
    end = "still trying" if cell.exit is None else f"exit code {cell.exit}"
    return f"- {TITLES[cell.failure]}: {said} ({end})\n"


def details(cells: dict[tuple[str, str], Cell]) -> str:
    parts = []
    for program in rows():
        found = [cells.get((name_of(program), failure.name)) for failure in FAILURES]
        note = f"\n{program.hides}.\n" if program.hides else ""
        lines = "".join(told(cell) for cell in found if cell)
        parts.append(f"### {program.title}\n{note}\n{lines}")
    return "\n".join(parts)


def main() -> None:
    cells = measured()
    everything: list[dict[str, Any]] = [json.loads(file.read_text()) for file in CELLS.glob("*")]
    CELLS.with_suffix(".json").write_text(json.dumps(everything, indent=1))
    sys.stdout.write(table(cells))
    wanted = {(name_of(program), failure.name) for program in rows() for failure in FAILURES}
    if wanted <= cells.keys():
        PAGE.write_text(f"{HEAD}{table(cells)}{ENDINGS}{details(cells)}")
    else:
        sys.stdout.write(f"{len(wanted - cells.keys())} cells are missing; no page is written.\n")


if __name__ == "__main__":
    main()
