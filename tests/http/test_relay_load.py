"""Two hundred agents that wait for results at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.conftest import EITHER_AGENT, FakeAgent, eventually
from tests.http.dialogue import BASH
from tests.support.programs import gateway_process

RUNS = 200
CALL = '[[relay:bash {"command": "ls"}]]'
BODY = {"model": "auto", "messages": [{"role": "user", "content": CALL}], "tools": [BASH]}


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@EITHER_AGENT
async def test_two_hundred_parked_runs_cost_little_and_leave_nothing(fake: FakeAgent) -> None:
    flags = ("--slots", "8", "--parked-per-slot", "25", "--queue", "1000", "--session-ttl", "60")
    async with (
        gateway_process(fake, *flags) as (process, url),
        aiohttp.ClientSession() as session,
    ):

        async def park() -> None:
            async with session.post(f"{url}/chat/completions", json=BODY) as response:
                answer = await response.json()
                assert answer["choices"][0]["finish_reason"] == "tool_calls"

        async def parked() -> int:
            async with session.get(f"{url.removesuffix('/v1')}/health") as response:
                return int((await response.json())["sessions"]["parked"])

        await asyncio.gather(*(park() for _ in range(8)))
        before = resident_kb(process.pid)
        await asyncio.gather(*(park() for _ in range(RUNS - 8)))
        assert await parked() == RUNS
        assert (resident_kb(process.pid) - before) / (RUNS - 8) < 200
        process.terminate()
        assert await process.wait() == 0
    await eventually(lambda: not fake.at_work())
    assert list((fake.home / "tmp").iterdir()) == []


async def test_parked_runs_that_expire_leave_no_descriptor(fake: FakeAgent) -> None:
    async with (
        gateway_process(fake, "--session-ttl", "0.5") as (process, url),
        aiohttp.ClientSession() as session,
    ):

        async def park() -> None:
            async with session.post(f"{url}/chat/completions", json=BODY) as response:
                await response.read()

        await park()
        await eventually(lambda: not fake.at_work())
        before = descriptors(process.pid)
        await asyncio.gather(*(park() for _ in range(20)))
        await eventually(lambda: not fake.at_work())
        await session.connector.close()  # type: ignore[union-attr]
        await eventually(lambda: descriptors(process.pid) <= before)
