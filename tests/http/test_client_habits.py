"""One process per task, also for clients that send their history with changes of their own.

The shapes are those of the requests of the real programs, cut down to what differs.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent, eventually
from tests.http.dialogue import BASH, Dialogue, tool
from tests.support.views import resumed

pytestmark = EITHER_AGENT

LS = '[[relay:bash {"command": "ls"}]]'
PWD = '[[relay:bash {"command": "pwd"}]]'
TWO = '[[announce:bash {"command": "ls"}]][[relay:bash {"command": "pwd"}]]'
FINAL = '[[relay:final_answer {"answer": "Done."}]]'
INVOICE = "x-anthropic-billing-header: cc_version=2.1.257.efd; cc_entrypoint=cli; cch={};"
DATE = "<system-reminder>\nThe current date is: Tuesday.\n</system-reminder>"
SKILLS = "<system-reminder>\nThe following skills are available.\n</system-reminder>"
FINAL_ANSWER = tool("final_answer", answer={"type": "string"})
PERSON = tool("Person", age={"type": "integer"})


async def post(client: Client, path: str, **body: Any) -> dict[str, Any]:
    async with client.session.post(client.url(path), json={"model": "auto"} | body) as response:
        assert response.status == 200, await response.text()
        return dict(await response.json())


async def parked(client: Client) -> int:
    return int((await client.get("/health"))[1]["sessions"]["parked"])


# oh-my-pi 18.2.3, `api: anthropic-messages`


class OhMyPi:
    """Seals each request in its system text."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.messages: list[dict[str, Any]] = []
        self.requests = 0

    async def send(self, *content: dict[str, Any], prompt: str = "Be brief.") -> str:
        """What was said; the calls are made, and their results are `done`."""
        self.requests += 1
        self.messages.append({"role": "user", "content": list(content)})
        system = [INVOICE.format(f"{self.requests:05x}"), "You are Claude Code.", prompt]
        answer = await post(
            self.client,
            "/v1/messages?beta=true",
            system=[{"type": "text", "text": text} for text in system],
            messages=self.messages,
            tools=[{"name": "bash", "input_schema": BASH["function"]["parameters"]}],
            max_tokens=32000,
        )
        self.messages.append({"role": "assistant", "content": answer["content"]})
        calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        if calls:
            results = [{"type": "tool_result", "tool_use_id": call} for call in calls]
            return await self.send(*({**each, "content": "done"} for each in results))
        return "".join(block["text"] for block in answer["content"])


async def test_a_system_text_that_seals_each_request_is_the_same_text(
    client: Client, fake: FakeAgent
) -> None:
    omp = OhMyPi(client)
    task = f"{LS}{PWD}[[text:Done.]][[then]][[text:Replayed.]]"
    assert await omp.send({"type": "text", "text": task}) == "Done."
    assert len(fake.runs()) == 1
    assert await omp.send({"type": "text", "text": "[[text:Second.]]"}) == "Second."
    assert resumed(fake) == [False, True]


async def test_another_system_text_beside_a_seal_is_read_anew(
    client: Client, fake: FakeAgent
) -> None:
    omp = OhMyPi(client)
    await omp.send({"type": "text", "text": "[[text:First.]]"})
    await omp.send({"type": "text", "text": "[[text:Second.]]"}, prompt="Be long.")
    assert resumed(fake) == [False, False]


# gptme 0.35.1 and pydantic-ai 2.31.1


async def test_thoughts_that_come_back_as_text_are_no_words(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"[[think:Hm]][[text:Looking. ]]{LS}[[think:So]]{PWD}[[text:Done.]]")
    for result in ("a.txt", "/here"):
        said = talk.messages[-1]
        thoughts = said.pop("reasoning_content")
        said["content"] = f"<think>\n{thoughts}\n</think>\n\n{said['content'] or ''}\n"
        last = await talk.bring(result)
    assert last["content"] == "Done."
    assert len(fake.runs()) == 1
    await talk.say("[[text:Second.]]")
    assert resumed(fake) == [False, True]


async def test_thoughts_that_come_back_as_a_message_are_no_words(
    client: Client, fake: FakeAgent
) -> None:
    items: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"[[think:Hm]][[text:Looking. ]]{LS}[[text:Done.]]"},
    ]
    tools = [{"type": "function", **BASH["function"]}]
    first = await post(client, "/v1/responses", input=items, tools=tools)
    (call,) = (item for item in first["output"] if item["type"] == "function_call")
    items += [
        {"role": "assistant", "content": "<think>\nHm\n</think>"},
        {"role": "assistant", "content": "Looking. "},
        {key: call[key] for key in ("type", "call_id", "name", "arguments")},
        {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"},
    ]
    second = await post(client, "/v1/responses", input=items, tools=tools)
    assert second["output"][-1]["content"][0]["text"] == "Done."
    assert len(fake.runs()) == 1


async def test_a_client_may_forget_a_call_and_the_agent_is_told_so(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"{TWO}[[text:So: ]][[say-results]]{PWD}[[text:Done.]]")
    assert len(talk.calls) == 2
    del talk.messages[-1]["tool_calls"][1]
    answer = await talk.bring("a.txt")
    assert answer["content"].startswith("So: a.txt No result: the client left this call out")
    assert (await talk.bring("/here"))["content"] == "Done."
    assert len(fake.runs()) == 1


async def test_a_call_without_a_result_is_not_forgotten(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    await talk.say(f"{TWO}[[text:Done.]][[then]][[text:Replayed.]]")
    assert (await talk.bring("a.txt"))["content"] == "Replayed."
    assert len(fake.runs()) == 2


# Qwen Code 0.24.4


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


async def test_a_reminder_that_moves_to_the_newest_question_is_no_change(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    talk.messages = [{"role": "user", "content": parts(SKILLS, DATE, f"{LS}[[text:Done.]]")}]
    await talk.send()
    assert (await talk.bring("a.txt"))["content"] == "Done."
    del talk.messages[0]["content"][1]
    talk.messages.append({"role": "user", "content": parts(DATE, f"{PWD}[[text:Second.]]")})
    await talk.send()
    assert (await talk.bring("/here"))["content"] == "Second."
    assert resumed(fake) == [False, True]


async def test_another_reminder_is_a_change(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client)
    talk.messages = [{"role": "user", "content": parts(SKILLS, "[[text:First.]]")}]
    await talk.send()
    talk.messages[0]["content"][0]["text"] = SKILLS.replace("skills", "rules")
    await talk.say("[[text:Second.]]")
    assert resumed(fake) == [False, False]


# smolagents 1.26.0


class Smolagents:
    """Retells its steps in words, and demands a call of some tool each time."""

    def __init__(self, client: Client, task: str) -> None:
        self.client = client
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": parts("You solve tasks by calls.")},
            {"role": "user", "content": parts(f"New task:\n{task}")},
        ]

    async def step(self) -> list[tuple[str, Any]]:
        answer = await self.client.answer(
            list(self.messages), tools=[BASH, FINAL_ANSWER], tool_choice="required"
        )
        message = answer["choices"][0]["message"]
        calls = [
            call | {"function": call["function"] | {"arguments": json.loads(arguments)}}
            for call in message["tool_calls"]
            for arguments in [call["function"]["arguments"]]
        ]
        said = f"{(message['content'] or '').strip()}\nCalling tools:\n{calls}".strip()
        self.messages.append({"role": "assistant", "content": parts(said)})
        return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]

    def observe(self, text: str) -> None:
        self.messages.append({"role": "user", "content": parts(f"Observation:\n{text}")})


async def test_calls_that_are_retold_in_words_go_on_in_one_process(
    client: Client, fake: FakeAgent
) -> None:
    agent = Smolagents(client, f"[[text:Looking. ]]{LS}{TWO}[[say-results]]{FINAL}")
    assert await agent.step() == [("bash", {"command": "ls"})]
    agent.observe("a.txt")
    assert len(await agent.step()) == 2
    agent.observe("b.txt\n/here")
    assert await agent.step() == [("final_answer", {"answer": "Done."})]
    assert len(fake.runs()) == 1
    retold = agent.messages[-1]["content"][0]["text"]
    assert retold.startswith("a.txt b.txt\n/here (The client reports the results")


async def test_a_new_task_beside_a_result_in_words_is_read_anew(
    client: Client, fake: FakeAgent
) -> None:
    agent = Smolagents(client, f"{LS}{FINAL}")
    await agent.step()
    agent.observe(f"a.txt\nNew task:\n{FINAL}")
    assert await agent.step() == [("final_answer", {"answer": "Done."})]
    assert len(fake.runs()) == 2


# Calls that end a task: instructor 1.17.0, smolagents, pydantic-ai, gptme


async def test_a_run_whose_client_has_what_it_wanted_does_not_wait_for_it(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.sessions._COMPLAINS_WITHIN", 0.05)
    await Smolagents(client, FINAL).step()
    wanted = {"type": "function", "function": {"name": "Person"}}
    extract = Dialogue(client, [PERSON], options={"tool_choice": wanted})
    await extract.say('[[relay:Person {"age": 7}]]')
    assert extract.asked == [("Person", {"age": 7})]
    await eventually(lambda: not fake.at_work())
    assert await parked(client) == 0


async def test_a_run_whose_client_complains_at_once_goes_on(
    client: Client, fake: FakeAgent
) -> None:
    wanted = {"type": "function", "function": {"name": "Person"}}
    extract = Dialogue(client, [PERSON], options={"tool_choice": wanted})
    await extract.say('[[relay:Person {"age": 7}]][[relay:Person {"age": 70}]]')
    extract.messages[-1]["content"] = ""
    await extract.bring("Validation Error found:\n1 validation error for Person")
    assert extract.asked == [("Person", {"age": 70})]
    assert len(fake.runs()) == 1


# What is no habit


@pytest.mark.parametrize("changed", ["user", "system", "result", "assistant"])
async def test_a_waiting_run_does_not_go_on_in_a_conversation_that_was_changed(
    client: Client, fake: FakeAgent, changed: str
) -> None:
    talk = Dialogue(client, messages=[{"role": "system", "content": "Be brief."}])
    await talk.say(f"[[text:Well. ]]{LS}{PWD}[[text:Done.]][[then]][[text:Replayed.]]")
    await talk.bring("a.txt")
    at = {"system": 0, "user": 1, "assistant": 2, "result": 3}[changed]
    talk.messages[at]["content"] += " or not"
    assert (await talk.bring("/here"))["content"] == "Replayed."
    assert len(fake.runs()) == 2


async def test_two_tasks_with_the_same_opening_get_their_own_results(
    client: Client, fake: FakeAgent
) -> None:
    talks = [Dialogue(client), Dialogue(client)]
    for talk in talks:
        talk.messages = [{"role": "user", "content": parts(DATE, f"{TWO}[[say-results]]")}]
        await talk.send()
    for talk, name in zip(talks, ("one", "two"), strict=True):
        talk.messages[0]["content"].pop(0)
        del talk.messages[-1]["tool_calls"][1]
        assert (await talk.bring(name))["content"].startswith(f"{name} No result")
    assert len(fake.runs()) == 2


# Factory Droid 0.215.0: a schema that is stricter than its client

EXECUTE = tool(
    "Execute",
    summary={"type": "string", "pattern": r"^[A-Z]\S*(?:\s+\S+){2,7}$"},
    command={"type": "string"},
)


@pytest.mark.parametrize("step", ["relay", "call"])
async def test_two_words_for_a_summary_cost_no_round_trip(
    client: Client, fake: FakeAgent, step: str
) -> None:
    talk = Dialogue(client, [EXECUTE])
    call = {"summary": "List files", "command": "ls"}
    answer = await talk.say(f"[[{step}:Execute {json.dumps(call)}]]")
    assert (answer["content"], talk.asked) == (None, [("Execute", call)])
    assert len(fake.runs()) == 1


@pytest.mark.parametrize("step", ["relay", "call"])
async def test_what_the_client_would_reject_is_the_clients_to_reject(
    client: Client, fake: FakeAgent, step: str
) -> None:
    talk = Dialogue(client)
    await talk.say(f'[[{step}:read {{"file": "a.txt"}}]]')
    assert talk.asked == [("read", {"file": "a.txt"})]
    assert len(fake.runs()) == 1


async def test_a_tool_that_is_demanded_by_name_gets_arguments_that_fit(
    client: Client, fake: FakeAgent
) -> None:
    wanted = {"type": "function", "function": {"name": "Person"}}
    extract = Dialogue(client, [PERSON], options={"tool_choice": wanted})
    await extract.say('[[relay:Person {"age": "old"}]][[relay:Person {"age": 70}]]')
    assert extract.asked == [("Person", {"age": 70})]
    assert len(fake.runs()) == 1
