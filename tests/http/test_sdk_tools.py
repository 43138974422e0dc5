"""The client's tools as custom tools of the SDK: called back, and held as long as it takes."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually
from tests.http.dialogue import BASH, READ, Dialogue, tool

pytestmark = pytest.mark.agents("sdk")

LS = '[[relay:bash {"command": "ls"}]]'


async def test_the_agent_gets_the_clients_tools_and_no_others(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"[[text:Looking. ]]{LS}[[text:Found: ]][[say-result]]")
    assert talk.asked == [("bash", {"command": "ls"})]
    assert (await talk.bring("a.txt"))["content"] == "Found: a.txt"
    (run,) = fake.runs()
    assert run["options"]["tools"] == {"names": ["mcp"]}
    assert run["custom_tools"].keys() == {"bash", "read"}
    assert run["custom_tools"]["bash"]["inputSchema"] == BASH["function"]["parameters"]


async def test_ten_steps_take_one_agent_that_is_sent_one_message(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    steps = "".join(f'[[relay:bash {{"command": "step {n}"}}]]' for n in range(10))
    await talk.say(f"{steps}[[text:done]]")
    for number in range(10):
        assert talk.asked == [("bash", {"command": f"step {number}"})]
        last = await talk.bring(f"result {number}")
    assert last["content"] == "done"
    assert len(fake.rpcs("CreateAgent")) == len(fake.rpcs("Send")) == 1
    assert fake.model_steps() == 11
    # The conversation goes on in the same agent, with what is new.
    assert (await talk.say("[[text:and more]]"))["content"] == "and more"
    assert [sent["message"]["text"] for sent in fake.rpcs("Send")][1:] == ["[[text:and more]]"]


async def test_calls_that_are_made_at_once_go_out_together(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    burst = '[[announce:bash {"command": "a"}]][[announce:bash {"command": "a"}]]'
    await talk.say(f'{burst}[[relay:read {{"path": "b"}}]][[say-results]]')
    assert [name for name, _ in talk.asked] == ["bash", "bash", "read"]
    assert (await talk.bring("one", "two", "three"))["content"] == "one two three"
    assert len(fake.runs()) == 1


async def test_one_at_a_time_where_the_client_wants_that(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, options={"parallel_tool_calls": False})
    await talk.say(f'[[announce:bash {{"command": "a"}}]]{LS}[[say-results]]')
    assert talk.asked == [("bash", {"command": "a"})]
    await talk.bring("one")
    assert talk.asked == [("bash", {"command": "ls"})]
    assert (await talk.bring("two"))["content"] == "one two"
    assert len(fake.runs()) == 1


async def test_a_client_may_take_its_time(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time-out of an answer counts while the client is at work, nor does the CLI's minute."""
    fake.put("keep-alive", "0.02")
    async with start(idle_timeout=0.2, relay_hold=0.01) as client:
        talk = Dialogue(client)
        await talk.say(f"{LS}[[say-result]]")
        steps, sent = fake.model_steps(), len(fake.rpcs("Send"))
        later = asyncio.get_running_loop().time() + 150
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", ahead(loop.time, later))
        assert (await talk.bring("at last"))["content"] == "at last"
        assert (fake.model_steps(), len(fake.rpcs("Send"))) == (steps + 1, sent)


def ahead(clock: Any, until: float) -> Any:
    """A clock that has moved on, for all that looks at it from now on."""
    offset = until - clock()
    return lambda: clock() + offset


async def test_the_same_call_twice_is_one_call(client: Client) -> None:
    talk = Dialogue(client)
    await talk.say('[[relay-twice:bash {"command": "ls"}]][[say-result]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    assert (await talk.bring("a.txt"))["content"] == "a.txt"


@pytest.mark.parametrize("step", ["relay-silently", "relay-without-id", "relay-unannounced"])
async def test_a_call_of_which_little_is_told_is_a_call(client: Client, step: str) -> None:
    talk = Dialogue(client)
    await talk.say(f'[[{step}:bash {{"command": "ls"}}]][[say-result]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    assert (await talk.bring("a.txt"))["content"] == "a.txt"


async def test_a_call_that_is_announced_and_never_made_is_none(client: Client) -> None:
    talk = Dialogue(client)
    refused = '[[relay-refused:bash {"command": "rm"}]]'
    answer = await talk.say(f"{refused}[[text:Well. ]]{LS}[[text:Done.]]")
    assert (answer["content"], talk.asked) == ("Well. ", [("bash", {"command": "ls"})])
    assert (await talk.bring("a.txt"))["content"] == "Done."


async def test_odd_names_are_given_others_and_mapped_back(client: Client) -> None:
    talk = Dialogue(client, [tool("mcp.server/do it"), tool("x" * 64)])
    listed = (await talk.say("[[say-tools]]"))["content"].split(",")
    assert all(name.replace("_", "").isalnum() and len(name) <= 50 for name in listed)
    await talk.say(f"[[relay:{listed[0]} {{}}]]")
    assert [name for name, _ in talk.asked] == ["mcp.server/do it"]


async def test_arguments_that_do_not_fit_are_answered_at_once(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f'[[relay:bash {{"wrong": 1}}]]{LS}')
    assert talk.asked == [("bash", {"command": "ls"})]
    assert len(fake.runs()) == 1


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


async def test_images_in_results_reach_the_agent(client: Client) -> None:
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
    talk = Dialogue(client)
    await talk.say(f"{LS}[[text:seen]]")
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}}
    call = talk.calls[0]["id"]
    talk.messages.append({"role": "tool", "tool_call_id": call, "content": [picture]})
    assert (await talk.send())["content"] == "seen"


async def test_tools_that_the_client_adds_make_another_agent(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, [BASH])
    await talk.say(f"{LS}[[then]][[say-tools]]")
    talk.tools = [BASH, READ]
    assert (await talk.bring("a.txt"))["content"] == "bash,read"
    assert "a.txt" in fake.rpcs("Send")[-1]["message"]["text"]
    await eventually(lambda: fake.rpcs("CancelRun"))


async def test_one_of_the_agents_own_tools_is_the_clients(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say('[[native:shell {"command": "ls"}]][[hang]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    await eventually(lambda: not fake.at_work())


async def test_by_text_where_the_user_wants_that(start: Start, fake: FakeAgent) -> None:
    async with start(tool_channel="text") as client:
        talk = Dialogue(client)
        await talk.say('[[call:bash {"command": "ls"}]]')
        assert talk.asked == [("bash", {"command": "ls"})]
        assert fake.runs()[0]["custom_tools"] == {}
        assert fake.runs()[0]["options"]["tools"] == {"names": []}
        assert (await client.get("/health"))[1]["tools"]["channel"] == "text"


async def test_nobody_else_may_call_back(client: Client, fake: FakeAgent) -> None:
    await client.content("[[text:hi]]")
    (told,) = fake.rpcs("SetToolCallback")
    url = f"{told['url']}/sdk.v1.SdkCustomToolCallbackService/CallCustomTool"
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {told['authToken']}", "Origin": "http://evil"}, 401),
        ({"Authorization": f"Bearer {told['authToken']}"}, 404),
    ):
        async with client.session.post(url, json={"agentId": "x"}, headers=headers) as response:
            assert response.status == status
    headers = {"Authorization": f"Bearer {told['authToken']}"}
    for body in (b"nope", b"[]"):
        async with client.session.post(url, data=body, headers=headers) as response:
            assert response.status == 400
