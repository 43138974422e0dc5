"""What failed a moment ago starts no further agents, and is told so that it is shown."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from cursor_gateway.core.conversation import Conversation
from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually, frames_of
from tests.support.views import health_when

pytestmark = EITHER_AGENT

QUOTA = "[[error-event:ActionRequiredError: You've hit your usage limit]]"
PLAN = "[[error-event:ActionRequiredError: Named models unavailable]]"
DIES = "[[exit:1]]"
OPENCODE = {"User-Agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14"}
CODEX = {"User-Agent": "codex_exec/0.166.0 (Debian 12.0.0; x86_64)"}


async def told(client: Client, prompt: str, **body: Any) -> tuple[int, Any, Any]:
    async with client.chat(prompt, **body) as response:
        return response.status, response.headers, (await response.json())["error"]


@pytest.mark.parametrize("refusal", [QUOTA, PLAN])
async def test_a_refusal_is_repeated_for_the_model_without_an_agent(
    client: Client, fake: FakeAgent, refusal: str
) -> None:
    first, _, error = await told(client, refusal, model="composer-2.5")
    again, headers, same = await told(client, "[[text:Hello]]", model="composer-2.5")
    assert (again, same["code"]) == (first, error["code"])
    assert headers["x-should-retry"] == "false"
    assert "Retry-After" not in headers
    assert len(fake.runs()) == 1
    assert "No agent was started" in same["message"]
    # `auto` may still answer.
    assert await client.content("[[text:Hello]]", model="auto") == "Hello"


async def test_a_refusal_is_forgotten_after_some_seconds(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.recent_failures.REFUSAL_LASTS", 0.0)
    assert (await told(client, QUOTA))[0] == 429
    assert await client.content("[[text:Hello]]") == "Hello"


@pytest.mark.agents("cli")
async def test_a_lost_sign_in_starts_one_agent_whatever_status_says(
    client: Client, fake: FakeAgent
) -> None:
    """The CLI's `status` may still know of a sign-in that its servers do not take."""
    for _ in range(5):
        status, _, error = await told(client, "[[play:fail_auth_required]]")
        assert (status, error["code"]) == (401, "not_authenticated")
    assert len(fake.runs()) == 1


@pytest.mark.agents("cli")
async def test_a_fresh_sign_in_ends_what_was_refused_for_want_of_one(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.NO_SIGN_IN_LASTS", 0.1)
    monkeypatch.setattr("cursor_gateway.account.NO_SIGN_IN_TRUSTED", 0.0)
    async with start() as client:
        await health_when(client, lambda state: state["auth"] == "authenticated")
        fake.sign_out()
        assert (await told(client, "hi"))[0] == 401
        await health_when(client, lambda state: state["auth"] != "authenticated")
        fake.sign_in()
        assert await client.content("[[text:ok]]") == "ok"


async def test_what_may_pass_is_tried_again_and_then_is_final(
    client: Client, fake: FakeAgent
) -> None:
    first = await told(client, DIES)
    assert (first[0], first[1]["Retry-After"]) == (502, "5")
    assert "x-should-retry" not in first[1]
    second = await told(client, DIES)
    assert (second[0], second[1]["x-should-retry"]) == (502, "false")
    assert "Retry-After" not in second[1]
    assert "failed 2 times in a row" in second[2]["message"]
    assert second[2]["code"] == "agent_failed"
    for _ in range(20):
        await told(client, DIES)
    assert len(fake.runs()) == 2


async def test_a_failure_that_passes_is_forgotten(client: Client, fake: FakeAgent) -> None:
    prompt = "[[flaky:No.]][[text:Hello]]"
    fake.put("flaky", "1")
    assert (await told(client, prompt))[0] == 502
    assert await client.content(prompt) == "Hello"
    fake.put("flaky", "1")
    status, headers, _ = await told(client, prompt)
    assert (status, headers["Retry-After"]) == (502, "5")


async def test_another_conversation_is_not_held_responsible(
    client: Client, fake: FakeAgent
) -> None:
    for _ in range(3):
        await told(client, DIES)
    assert await client.content("[[text:Hello]]") == "Hello"
    assert len(fake.runs()) == 3


async def test_a_final_failure_is_tried_again_after_some_seconds(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.recent_failures.HOLD", 0.0)
    for times in range(1, 4):
        _, _, error = await told(client, DIES)
        assert ("times in a row" in error["message"]) is (times > 1)
    assert "failed 3 times in a row" in error["message"]
    assert len(fake.runs()) == 3


async def test_another_failure_is_not_the_same_one(client: Client, fake: FakeAgent) -> None:
    prompt = "[[flaky:RetriableError: unavailable, socket hang up]][[exit:1]]"
    fake.put("flaky", "1")
    codes = [(await told(client, prompt)) for _ in range(2)]
    assert [error["code"] for _, _, error in codes] == ["cursor_unreachable", "agent_failed"]
    assert all(headers["Retry-After"] == "5" for _, headers, _ in codes)


async def test_an_answer_that_breaks_off_twice_is_a_status_the_third_time(
    client: Client, fake: FakeAgent
) -> None:
    prompt = "[[text:Hello]][[exit:1]]"
    for _ in range(2):
        assert (await client.frames(prompt))[-1]["error"]["code"] == "agent_failed"
    status, _, error = await told(client, prompt, stream=True, headers=OPENCODE)
    assert (status, error["code"], error["status"]) == (400, "agent_failed", 400)
    assert len(fake.runs()) == 2


async def test_of_conversations_that_failed_together_one_is_tried_again(
    client: Client, fake: FakeAgent
) -> None:
    """OpenCode asks for a title beside the first turn, and repeats both."""
    both = ("[[exit:1]] a title", "[[exit:1]] the turn")
    for _ in range(3):
        answers = await asyncio.gather(*(told(client, each) for each in both))
    assert all(headers["x-should-retry"] == "false" for _, headers, _ in answers)
    assert len(fake.runs()) == 3


async def test_all_that_failed_together_are_answered_once_it_has_passed(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("flaky", "99")
    prompts = [f"[[flaky:No.]][[text:Hello {number}]]" for number in range(5)]
    failed = await asyncio.gather(*(told(client, each) for each in prompts))
    assert {(status, headers["Retry-After"]) for status, headers, _ in failed} == {(502, "5")}
    fake.put("flaky", "0")
    said = await asyncio.gather(*(client.content(each) for each in prompts))
    assert said == [f"Hello {number}" for number in range(5)]


async def test_who_tries_again_for_long_does_not_hold_up_the_others(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.recent_failures.TRIAL_LASTS", 0.1)
    fake.put("flaky", "99")
    slow, quick = "[[flaky:No.]][[text:Hello]][[hang]]", "[[flaky:No.]][[text:quick]]"
    for prompt in (slow, quick):
        assert (await told(client, prompt))[0] == 502
    fake.put("flaky", "0")
    async with client.chat(slow, stream=True) as response:
        await anext(frames_of(response))
        assert await client.content(quick) == "quick"


@pytest.mark.parametrize("headers", [OPENCODE, CODEX])
async def test_coding_agents_get_a_status_that_they_show(
    client: Client, fake: FakeAgent, headers: dict[str, str]
) -> None:
    status, _, error = await told(client, QUOTA, headers=headers)
    assert (status, error["code"], error["status"]) == (400, "quota_exceeded", 400)


async def test_who_does_not_heed_the_header_is_told_otherwise(
    client: Client, fake: FakeAgent
) -> None:
    statuses = [(await told(client, QUOTA))[0] for _ in range(4)]
    assert statuses == [429, 429, 429, 400]
    assert len(fake.runs()) == 1


async def test_only_so_many_failures_are_remembered(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.recent_failures.MAX_ENTRIES", 2)
    for prompt in ("[[exit:1]] one", "[[exit:1]] two", "[[exit:1]] three", "[[exit:1]] one"):
        assert (await told(client, prompt))[1]["Retry-After"] == "5"


async def test_what_is_remembered_is_not_the_conversation(client: Client) -> None:
    canary = "a word of this conversation alone"
    await told(client, f"{canary} {DIES}")
    await told(client, f"{canary} {QUOTA}")
    # An agent that is being ended still has its own.
    await eventually(lambda: not any(canary in text for text in conversations()))


def conversations() -> list[str]:
    gc.collect()
    left = [each for each in gc.get_objects() if isinstance(each, Conversation)]
    return [text for each in left for text in each.texts()]


async def test_who_leaves_has_not_failed(client: Client, fake: FakeAgent) -> None:
    prompt = "[[text:Hello]][[hang]]"
    for _ in range(3):
        async with client.chat(prompt, stream=True) as response:
            await anext(frames_of(response))
    assert len(fake.runs()) == 3
