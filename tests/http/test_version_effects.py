"""What is known of a version of the CLI is heeded from the start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.agents.cursor.version_effects import relay_hold, warnings
from cursor_gateway.agents.cursor.version_facts import VersionFacts, write_facts
from cursor_gateway.settings import Settings
from tests.conftest import Client, FakeAgent, Start, eventually
from tests.http.dialogue import Dialogue
from tests.support.views import health_when


def know(fake: FakeAgent, **facts: Any) -> None:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "versions"
    write_facts(folder, "2026.09.18-fake", VersionFacts(**facts))


async def health(client: Client) -> dict[str, Any]:
    """Once the CLI has said which version it is."""
    return await health_when(client, lambda state: state["agent"]["version"])


async def test_a_version_that_does_not_fetch_the_relays_tools_gets_them_by_text_at_once(
    start: Start, fake: FakeAgent
) -> None:
    know(fake, fetches_relay_tools=False)
    async with start() as client:
        tools = (await health(client))["tools"]
        assert tools["channel"] == "text" and "doctor --live" in tools["reason"]
        await Dialogue(client).say("[[text:hello]]")
        (run,) = fake.runs()
        assert "--approve-mcps" not in run["argv"]


async def test_whoever_asks_for_the_relay_gets_it(start: Start, fake: FakeAgent) -> None:
    know(fake, fetches_relay_tools=False)
    async with start(tool_channel="relay") as client:
        assert (await health(client))["tools"]["channel"] == "relay"
        await Dialogue(client).say("[[text:hello]]")
        assert "--approve-mcps" in fake.runs()[0]["argv"]


async def test_a_call_is_answered_by_a_ticket_before_the_cli_gives_up(
    start: Start, fake: FakeAgent
) -> None:
    know(fake, relay_gives_up_s=0.5)
    async with start() as client:
        await health(client)
        talk = Dialogue(client)
        await talk.say('[[relay:bash {"command": "ls"}]][[say-result]]')
        await eventually(lambda: (fake.home / "waits").exists(), "there was no ticket")
        assert (await talk.bring("a.txt"))["content"] == "a.txt"


async def test_where_calls_come_one_by_one_nobody_waits_for_another(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.cursor.run.MOMENT", 600.0)
    know(fake, calls_at_once=1)
    async with start() as client, asyncio.timeout(60):
        await health(client)
        talk = Dialogue(client)
        await talk.say('[[relay:bash {"command": "ls"}]][[say-result]]')
        assert (await talk.bring("a.txt"))["content"] == "a.txt"


async def test_calls_that_come_at_once_all_the_same_are_neither_lost_nor_repeated(
    start: Start, fake: FakeAgent
) -> None:
    know(fake, calls_at_once=1)
    async with start() as client:
        await health(client)
        talk = Dialogue(client)
        message = await talk.say(
            '[[announce:bash {"command": "one"}]][[relay:bash {"command": "two"}]][[say-results]]'
        )
        made: list[str] = []
        while calls := message.get("tool_calls"):
            asked = [json.loads(call["function"]["arguments"])["command"] for call in calls]
            made += asked
            message = await talk.bring(*(f"did {command}" for command in asked))
        assert made == ["one", "two"] and message["content"] == "did one did two"
        assert len(fake.runs()) == 1


async def test_a_version_that_disobeys_is_warned_of(
    start: Start, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    know(fake, obeys_deny_list=False, calls_at_once=1)
    async with start() as client:
        state = await health(client)
        (warning,) = state["warnings"]
        assert "disobeys the deny list" in warning and "--isolate" in warning
        assert warning in caplog.messages
        assert state["version_facts"] == {"obeys_deny_list": False, "calls_at_once": 1}


def test_isolated_agents_need_no_warning() -> None:
    assert warnings(Settings(isolate=True), VersionFacts(obeys_deny_list=False)) == []


def test_a_hold_that_was_set_is_kept() -> None:
    impatient = VersionFacts(relay_gives_up_s=20.0)
    assert relay_hold(Settings(), impatient) == 16.0
    assert relay_hold(Settings(), VersionFacts(relay_gives_up_s=600.0)) == 50.0
    assert relay_hold(Settings(relay_hold=30.0), impatient) == 30.0
