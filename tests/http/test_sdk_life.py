"""The bridge's life: clients that leave, deaths in every phase, and what is left in the end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import Client, FakeAgent, Start, eventually, frames_of, text_of
from tests.http.dialogue import Dialogue
from tests.support.programs import gateway_process, streaming

pytestmark = [pytest.mark.agents("sdk"), pytest.mark.processes]

LS = '[[relay:bash {"command": "ls"}]]'


@pytest.mark.parametrize("prompt", ["[[hang]]", "[[text:Hello]][[slowly:100000]]"])
async def test_a_client_that_leaves_cancels_its_run(
    client: Client, fake: FakeAgent, prompt: str
) -> None:
    request = asyncio.ensure_future(client.frames(prompt))
    await eventually(lambda: fake.at_work())
    request.cancel()
    await eventually(lambda: fake.rpcs("DeleteAgent"))
    (run,) = fake.runs()
    assert fake.rpcs("CancelRun")[0]["runId"] == run["run"]
    assert not fake.at_work()
    assert fake.processes()


async def test_a_client_that_leaves_while_an_agent_is_created_leaves_none(
    client: Client, fake: FakeAgent
) -> None:
    await client.get("/v1/models")
    fake.put("takes-CreateAgent", "0.5")
    request = asyncio.ensure_future(client.frames("[[hang]]"))
    await eventually(lambda: is_at_work(client))
    request.cancel()
    await eventually(lambda: fake.rpcs("CloseAgent"))
    assert fake.rpcs("Send") == []


async def is_at_work(client: Client) -> bool:
    return bool((await client.get("/health"))[1]["slots"]["busy"])


async def test_a_run_that_cannot_be_cancelled_is_left(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.sdk.sending.END_SECONDS", 0.1)
    request = asyncio.ensure_future(client.frames("[[deaf]][[hang]]"))
    await eventually(lambda: fake.at_work())
    request.cancel()
    await eventually(lambda: fake.rpcs("CloseAgent"))


def kill_bridge(fake: FakeAgent) -> None:
    for pid in fake.processes():
        os.kill(pid, signal.SIGKILL)


async def test_a_bridge_that_dies_before_the_first_word_fails_its_runs_for_now(
    client: Client, fake: FakeAgent
) -> None:
    status, error = await client.error("[[die]]")
    assert (status, error["code"]) == (502, "agent_failed")
    assert await client.content("[[text:again]]") == "again"
    assert (await client.get("/health"))[1]["bridge"]["restarts"] == 1


async def test_one_that_dies_after_it_ends_the_stream_with_an_error(client: Client) -> None:
    async with client.chat("[[text:Hello]][[gap:0.2]][[die]]", stream=True) as response:
        frames = [frame async for frame in frames_of(response)]
    assert text_of(frames[:-1]) == "Hello"
    assert "error" in frames[-1]


async def test_all_of_its_runs_fail_and_the_next_bridge_serves(
    client: Client, fake: FakeAgent
) -> None:
    asked = [asyncio.ensure_future(client.error(f"[[hang]]{n}")) for n in range(3)]
    await eventually(lambda: len(fake.at_work()) == 3)
    kill_bridge(fake)
    assert {(await each)[0] for each in asked} == {502}
    assert await client.content("[[text:again]]") == "again"


async def test_a_run_that_waits_is_replayed_when_its_bridge_has_died(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"{LS}[[then]][[text:all the same]]")
    kill_bridge(fake)
    assert (await talk.bring("a.txt"))["content"] == "all the same"


async def test_one_that_dies_with_the_result_is_replayed(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(f"{LS}[[die]][[then]][[text:all the same]]")
    assert (await talk.bring("a.txt"))["content"] == "all the same"


async def test_a_chat_whose_bridge_has_died_is_replayed(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, [])
    await talk.say("[[text:one]]")
    kill_bridge(fake)
    assert (await talk.say("[[text:two]]"))["content"] == "two"
    assert "[[text:one]]" in fake.rpcs("Send")[-1]["message"]["text"]


@pytest.mark.parametrize("method", ["CreateAgent", "Send", "GetVersion", "SetToolCallback", "Me"])
async def test_it_may_die_at_any_request(start: Start, fake: FakeAgent, method: str) -> None:
    fake.put("dies-in", method)
    async with start() as client:
        await client.answer("[[text:hi]]")
        assert await eventually(lambda: answer_of(client)) == "hi"


async def answer_of(client: Client) -> str:
    answer = await client.answer("[[text:hi]]")
    return str(answer["choices"][0]["message"]["content"]) if "choices" in answer else ""


async def test_one_that_dies_again_and_again_is_started_less_often(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.sdk.bridge.BACK_OFF", (0.0, 3600.0))
    fake.put("dies-at-start", "no")
    async with start() as client:
        for number in range(4):
            status, error = await client.error(f"[[text:hi]]{number}")
            assert (status, error["code"]) == (502, "agent_failed")


async def test_nothing_is_left_when_the_gateway_ends(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        asyncio.ensure_future(client.error("[[grandchild]][[hang]]"))  # noqa: RUF006
        talk = Dialogue(client)
        await talk.say(LS)
        await client.content("[[text:a chat]]")
        home = Path(fake.runs()[0]["argv"][3]).parent
        assert home.exists()
    assert not home.exists()
    assert not fake.processes()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_is_left_of_a_gateway_that_is_killed(
    fake: FakeAgent, end: signal.Signals
) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[text:Hello]][[hang]]") as response,
    ):
        await response.content.readline()
        assert fake.processes()
        process.send_signal(end)
        if end is signal.SIGTERM:
            process.send_signal(end)
        await process.wait()
        await eventually(lambda: not fake.processes())
    await eventually(lambda: not list((fake.home / "tmp").glob("cursor-gateway-*")))


async def test_serve_says_what_is_missing(fake: FakeAgent) -> None:
    del fake.env["CURSOR_API_KEY"]
    async with gateway_process(fake) as (_, url), aiohttp.ClientSession() as session:
        async with session.get(url.removesuffix("v1") + "health") as response:
            health: dict[str, Any] = await response.json()
        assert "CURSOR_API_KEY" in health["error"]["message"]
    assert "CURSOR_API_KEY" in (fake.home / "log").read_text()
