"""`make bench`: the gateway against the floor of its stack, on this machine, in one run."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks import bridge_measures, measurements, measures
from benchmarks.measures import Growth, Row
from benchmarks.rig import rig

HEAD = ("measure", "", "bare pipe", "reference", "gateway", "ratio", "target", "")


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agent", choices=("cli", "sdk"))
    chosen = options.parse_args().agent
    # Rich would fold long lines in a pipe.
    console = Console(width=None if sys.stdout.isatty() else 140)
    with rig() as servers, console.status("measuring; this takes some minutes"):
        if chosen != "sdk":
            found = [row async for row in measures.rows(servers)]
            grown = [growth async for growth in measures.growth(servers)]
            show(console, "bench", found, grown)
        if chosen != "cli":
            found = [row async for row in bridge_measures.rows(servers)]
            show(console, "bench AGENT=sdk", found, [])


def show(console: Console, section: str, found: list[Row], grown: list[Growth]) -> None:
    console.print(_table(HEAD, [_cells(row) for row in found]))
    if grown:
        console.print(_table(_GROWTH_HEAD, [_growth_cells(growth) for growth in grown]))
    console.print_json(orjson.dumps(_as_json(found, grown)).decode())
    measurements.write(section, _page(found, grown))


_GROWTH_HEAD = ("growth", "", "sizes", "cost of one", "largest : smallest")


def _cells(row: Row) -> tuple[str, ...]:
    absolute = row.figure == row.gateway
    return (
        row.measure,
        row.unit,
        _number(row.pipe),
        f"{_number(row.reference)} ({row.reference_is})" if row.reference_is else "",
        _number(row.gateway),
        "" if absolute else f"{row.figure:.2f}",
        f"≤ {row.at_most:g}" if row.at_most is not None else f"≥ {row.at_least:g}",
        "met" if row.met else "missed",
    )


def _growth_cells(growth: Growth) -> tuple[str, ...]:
    return (
        growth.what,
        growth.unit,
        ", ".join(f"{size:,}" for size in growth.sizes),
        ", ".join(_number(cost) for cost in growth.costs),
        f"{growth.costs[-1] / growth.costs[0]:.2f}",
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(*head, header_style="bold")
    for row in rows:
        table.add_row(*row, style="bold red" if row[-1] == "missed" else None)
    return table


def _page(found: list[Row], grown: list[Growth]) -> str:
    rows = measurements.markdown(HEAD, [_cells(row) for row in found])
    if not grown:
        return rows
    costs = measurements.markdown(_GROWTH_HEAD, [_growth_cells(growth) for growth in grown])
    return f"{rows}\n\n{costs}"


def _as_json(found: list[Row], grown: list[Growth]) -> dict[str, Any]:
    return {
        "rows": [dataclasses.asdict(row) | {"met": row.met} for row in found],
        "growth": [dataclasses.asdict(growth) for growth in grown],
    }


if __name__ == "__main__":
    asyncio.run(main())
