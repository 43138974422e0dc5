"""Spares: agents that are there before they are asked for."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FakeAgent, Start, eventually
from tests.http.dialogue import Dialogue
from tests.support.views import spare, warm


async def test_the_next_request_of_a_kind_is_answered_by_a_spare(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1) as client:
        assert await client.content("[[text:cold]]") == "cold"
        pid = await spare(client, fake)
        assert await client.content("[[text:warm]]") == "warm"
        assert fake.runs()[1]["pid"] == pid
        assert (await warm(client))["used"] == 1
        state = (await warm(client))["first_word_ms"]
        assert state["cold"] > 0 and state["spare"] > 0


async def test_a_chat_is_awaited_by_a_spare_that_knows_it(start: Start, fake: FakeAgent) -> None:
    async with start(warm=1) as client:
        talk = Dialogue(client)
        await talk.say("[[text:first]]")
        pid = await spare(client, fake)
        await talk.say('[[relay:bash {"command": "ls"}]][[say-result]]')
        assert (await talk.bring("a.txt"))["content"] == "a.txt"
        second = fake.runs()[1]
        assert second["pid"] == pid and "--resume" in second["argv"]


@pytest.mark.parametrize(
    "change", [{"model": "composer-2.5"}, {"headers": {"Authorization": "Bearer other"}}]
)
async def test_a_spare_serves_no_other_kind(
    start: Start, fake: FakeAgent, change: dict[str, Any]
) -> None:
    async with start(warm=1) as client:
        await client.content("[[text:one]]")
        pid = await spare(client, fake)
        assert await client.content("[[text:two]]", **change) == "two"
        assert fake.runs()[1]["pid"] != pid


async def test_there_are_never_more_spares_than_wanted(start: Start, fake: FakeAgent) -> None:
    async with start(warm=1) as client:
        for model in ("auto", "composer-2.5", "auto"):
            await client.content("[[text:x]]", model=model)
        await spare(client, fake)


async def test_a_spare_that_died_costs_nobody_anything(start: Start, fake: FakeAgent) -> None:
    async with start(warm=1) as client:
        await client.content("[[text:one]]")
        os.kill(await spare(client, fake), signal.SIGKILL)
        assert await client.content("[[text:two]]") == "two"


async def test_a_spare_that_dies_over_its_prompt_is_replaced_in_the_same_request(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1) as client:
        await client.content("[[text:one]]")
        await spare(client, fake)
        fake.put("config-race", "1")
        assert await client.content("[[text:two]]") == "two"


async def test_spares_expire_with_their_workspaces(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.cursor.warm.LIFETIME", 0.2)
    monkeypatch.setattr("cursor_gateway.workspaces.UNUSED_LAST", 0.1)
    async with start(warm=1, session_reuse=False) as client:
        await client.content("[[text:one]]")
        directory = Path(fake.runs()[0]["cwd"])
        await eventually(lambda: not fake.processes())
        await eventually(lambda: list(directory.parent.glob("run-*")) == [])


async def test_a_chat_that_is_forgotten_takes_its_spare_along(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1, session_ttl=1.0) as client:
        await Dialogue(client).say("[[text:first]]")
        directory = Path(fake.runs()[0]["cwd"])
        await spare(client, fake)
        await eventually(lambda: not fake.processes() and not directory.exists())


async def test_a_forgotten_chat_keeps_its_directory_until_its_spare_is_gone(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1, session_ttl=1.0) as client:
        await Dialogue(client).say("[[text:first]]")
        directory = Path(fake.runs()[0]["cwd"])
        pid = await spare(client, fake)
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: not directory.exists())
        assert pid not in fake.processes()


async def test_a_chat_that_is_forgotten_gets_no_spare_that_was_on_its_way(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1, slots=8) as client:
        # Each chat takes the place of one whose agent has not left it yet.
        talks = [Dialogue(client) for _ in range(16)]
        await asyncio.gather(*(talk.say("[[text:same]]") for talk in talks))
        await spare(client, fake)
        root = Path(fake.runs()[0]["cwd"]).parent
        await eventually(lambda: len(list(root.glob("run-*"))) == 1)


async def test_an_image_in_a_chat_whose_spare_has_none_starts_cold_once_the_spare_is_gone(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1) as client:
        talk = Dialogue(client)
        await talk.say("[[text:first]]")
        pid = await spare(client, fake)
        os.kill(pid, signal.SIGSTOP)
        pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
        text = {"type": "text", "text": "[[text:seen]]"}
        picture = {"type": "image_url", "image_url": {"url": pixel}}
        talk.messages.append({"role": "user", "content": [text, picture]})
        assert (await talk.send())["content"] == "seen"
        assert fake.runs()[1]["pid"] != pid and "--resume" in fake.runs()[1]["argv"]
        assert pid not in fake.processes()


async def test_spares_take_no_slot(start: Start, fake: FakeAgent) -> None:
    async with start(warm=2, slots=1, queue=0) as client:
        for model in ("auto", "composer-2.5"):
            await client.content("[[text:x]]", model=model)
        await eventually(lambda: len(fake.processes()) == 2)
        assert (await client.get("/health"))[1]["slots"]["busy"] == 0
        assert await client.content("[[text:x]]", model="gpt-5.3-codex") == "x"


async def test_without_spares_nothing_is_started_ahead(start: Start, fake: FakeAgent) -> None:
    async with start(warm=0) as client:
        await client.content("[[text:one]]")
        await eventually(lambda: not fake.processes())
        assert (await warm(client))["spares"] == 0
