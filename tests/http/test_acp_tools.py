"""The client's tools over ACP: the relay is given with the session, and leave is given once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually
from tests.http.dialogue import BASH, READ, Dialogue, tool

pytestmark = pytest.mark.agents("acp")

LS = '[[relay:bash {"command": "ls"}]]'


def answers(fake: FakeAgent) -> list[Any]:
    """What it was answered when it asked for leave."""
    lines = (fake.home / "answers").read_text().splitlines()
    return [json.loads(line)["result"]["outcome"].get("optionId") for line in lines]


async def test_ten_steps_and_four_turns_take_one_process_and_one_session(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    steps = "".join(f'[[relay:bash {{"command": "step {n}"}}]]' for n in range(10))
    await talk.say(f"{steps}[[text:done]]")
    for number in range(10):
        assert talk.asked == [("bash", {"command": f"step {number}"})]
        last = await talk.bring(f"result {number}")
    assert last["content"] == "done"
    assert len(fake.rpcs("session/prompt")) == 1
    for word in ("a", "b", "c", "d"):
        assert (await talk.say(f"[[text:{word}]]"))["content"] == word
    assert len(fake.rpcs("session/new")) == 1
    assert len({run["pid"] for run in fake.runs()}) == 1
    assert set(answers(fake)) == {"allow-once"}


async def test_calls_that_are_made_at_once_go_out_together(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    burst = '[[announce:bash {"command": "a"}]][[announce:bash {"command": "a"}]]'
    await talk.say(f'{burst}[[relay:read {{"path": "b"}}]][[say-results]]')
    assert [name for name, _ in talk.asked] == ["bash", "bash", "read"]
    assert (await talk.bring("one", "two", "three"))["content"] == "one two three"
    assert len(fake.runs()) == 1


async def test_arguments_are_those_of_the_call_that_arrives(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("rewrites.json", json.dumps([["^ls$", "ls -l"]]))
    talk = Dialogue(client)
    await talk.say(f"{LS}[[say-result]]")
    assert talk.asked == [("bash", {"command": "ls -l"})]
    assert (await talk.bring("a.txt"))["content"] == "a.txt"


@pytest.mark.parametrize("switch", ["asks-nothing", "permissions-one-by-one", "many-in-flight"])
async def test_a_burst_is_made_however_leave_is_asked_for(
    client: Client, fake: FakeAgent, switch: str
) -> None:
    fake.put(switch)
    talk = Dialogue(client)
    await talk.say(f'[[announce:bash {{"command": "a"}}]]{LS}[[say-results]]')
    while talk.calls:
        last = await talk.bring(*[arguments["command"] for _, arguments in talk.asked])
    assert last["content"] == "a ls"
    assert len(fake.runs()) == 1


async def test_nothing_but_the_clients_tools_is_given_leave(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, [READ])
    acts = '[[own:shell {"command": "touch a"}]][[own:webFetch {"url": "x"}]]'
    await talk.say(f"{acts}[[own-server:notes find {{}}]][[text:Done.]]")
    assert set(answers(fake)) == {"reject-once"}
    config = fake.cursor / "cli-config.json"
    assert not config.exists() or "Shell" not in config.read_text()


async def test_a_tool_of_its_own_that_the_client_has_is_the_clients(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say('[[native:shell {"command": "ls"}]][[hang]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    await eventually(lambda: not fake.at_work())
    assert answers(fake) == ["reject-once"]


async def test_other_tools_are_another_session(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(f"{LS}[[then]][[text:all the same]]")
    talk.tools.append(tool("new"))
    assert (await talk.bring("a.txt"))["content"] == "all the same"
    assert len(fake.rpcs("session/new")) == 2


async def test_without_the_list_of_tools_calls_are_written(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.acp.session.LIST_SECONDS", 0.3)
    fake.put("never-lists")
    talk = Dialogue(client)
    await talk.say('[[call:bash {"command": "ls"}]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    last = fake.runs()[-1]
    assert last["servers"] == [] and last["chosen"]["mode"] == "agent"


async def test_a_list_that_comes_late_is_waited_for(client: Client, fake: FakeAgent) -> None:
    fake.put("late-list", "0.3")
    talk = Dialogue(client)
    await talk.say(f"{LS}[[say-result]]")
    assert talk.asked == [("bash", {"command": "ls"})]
    assert len(fake.runs()) == 1


async def test_a_client_that_takes_longer_than_the_clis_minute_is_waited_for(
    start: Start, fake: FakeAgent
) -> None:
    """The call is answered by a ticket, and nobody reads what the model asks for with it until the
    client is back."""
    async with start(relay_hold=0.3) as client:
        talk = Dialogue(client)
        await talk.say(f"[[patience:1]]{LS}[[say-result]]")
        await eventually(lambda: (fake.home / "waits").exists())
        assert (await talk.bring("at last"))["content"] == "at last"
    assert len(fake.runs()) == 1


async def test_bridged_tools_and_odd_names_work(client: Client) -> None:
    talk = Dialogue(client, [tool("mcp.server/do it"), BASH])
    listed = (await talk.say("[[say-tools]]"))["content"].split(",")
    await talk.say(f"[[relay:{listed[0]} {{}}]]")
    assert [name for name, _ in talk.asked] == ["mcp.server/do it"]


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        ("[[question:Which?|this|that]]", '{"outcome": {"outcome": "skipped"}}'),
        ("[[plan:All of it]]", '{"outcome": {"outcome": "accepted"}}'),
        ("[[subagent:Look]]", "{}"),
        ("[[ask-client:cursor/hologram {}]]", "-32601"),
    ],
)
async def test_whatever_it_asks_for_is_answered(client: Client, step: str, answer: str) -> None:
    assert answer in await client.content(f"{step}[[say-result]]")


async def test_only_what_is_told_of_can_be_a_loop(client: Client) -> None:
    answer = await client.answer('[[own:shell {"command": "ls"}]]' * 6 + "[[hang]]")
    assert answer["cursor_gateway"]["loop_guard"]["tool"] == "shell"
    assert await client.content("[[own:grep {}]]" * 6 + "[[text:Nothing.]]") == "Nothing."
