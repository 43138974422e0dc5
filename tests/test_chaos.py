"""`make chaos` in short: one gateway for each way to end, with the same choices every time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.chaos import play
from benchmarks.chaos_agents import AGENTS
from benchmarks.outside import Home


# Until it is quiet takes the bridge's gateway half a minute; `make chaos` waits for that.
@pytest.mark.parametrize(
    ("agent", "ending"),
    [
        *(("cli", "peace"), ("cli", "SIGTERM"), ("cli", "SIGKILL")),
        *(("sdk", "SIGTERM"), ("sdk", "SIGKILL")),
    ],
)
async def test_whatever_goes_wrong_what_must_hold_holds(
    tmp_path: Path, agent: str, ending: str
) -> None:
    played = await play(Home(tmp_path), AGENTS[agent], random.Random(3), 20, ending)
    assert played.violations == []
    assert sum(played.endings.values()) >= 20
