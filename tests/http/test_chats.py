"""A chat is taken up only where it is known to be there, and by a CLI that has not lost one."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start, command_line, eventually
from tests.http.dialogue import Dialogue
from tests.support.views import health_when, healthy, resumed

# Enough for its loss to show in the tokens.
LONG = "word " * 2000


async def test_a_chat_without_a_store_is_not_taken_up(client: Client, fake: FakeAgent) -> None:
    fake.put("forgets", "frozen")
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    assert (await talk.say("[[text:second]]"))["content"] == "second"
    assert resumed(fake) == [False, False]
    assert "[[text:first]]" in fake.runs()[1]["prompt"]


async def test_a_chat_whose_store_did_not_grow_is_not_taken_up(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    fake.put("forgets", "frozen")
    await talk.say("[[text:second]]")
    await talk.say("[[text:third]]")
    assert resumed(fake) == [False, True, False]
    assert "[[text:first]]" in fake.runs()[2]["prompt"]


async def test_a_chat_that_is_kept_in_the_log_of_its_store_is_taken_up(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    fake.put("forgets", "frozen")
    write = "for chat in ~/.cursor/chats/*/*; do echo more >> $chat/store.db-wal; done"
    await talk.say(f"[[text:second]][[sh:{write}]]")
    await talk.say("[[text:third]]")
    assert resumed(fake) == [False, True, True]


async def test_an_agent_is_started_ahead_for_a_chat_only_if_it_is_there(
    start: Start, fake: FakeAgent
) -> None:
    def ahead() -> list[bytes]:
        """Their command lines, as soon as they are their own: a new process has another first."""
        return [line for line in map(command_line, fake.processes()) if b"--print" in line]

    for vice, is_resumed in ((None, True), ("frozen", False)):
        if vice is not None:
            fake.put("forgets", vice)
        async with start(warm=1) as client:
            await Dialogue(client).say("[[text:first]]")
            await health_when(client, lambda state: state["warm"]["spares"])
            lines = await eventually(ahead)
            assert any(b"--resume" in line for line in lines) is is_resumed


async def lose_a_chat(client: Client, fake: FakeAgent) -> dict[str, Any]:
    """Talk to a CLI that forgets; what /health says of chats then."""
    await healthy(client)  # it has said its version
    talk = Dialogue(client, tools=[])
    await talk.say(f"[[text:first]]{LONG}")
    fake.put("forgets")
    await talk.say("[[text:second]]")
    await talk.say("[[text:third]]")
    return dict((await client.get("/health"))[1]["sessions"])


async def test_a_cli_that_takes_up_a_chat_without_its_history_is_noticed(
    start: Start, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with start() as client:
            chats = await lose_a_chat(client, fake)
    assert resumed(fake) == [False, True, False]
    assert LONG.strip() in fake.runs()[2]["prompt"]
    assert (chats["resume"], chats["chats"]) == (False, 0) and "history" in chats["reason"]
    (line,) = [record.message for record in caplog.records if "not resumed" in record.message]
    assert "2026.09.18-fake" in line and LONG[:20] not in line


async def test_it_is_remembered_for_that_version(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        assert (await lose_a_chat(client, fake))["resume"] is False
    async with start() as client:
        await healthy(client)
        assert (await client.get("/health"))[1]["sessions"]["resume"] is False
    fake.put("version", "2026.12.01-fake")
    async with start() as client:
        await healthy(client)
        assert (await client.get("/health"))[1]["sessions"]["resume"] is True


async def test_a_long_chat_that_keeps_its_history_goes_on(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say(f"[[text:first]]{LONG}")
    await talk.say("[[text:second]]")
    await talk.say("[[text:third]]")
    assert resumed(fake) == [False, True, True]
    assert (await client.get("/health"))[1]["sessions"] == {
        "parked": 0,
        "most_parked": 40,
        "gave_way": 0,
        "chats": 1,
        "resume": True,
        "reason": None,
    }


async def test_an_answer_of_many_steps_makes_no_later_one_look_forgetful(
    client: Client, fake: FakeAgent
) -> None:
    """The CLI counts the tokens of all steps of a turn together."""
    talk = Dialogue(client, tools=[])
    many = '[[own:grep {"pattern": "x"}]][[own:read {"path": "/x"}]]'
    await talk.say(f"[[times:3]]{many}[[text:first]]{LONG}")
    await talk.say("[[text:second]]")
    await talk.say("[[text:third]]")
    assert resumed(fake) == [False, True, True]


async def test_switched_off_it_says_so(start: Start, fake: FakeAgent) -> None:
    async with start(session_reuse=False) as client:
        chats = (await client.get("/health"))[1]["sessions"]
    assert (chats["resume"], chats["reason"]) == (False, "session_reuse is off")
