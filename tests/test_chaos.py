"""`make chaos` in short: one gateway for each way to end, with the same choices every time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.chaos import play
from benchmarks.outside import Home


@pytest.mark.parametrize("ending", ["peace", "SIGTERM", "SIGKILL"])
async def test_whatever_goes_wrong_what_must_hold_holds(tmp_path: Path, ending: str) -> None:
    home = Home(tmp_path)
    home.install_fake_agent()
    played = await play(home, random.Random(3), 20, ending)
    assert played.violations == []
    assert sum(played.endings.values()) >= 20
