"""Agents that are started ahead never make an answer slower, wherever the CLI boots."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from cursor_gateway.agents.cursor.version_facts import VersionFacts, read_facts, write_facts
from tests.conftest import Client, FakeAgent, Start, eventually
from tests.http.dialogue import Dialogue
from tests.support.views import health_when

pytestmark = pytest.mark.processes

# The real CLI takes 6 to 8 seconds. All is told by ratios.
BOOT = 0.8
VERSION = "2026.09.18-fake"


async def took(client: Client, text: str) -> float:
    """How long an answer takes."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await client.content(f"[[text:{text}]]") == text
    return loop.time() - began


async def warm(client: Client) -> dict[str, Any]:
    return dict((await client.get("/health"))[1]["warm"])


async def ready(client: Client) -> None:
    """Until an agent waits for the next request."""
    await health_when(client, lambda state: state["warm"]["spares"] == 1)


def versions(fake: FakeAgent) -> Path:
    return Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "versions"


def booted(fake: FakeAgent) -> list[str]:
    file = fake.home / "booted"
    return file.read_text().split() if file.exists() else []


async def until_booted(fake: FakeAgent, count: int) -> None:
    await eventually(lambda: len(booted(fake)) == count)


async def known_version(client: Client) -> None:
    await health_when(client, lambda state: state["agent"]["version"])


async def until_it_is_known_that_warm_starts_do_not_help(client: Client) -> int:
    """After how many answers."""
    for count in range(1, 12):
        cold = await took(client, f"answer {count}")
        if (await warm(client))["state"] == "no_help":
            return count
        await ready(client)
        # Only who had the time of a cold start shows whether it boots before its prompt.
        await asyncio.sleep(1.1 * cold)
    raise AssertionError(await warm(client))


async def test_a_cli_that_boots_once_it_has_its_prompt_answers_as_fast_as_the_first_time(
    start: Start, fake: FakeAgent
) -> None:
    fake.put("boots-after-prompt", str(BOOT))
    async with start(warm=1) as client:
        first = await took(client, "first")
        later = []
        for text in ("second", "third", "fourth"):
            await ready(client)
            later.append(await took(client, text))
        # Not each of them: a busy machine slows any of them down.
        assert median(later) < 1.25 * first
        assert len(fake.runs()) == 4


async def test_a_cli_that_boots_before_its_prompt_has_done_so_after_a_pause(
    start: Start, fake: FakeAgent
) -> None:
    fake.put("boots-before-prompt", str(BOOT))
    async with start(warm=1) as client:
        first = await took(client, "first")
        later = []
        for count in (2, 3, 4):
            await until_booted(fake, count)
            later.append(await took(client, f"answer {count}"))
        assert median(later) < 0.35 * first
        assert len(fake.runs()) == 4


async def test_an_agent_that_still_boots_when_it_is_asked_is_no_slower_than_another(
    start: Start, fake: FakeAgent
) -> None:
    fake.put("boots-before-prompt", str(BOOT))
    async with start(warm=1) as client:
        first = await took(client, "first")
        later = []
        for text in ("second", "third", "fourth"):
            await ready(client)
            later.append(await took(client, text))
        assert median(later) < 1.25 * first
        assert [run["pid"] for run in fake.runs()] == [int(pid) for pid in booted(fake)[:4]]


async def test_a_prompt_is_given_to_nobody_else_while_the_agent_lives_that_was_given_it(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1, first_event_timeout=4.0) as client:
        await took(client, "first")
        await ready(client)
        (pid,) = await eventually(lambda: len(fake.processes()) == 1 and fake.processes())
        os.kill(pid, signal.SIGSTOP)
        status, error = await client.error("[[text:second]]")
        assert (status, error["code"]) == (504, "agent_timed_out")
        assert "first_event_timeout" in error["message"]
        assert len(fake.runs()) == 1


async def test_who_dies_over_a_prompt_in_a_chat_is_replaced_by_one_outside_of_it(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1) as client:
        talk = Dialogue(client)
        await talk.say("[[text:first]]")
        await ready(client)
        fake.put("no-resume", "1")
        assert (await talk.say("[[text:second]]"))["content"] == "second"
        _, died, answered = fake.runs()
        assert "--resume" in died["argv"] and "--resume" not in answered["argv"]
        assert "[[text:first]]" in answered["prompt"]


async def test_where_they_do_not_help_no_agents_are_started_ahead_and_a_restart_forgets_nothing(
    start: Start, fake: FakeAgent
) -> None:
    fake.put("boots-after-prompt", str(BOOT))
    async with start(warm=1) as client:
        assert (await warm(client))["state"] == "unproven"
        # One slow start may have any reason.
        assert await until_it_is_known_that_warm_starts_do_not_help(client) > 3
        await eventually(lambda: not fake.processes())
        state = await warm(client)
        assert (state["starts_before_prompt"], state["spares"]) == (False, 0)
        assert "do not help with this version of the CLI and are not made" in state["reason"]
        await known_version(client)
    facts = read_facts(versions(fake), VERSION)
    assert facts.boots_before_prompt is False and facts.cold_start_s and facts.warm_start_s
    async with start(warm=1) as client:
        await known_version(client)
        state = await warm(client)
        assert state["state"] == "no_help" and state["first_word_ms"]["cold"] > 0
        await took(client, "cold")
        await eventually(lambda: not fake.processes())


async def test_an_update_of_the_cli_is_tried_anew(start: Start, fake: FakeAgent) -> None:
    write_facts(versions(fake), VERSION, VersionFacts(boots_before_prompt=False))
    async with start(warm=1) as client:
        await known_version(client)
        await took(client, "cold")
        await eventually(lambda: not fake.processes())
    fake.put("version", "2026.10.01-other")
    async with start(warm=1) as client:
        await known_version(client)
        assert (await warm(client))["state"] == "unproven"
        await took(client, "cold")
        await ready(client)


async def test_that_the_cli_has_updated_itself_is_noticed_without_being_asked(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.SIGN_IN_WATCH", 0.1)
    monkeypatch.setattr("cursor_gateway.account.VERSION_LASTS", 0.1)
    async with start() as client:
        await took(client, "before")
        await eventually(lambda: read_facts(versions(fake), VERSION).cold_start_s)
        fake.put("version", "2026.10.01-other")

        async def is_other() -> bool:
            await took(client, "after")
            return read_facts(versions(fake), "2026.10.01-other").cold_start_s is not None

        async with asyncio.timeout(30):
            while not await is_other():
                pass


async def test_that_they_help_is_said_once_it_was_seen(start: Start, fake: FakeAgent) -> None:
    fake.put("boots-before-prompt", str(BOOT))
    async with start(warm=1) as client:
        first = await took(client, "first")
        await until_booted(fake, 2)
        await asyncio.sleep(first)
        await took(client, "second")
        state = await warm(client)
        assert (state["state"], state["starts_before_prompt"]) == ("helps", True)
        assert state["first_word_ms"]["spare"] < state["first_word_ms"]["cold"] / 2


async def test_a_start_that_was_not_long_ago_says_nothing(start: Start, fake: FakeAgent) -> None:
    fake.put("boots-before-prompt", str(BOOT))
    async with start(warm=1) as client:
        for text in ("one", "two", "three", "four", "five"):
            await took(client, text)
        assert (await warm(client))["state"] == "unproven"


async def test_without_the_setting_that_is_the_reason(start: Start) -> None:
    async with start(warm=0) as client:
        state = await warm(client)
        assert (state["state"], state["reason"]) == ("off", "the setting `warm` is 0")
