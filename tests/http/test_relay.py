"""The relay: the agent calls the client's tools, and its run goes on with the results."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually, text_of
from tests.http.dialogue import BASH, Dialogue, tool

LS = '[[relay:bash {"command": "ls"}]]'


@EITHER_AGENT
async def test_a_call_is_the_clients_and_its_result_goes_on_in_the_same_run(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    first = await talk.say(f"[[text:Looking. ]]{LS}[[text:Found: ]][[say-result]]")
    assert (first["content"], talk.asked) == ("Looking. ", [("bash", {"command": "ls"})])
    second = await talk.bring("a.txt")
    assert second["content"] == "Found: a.txt"
    assert len(fake.runs()) == 1


@EITHER_AGENT
async def test_ten_steps_take_one_process_that_reads_its_prompt_once(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    steps = "".join(f'[[relay:bash {{"command": "step {n}"}}]]' for n in range(10))
    await talk.say(f"{steps}[[text:done]]")
    for number in range(10):
        assert talk.asked == [("bash", {"command": f"step {number}"})]
        last = await talk.bring(f"result {number}")
    assert last["content"] == "done"
    (run,) = fake.runs()
    assert "result 0" not in run["prompt"]


@EITHER_AGENT
async def test_a_streamed_answer_ends_with_its_calls(client: Client) -> None:
    frames = await client.frames(f"[[text:Hm. ]]{LS}", tools=[BASH])
    assert text_of(frames) == "Hm. "
    assert frames[-1] == "[DONE]"
    assert frames[-2]["choices"][0]["finish_reason"] == "tool_calls"


@EITHER_AGENT
async def test_calls_that_are_made_at_once_go_out_together(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    burst = '[[announce:bash {"command": "a"}]][[announce:bash {"command": "a"}]]'
    await talk.say(f'{burst}[[relay:read {{"path": "b"}}]][[text:last: ]][[say-result]]')
    assert talk.asked == [
        ("bash", {"command": "a"}),
        ("bash", {"command": "a"}),
        ("read", {"path": "b"}),
    ]
    assert (await talk.bring("one", "two", "three"))["content"] == "last: three"
    assert len(fake.runs()) == 1


@EITHER_AGENT
async def test_text_after_results_begins_a_new_answer(client: Client) -> None:
    talk = Dialogue(client)
    await talk.say('[[text:Looking.]][[relay:bash {"command": "ls"}]][[say-result]]')
    assert (await talk.bring("a.txt"))["content"] == "a.txt"


@EITHER_AGENT
async def test_a_client_that_wants_one_call_at_a_time_gets_one(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, options={"parallel_tool_calls": False})
    await talk.say('[[announce:bash {"command": "a"}]][[relay:bash {"command": "b"}]][[text:ok]]')
    assert talk.asked == [("bash", {"command": "a"})]
    await talk.bring("one")
    assert talk.asked == [("bash", {"command": "b"})]
    assert (await talk.bring("two"))["content"] == "ok"
    assert len(fake.runs()) == 1


async def test_what_the_agent_says_meanwhile_is_kept_for_the_next_answer(
    start: Start, fake: FakeAgent
) -> None:
    async with start(relay_hold=0.05) as client:
        talk = Dialogue(client)
        later = f"[[text:Still waiting. ]][[touch:later]]{LS}[[text:Done: ]][[say-result]]"
        await talk.say(f"[[impatient]]{LS}{later}")
        await eventually((fake.home / "later").exists)
        assert (await talk.bring("a.txt"))["content"] == "Still waiting. "
        assert talk.asked == [("bash", {"command": "ls"})]
    assert len(fake.runs()) == 1


async def test_words_that_come_before_a_call_are_handed_out_before_it(
    start: Start, fake: FakeAgent
) -> None:
    async with start(relay_hold=0.05) as client:
        talk = Dialogue(client)
        pwd = '[[text:Meanwhile. ]][[relay:bash {"command": "pwd"}]]'
        await talk.say(f"[[impatient]]{LS}{pwd}[[text:Done.]]")
        await eventually(lambda: count_of_calls(fake) == 2)
        assert (await talk.bring("a.txt"))["content"] == "Meanwhile. "
        assert talk.asked == [("bash", {"command": "pwd"})]


def count_of_calls(fake: FakeAgent) -> int:
    file = fake.home / "mcp-calls"
    return len(file.read_text()) if file.exists() else 0


@EITHER_AGENT
async def test_tools_without_parameters_are_part_of_a_burst(client: Client) -> None:
    talk = Dialogue(client, [BASH, tool("now")])
    await talk.say('[[announce:now {}]][[relay:bash {"command": "ls"}]]')
    assert talk.asked == [("now", {}), ("bash", {"command": "ls"})]


@EITHER_AGENT
async def test_arguments_that_the_agent_does_not_announce_come_with_the_call(
    client: Client,
) -> None:
    talk = Dialogue(client)
    await talk.say('[[relay-unannounced:bash {"command": "ls"}]][[say-result]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    assert (await talk.bring("a.txt"))["content"] == "a.txt"


@EITHER_AGENT
async def test_a_call_that_the_agent_refuses_itself_is_not_handed_out(client: Client) -> None:
    talk = Dialogue(client)
    answer = await talk.say('[[relay-refused:bash {"command": "ls"}]][[text:I may not.]]')
    assert (answer["content"], talk.asked) == ("I may not.", [])


@EITHER_AGENT
async def test_a_call_that_does_not_fit_is_mended_in_the_same_run(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    answer = await talk.say(f'[[relay:bash {{"cmd": "ls"}}]][[say-result]]{LS}')
    assert "Not executed" in answer["content"] and "command" in answer["content"]
    assert talk.asked == [("bash", {"command": "ls"})]
    assert len(fake.runs()) == 1


@EITHER_AGENT
async def test_a_loop_is_told_to_the_model_first_and_then_stopped(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(LS * 6)
    for _ in range(3):
        answer = await talk.bring("same")
    assert "stopped a loop" in answer["content"]
    assert len(fake.runs()) == 1
    await eventually(lambda: not fake.at_work())


@EITHER_AGENT
async def test_images_in_results_reach_the_agent(client: Client, fake: FakeAgent) -> None:
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
    talk = Dialogue(client)
    await talk.say(f"{LS}[[text:seen]]")
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}}
    call = talk.calls[0]["id"]
    talk.messages.append({"role": "tool", "tool_call_id": call, "content": [picture]})
    assert (await talk.send())["content"] == "seen"


async def test_odd_names_are_given_others_and_mapped_back(client: Client) -> None:
    odd, long = tool("mcp.server/do it"), tool("x" * 64)
    talk = Dialogue(client, [odd, long, tool("wait_for_result")])
    listed = (await talk.say("[[say-tools]]"))["content"].split(",")
    assert all(len(f"client-{name}") <= 60 and name.isascii() for name in listed)
    assert len(set(listed)) == 4 and sum("wait" in name for name in listed) == 2
    await talk.say(f"[[relay:{listed[0]} {{}}]]")
    assert talk.asked == [("mcp.server/do it", {})]


async def test_the_workspace_says_what_the_agent_may_do(client: Client, fake: FakeAgent) -> None:
    await Dialogue(client).say(LS)
    (run,) = fake.runs()
    folder = Path(run["cwd"]) / ".cursor"
    assert json.loads((folder / "cli.json").read_text()) == {
        "permissions": {
            "allow": ["Mcp(client:*)"],
            "deny": [
                *("Write(**)", "Write(/**)", "Shell(*)", "WebFetch(*)"),
                *("Read(**)", "Read(/**)", "Read(~/**)"),
            ],
        }
    }
    (server,) = json.loads((folder / "mcp.json").read_text())["mcpServers"].values()
    assert "--approve-mcps" in run["argv"]
    secret = server["headers"]["Authorization"].removeprefix("Bearer ")
    assert secret not in " ".join(run["argv"]) and secret not in run["prompt"]
    assert "`client`" in run["prompt"] and "## bash" in run["prompt"]


@EITHER_AGENT
async def test_one_of_the_agents_own_tools_is_the_clients_as_before(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say('[[native:shell {"command": "ls"}]][[hang]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    await eventually(lambda: not fake.at_work())


async def test_tools_that_the_client_adds_are_told_to_the_agent(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, [BASH])
    await talk.say(f"{LS}[[say-tools]]")
    talk.tools = [BASH, tool("grep", pattern={"type": "string"})]
    assert "grep" in (await talk.bring("a.txt"))["content"]
    assert len(fake.runs()) == 1


@EITHER_AGENT
async def test_usage_of_a_run_is_told_once(client: Client) -> None:
    messages: list[Any] = [{"role": "user", "content": f"{LS}[[text:{'word ' * 400}]]"}]
    first = await client.answer(messages, tools=[BASH])
    message = first["choices"][0]["message"]
    call = message["tool_calls"][0]["id"]
    messages += [message, {"role": "tool", "tool_call_id": call, "content": "x"}]
    second = await client.answer(messages, tools=[BASH])
    assert second["usage"]["completion_tokens"] > 400
    assert first["usage"]["completion_tokens"] < 50


@EITHER_AGENT
async def test_a_parked_run_holds_no_slot(start: Start) -> None:
    async with start(slots=1, queue=0) as client:
        talk = Dialogue(client)
        await talk.say(f"{LS}[[text:ok]]")
        assert (await client.get("/health"))[1]["sessions"]["parked"] == 1
        assert await client.content("[[text:another]]") == "another"
        assert (await talk.bring("x"))["content"] == "ok"


async def test_health_and_the_log_say_which_channel_served(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await Dialogue(client).say(LS)
    await Dialogue(client).say('[[call:bash {"command": "ls"}]]')
    await Dialogue(client).say('[[native:shell {"command": "ls"}]]')
    served = (await client.get("/health"))[1]["tools"]["served"]
    assert served == {"relay": 1, "text": 1, "native": 1}
    assert "tools by the relay channel" in caplog.text


@EITHER_AGENT
async def test_the_text_channel_can_be_chosen(start: Start, fake: FakeAgent) -> None:
    async with start(tool_channel="text") as client:
        await Dialogue(client).say('[[call:bash {"command": "ls"}]]')
        (run,) = fake.runs()
        assert "--approve-mcps" not in run["argv"] and "<tool_call>" in run["prompt"]
        assert (await client.get("/health"))[1]["tools"]["channel"] == "text"


@EITHER_AGENT
async def test_a_title_request_at_the_same_time_disturbs_nothing(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    question = f"{LS}[[say-result]]"
    title = [{"role": "system", "content": "Make a title."}, {"role": "user", "content": question}]
    await asyncio.gather(talk.say(question), client.answer(title))
    assert (await talk.bring("mine"))["content"] == "mine"
