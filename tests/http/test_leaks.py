"""What an agent says of a failure: its keys stay here, whatever way they take."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start
from tests.support.views import folder, listed

KEY = "canary.cursor-key"
OTHER = "canary.other-token"
SAID = "bad key $CURSOR_API_KEY and $OTHER_TOKEN"
FAILURES = {
    "event": f"[[error-event:{SAID}]]",
    "result": f"[[fail-as-result:{SAID}]]",
    "stderr": f"[[stderr:{SAID}]][[exit:1]]",
    "stderr after the start": f"[[init]][[stderr:{SAID}]][[half-line]]",
    "classified": f"[[error-event:You've hit your usage limit, {SAID}]]",
    "in colour": f"[[fail-as-result:\x1b[31m{SAID}\x1b[0m]]",
}


@pytest.fixture
def keyed(fake: FakeAgent) -> FakeAgent:
    fake.env.update({"CURSOR_API_KEY": KEY, "OTHER_TOKEN": OTHER})
    return fake


async def every_dialect(client: Client, prompt: str) -> list[str]:
    message = {"role": "user", "content": prompt}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": [message]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [message]}),
        ("/v1/responses", {"input": prompt}),
        ("/v1/completions", {"prompt": prompt}),
    ]

    async def told(path: str, body: dict[str, Any]) -> str:
        async with client.session.post(client.url(path), json=body) as response:
            return await response.text()

    asks = [(path, {"model": "auto", "stream": s} | body) for path, body in bodies for s in (0, 1)]
    return await asyncio.gather(*(told(path, body | {"stream": bool(body["stream"])})
                                  for path, body in asks))  # fmt: skip


@pytest.mark.parametrize("steps", FAILURES.values(), ids=list(FAILURES))
async def test_a_key_in_the_words_of_a_failure_reaches_nobody(
    start: Start, keyed: FakeAgent, steps: str
) -> None:
    """Not even the journal of who records prompts: these are no words of a model."""
    async with start(record_prompts=True) as client:
        told = await every_dialect(client, steps)
        assert all("bad key *** and ***" in answer for answer in told), told
        shown = json.dumps(await listed(client)) + str(await client.get("/health"))
    journal = (folder(keyed) / "journal.jsonl").read_text()
    assert journal.count("bad key *** and ***") == len(told)
    for secret in (KEY, OTHER):
        assert secret not in "\n".join((*told, shown, journal))


async def test_a_key_in_the_middle_of_an_answer_ends_it_unseen(
    start: Start, keyed: FakeAgent
) -> None:
    async with start() as client:
        frames = await client.frames(f"[[text:so far]][[error-event:{SAID}]]")
    assert "bad key ***" in frames[-1]["error"]["message"]
    assert KEY not in str(frames)


async def test_a_key_that_an_excerpt_cuts_in_two_is_not_told_in_part(
    start: Start, keyed: FakeAgent
) -> None:
    async with start() as client:
        for before in range(583, 600, 4):
            steps = f"[[fail-as-result:{'x' * before}$CURSOR_API_KEY]]"
            _, error = await client.error(steps)
            assert KEY[:6] not in error["message"]


async def test_an_answer_is_passed_on_as_it_is(start: Start, keyed: FakeAgent) -> None:
    """Who asks a model for a key gets what it says: these are its words, not ours."""
    async with start() as client:
        assert await client.content(f"[[text:it is {KEY}]]") == f"it is {KEY}"


async def test_a_key_for_the_name_of_a_model_is_not_written_down(
    start: Start, keyed: FakeAgent
) -> None:
    async with start() as client:
        _, error = await client.error("hi", model=KEY)
        assert KEY not in str(error) + json.dumps(await listed(client))
    assert KEY not in (folder(keyed) / "journal.jsonl").read_text()


async def test_a_key_within_the_agents_command_is_not_shown(start: Start, keyed: FakeAgent) -> None:
    program = Path(keyed.env["PATH"].split(":")[0]) / "cursor-agent"
    command = f"env MORE_API_KEY=canary-in-command {program}"
    async with start(agent_command=command) as client:
        _, health = await client.get("/health")
    assert health["agent"]["path"].endswith(f"env MORE_API_KEY=*** {program}")
