"""What the times of starts say, where no process can be made to have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cursor_gateway.agents.cursor.start_times import StartTimes
from cursor_gateway.agents.cursor.version_facts import KnownVersions


async def test_starts_that_take_no_time_say_nothing(tmp_path: Path) -> None:
    """Neither can be shorter than the other then, and a slow start may come yet."""
    loop = asyncio.get_running_loop()
    known = KnownVersions(tmp_path)
    times = StartTimes(known)
    for _ in range(5):
        times.began(loop.time(), None)
        times.began(loop.time(), loop.time() - 10)
    assert known.facts.boots_before_prompt is None and times.warm_helps
