"""Every way a relayed call can go wrong has an answer, and none is an error or a hang."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually
from tests.http.dialogue import BASH, READ, Dialogue, tool
from tests.support.views import health_when

LS = '[[relay:bash {"command": "ls"}]]'
# In the same run the agent says the result; one that reads the transcript says "replayed".
TASK = f"{LS}[[say-result]][[then]][[text:replayed]]"


async def parked(client: Client) -> int:
    return int((await client.get("/health"))[1]["sessions"]["parked"])


async def test_a_client_that_needs_long_is_waited_for_with_a_ticket(
    start: Start, fake: FakeAgent
) -> None:
    async with start(relay_hold=0.05) as client:
        talk = Dialogue(client)
        await talk.say(f"{LS}[[say-result]]")
        await waits(fake, 3)
        assert (await talk.bring("late"))["content"] == "late"
    assert len(fake.runs()) == 1


async def waits(fake: FakeAgent, count: int) -> None:
    """Until the agent has waited for its ticket that often."""
    await eventually(lambda: count_of(fake.home / "waits") >= count)


def count_of(file: Path) -> int:
    return len(file.read_text()) if file.exists() else 0


@EITHER_AGENT
async def test_after_its_time_to_live_a_run_is_stopped_and_its_client_gets_a_replay(
    start: Start, fake: FakeAgent
) -> None:
    async with start(session_ttl=0.3) as client:
        talk = Dialogue(client)
        await talk.say(TASK)
        await eventually(lambda: not fake.at_work())
        assert (await talk.bring("late"))["content"] == "replayed"
    first, second = fake.runs()
    assert "late" in second["prompt"] and second["prompt"].startswith(first["prompt"][:200])


async def test_a_client_that_never_comes_back_leaves_nothing(start: Start, fake: FakeAgent) -> None:
    async with start(session_ttl=0.3) as client:
        await Dialogue(client).say(TASK)
        directory = Path(fake.runs()[0]["cwd"])
        await eventually(lambda: not fake.at_work() and not directory.exists())
        assert await parked(client) == 0


async def test_an_agent_that_gives_up_earlier_is_replaced_and_the_next_is_held_for_less(
    start: Start,
    fake: FakeAgent,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cursor_gateway.relay.server._SHORTEST_PATIENCE", 0.1)
    async with start() as client:
        talk = Dialogue(client)
        await talk.say(f"[[patience:0.2]]{LS}[[touch:gave-up]][[hang]][[then]][[text:replayed]]")
        await eventually((fake.home / "gave-up").exists)
        assert (await talk.bring("late"))["content"] == "replayed"
    assert "calls are held for" in caplog.text


@EITHER_AGENT
@pytest.mark.parametrize("whose", ["user", "system", "result", "assistant"])
async def test_an_edited_history_is_read_anew(client: Client, fake: FakeAgent, whose: str) -> None:
    talk = Dialogue(client)
    talk.messages.append({"role": "system", "content": "Be brief."})
    script = f'[[text:Hm.]]{LS}[[relay:bash {{"command": "2"}}]][[then]][[then]][[text:replayed]]'
    await talk.say(script)
    await talk.bring("one")
    at = {"system": 0, "user": 1, "assistant": 2, "result": 3}[whose]
    talk.messages[at] = talk.messages[at] | {"content": f"{talk.messages[at]['content']} Edited."}
    assert (await talk.bring("two"))["content"] == "replayed"
    assert "Edited." in fake.runs()[1]["prompt"]
    await eventually(lambda: not fake.at_work())


@EITHER_AGENT
async def test_arguments_and_spaces_that_a_client_writes_anew_are_no_edit(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"[[text:  Looking: ]]{LS}[[say-result]]")
    said = talk.messages[-1]
    said["content"] = "Looking:"
    said["tool_calls"][0]["function"]["arguments"] = '{"command":"ls","description":"Lists"}'
    assert (await talk.bring("same run"))["content"] == "same run"


@EITHER_AGENT
@pytest.mark.parametrize("tools", [[BASH], [BASH, tool("read", file={"type": "string"})], []])
async def test_other_tools_are_a_fresh_run(client: Client, tools: list[Any]) -> None:
    talk = Dialogue(client, [BASH, READ])
    await talk.say(TASK)
    talk.tools = tools
    assert (await talk.bring("x"))["content"] == "replayed"


async def test_another_model_is_a_fresh_run(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(TASK)
    talk.options = {"model": "composer-2.5"}
    assert (await talk.bring("x"))["content"] == "replayed"
    assert "composer-2.5" in fake.runs()[1]["argv"]


@EITHER_AGENT
async def test_another_key_never_joins_a_run(client: Client) -> None:
    talk = Dialogue(client, options={"headers": {"Authorization": "Bearer one"}})
    await talk.say(TASK)
    talk.options = {"headers": {"Authorization": "Bearer two"}}
    assert (await talk.bring("x"))["content"] == "replayed"


@EITHER_AGENT
async def test_after_a_restart_of_the_gateway_the_transcript_is_read_anew(start: Start) -> None:
    async with start() as client:
        talk = Dialogue(client)
        await talk.say(TASK)
    async with start() as another:
        talk.client = another
        assert (await talk.bring("x"))["content"] == "replayed"


@EITHER_AGENT
async def test_a_run_that_died_is_replaced(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(TASK)
    os.kill(fake.runs()[0]["pid"], signal.SIGKILL)
    await eventually(lambda: not fake.at_work())
    assert (await talk.bring("x"))["content"] == "replayed"


@EITHER_AGENT
@pytest.mark.parametrize(
    "death", ["[[exit:0]]", "[[stderr:Error: RetriableError: stream closed]][[exit:1]]"]
)
async def test_a_run_that_dies_over_its_results_is_replaced_in_the_same_request(
    client: Client, fake: FakeAgent, death: str
) -> None:
    talk = Dialogue(client)
    await talk.say(f"{LS}{death}[[then]][[text:replayed]]")
    assert (await talk.bring("x"))["content"] == "replayed"
    assert "x" in fake.runs()[1]["prompt"]


async def test_an_agent_that_speaks_before_it_connects_keeps_the_relay(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"[[late-mcp]][[text:Hm. ]]{LS}[[say-result]]")
    assert (await talk.bring("x"))["content"] == "x"
    assert len(fake.runs()) == 1


@EITHER_AGENT
async def test_a_call_that_the_user_abandons_ends_its_run(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(TASK)
    assert (await talk.say("Never mind. [[text:Fine.]]"))["content"] == "Fine."
    await eventually(lambda: len(fake.at_work()) == 0)


@EITHER_AGENT
async def test_a_run_that_died_is_not_counted_for_a_quarter_of_an_hour(
    client: Client, fake: FakeAgent
) -> None:
    await Dialogue(client).say(TASK)
    os.kill(fake.runs()[0]["pid"], signal.SIGKILL)
    await health_when(client, lambda state: not state["sessions"]["parked"])


@EITHER_AGENT
async def test_results_for_only_some_calls_are_a_fresh_run(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(f'[[announce:bash {{"command": "a"}}]]{TASK}')
    assert len(talk.calls) == 2
    assert (await talk.bring("only one"))["content"] == "replayed"


@EITHER_AGENT
async def test_results_that_come_twice_are_answered_twice(client: Client) -> None:
    talk = Dialogue(client)
    await talk.say(TASK)
    assert (await talk.bring("once"))["content"] == "once"
    talk.messages.pop()
    assert (await talk.send())["content"] == "replayed"


@EITHER_AGENT
async def test_two_requests_that_race_for_a_run_both_get_an_answer(client: Client) -> None:
    talk = Dialogue(client)
    await talk.say(TASK)
    rival = Dialogue(client, messages=list(talk.messages))
    answers = await asyncio.gather(talk.bring("once"), rival.bring("once"))
    assert sorted(answer["content"] for answer in answers) == ["once", "replayed"]


@EITHER_AGENT
@pytest.mark.parametrize("forged", ["call_000000000000000000000000", "call_1", "toolu_é", ""])
async def test_an_id_that_is_not_ours_reaches_no_run(client: Client, forged: str) -> None:
    talk = Dialogue(client)
    await talk.say(TASK)
    talk.messages[-1]["tool_calls"][0]["id"] = forged
    assert (await talk.bring("x"))["content"] == "replayed"
    assert await parked(client) == 1


@EITHER_AGENT
async def test_a_word_of_the_user_beside_the_results_is_read_with_the_whole(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(TASK)
    call = talk.calls[0]["id"]
    talk.messages.append({"role": "tool", "tool_call_id": call, "content": "x"})
    assert (await talk.say("Stop. [[text:stopped]]"))["content"] == "stopped"
    assert len(fake.runs()) == 2


@EITHER_AGENT
async def test_a_reminder_of_the_client_goes_with_its_result(client: Client) -> None:
    body = {
        "model": "auto",
        "max_tokens": 1000,
        "tools": [{"name": "bash", "input_schema": BASH["function"]["parameters"]}],
        "messages": [{"role": "user", "content": f"{LS}[[say-result]]"}],
    }

    async def send() -> dict[str, Any]:
        url = client.url("/v1/messages")
        async with client.session.post(url, json=body) as response:
            return dict(await response.json())

    first = await send()
    call = next(block for block in first["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "a.txt"}
    reminder = {"type": "text", "text": "<system-reminder>Be tidy.</system-reminder>"}
    body["messages"] += [  # type: ignore[operator]
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result, reminder]},
    ]
    second = await send()
    text = "".join(block.get("text", "") for block in second["content"])
    assert text == "a.txt<system-reminder>Be tidy.</system-reminder>"


async def test_an_agent_without_mcp_is_served_by_text_and_the_relay_left_alone_after_two(
    start: Start, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    fake.put("no-mcp")
    states = []
    async with start() as client:
        for _ in range(3):
            talk = Dialogue(client)
            await talk.say('[[call:bash {"command": "ls"}]]')
            assert talk.asked == [("bash", {"command": "ls"})]
            states.append((await client.get("/health"))[1]["tools"])
    assert [state["channel"] for state in states] == ["relay", "text", "text"]
    assert "did not connect" in states[-1]["reason"]
    assert caplog.text.count("tools went by text") == 1
    by_relay = ["--approve-mcps" in run["argv"] for run in fake.runs()]
    assert by_relay == [True, False, True, False, False]


@EITHER_AGENT
async def test_a_client_that_leaves_while_the_agent_waits_for_nothing_stops_it(
    client: Client, fake: FakeAgent
) -> None:
    async with client.chat(f"[[text:x]][[hang]]{LS}", tools=[BASH], stream=True) as response:
        await response.content.readany()
    await eventually(lambda: not fake.at_work())
    assert await parked(client) == 0


@EITHER_AGENT
async def test_a_gateway_that_stops_takes_its_parked_runs_along(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client:
        for _ in range(3):
            await Dialogue(client).say(TASK)
        assert len(fake.at_work()) == 3
    assert fake.processes() == []


async def test_a_call_over_the_relay_needs_its_secret(client: Client, fake: FakeAgent) -> None:
    await Dialogue(client).say(TASK)
    file = Path(fake.runs()[0]["cwd"]) / ".cursor" / "mcp.json"
    (server,) = json.loads(file.read_text())["mcpServers"].values()
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    key = server["headers"]

    async def status(url: str, headers: dict[str, str]) -> int:
        async with client.session.post(url, json=ask, headers=headers) as response:
            return response.status

    assert await status(server["url"], key) == 200
    assert await status(server["url"], {}) == 404
    assert await status(server["url"], {"Authorization": "Bearer wrong"}) == 404
    assert await status(server["url"][:-1], key) == 404
    assert await status(server["url"], key | {"Origin": "http://evil.example"}) == 403
    assert await status(server["url"], key | {"Host": "evil.example"}) == 403
