"""The life of ACP processes: clients that leave, deaths in every phase, and what is left."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually, frames_of, text_of
from tests.http.dialogue import Dialogue

pytestmark = [pytest.mark.agents("acp"), pytest.mark.processes]

LS = '[[relay:bash {"command": "ls"}]]'


def stores(fake: FakeAgent) -> list[Path]:
    return sorted((fake.cursor / "acp-sessions").glob("*"))


def living(fake: FakeAgent) -> set[int]:
    return set(fake.processes()) & {run["pid"] for run in fake.runs()}


@pytest.mark.parametrize("prompt", ["[[hang]]", "[[text:Hello]][[slowly:100000]]"])
async def test_a_client_that_leaves_cancels_its_prompt(
    client: Client, fake: FakeAgent, prompt: str
) -> None:
    request = asyncio.ensure_future(client.frames(prompt))
    await eventually(lambda: fake.at_work())
    request.cancel()
    await eventually(lambda: not fake.processes())
    (run,) = fake.runs()
    assert fake.rpcs("session/cancel") == [{"sessionId": run["session"]}]
    await eventually(lambda: not stores(fake))


async def test_one_that_does_not_obey_is_killed(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.acp.session.CANCEL_SECONDS", 0.1)
    monkeypatch.setattr("cursor_gateway.agents.acp.launch.LINGER_GRACE", 0.1)
    request = asyncio.ensure_future(client.frames("[[deaf]][[grandchild]][[hang]]"))
    await eventually(lambda: fake.at_work())
    request.cancel()
    await eventually(lambda: not fake.processes())


async def test_a_client_that_leaves_while_a_session_is_made_leaves_none(
    client: Client, fake: FakeAgent
) -> None:
    await client.get("/v1/models")
    fake.put("takes-session-new", "5")
    request = asyncio.ensure_future(client.frames("[[hang]]"))
    await eventually(lambda: fake.rpcs("session/new"))
    request.cancel()
    await eventually(lambda: not fake.processes())
    assert fake.rpcs("session/prompt") == []


async def test_a_cancelled_conversation_is_replayed_whole(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, [])
    await talk.say("[[text:one]]")
    asked = [*talk.messages, {"role": "user", "content": "[[hang]]"}]
    request = asyncio.ensure_future(client.frames(asked))
    await eventually(lambda: fake.at_work())
    request.cancel()
    await eventually(lambda: not fake.processes())
    assert (await talk.say("[[text:two]]"))["content"] == "two"
    assert "[[text:one]]" in fake.runs()[-1]["prompt"]
    assert len(fake.rpcs("session/new")) == 2


async def test_a_finished_one_stays_for_its_conversation_and_goes_with_it(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client:
        await client.content("[[text:hi]]")
        (run,) = fake.runs()
        assert living(fake) == {run["pid"]}
        assert [store.name for store in stores(fake)] == [run["session"]]
    assert not fake.processes() and not stores(fake)


async def test_its_stdin_is_closed_first(start: Start, fake: FakeAgent) -> None:
    async with start(session_reuse=False) as client:
        await client.content("[[text:hi]]")
        # One that is killed leaves its mark.
        await eventually(lambda: not list((fake.home / "acp-processes").glob("*")))


async def test_one_that_lingers_is_ended(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.acp.launch.LINGER_GRACE", 0.1)
    async with start(session_reuse=False) as client:
        await client.content("[[linger]][[text:hi]]")
        await eventually(lambda: not living(fake))


async def test_a_death_before_the_first_word_is_a_status(client: Client) -> None:
    status, error = await client.error("[[half-line]]")
    assert (status, error["code"]) == (502, "agent_failed")


async def test_a_death_after_it_ends_the_stream_with_an_error(client: Client) -> None:
    async with client.chat("[[text:Hello]][[gap:0.2]][[half-line]]", stream=True) as response:
        frames = [frame async for frame in frames_of(response)]
    assert text_of(frames[:-1]) == "Hello"
    assert "error" in frames[-1]


async def kill(fake: FakeAgent) -> None:
    """Until the gateway has noticed: then they are no zombies any more."""
    pids = living(fake)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


async def test_a_chat_whose_process_has_died_is_loaded(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, [])
    await talk.say("[[think:Hm]][[text:one]]")
    await kill(fake)
    assert (await talk.say("[[text:two]]"))["content"] == "two"
    (load,) = fake.rpcs("session/load")
    first, second = fake.runs()
    assert load["sessionId"] == first["session"] == second["session"]
    assert second["prompt"] == "[[text:two]]" and load["cwd"] == first["cwd"]
    assert second["chosen"]["mode"] == "ask"


@pytest.mark.parametrize("vice", ["no-resume", "ignores"])
async def test_one_that_cannot_be_loaded_is_replayed(
    client: Client, fake: FakeAgent, vice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.acp.session.LOAD_SECONDS", 0.3)
    talk = Dialogue(client, [])
    await talk.say("[[text:one]]")
    await kill(fake)
    fake.put(vice, "1" if vice == "no-resume" else "session-load")
    assert (await talk.say("[[text:two]]"))["content"] == "two"
    assert "[[text:one]]" in fake.runs()[-1]["prompt"]


async def test_a_chat_without_a_process_or_a_store_is_replayed(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, [])
    await talk.say("[[text:one]]")
    await kill(fake)
    (store,) = stores(fake)
    (store / "store.db").unlink()
    assert (await talk.say("[[text:two]]"))["content"] == "two"
    assert fake.rpcs("session/load") == []


async def test_of_many_chats_the_oldest_end_their_processes_and_are_loaded(
    start: Start, fake: FakeAgent
) -> None:
    async with start(slots=1) as client:
        talks = [Dialogue(client, []) for _ in range(3)]
        for number, talk in enumerate(talks):
            await talk.say(f"[[text:first {number}]]")
        await eventually(lambda: len(living(fake)) == 1)
        assert len(stores(fake)) == 3
        for number, talk in enumerate(talks):
            assert (await talk.say(f"[[text:more {number}]]"))["content"] == f"more {number}"
    assert len(fake.rpcs("session/new")) == 3 and len(fake.rpcs("session/load")) >= 2


async def test_a_run_that_waits_is_replayed_when_its_process_has_died(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"{LS}[[then]][[text:all the same]]")
    await kill(fake)
    assert (await talk.bring("a.txt"))["content"] == "all the same"


async def test_one_that_dies_with_the_result_is_replayed(client: Client) -> None:
    talk = Dialogue(client)
    await talk.say(f"{LS}[[exit:1]][[then]][[text:all the same]]")
    assert (await talk.bring("a.txt"))["content"] == "all the same"


async def test_words_that_come_too_late_are_of_no_other_answer(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, [])
    assert (await talk.say("[[late-text:Oops.]][[text:one]]"))["content"] == "one"
    assert (await talk.say("[[gap:0.1]][[text:two]]"))["content"] == "two"
    assert len(fake.rpcs("session/new")) == 1


# Where it works


@pytest.mark.parametrize("may", ["ask", "agent"])
async def test_in_a_real_workspace_it_may_do_what_the_user_has_set(
    start: Start, fake: FakeAgent, tmp_path: Path, may: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with start(workspace=str(project), agent_mode=may) as client:
        await client.content("[[act:touch a]][[text:hi]]")
        (run,) = fake.runs()
        assert (run["cwd"], run["chosen"]["mode"]) == (str(project), may)
        assert [store.name for store in stores(fake)] == [run["session"]]
    assert list(project.iterdir()) == [] and not stores(fake)


# Warm sessions


async def test_a_warm_session_is_made_for_the_kind_that_was_seen(
    start: Start, fake: FakeAgent
) -> None:
    async with start(warm=1) as client:
        await client.content("[[text:one]]")
        await eventually(lambda: len(fake.rpcs("session/new")) == 2)
        await eventually(lambda: warm(client))
        assert await client.content("[[text:two]]") == "two"
        first, second = fake.runs()
        assert first["pid"] != second["pid"]
        _, health = await client.get("/health")
        assert health["warm"]["used"] == 1
    assert not fake.processes() and not stores(fake)


async def warm(client: Client) -> bool:
    return bool((await client.get("/health"))[1]["warm"]["spares"])


async def test_a_warm_one_has_the_tools_and_knows_them(start: Start, fake: FakeAgent) -> None:
    async with start(warm=1) as client:
        await Dialogue(client).say("[[text:one]]")
        await eventually(lambda: warm(client))
        talk = Dialogue(client)
        await talk.say(f"{LS}[[say-result]]")
        assert talk.asked == [("bash", {"command": "ls"})]
        assert (await talk.bring("a.txt"))["content"] == "a.txt"


async def test_a_warm_one_that_died_has_a_successor(start: Start, fake: FakeAgent) -> None:
    async with start(warm=1) as client:
        await client.content("[[text:one]]")
        await eventually(lambda: warm(client))
        fake.put("dies-in", "session-prompt")
        assert await client.content("[[text:two]]") == "two"


async def test_a_gateway_that_ends_waits_for_nobody_who_is_deaf(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.acp.session.CANCEL_SECONDS", 0.1)
    async with start() as client:
        asyncio.ensure_future(client.error("[[deaf]][[hang]]"))  # noqa: RUF006
        await eventually(lambda: fake.at_work())
    assert not fake.processes() and not stores(fake)
