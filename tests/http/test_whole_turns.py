"""A turn whose text is whole is an answer, also where the CLI never writes its `result`."""

from __future__ import annotations

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually, text_of
from tests.http.dialogue import Dialogue
from tests.support.views import resumed

WHOLE = "[[text:All ]][[text:done.]][[end-turn]]"


@pytest.fixture(autouse=True)
def brief_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursor_gateway.agents.cursor.timeouts.END_OF_TURN_GRACE", 0.2)


@pytest.mark.parametrize(
    "then",
    [
        "[[hang]]",
        "[[notify:task_notification]][[notify:background_shell_timeout]][[hang]]",
        "[[nag:background_shell_timeout]]",
        "[[close-stdout]][[hang]]",
        "[[exit:0]]",
    ],
)
async def test_a_whole_turn_without_result_is_an_answer(client: Client, then: str) -> None:
    answer = await client.answer(WHOLE + then)
    [choice] = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("All done.", "stop")
    assert answer["usage"]["estimated"] is True


async def test_its_stream_ends_as_any_other(client: Client) -> None:
    frames = await client.frames(f"{WHOLE}[[hang]]")
    assert text_of(frames) == "All done."
    assert frames[-2]["choices"][0]["finish_reason"] == "stop" and frames[-1] == "[DONE]"


async def test_the_background_shell_ends_with_it(client: Client, fake: FakeAgent) -> None:
    shell = "[[text:Starting.]][[background-shell:sleep 600]]"
    assert (await client.content(f"{shell}{WHOLE}[[hang]]")).endswith("All done.")
    await eventually(lambda: not fake.at_work())


async def test_a_recording_of_it_is_an_answer(client: Client) -> None:
    assert (await client.content("[[play:background_shell_no_result]]")).endswith(
        "The server runs."
    )


async def test_a_result_that_comes_a_little_later_counts(client: Client) -> None:
    answer = await client.answer(f"{WHOLE}[[notify:task_notification]]")
    assert "estimated" not in answer["usage"]


async def test_a_turn_that_goes_on_after_all_is_read_to_its_end(start: Start) -> None:
    """An older CLI repeats its text this way before a tool, too."""
    async with start() as client:
        going_on = "[[tool:read]][[sh:sleep 0.5]][[text:More.]]"
        assert (await client.content(WHOLE + going_on)).endswith("More.")


async def test_an_agent_that_thinks_about_results_has_not_ended_its_turn(client: Client) -> None:
    """Also where the call was not announced, so that nothing followed its last words."""
    call = '[[relay-silently:bash {"command": "ls"}]][[sh:sleep 0.5]][[say-result]]'
    talk = Dialogue(client)
    await talk.say(WHOLE + call)
    assert (await talk.bring("a.txt"))["content"] == "a.txt"


@pytest.mark.parametrize(
    "unfinished", ["[[text:All ]][[hang]]", "[[text:All]][[tool:read]][[hang]]"]
)
async def test_a_turn_that_did_not_end_is_still_given_up(start: Start, unfinished: str) -> None:
    async with start(idle_timeout=0.3) as client:
        status, error = await client.error(unfinished)
        assert (status, error["code"]) == (504, "agent_timed_out")


async def test_an_agent_that_died_after_its_turn_has_failed(client: Client) -> None:
    status, error = await client.error(f"{WHOLE}[[stderr:Segmentation fault]][[exit:3]]")
    assert (status, error["code"]) == (502, "agent_failed")


async def test_its_chat_is_not_taken_up(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say(f"{WHOLE}[[hang]]")
    await talk.say("[[text:second]]")
    assert resumed(fake) == [False, False]
