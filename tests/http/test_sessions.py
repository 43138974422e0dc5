"""Finished chats are taken up again with `--resume`, where they are surely the same."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually
from tests.http.dialogue import BASH, Dialogue
from tests.support.views import health_when, resumed

pytestmark = EITHER_AGENT


async def test_a_chat_goes_on_with_the_new_message_only(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    assert (await talk.say("[[text:second]]"))["content"] == "second"
    assert (await talk.say("[[text:third]]"))["content"] == "third"
    first, second, third = fake.runs()
    assert second["prompt"] == "[[text:second]]" and third["prompt"] == "[[text:third]]"
    assert first["cwd"] == second["cwd"] == third["cwd"]
    assert resumed(fake) == [False, True, True]


async def test_a_chat_with_tools_goes_on_after_the_relay(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say('[[relay:bash {"command": "ls"}]][[say-result]]')
    await talk.bring("a.txt")
    await talk.say('And now? [[relay:bash {"command": "pwd"}]][[say-result]]')
    assert talk.asked == [("bash", {"command": "pwd"})]
    assert (await talk.bring("/here"))["content"] == "/here"
    assert resumed(fake) == [False, True]
    assert fake.runs()[1]["prompt"].startswith("And now?")


async def test_results_of_written_calls_are_the_new_messages(start: Start, fake: FakeAgent) -> None:
    async with start(tool_channel="text") as client:
        talk = Dialogue(client)
        await talk.say('[[call:bash {"command": "ls"}]][[then]][[text:One file.]]')
        assert (await talk.bring("a.txt"))["content"] == "One file."
    second = fake.runs()[1]["prompt"]
    call = talk.messages[1]["tool_calls"][0]["id"]
    assert second == f'<tool_result id="{call}" tool="bash">\na.txt\n</tool_result>'


@pytest.mark.agents("cli")
async def test_two_chats_with_the_same_opening_never_cross(start: Start, fake: FakeAgent) -> None:
    async with start(transcripts="keep") as client:
        one, two = Dialogue(client, tools=[]), Dialogue(client, tools=[])
        await asyncio.gather(one.say("[[text:hello]]"), two.say("[[text:hello]]"))
        await asyncio.gather(one.say("[[text:I am one]]"), two.say("[[text:I am two]]"))
        await asyncio.gather(one.say("[[text:still one]]"), two.say("[[text:still two]]"))
    for run in fake.runs():
        chat = transcript(fake, run)
        assert not ("I am one" in chat and "I am two" in chat)


def transcript(fake: FakeAgent, run: dict[str, Any]) -> str:
    folder = hashlib.md5(run["cwd"].encode(), usedforsecurity=False).hexdigest()
    chats = list((fake.cursor / "chats" / folder).glob("*/store.db"))
    return max((chat.read_text() for chat in chats), key=len)


async def test_an_answer_asked_for_again_is_read_anew(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    await talk.say("[[text:second]]")
    talk.messages.pop()
    assert (await talk.send())["content"] == "second"
    assert resumed(fake) == [False, True, False]


@pytest.mark.parametrize("at", [0, 1])
async def test_an_edited_history_is_read_anew(client: Client, fake: FakeAgent, at: int) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    talk.messages[at]["content"] += " edited"
    assert (await talk.say("[[text:second]]"))["content"] == "second"
    assert resumed(fake) == [False, False]


@pytest.mark.parametrize(
    "change",
    [
        {"model": "composer-2.5"},
        {"headers": {"Authorization": "Bearer another"}},
        {"headers": {"X-Cursor-Session": "off"}},
    ],
)
async def test_another_model_or_key_takes_up_no_chat(
    client: Client, fake: FakeAgent, change: dict[str, Any]
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    talk.options = change
    await talk.say("[[text:second]]")
    assert resumed(fake) == [False, False]


@pytest.mark.agents("cli")
async def test_other_tools_take_up_no_chat(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    talk.tools = [BASH]
    await talk.say("[[text:second]]")
    assert resumed(fake) == [False, False]


@pytest.mark.agents("cli")
async def test_a_chat_that_the_agent_gives_another_id_is_replayed(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    fake.put("other-session", "1")
    assert (await talk.say("[[text:second]]"))["content"] == "second"
    assert resumed(fake) == [False, True, False]
    assert "first" in fake.runs()[2]["prompt"]


@pytest.mark.agents("cli")
async def test_a_chat_that_the_agent_cannot_open_is_replayed(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    fake.put("no-resume", "1")
    assert (await talk.say("[[text:second]]"))["content"] == "second"
    assert resumed(fake) == [False, True, False]


@pytest.mark.agents("cli")
async def test_a_chat_whose_store_is_gone_is_replayed(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        talk = Dialogue(client, tools=[])
        await talk.say("[[text:first]]")
        for chat in (fake.cursor / "chats").glob("*/*/store.db"):
            chat.unlink()
        await talk.say("[[text:second]]")
    assert resumed(fake) == [False, False]


async def test_a_refusal_of_the_account_is_no_reason_to_replay(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    status, error = await client.error(
        [*talk.messages, {"role": "user", "content": "[[play:fail_usage_limit]]"}]
    )
    assert (status, error["code"]) == (429, "quota_exceeded")
    assert resumed(fake) == [False, True]


async def test_an_answer_that_was_cut_short_is_not_taken_up(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, tools=[], options={"stop": ["STOP"]})
    assert (await talk.say("[[text:one STOP two]]"))["content"] == "one "
    await talk.say("[[text:next]]")
    assert resumed(fake) == [False, False]


async def test_reuse_can_be_switched_off(start: Start, fake: FakeAgent) -> None:
    fake.env["CURSOR_SESSION_REUSE"] = "0"
    async with start() as client:
        talk = Dialogue(client, tools=[])
        await talk.say("[[text:first]]")
        await talk.say("[[text:second]]")
    assert resumed(fake) == [False, False]


async def test_chats_expire_with_their_workspaces(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.workspaces.UNUSED_LAST", 0.1)
    async with start(session_ttl=0.2) as client:
        talk = Dialogue(client, tools=[])
        await talk.say("[[text:first]]")
        directory = Path(fake.runs()[0]["cwd"])
        await eventually(lambda: not directory.exists())
        assert (await client.get("/health"))[1]["sessions"]["chats"] == 0
        await talk.say("[[text:second]]")
    assert resumed(fake) == [False, False]


async def test_all_chats_expire_however_many_there_are(start: Start) -> None:
    async def chats() -> int:
        return int((await client.get("/health"))[1]["sessions"]["chats"])

    async with start(session_ttl=1.0) as client:
        for word in ("one", "two", "three"):
            await Dialogue(client, tools=[]).say(f"[[text:{word}]]")
        assert await chats() > 0
        await health_when(client, lambda state: not state["sessions"]["chats"])


async def test_the_directory_of_a_named_session_that_expired_is_given_to_one_run_only(
    start: Start, fake: FakeAgent
) -> None:
    """Such a chat is kept under two keys, and expires once."""
    name = {"role": "system", "content": f"Session: session-{uuid.uuid4()}"}
    async with start(session_ttl=0.3) as client:
        await client.content([name, {"role": "user", "content": "[[text:first]]"}])
        await health_when(client, lambda state: not state["sessions"]["chats"])
        await asyncio.gather(*(client.content(f"[[text:{word}]]") for word in ("one", "two")))
    _, one, two = fake.runs()
    assert one["cwd"] != two["cwd"]


async def test_a_named_session_may_send_only_what_is_new(client: Client, fake: FakeAgent) -> None:
    name = {"role": "system", "content": f"Session: session-{uuid.uuid4()}"}
    user = {"role": "user", "content": "[[text:first]]"}
    assert await client.content([name, user]) == "first"
    assert await client.content([name, user | {"content": "[[text:second]]"}]) == "second"
    other = name | {"content": f"Session: session-{uuid.uuid4()}"}
    assert await client.content([other, user]) == "first"
    changed = name | {"content": f"{name['content']}\nSpeak Latin."}
    assert await client.content([changed, user | {"content": "[[text:third]]"}]) == "third"
    assert resumed(fake) == [False, True, False, False]
    assert fake.runs()[1]["prompt"] == "[[text:second]]"


@pytest.mark.agents("cli")
async def test_images_of_a_chat_keep_their_names(client: Client, fake: FakeAgent) -> None:
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
    picture = {"type": "image_url", "image_url": {"url": pixel}}
    talk = Dialogue(client, tools=[])
    for text in ("[[text:one]]", "[[text:two]]"):
        talk.messages.append({"role": "user", "content": [{"type": "text", "text": text}, picture]})
        await talk.send()
    assert "image-2.gif" in fake.runs()[1]["prompt"]
    assert {"image-1.gif", "image-2.gif"} <= set(fake.runs()[1]["files"])


@pytest.mark.agents("cli")
async def test_a_link_that_an_agent_left_leads_nobody_out(
    client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    talk = Dialogue(client)
    await talk.say("[[text:first]]")
    folder = Path(fake.runs()[0]["cwd"]) / ".cursor"
    (folder / "mcp.json").unlink()
    (folder / "mcp.json").symlink_to(precious)
    await talk.say("[[text:second]]")
    assert resumed(fake) == [False, True]
    assert precious.read_text() == "mine"
