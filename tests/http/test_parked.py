"""Tool calls whose client never comes back: their agents are counted, and give way to others."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from cursor_gateway.processes import linux, resources
from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually
from tests.http.dialogue import BASH, Dialogue
from tests.support.programs import gateway_process

pytestmark = pytest.mark.processes

FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -S -n 512 && exec "$@"', "sh")
TASK = '[[relay:bash {"command": "ls"}]][[text:It holds ]][[say-result]][[then]][[text:replayed]]'


async def sessions(client: Client) -> dict[str, Any]:
    return dict((await client.get("/health"))[1]["sessions"])


@EITHER_AGENT
async def test_the_agent_that_waited_longest_gives_way_to_the_next(
    start: Start, fake: FakeAgent
) -> None:
    async with start(slots=1, parked_per_slot=2) as client:
        talks = [Dialogue(client) for _ in range(4)]
        for talk in talks:
            await talk.say(TASK)
        state = await sessions(client)
        assert (state["parked"], state["most_parked"], state["gave_way"]) == (2, 2, 2)
        await eventually(lambda: len(fake.at_work()) == 2)
        assert (await talks[0].bring("a.txt"))["content"] == "replayed"
        assert (await talks[3].bring("a.txt"))["content"] == "It holds a.txt"


@EITHER_AGENT
async def test_where_none_may_wait_a_fresh_agent_reads_the_results(
    start: Start, fake: FakeAgent
) -> None:
    async with start(parked_per_slot=0) as client:
        talk = Dialogue(client)
        await talk.say(TASK)
        await eventually(lambda: not fake.at_work())
        assert (await talk.bring("a.txt"))["content"] == "replayed"


@EITHER_AGENT
async def test_short_of_memory_they_give_way_before_it_has_run_out(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(total=8_000_000_000, available=400_000_000)
    monkeypatch.setattr("psutil.virtual_memory", lambda: full)
    async with start() as client:
        for _ in range(3):
            await Dialogue(client).say(TASK)
        assert (await sessions(client))["parked"] == 1


def test_the_memory_of_a_container_is_what_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "CGROUPS", tmp_path)
    own = tmp_path / Path("/proc/self/cgroup").read_text().strip().rpartition("::/")[2]
    own.mkdir(parents=True, exist_ok=True)
    (own / "memory.max").write_text("2000000000\n")
    (own / "memory.current").write_text("1950000000\n")
    (own / "memory.stat").write_text("anon 1\ninactive_file 0\n")
    assert resources.shortage() == "memory"
    (own / "memory.stat").write_text("anon 1\ninactive_file 900000000\n")
    assert resources.shortage() == ""
    (own / "memory.max").write_text("max\n")
    assert resources.shortage() == ""


# A gateway as a process of its own, whose descriptors can be counted and limited


class Remote:
    def __init__(self, session: aiohttp.ClientSession, url: str, pid: int) -> None:
        self._session, self._url, self.pid = session, url, pid

    async def ask(self, prompt: str, **body: Any) -> tuple[int, dict[str, Any]]:
        asked = {"model": "auto", "messages": [{"role": "user", "content": prompt}]} | body
        async with self._session.post(f"{self._url}/chat/completions", json=asked) as response:
            return response.status, await response.json()

    async def health(self) -> dict[str, Any]:
        async with self._session.get(f"{self._url.removesuffix('/v1')}/health") as response:
            return dict(await response.json())

    async def has_a_warm_agent(self) -> bool:
        return bool((await self.health())["warm"]["spares"])

    async def has_asked_everything(self) -> bool:
        """Whether no question to the agent is under way: each holds descriptors for a while."""
        if not (await self.health())["agent"]["version"]:
            return False
        # The last one, which this waits for.
        async with self._session.get(f"{self._url}/models") as response:
            return response.status == 200

    async def leave_descriptors(self, count: int) -> None:
        await eventually(self.has_asked_everything)
        used = (await self.health())["descriptors"]["used"]
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (used + count, used + count))


@asynccontextmanager
async def gateway(fake: FakeAgent, *flags: str) -> AsyncIterator[Remote]:
    async with (
        gateway_process(fake, *flags, launcher=FEW_DESCRIPTORS) as (process, url),
        aiohttp.ClientSession() as session,
    ):
        yield Remote(session, url, process.pid)
        process.terminate()
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    await eventually(lambda: not fake.at_work())


def soft_limit(pid: int) -> int:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]


async def test_a_served_gateway_takes_more_descriptors_and_its_agents_do_not(
    fake: FakeAgent,
) -> None:
    async with gateway(fake) as remote:
        await remote.ask(TASK, tools=[BASH])
        assert (await remote.health())["descriptors"]["limit"] == soft_limit(remote.pid) > 512
        (agent,) = fake.processes()
        assert soft_limit(agent) == 512


async def test_waiting_agents_leave_descriptors_for_clients(fake: FakeAgent) -> None:
    async with gateway(fake, "--slots", "2", "--parked-per-slot", "100") as remote:
        await remote.leave_descriptors(30)
        for _ in range(8):
            assert (await remote.ask(TASK, tools=[BASH]))[0] == 200
        health = await remote.health()
        assert health["status"] == "ok" and health["sessions"]["gave_way"] > 0
        assert (await remote.ask("[[text:Hello]]"))[0] == 200


@pytest.mark.skipif(not linux.SHORTCUTS, reason="elsewhere descriptors are closed a moment later")
async def test_without_a_descriptor_for_a_start_an_agent_that_waits_gives_way(
    fake: FakeAgent,
) -> None:
    async with gateway(fake) as remote:
        await remote.ask(TASK, tools=[BASH])
        await remote.leave_descriptors(6)
        assert (await remote.ask("[[text:Hello]]"))[0] == 200
        assert (await remote.health())["sessions"]["parked"] == 0
        await remote.leave_descriptors(6)
        status, answer = await remote.ask("[[text:Hello]]")
        assert (status, answer["error"]["code"]) == (503, "out_of_resources")
        assert "ulimit -n" in answer["error"]["message"]


@EITHER_AGENT
async def test_a_spare_gives_way_before_an_agent_that_waits(fake: FakeAgent) -> None:
    async with gateway(fake, "--warm", "1") as remote:
        await remote.ask(TASK, tools=[BASH])
        await remote.ask("[[text:Hello]]")
        await eventually(remote.has_a_warm_agent)
        await remote.leave_descriptors(6)
        assert (await remote.ask("[[text:Hello]]", model="composer-2.5"))[0] == 200
        assert (await remote.health())["sessions"]["parked"] == 1
