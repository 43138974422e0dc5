"""What start times say about a version, and what they do not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cursor_gateway.agents.start_times import StartTimes
from cursor_gateway.agents.version_facts import KnownVersions, VersionFacts


class Observed:
    def __init__(self, folder: Path) -> None:
        self.known = KnownVersions(folder)
        self.times = StartTimes(self.known)

    def cold(self, seconds: float) -> None:
        self.times.began(asyncio.get_running_loop().time() - seconds, None)

    def warm(self, seconds: float, head_start: float = 300.0) -> None:
        fed_at = asyncio.get_running_loop().time() - seconds
        self.times.began(fed_at, fed_at - head_start)

    @property
    def verdict(self) -> bool | None:
        return self.known.facts.boots_before_prompt


@pytest.fixture
async def observed(tmp_path: Path) -> Observed:
    return Observed(tmp_path)


async def test_one_quick_start_shows_that_it_boots_before_its_prompt(observed: Observed) -> None:
    observed.cold(6.0)
    observed.warm(0.3)
    assert observed.verdict is True and observed.times.reason()[0] == "helps"


async def test_only_several_slow_ones_show_that_it_does_not(observed: Observed) -> None:
    observed.cold(6.0)
    for _ in range(2):
        observed.warm(6.1)
        assert observed.verdict is None and observed.times.warm_helps
    observed.warm(6.1)
    assert observed.verdict is False and not observed.times.warm_helps


async def test_an_agent_that_had_no_time_to_boot_shows_nothing(observed: Observed) -> None:
    observed.cold(6.0)
    for _ in range(9):
        observed.warm(5.7, head_start=0.3)
    assert observed.verdict is None


async def test_without_a_cold_start_there_is_nothing_to_compare_with(observed: Observed) -> None:
    for _ in range(9):
        observed.warm(6.0)
    assert observed.verdict is None


async def test_a_few_slow_starts_do_not_change_what_is_known(observed: Observed) -> None:
    observed.cold(6.0)
    for seconds in (0.3, 0.3, 0.3, 7.0, 7.0):
        observed.warm(seconds)
    assert observed.verdict is True


async def test_where_the_only_cold_start_was_slow_others_are_asked_for(observed: Observed) -> None:
    observed.cold(12.0)
    for _ in range(3):
        assert not observed.times.cold_is_wanted
        observed.warm(6.0)
    assert observed.verdict is None
    for _ in range(2):
        assert observed.times.cold_is_wanted
        observed.cold(6.0)
    assert not observed.times.cold_is_wanted
    observed.warm(6.0)
    assert observed.verdict is False


async def test_what_was_measured_before_an_update_does_not_count_after_it(
    observed: Observed,
) -> None:
    await observed.known.recognise("1")
    observed.cold(6.0)
    observed.warm(6.0)
    observed.warm(6.0)
    await observed.known.recognise("2")
    assert observed.known.facts == VersionFacts()
    observed.cold(3.0)
    observed.warm(3.0)
    assert observed.verdict is None
    assert observed.times.state()["first_word_ms"] == {"cold": 3000.0, "spare": 3000.0}
    await observed.known.close()


async def test_small_changes_are_not_worth_a_file(observed: Observed) -> None:
    observed.cold(6.0)
    observed.cold(6.2)
    assert observed.known.facts.cold_start_s == pytest.approx(6.0, abs=0.05)
