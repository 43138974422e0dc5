"""The relay and the CLI as it was seen: it is late, it rewrites calls, it overhears news."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually, frames_of, text_of
from tests.http.dialogue import BASH, READ, Dialogue, tool

LS = '[[relay:bash {"command": "ls"}]]'
GREP = tool("grep", pattern={"type": "string"})
RTK = '[["^(.)", "rtk \\\\1"]]'


def begin(command: str) -> str:
    return f'[[begin:bash {{"command": "{command}"}}]]'


def announce(command: str) -> str:
    return f'[[announce:bash {{"command": "{command}"}}]]'


def relay(command: str) -> str:
    return f'[[relay:bash {{"command": "{command}"}}]]'


def commands(talk: Dialogue) -> list[str]:
    return [arguments["command"] for _, arguments in talk.asked]


async def executed(talk: Dialogue) -> list[str]:
    """The commands that a client executes until there are none, each with a result of its own."""
    done: list[str] = []
    while talk.calls:
        done += commands(talk)
        await talk.bring(*(f"{command}{len(done)}" for command in commands(talk)))
    return done


async def channel(client: Client) -> str:
    return str((await client.get("/health"))[1]["tools"]["channel"])


# Calls that a hook of the user's rewrites


async def test_a_rewritten_call_is_executed_once_as_it_arrived(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("rewrites.json", RTK)
    talk = Dialogue(client)
    await talk.say(f"{LS}[[say-result]]")
    assert commands(talk) == ["rtk ls"]
    assert (await talk.bring("a.txt"))["content"] == "a.txt"
    assert len(fake.runs()) == 1


async def test_rewritten_calls_made_at_once_are_executed_once_each_as_they_arrive(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("rewrites.json", RTK)
    talk = Dialogue(client)
    await talk.say(f"{announce('a')}{announce('a')}{relay('b')}[[say-results]]")
    assert await executed(talk) == ["rtk a", "rtk a", "rtk b"]
    assert talk.messages[-1]["content"] == "rtk a1 rtk a2 rtk b3"
    assert len(fake.runs()) == 1


async def test_a_call_that_was_handed_out_before_it_was_rewritten_is_not_executed_again(
    client: Client, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    fake.put("rewrites.json", '[["^b", "rtk b"]]')
    talk = Dialogue(client)
    await talk.say(f"{announce('a')}{relay('b')}[[say-results]]")
    assert commands(talk) == ["a", "b"]
    assert (await talk.bring("one", "two"))["content"] == "one two"
    assert talk.asked == []
    assert "rewritten" in caplog.text
    # From now on what is announced is not taken for what will arrive.
    another = Dialogue(client)
    await another.say(f"{announce('a')}{relay('b')}[[say-results]]")
    assert commands(another) == ["a"]
    await another.bring("one")
    assert commands(another) == ["rtk b"]
    assert (await another.bring("two"))["content"] == "one two"


async def test_a_refused_call_beside_a_rewritten_one_is_not_handed_out(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("rewrites.json", RTK)
    talk = Dialogue(client)
    await talk.say(f'[[relay-refused:bash {{"command": "a"}}]]{relay("b")}[[say-results]]')
    assert commands(talk) == ["rtk b"]
    assert "rejected" in (await talk.bring("two"))["content"]


# Calls made at once, with time between them


@pytest.mark.parametrize("habit", ["none", "new-model-call-ids", "many-in-flight"])
async def test_a_gap_between_calls_made_at_once_loses_and_repeats_nothing(
    client: Client, fake: FakeAgent, habit: str
) -> None:
    fake.put(habit)
    talk = Dialogue(client)
    await talk.say(f"{begin('a')}[[gap:0.5]]{announce('a')}[[gap:0.5]]{relay('b')}[[say-results]]")
    assert await executed(talk) == ["a", "a", "b"]
    assert talk.messages[-1]["content"].split() == [
        message["content"] for message in talk.messages if message["role"] == "tool"
    ]
    assert len(fake.runs()) == 1


async def test_calls_made_at_once_go_out_together_whatever_their_model_call_ids(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("new-model-call-ids")
    talk = Dialogue(client)
    await talk.say(f"{announce('a')}{announce('b')}{relay('c')}[[say-results]]")
    assert commands(talk) == ["a", "b", "c"]
    assert (await talk.bring("1", "2", "3"))["content"] == "1 2 3"
    native = '[[native:shell {"command": "a"}]][[native:shell {"command": "b"}]][[hang]]'
    await talk.say(native)
    assert commands(talk) == ["a", "b"]


# An agent that comes late


async def test_a_list_that_comes_after_the_first_words_is_waited_for(
    client: Client, fake: FakeAgent
) -> None:
    script = f"[[late-list]][[text:Hm. ]][[await:go]][[list]]{LS}"
    async with client.chat(script, tools=[BASH], stream=True) as response:
        frames = frames_of(response)
        said = ""
        while not said:
            said = text_of([await anext(frames)])
        # The words are with the client, and the agent has no tools yet: it is kept all the same.
        fake.put("go")
        rest = [frame async for frame in frames]
    assert said == "Hm. " and "tool_calls" in str(rest)
    assert len(fake.runs()) == 1
    assert await channel(client) == "relay"


async def test_an_agent_that_connects_seconds_after_its_first_words_keeps_the_relay(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    # Longer than a second, which was all that it got once.
    answer = await talk.say(f"[[late-mcp:1.3]][[text:Hm. ]]{LS}[[say-result]]")
    assert (answer["content"], commands(talk)) == ("Hm. ", ["ls"])
    assert (await talk.bring("a.txt"))["content"] == "a.txt"
    assert len(fake.runs()) == 1
    assert await channel(client) == "relay"


async def test_an_agent_that_never_connects_and_never_ends_is_replaced(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.cursor.run.CONTACT_GRACE", 0.3)
    fake.put("no-mcp")
    async with start() as client:
        talk = Dialogue(client)
        # The second one has the tools in its prompt, and that has words for them.
        fake.put("habits.json", '[["", "[[text:x]][[hang]]"]]')
        asked = asyncio.ensure_future(talk.say("What is there?"))
        await eventually(fake.runs)
        fake.put("habits.json", '[["", "[[text:by text]]"]]')
        assert (await asked)["content"] == "by text"
    assert ["--approve-mcps" in run["argv"] for run in fake.runs()] == [True, False]


async def test_only_so_much_is_held_back_for_an_agent_that_never_connects(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.cursor.run.CONTACT_GRACE", 600.0)
    monkeypatch.setattr("cursor_gateway.agents.cursor.run.MOST_HELD", 5)
    fake.put("no-mcp")
    async with start() as client, asyncio.timeout(60):
        talk = Dialogue(client)
        fake.put("habits.json", '[["", "[[many:200000]][[hang]]"]]')
        asked = asyncio.ensure_future(talk.say("What is there?"))
        await eventually(fake.runs)
        fake.put("habits.json", '[["", "[[text:by text]]"]]')
        assert (await asked)["content"] == "by text"


async def test_an_agent_that_fails_before_it_connects_has_failed(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("no-mcp")
    limit = "[[stderr:Error: You've hit your usage limit]][[exit:1]]"
    status, error = await client.error(f"[[text:Hm.]]{limit}", tools=[BASH])
    assert (status, error["code"]) == (429, "quota_exceeded")
    assert len(fake.runs()) == 1


# Look-ups


async def test_a_look_up_is_not_an_act(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(f"[[look-up]]{LS}[[say-result]]")
    assert commands(talk) == ["ls"]
    assert (await talk.bring("a.txt"))["content"] == "a.txt"
    assert len(fake.runs()) == 1


async def test_a_model_may_look_up_its_tools_as_often_as_it_likes(
    client: Client, fake: FakeAgent
) -> None:
    assert (await Dialogue(client).say(f"{'[[look-up]]' * 6}[[text:ok]]"))["content"] == "ok"
    assert len(fake.runs()) == 1


@pytest.mark.parametrize("aside", ["[[look-up]]", '[[relay-refused:bash {"command": "ls"}]]'])
async def test_what_the_agent_does_aside_parts_its_words(client: Client, aside: str) -> None:
    answer = await Dialogue(client).say(f"[[text:Let me see.]]{aside}[[text:Well.]]")
    assert answer["content"] == "Let me see.\n\nWell."


async def test_a_look_up_before_the_agent_connects_is_no_first_word(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"[[late-mcp:1.3]][[look-up]]{LS}")
    assert commands(talk) == ["ls"]
    assert len(fake.runs()) == 1


async def test_a_look_up_between_calls_made_at_once_disturbs_none_of_them(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"{begin('a')}[[look-up]]{relay('b')}[[say-results]]")
    assert await executed(talk) == ["a", "b"]
    assert len(fake.runs()) == 1


# Tools that are added while the agent works


async def test_a_tool_that_was_added_is_one_that_the_model_has(
    client: Client, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    fake.put("ignores-list-changed")

    async def adding(name: str) -> Dialogue:
        """The agent waits for a result, which comes together with another tool."""
        talk = Dialogue(client, [BASH, READ])
        grep = '[[relay:grep {"pattern": "x"}]][[say-result]]'
        await talk.say(f"{LS}[[touch:{name}]][[text:No grep here.]][[then]]{grep}")
        talk.tools = [BASH, READ, GREP]
        await talk.bring("a.txt")
        return talk

    talk = await adding("first")
    assert talk.asked == [("grep", {"pattern": "x"})]
    assert (await talk.bring("found"))["content"] == "found"
    first, second = fake.runs()
    assert "a.txt" not in first["prompt"] and "a.txt" in second["prompt"]
    assert "ignores" in caplog.text
    # Now it is known, and the agent that waits is not even told.
    assert (fake.home / "first").exists()
    assert (await adding("again")).asked == [("grep", {"pattern": "x"})]
    assert not (fake.home / "again").exists()


async def test_an_agent_that_ignores_news_goes_on_where_there_are_none(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("ignores-list-changed")
    talk = Dialogue(client)
    await talk.say(f"{LS}{relay('pwd')}[[say-results]]")
    await talk.bring("one")
    assert (await talk.bring("two"))["content"] == "one two"
    assert len(fake.runs()) == 1


async def test_a_list_that_is_fetched_late_again_is_waited_for(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("ignores-list-changed")
    talk = Dialogue(client, [BASH])
    grep = '[[relay:grep {"pattern": "x"}]]'
    await talk.say(f"{LS}[[text:Hm. ]][[gap:0.3]][[list]]{grep}[[say-result]]")
    talk.tools = [BASH, GREP]
    answer = await talk.bring("a.txt")
    assert (answer["content"], talk.asked) == ("Hm. ", [("grep", {"pattern": "x"})])
    assert (await talk.bring("found"))["content"] == "found"
    assert len(fake.runs()) == 1
