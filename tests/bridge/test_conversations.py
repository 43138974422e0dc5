"""Bridged tools in a conversation: the model asks, we execute, the client never sees it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bridge.conftest import Bridged, Mcp
from tests.conftest import EITHER_AGENT, FakeAgent, eventually, text_of
from tests.http.dialogue import Dialogue, tool

ECHO = "mcp__notes__echo"
pytestmark = EITHER_AGENT

CHANNELS = pytest.mark.parametrize("channel", ["relay", "text"])


def script(channel: str, *calls: str, end: str = "[[say-result]]") -> str:
    """A task whose model makes these calls at once, and then says something."""
    if channel == "text":
        return "".join(f"[[call:{call}]]" for call in calls) + f"[[then]]{end}"
    *first, last = calls
    return "".join(f"[[announce:{call}]]" for call in first) + f"[[relay:{last}]]{end}"


@CHANNELS
async def test_a_model_without_the_clients_tools_has_the_users_mcp_servers(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent, channel: str
) -> None:
    mcp.add("notes")
    async with bridged(tool_channel=channel) as client:
        prompt = script(channel, f'{ECHO} {{"text": "remembered"}}', end="[[text:It is done.]]")
        answer = await client.answer(prompt)
        choice = answer["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "It is done.")
        assert "tool_calls" not in choice["message"]
    assert ECHO in fake.runs()[0]["prompt"]
    if channel == "text":
        assert "remembered" in fake.runs()[1]["prompt"]


@CHANNELS
async def test_one_turn_with_a_bridged_and_a_client_tool(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent, channel: str
) -> None:
    mcp.add("notes")
    async with bridged(tool_channel=channel) as client:
        talk = Dialogue(client)
        calls = (f'{ECHO} {{"text": "ours"}}', 'bash {"command": "ls"}')
        await talk.say(script(channel, *calls, end="[[text:Both.]]"))
        assert talk.asked == [("bash", {"command": "ls"})]
        assert (await talk.bring("theirs"))["content"] == "Both."
    last = fake.runs()[-1]["prompt"]
    if channel == "text":
        assert "ours" in last and "theirs" in last
        assert f'tool="{ECHO}"' in last
    else:
        assert len(fake.runs()) == 1


async def test_what_was_done_beside_a_clients_call_is_in_a_replay_too(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent
) -> None:
    mcp.add("notes")
    async with bridged(tool_channel="text", session_reuse=False) as client:
        talk = Dialogue(client)
        calls = (f'{ECHO} {{"text": "ours"}}', 'bash {"command": "ls"}')
        await talk.say(script("text", *calls, end="[[text:Both.]]"))
        assert (await talk.bring("theirs"))["content"] == "Both."
    prompt = fake.runs()[-1]["prompt"]
    assert prompt.count("<tool_result id=") == 2 and prompt.count("<tool_call id=") == 2


@CHANNELS
async def test_a_failing_server_is_the_tools_failure_not_the_requests(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent, channel: str
) -> None:
    mcp.add("notes")
    async with bridged(tool_channel=channel) as client:
        prompt = script(channel, "mcp__notes__die {}", end="[[text:It died.]]")
        assert await client.content(prompt) == "It died."


async def test_rounds_go_on_until_the_model_answers(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent
) -> None:
    mcp.add("notes")
    rounds = "[[then]]".join(f'[[call:{ECHO} {{"text": "{n}"}}]]' for n in range(4))
    async with bridged(tool_channel="text") as client:
        assert await client.content(f"{rounds}[[then]][[text:Four.]]") == "Four."
    prompts = [run["prompt"] for run in fake.runs()]
    assert len(prompts) == 5 and all(len(prompt) < 200 for prompt in prompts[1:])


async def test_a_loop_of_bridged_calls_is_stopped(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent
) -> None:
    mcp.add("notes")
    again = "[[then]]".join([f'[[call:{ECHO} {{"text": "same"}}]]'] * 9)
    async with bridged(tool_channel="text") as client:
        assert "stopped a loop" in await client.content(again)
        relayed = f'[[relay:{ECHO} {{"text": "same"}}]]' * 9
    async with bridged() as client:
        assert "stopped a loop" in await client.content(f"{relayed}[[then]]{relayed}")


async def test_activity_is_shown_and_text_comes_before_the_call_is_done(
    bridged: Bridged, mcp: Mcp
) -> None:
    mcp.add("notes")
    async with bridged(tool_channel="text", show_activity=True) as client:
        prompt = script("text", f'{ECHO} {{"text": "x"}}', end="[[text:Done.]]")
        frames = await client.frames(f"[[text:First. ]]{prompt}")
        assert text_of(frames) == "First. \nDone."
        assert ECHO in text_of(frames, "reasoning_content")


@pytest.mark.parametrize("header", [{"X-Cursor-MCP": "off"}, {}])
async def test_a_request_can_do_without(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent, header: dict[str, str]
) -> None:
    mcp.add("notes")
    async with bridged() as client:
        await client.content("[[text:x]]", headers=header)
    assert (ECHO in fake.runs()[0]["prompt"]) == (not header)


async def test_a_client_that_has_a_tool_of_that_name_keeps_it(bridged: Bridged, mcp: Mcp) -> None:
    mcp.add("notes")
    async with bridged() as client:
        talk = Dialogue(client, [tool(ECHO, text={"type": "string"})])
        await talk.say(f'[[relay:{ECHO} {{"text": "mine"}}]][[say-result]]')
        assert talk.asked == [(ECHO, {"text": "mine"})]
        assert (await talk.bring("the client's"))["content"] == "the client's"


@CHANNELS
async def test_a_client_that_leaves_cancels_the_call(
    bridged: Bridged, mcp: Mcp, fake: FakeAgent, channel: str
) -> None:
    mcp.add("notes")
    async with bridged(tool_channel=channel) as client:
        prompt = script(channel, "mcp__notes__wait {}")
        async with client.chat(f"[[text:x]]{prompt}", stream=True) as response:
            await response.content.readany()
            await eventually((mcp.home / "waiting").exists)
        await eventually(lambda: not fake.at_work())
        calls: Any = await client.session.post(
            client.url("/v1/tools/mcp__notes__cancelled/call"), json={"arguments": {}}
        )
        assert (await calls.json())["content"][0]["text"] != "[]"


async def test_a_slow_server_is_waited_for_with_a_ticket(bridged: Bridged, mcp: Mcp) -> None:
    mcp.add("notes")
    async with bridged(relay_hold=0.05, mcp_call_timeout=1.0) as client:
        said = await client.content("[[relay:mcp__notes__wait {}]][[say-result]]")
        assert "1 s" in said or "second" in said
