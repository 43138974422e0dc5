"""`make siege` itself: it notices what it is there to notice."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from benchmarks.outside import Home
from benchmarks.siege import HEALTH_SECONDS, Besieged, Scene, play


async def played(tmp_path: Path, scene: Scene) -> list[str]:
    home = Home(tmp_path)
    home.install_fake_agent()
    return (await play(scene, home, seconds=2.0)).violations


async def nothing(besieged: Besieged) -> None:
    pass


async def test_a_gateway_that_nobody_attacks_holds(tmp_path: Path) -> None:
    assert await played(tmp_path, Scene("peace", nothing)) == []


async def test_a_gateway_that_stands_still_and_leaves_something_behind_does_not(
    tmp_path: Path,
) -> None:
    async def stop(besieged: Besieged) -> None:
        process = besieged.served.process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(HEALTH_SECONDS + 0.5)
        process.send_signal(signal.SIGCONT)
        leave = "sleep 600 >/dev/null 2>&1 &"
        await (await asyncio.create_subprocess_shell(leave, env=besieged.home.env)).wait()

    violations = await played(tmp_path, Scene("stopped", stop))
    assert [violation.split()[0] for violation in violations] == ["/health", "processes"]
