"""Attacks, one after the other: `make siege`.

Each scene attacks a gateway of its own, which is a real process, and checks it from outside
meanwhile. Then it attacks again, and ends the gateway in the middle of the attack. What must hold:

- `/health` answers within two seconds, whatever happens;
- the answers of another client go on, word for word;
- its memory stays bounded, and afterwards nothing is left of the attack;
- SIGTERM ends the gateway within ten seconds, with exit code 0, and nothing stays behind, also
  after a SIGKILL;
- the log holds no traceback.

`python -m benchmarks.siege NAME...` plays these scenes only. Every scene ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.chaos import SUSPICIOUS
from benchmarks.chaos_answers import chat
from benchmarks.outside import GatewayProcess, Home, gateway, settled, write_section

HEALTH_SECONDS = 2.0
ENDING_SECONDS = 10.0
# An attack that makes the gateway take longer than this has succeeded.
SCENE_SECONDS = 90.0
# After so long the gateway is ended, in the middle of the second attack.
INTO_THE_ATTACK = 1.0
# Room for some bodies of 50 MB, and for what is parsed from them.
PEAK_KB = 600_000
# The allocator does not give back all memory of two answers of 64 MB at once.
GROWTH_KB = 150_000
GROWTH_DESCRIPTORS = 12
BYSTANDER = "[[slowly:40]]"
BYSTANDER_WORDS = "".join(f"{number} " for number in range(40))


@dataclass(slots=True)
class Besieged:
    """The gateway under attack, and what was observed."""

    home: Home
    served: GatewayProcess
    session: aiohttp.ClientSession
    slowest_health: float = 0.0
    peak_kb: int = 0
    bystanders: int = 0
    is_ending: bool = False
    violations: list[str] = field(default_factory=list)

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, bytes]:
        """The status and the answer; empty if the connection was closed meanwhile."""
        key = "data" if isinstance(body, bytes) else "json"
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        try:
            async with self.session.post(
                self.served.url + path, headers=headers, **{key: body}, **options
            ) as response:
                return response.status, await response.read()
        except aiohttp.ClientError:
            return 0, b""

    async def expect(self, wanted: Sequence[int], path: str, body: Any, **options: Any) -> None:
        """Check that the status is one of `wanted`, or that the gateway is shutting down."""
        status, answer = await self.post(path, body, **options)
        if status not in wanted and not (self.is_ending and status in (0, 503)):
            self.violations.append(f"{path}: {status} instead of {wanted}: {answer[:300]!r}")


@dataclass(frozen=True, slots=True)
class Scene:
    """One attack. `attack` may hold what it opened: it is cancelled at the end."""

    name: str
    attack: Callable[[Besieged], Coroutine[Any, Any, None]]
    flags: Sequence[str] = ()
    # Runs first, so that its memory and descriptors are not taken for traces of the attack.
    before: Callable[[Besieged], Coroutine[Any, Any, None]] | None = None
    # A context that lasts as long as the gateway.
    beside: Callable[[Home], AbstractAsyncContextManager[None]] = lambda home: nullcontext()
    # Whether answers of other clients may fail: the attack removes files that their agents use.
    hits_others: bool = False
    ending: signal.Signals = signal.SIGTERM
    # A command that starts the gateway, such as `("prlimit", "--nofile=256")`.
    through: Sequence[str] = ()


async def watch(besieged: Besieged) -> None:
    while True:
        began = time.perf_counter()
        try:
            await besieged.served.health(besieged.session)
        except aiohttp.ClientError as error:
            besieged.violations.append(f"/health: {error!r}")
        finally:
            taken = time.perf_counter() - began
            besieged.slowest_health = max(besieged.slowest_health, taken)
        besieged.peak_kb = max(besieged.peak_kb, besieged.served.resident_kb())
        await asyncio.sleep(0.1)


async def stand_by(besieged: Besieged) -> None:
    """Another client, which has nothing to do with the attack."""
    while True:
        status, answer = await besieged.post(*chat(BYSTANDER, stream=False))
        if status != 200 or BYSTANDER_WORDS.encode() not in answer:
            besieged.violations.append(f"another client: {status} {answer[:300]!r}")
        besieged.bystanders += 1


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def play(scene: Scene, home: Home, seconds: float = 20.0) -> Besieged:
    """Play a scene. Traces of the attack must be gone after so many seconds."""
    flags = ("--shutdown-grace", "3", *scene.flags)
    async with scene.beside(home), gateway(home, *flags, through=scene.through) as served:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None))
        besieged = Besieged(home, served, session)
        async with session:
            await besieged.expect([200], *chat("[[text:hello]]", stream=False))
            if scene.before is not None:
                await scene.before(besieged)
            before = served.resident_kb(), served.descriptors()
            await endure(scene, besieged)
            await check_rest(besieged, seconds, *before)
            await end_in_the_middle(scene, besieged)
    await check_nothing_stays(besieged, seconds)
    return besieged


async def endure(scene: Scene, besieged: Besieged) -> None:
    others = () if scene.hits_others else (stand_by(besieged),)
    async with running(watch(besieged), *others):
        try:
            async with asyncio.timeout(SCENE_SECONDS):
                await scene.attack(besieged)
                # The other client goes on for a while after the attack.
                seen = besieged.bystanders
                await until(lambda: scene.hits_others or besieged.bystanders > seen + 1)
        except TimeoutError:
            besieged.violations.append(f"not over within {SCENE_SECONDS:g} s")
    if besieged.slowest_health > HEALTH_SECONDS:
        besieged.violations.append(f"/health took {besieged.slowest_health:.1f} s")
    if besieged.peak_kb > PEAK_KB:
        besieged.violations.append(f"it had {besieged.peak_kb / 1000:.0f} MB")


async def until(check: Callable[[], bool]) -> None:
    while not check():  # noqa: ASYNC110 - only the operating system knows
        await asyncio.sleep(0.05)


async def check_rest(besieged: Besieged, seconds: float, memory_kb: int, descriptors: int) -> None:
    served, allowed = besieged.served, descriptors + GROWTH_DESCRIPTORS
    if not await settled(lambda: served.descriptors() <= allowed, seconds):
        besieged.violations.append(f"descriptors: {descriptors}, then {served.descriptors()}")
    if served.resident_kb() > memory_kb + GROWTH_KB:
        besieged.violations.append(f"memory: {memory_kb} kB, then {served.resident_kb()} kB")


async def end_in_the_middle(scene: Scene, besieged: Besieged) -> None:
    process, besieged.is_ending = besieged.served.process, True
    async with running(scene.attack(besieged)):
        await asyncio.sleep(INTO_THE_ATTACK)
        process.send_signal(scene.ending)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await process.wait()
    wanted = 0 if scene.ending is signal.SIGTERM else -scene.ending
    if process.returncode != wanted:
        besieged.violations.append(f"exit code {process.returncode} within {ENDING_SECONDS:g} s")


async def check_nothing_stays(besieged: Besieged, seconds: float) -> None:
    home = besieged.home
    if not await settled(lambda: not home.processes(), seconds):
        besieged.violations.append(f"processes remain: {len(home.processes())}")
        for pid in home.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if not await settled(lambda: not home.scratch(), seconds):
        besieged.violations.append(f"directories remain: {home.scratch()}")
    besieged.violations += suspicious(bytes(besieged.served.log))


def suspicious(log: bytes) -> list[str]:
    """The first suspicious place in the log, with what follows."""
    lines = log.decode("utf-8", "replace").splitlines()
    marks = [mark.decode() for mark in SUSPICIOUS]
    found = (at for at, line in enumerate(lines) if any(mark in line for mark in marks))
    return [" / ".join(lines[max(0, at - 1) : at + 30]) for at in found][:1]


async def besiege(scenes: Sequence[Scene]) -> AsyncIterator[tuple[Scene, Besieged, float]]:
    for scene in scenes:
        with tempfile.TemporaryDirectory(prefix="siege-") as folder:
            home = Home(Path(folder))
            home.install_fake_agent()
            began = time.perf_counter()
            besieged = await play(scene, home)
            yield scene, besieged, time.perf_counter() - began


async def main() -> int:
    from benchmarks.siege_scenes import SCENES

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", help="of scenes; none: all of them")
    chosen = options.parse_args().names
    unknown = set(chosen) - {scene.name for scene in SCENES}
    if unknown:
        options.error(f"no such scenes: {', '.join(sorted(unknown))}")
    rows, failed = list[str](), 0
    async for scene, seen, seconds in besiege(
        [scene for scene in SCENES if not chosen or scene.name in chosen]
    ):
        held = "; ".join(dict.fromkeys(seen.violations)) or "held"
        slowest, peak = f"{seen.slowest_health * 1000:.0f} ms", f"{seen.peak_kb / 1000:.0f} MB"
        print(f"{scene.name:34} {seconds:4.0f} s  /health {slowest:>8}  {peak:>7}  {held}")
        rows.append(f"| {scene.name} | {slowest} | {peak} | {held.replace('|', '/')} |")
        failed += bool(seen.violations)
    print(f"{len(rows)} scenes, {failed} of them lost")
    if not chosen:
        head = ("| attack | slowest `/health` | most memory | |", "|---|---|---|---|")
        write_section("Siege", [f"{len(rows)} attacks, {failed} of them lost.", "", *head, *rows])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
