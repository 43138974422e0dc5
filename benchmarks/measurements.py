"""docs/measurements.md: each program that measures writes its own section anew."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "measurements.md"


def write(section: str, body: str) -> None:
    """Replace `section` by `body`, with the date, the machine and the versions."""
    begins, ends = f"<!-- make {section} -->", f"<!-- end of make {section} -->"
    page = PAGE.read_text()
    head, _, rest = page.partition(begins)
    _, _, tail = rest.partition(ends)
    PAGE.write_text(f"{head}{begins}\n\n{_circumstances()}\n\n{body}\n\n{ends}{tail}")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _circumstances() -> str:
    today = datetime.datetime.now(datetime.UTC).date()
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    load = f"load {os.getloadavg()[0]:.1f}"
    names = ("cursor-gateway", "aiohttp", "orjson")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{today}; {machine}, {load}; Python {platform.python_version()}, {versions}"
