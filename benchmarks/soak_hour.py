"""An hour of everything: `make soak-hour`.

The guests of `make chaos` come and go, and meanwhile agents and the guardian are killed, readers
stall, and whenever it is quiet a cleaner of temporary files removes what looks unused. Memory,
descriptors, processes, directories and `/health` are watched all the time: none may grow, and
`/health` answers in its usual time.

`make soak-hour MINUTES=5` is shorter; `SEED=3` repeats the choices of a run (not its timing).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.chaos import FLAGS, SUSPICIOUS, Round, at_rest
from benchmarks.chaos_answers import chat
from benchmarks.outside import GatewayProcess, Home, gateway, settled, write_section
from benchmarks.siege import running
from benchmarks.siege_scenes import connection, request
from benchmarks.soak import MAX_SLOPE_KB
from tests.conftest import command_line

AT_ONCE = 6
# The longest time between two disturbances, in seconds.
PEACE_SECONDS = 3.0
# The number of disturbances between two visits of the cleaner.
CLEANS_EVERY = 20
HEALTH_P99_SECONDS = 1.0


@dataclass(slots=True)
class Hour:
    home: Home
    round_: Round
    # Each guest takes one place. The cleaner takes all of them, so that it comes alone.
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    health_seconds: list[float] = field(default_factory=list)
    guests: int = 0
    # Each time it was quiet: how many guests there had been, and how much memory the gateway had.
    memory_kb: list[tuple[int, int]] = field(default_factory=list)
    most_descriptors: int = 0
    most_processes: int = 0
    misfortunes: Counter[str] = field(default_factory=Counter)

    @property
    def served(self) -> GatewayProcess:
        return self.round_.served

    async def visitors(self, until: float) -> None:
        async with asyncio.TaskGroup() as guests:
            while time.monotonic() < until:
                await self.places.acquire()
                self.guests += 1
                guests.create_task(self.visit(f"h{self.guests}"))

    async def visit(self, name: str) -> None:
        try:
            await self.round_.guest(name)
        finally:
            self.places.release()

    async def look(self) -> None:
        while True:
            began = time.perf_counter()
            await self.served.health(self.round_.session)
            self.health_seconds.append(time.perf_counter() - began)
            self.most_descriptors = max(self.most_descriptors, self.served.descriptors())
            self.most_processes = max(self.most_processes, len(self.served.children()))
            await asyncio.sleep(0.2)

    async def misfortune(self) -> None:
        dice = self.round_.dice
        for number in range(10**9):
            await asyncio.sleep(dice.uniform(0, PEACE_SECONDS))
            if number % CLEANS_EVERY == CLEANS_EVERY - 1:
                await self.clean()
            else:
                await dice.choice((self.kill_an_agent, self.kill_the_guardian, self.stall))()

    async def kill_an_agent(self) -> None:
        agents = [pid for pid in self.home.processes() if b"--print" in command_line(pid)]
        self.kill(agents, "killed agents")

    async def kill_the_guardian(self) -> None:
        found = [p for p in self.served.children() if b"guardian_program.py" in command_line(p)]
        self.kill(found, "killed guardians")

    def kill(self, pids: list[int], what: str) -> None:
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self.round_.dice.choice(pids), signal.SIGKILL)
            self.misfortunes[what] += 1

    async def stall(self) -> None:
        """A client that reads nothing, for longer than any answer may take."""
        async with connection(self.served.port) as writer:
            writer.write(request("/v1/chat/completions", chat("[[many:200000]]", stream=True)[1]))
            self.misfortunes["readers that stalled"] += 1
            await asyncio.sleep(8)

    async def clean(self) -> None:
        """Remove all temporary files while no guest is there, as a cleaner of unused files
        would."""
        for _ in range(AT_ONCE):
            await self.places.acquire()
        await self.rest()
        for root in (self.home.path / "tmp").iterdir():
            shutil.rmtree(root, ignore_errors=True)
        self.misfortunes["cleaned directories"] += 1
        for _ in range(AT_ONCE):
            self.places.release()

    async def rest(self) -> None:
        rest = await at_rest(self.round_)
        self.memory_kb.append((self.guests, rest["resident_kb"]))

    def slope(self) -> float:
        """Growth in kilobytes per thousand guests. The first third, in which caches fill, is left
        out."""
        late = self.memory_kb[len(self.memory_kb) // 3 :]
        if len(late) < 3:
            return 0.0
        return statistics.linear_regression(*zip(*late, strict=True)).slope * 1000

    def problems(self) -> list[str]:
        found = list(dict.fromkeys(self.round_.violations))
        if (slope := self.slope()) > MAX_SLOPE_KB:
            found.append(f"memory grows by {slope:.0f} kB in 1000 requests")
        if failed := self.round_.endings["error server_error"]:
            found.append(f"{failed} errors of our own")
        if (p99 := percentile(self.health_seconds, 0.99)) > HEALTH_P99_SECONDS:
            found.append(f"/health: p99 {p99:.1f} s")
        found += [str(mark) for mark in SUSPICIOUS if mark in self.served.log]
        return found

    def figures(self) -> list[str]:
        p50, p99 = (percentile(self.health_seconds, share) * 1000 for share in (0.5, 0.99))
        memory = ", ".join(f"{kb / 1024:.0f}" for _, kb in self.memory_kb)
        return [
            f"{self.guests} guests: {dict(self.round_.endings.most_common())}",
            f"misfortunes: {dict(self.misfortunes.most_common())}",
            f"`/health`: p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
            f"slowest {max(self.health_seconds) * 1000:.0f} ms",
            f"memory whenever it was quiet: {memory} MB; {self.slope():+.0f} kB in 1000 guests",
            f"at most {self.most_descriptors} descriptors and {self.most_processes} children",
        ]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


async def live(home: Home, dice: random.Random, minutes: float) -> tuple[list[str], list[str]]:
    """The figures, and the problems that were found."""
    home.install_fake_agent()
    flags = (*FLAGS, "--total-timeout", "15", "--warm", "1")
    async with gateway(home, *flags) as served:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        hour = Hour(home, Round(home, dice, served, session, is_sabotaged=True))
        async with running(hour.look(), hour.misfortune()):
            await hour.visitors(time.monotonic() + minutes * 60)
        await hour.rest()
        served.process.send_signal(signal.SIGTERM)
        await served.process.wait()
        await hour.round_.session.close()
    problems = hour.problems()
    if served.process.returncode:
        problems.append(f"exit code {served.process.returncode}")
    if not await settled(lambda: not home.processes()):
        problems.append(f"processes remain: {home.processes()}")
    if not await settled(lambda: not home.scratch()):
        problems.append(f"directories remain: {home.scratch()}")
    return hour.figures(), problems


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=random.randrange(10**6))  # noqa: S311
    chosen = options.parse_args()
    dice = random.Random(chosen.seed)  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        measured, problems = asyncio.run(live(Home(Path(folder)), dice, chosen.minutes))
    lines = [f"{chosen.minutes:g} minutes, seed {chosen.seed}", *measured, *problems]
    print(*lines, f"{len(problems)} problems", sep="\n")
    write_section("Soak, by the hour", [f"- {line}" for line in lines])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
