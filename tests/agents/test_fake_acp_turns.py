"""The turns of the fake `cursor-agent acp`: words, failures, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import FakeAgent, eventually
from tests.support.acp_client import AcpClient, Json, Refused, started


@pytest.fixture
def agent_kind() -> str:
    return "acp"


@pytest.fixture
async def acp(fake: FakeAgent) -> AsyncIterator[AcpClient]:
    async with started(fake.env) as acp:
        yield acp


@pytest.fixture
async def session(acp: AcpClient, fake: FakeAgent, tmp_path: Path) -> str:
    fake.put("commands-take", "60")
    return await acp.session(tmp_path)


async def test_it_does_what_its_prompt_says(acp: AcpClient, session: str) -> None:
    assert await acp.prompt(session, "[[think:hm]] [[words:Hello world]]") == "end_turn"
    assert [each["sessionUpdate"] for each in acp.updates()] == [
        *("session_info_update", "agent_thought_chunk"),
        *("agent_message_chunk", "agent_message_chunk"),
    ]
    assert acp.text() == "Hello world" and acp.text(kind="agent_thought_chunk") == "hm"


async def test_without_steps_it_repeats_the_last_line(acp: AcpClient, session: str) -> None:
    await acp.prompt(session, "Say\n", "this")
    assert acp.text() == "this"


async def test_nothing_is_answered_with_nothing(acp: AcpClient, session: str) -> None:
    assert await acp.prompt(session, "") == "end_turn"
    assert acp.updates() == []


async def test_half_characters_are_escapes(acp: AcpClient, session: str) -> None:
    await acp.prompt(session, "[[cut:a😀]]")
    assert acp.text().encode("utf-16", "surrogatepass").decode("utf-16") == "a😀"


async def test_images_and_files_come_with_a_prompt(
    acp: AcpClient, session: str, fake: FakeAgent
) -> None:
    image = {"type": "image", "data": "eA==", "mimeType": "image/png"}
    resource = {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}
    blocks = [{"type": "text", "text": "[[text:hi]]"}, image, resource]
    await acp.ask("session/prompt", sessionId=session, prompt=blocks)
    (note,) = fake.runs()
    assert note["images"] == [image]
    assert note["prompt"].endswith("[ACP embedded_resource] file:///a\ninside")


async def test_unknown_things_are_among_the_known(
    acp: AcpClient, session: str, fake: FakeAgent
) -> None:
    acp.permits = lambda _: {"error": {"code": -32601, "message": "No"}}
    steps = '[[unknown]][[update:{"sessionUpdate": "state_update", "state": "idle"}]][[text:a]]'
    assert await acp.prompt(session, steps) == "end_turn"
    assert acp.updates("hologram") and acp.updates("state_update")
    assert "-32601" in (fake.home / "answers").read_text()


async def test_it_asks_its_client_for_more_than_permission(acp: AcpClient, session: str) -> None:
    acp.permits = lambda _: {"outcome": {"outcome": "skipped"}}
    steps = "[[question:Which?|a|b]][[plan:Do it]][[subagent:Look]][[say-results]]"
    await acp.prompt(session, steps)
    for method in ("cursor/ask_question", "cursor/create_plan", "cursor/task"):
        assert len(acp.requests(method)) == 1
    assert acp.updates("plan") and acp.text().count("skipped") == 3
    # Its requests have numbers of their own, which are those of ours as well.
    numbers = [each["id"] for each in acp.messages if "method" in each and "id" in each]
    assert numbers == [0, 1, 2]


# Failures


async def test_a_failure_of_the_backend_is_an_answer(acp: AcpClient, session: str) -> None:
    failing = "[[error-text:T: [resource_exhausted] Error]]"
    assert await acp.prompt(session, failing) == "end_turn"
    assert await acp.prompt(session, f"[[text:So]]{failing}") == "end_turn"
    error = "Error: T: [resource_exhausted] Error"
    assert acp.text() == f"{error}So\n\n{error}"


async def test_an_error_event_is_the_last_of_a_turn(acp: AcpClient, session: str) -> None:
    assert await acp.prompt(session, "[[error-event:No]][[text:never]]") == "end_turn"
    assert acp.text() == "Error: No"


async def test_it_fails_as_often_as_it_is_told(
    acp: AcpClient, session: str, fake: FakeAgent
) -> None:
    fake.put("flaky", "1")
    for _ in range(2):
        await acp.prompt(session, "[[flaky:Error: No.]][[text:Yes.]]")
    assert acp.text() == "Error: No.Yes."


@pytest.mark.parametrize(
    ("step", "data"),
    [
        ("fail-as-result:It broke", {"message": "It broke"}),
        ('rpc-error:-32603 [{"code": "bad"}]', [{"code": "bad"}]),
        ('rpc-error:-32603 {"details": "bad"}', {"details": "bad"}),
    ],
)
async def test_a_prompt_may_be_answered_with_an_error(
    acp: AcpClient, session: str, step: str, data: Json | list[Json]
) -> None:
    with pytest.raises(Refused) as refused:
        await acp.prompt(session, f"[[text:so]][[{step} ]]")
    found = refused.value.data
    assert found == data or found["message"].strip() == "It broke"
    await acp.prompt(session, "[[text:and on]]")


async def test_words_may_come_after_the_end(acp: AcpClient, session: str) -> None:
    await acp.prompt(session, "[[late-text:b]][[text:a]]")
    await eventually(lambda: acp.text() == "ab")
    assert acp.messages[-2]["result"] == {"stopReason": "end_turn"}


# Cancelling


async def cancelled(acp: AcpClient, session: str, steps: str = "[[hang]]") -> Json:
    """The answer of a turn that was cancelled after its first word."""
    asked = acp.begin_prompt(session, f"[[text:so]]{steps}")
    await eventually(lambda: acp.text(session) == "so")
    acp.tell("session/cancel", sessionId=session)
    async with asyncio.timeout(40):
        return await asked


async def test_a_cancelled_turn_stops_at_once_and_was_never_there(
    acp: AcpClient, session: str, fake: FakeAgent
) -> None:
    assert (await cancelled(acp, session))["result"] == {"stopReason": "cancelled"}
    assert fake.at_work() == []
    await acp.prompt(session, "[[nth:first|second]]")
    assert acp.text() == "sofirst"


@pytest.mark.parametrize("step", ["uncancelled", "deaf"])
async def test_a_turn_may_not_obey(acp: AcpClient, session: str, step: str) -> None:
    answer = await cancelled(acp, session, f"[[{step}]][[gap:0.1]][[text: what]]")
    assert answer["result"] == {"stopReason": "end_turn"} and acp.text() == "so what"


@pytest.mark.parametrize(
    ("manner", "ends"), [("as-end", "result"), ("as-error", "error"), ("late", "result")]
)
async def test_there_are_many_manners_of_stopping(
    acp: AcpClient, session: str, fake: FakeAgent, manner: str, ends: str
) -> None:
    fake.put("cancel", manner)
    assert ends in await cancelled(acp, session)
    if manner == "late":
        await eventually(lambda: acp.text() == "soAnd another thing.")


async def test_a_cancellation_may_be_ignored(acp: AcpClient, session: str, fake: FakeAgent) -> None:
    fake.put("cancel", "ignored")
    answer = await cancelled(acp, session, "[[gap:0.1]][[text: what]]")
    assert answer["result"] == {"stopReason": "end_turn"}


# More than one at a time


async def both(acp: AcpClient, fake: FakeAgent, tmp_path: Path) -> tuple[list[str], list[Json]]:
    """Two sessions, the first of which says its last word when the second has ended."""
    first, second = [await acp.session(tmp_path) for _ in range(2)]
    slow = acp.begin_prompt(first, "[[text:1]][[await:go]][[text:2]]")
    await eventually(lambda: acp.text() == "1")
    quick = acp.begin_prompt(second, "[[text:3]]")
    if fake.home.joinpath("overlap").exists():
        fake.put("go")
    async with asyncio.timeout(40):
        answers = [await quick]
        fake.put("go")
        answers.append(await slow)
    return [acp.text(first), acp.text(second)], answers


async def test_sessions_do_not_disturb_each_other(
    acp: AcpClient, fake: FakeAgent, tmp_path: Path
) -> None:
    texts, _ = await both(acp, fake, tmp_path)
    assert texts == ["12", "3"] and acp.text() == "132"


@pytest.mark.parametrize(
    ("manner", "texts"),
    [("waits", ["12", "3"]), ("fails", ["12", ""]), ("crosses", ["132", ""])],
)
async def test_sessions_may_disturb_each_other(
    acp: AcpClient, fake: FakeAgent, tmp_path: Path, manner: str, texts: list[str]
) -> None:
    fake.put("overlap", manner)
    found, answers = await both(acp, fake, tmp_path)
    assert ["".join(sorted(text)) for text in found] == ["".join(sorted(text)) for text in texts]
    assert ("error" in answers[0]) is (manner == "fails")


async def test_a_second_prompt_of_a_session_ends_with_the_first(
    acp: AcpClient, session: str, fake: FakeAgent
) -> None:
    first = acp.begin_prompt(session, "[[await:go]][[text:1]]")
    await eventually(lambda: len(fake.runs()) == 1)
    second = acp.begin_prompt(session, "[[text:2]]")
    await eventually(lambda: len(fake.runs()) == 2)
    assert not second.done()
    fake.put("go")
    async with asyncio.timeout(40):
        assert [(await each)["result"]["stopReason"] for each in (first, second)] == [
            *("end_turn", "end_turn")
        ]
    assert acp.text() == "1"
