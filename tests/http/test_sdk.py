"""The SDK's bridge answers: words, models, chats, errors, and what is told of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually
from tests.http.dialogue import BASH

pytestmark = pytest.mark.agents("sdk")

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(40)


def turn(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


async def test_every_word_arrives_once(client: Client) -> None:
    steps = "[[think:Hm. ]][[text:Hello ]][[unknown]][[text:\U0001f469 world]]"
    assert await client.text(steps) == "Hello \U0001f469 world"
    message = (await client.answer(steps))["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm. "


async def test_an_agent_without_tools_has_none_and_an_empty_directory(
    client: Client, fake: FakeAgent
) -> None:
    await client.content("[[text:hi]]")
    (run,) = fake.runs()
    assert run["options"]["tools"] == {"names": []}
    assert run["files"] == [] and run["options"]["local"]["cwd"] == [run["cwd"]]


async def test_the_key_goes_into_requests_and_nowhere_else(
    client: Client, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    fake.env["SOME_SECRET"] = "hush"
    await client.content("[[text:hi]]")
    (run,) = fake.runs()
    assert run["options"]["apiKey"] == "key"
    assert not {"CURSOR_API_KEY", "SOME_SECRET", "FAKE_ENV"} & run["env"].keys()
    assert "key" not in run["argv"]
    assert "auth-token" not in caplog.text


async def test_usage_counts_what_is_cached_and_what_nobody_was_shown(client: Client) -> None:
    usage = (await client.answer("[[think:Hm, well]][[text:Hello]]"))["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert "estimated" not in usage
    response = await client.session.post(
        client.url("/v1/responses"), json={"model": "auto", "input": "[[think:Hm]][[text:Hello]]"}
    )
    details = (await response.json())["usage"]["output_tokens_details"]
    assert details == {"reasoning_tokens": 1}


async def test_a_variant_of_a_model_is_an_id_of_its_own(client: Client, fake: FakeAgent) -> None:
    _, listed = await client.get("/v1/models")
    assert "composer-2.5-fast" in {model["id"] for model in listed["data"]}
    await client.content("[[text:hi]]", model="composer-2.5-fast")
    (run,) = fake.runs()
    assert run["model"] == {"id": "composer-2.5", "params": [{"id": "fast", "value": "true"}]}


async def test_an_image_goes_beside_the_text(client: Client, fake: FakeAgent) -> None:
    data = base64.b64encode(PIXEL).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    assert await client.content([turn("user", [image, text("[[text:seen]]")])]) == "seen"  # type: ignore[arg-type]
    (run,) = fake.runs()
    assert run["images"] == [{"data": data, "mimeType": "image/png"}]
    assert "[image: number 1 of those beside this text]" in run["prompt"]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


async def test_a_long_prompt_arrives_whole(client: Client, fake: FakeAgent) -> None:
    await client.content("x" * 3_000_000 + "[[text:hi]]")
    assert fake.runs()[0]["prompt"].count("x") >= 3_000_000


async def test_max_tokens_and_stop_end_the_run(client: Client, fake: FakeAgent) -> None:
    answer = await client.answer("[[slowly:1000]]", stop=[" 7"])
    assert answer["choices"][0]["message"]["content"] == "0 1 2 3 4 5 6"
    await eventually(lambda: fake.rpcs("CancelRun"))
    await eventually(lambda: not fake.at_work())


async def test_in_a_directory_of_the_users_it_may_read(start: Start, fake: FakeAgent) -> None:
    place = fake.home / "project"
    place.mkdir()
    async with start(workspace=str(place)) as client:
        await client.content("[[text:hi]]")
    async with start(workspace=str(place), agent_mode="agent") as client:
        await client.content("[[text:hi]]")
    reads, acts = (run["options"] for run in fake.runs())
    assert reads["tools"] == {"names": ["read", "grep", "glob", "ls"]}
    assert "tools" not in acts
    assert reads["local"]["cwd"] == acts["local"]["cwd"] == [str(place)]


# Chats


async def test_five_turns_take_one_process_and_one_agent(client: Client, fake: FakeAgent) -> None:
    messages: list[dict[str, Any]] = []
    for number in range(5):
        messages.append(turn("user", f"turn {number}"))
        messages.append((await client.answer(messages))["choices"][0]["message"])
    runs = fake.runs()
    assert [run["prompt"] for run in runs] == [f"turn {number}" for number in range(5)]
    assert len({run["pid"] for run in runs}) == len({run["agent"] for run in runs}) == 1
    assert len(fake.rpcs("CreateAgent")) == 1
    _, listed = await client.get("/v1/requests")
    assert {each["agent"] for each in listed["data"]} == {"resumed", "fresh"}


async def test_what_a_finished_conversation_leaves_is_deleted(
    start: Start, fake: FakeAgent
) -> None:
    async with start(session_ttl=0.05) as client:
        await client.content("[[text:hi]]")
        await eventually(lambda: fake.rpcs("DeleteAgent"))
        (deleted,) = fake.rpcs("DeleteAgent")
        assert deleted["options"]["cwd"] == fake.runs()[0]["cwd"]
        store = Path(fake.runs()[0]["argv"][3])
        assert not files_in(store)
    assert not store.parent.exists()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_chat_whose_agent_is_busy_is_replayed(client: Client, fake: FakeAgent) -> None:
    messages = [turn("user", "one"), (await client.answer("one"))["choices"][0]["message"]]
    fake.put("busy", "1")
    assert await client.content([*messages, turn("user", "[[text:two]]")]) == "two"
    resumed, replayed = fake.rpcs("Send")[-2:]
    assert resumed["message"]["text"] == "[[text:two]]"
    assert "one" in replayed["message"]["text"]


async def test_a_chat_goes_on_with_other_tools(client: Client, fake: FakeAgent) -> None:
    messages = [turn("user", "one"), (await client.answer("one"))["choices"][0]["message"]]
    asked = '[[relay:bash {"command": "ls"}]][[say-result]]'
    answer = await client.answer([*messages, turn("user", asked)], tools=[BASH])
    message = answer["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "files"}
    said = await client.content([*messages, turn("user", asked), message, result], tools=[BASH])
    assert said == "files"
    (created,), (resumed,) = fake.rpcs("CreateAgent"), fake.rpcs("ResumeAgent")
    assert resumed["agentId"] == created["options"]["agentId"]
    first, second = (sent["message"]["text"] for sent in fake.rpcs("Send"))
    assert first == "one" and '<turn from="user">\none' not in second


async def test_a_chat_that_cannot_be_resumed_with_other_tools_is_replayed(
    client: Client, fake: FakeAgent
) -> None:
    messages = [turn("user", "one"), (await client.answer("one"))["choices"][0]["message"]]
    fake.put("no-resume", "1")
    said = await client.content([*messages, turn("user", "[[text:two]]")], tools=[BASH])
    assert said == "two"
    assert len(fake.rpcs("CreateAgent")) == 2
    assert "one" in fake.rpcs("Send")[-1]["message"]["text"]
    await eventually(lambda: fake.rpcs("DeleteAgent"))


async def test_without_session_reuse_nothing_is_kept(start: Start, fake: FakeAgent) -> None:
    async with start(session_reuse=False) as client:
        await client.content("[[text:hi]]")
        await eventually(lambda: fake.rpcs("DeleteAgent"))


async def test_a_warm_agent_is_created_for_what_was_seen(start: Start, fake: FakeAgent) -> None:
    async with start(warm=1) as client:
        await client.content("[[text:one]]", tools=[BASH])
        await eventually(lambda: len(fake.rpcs("CreateAgent")) == 2)
        await eventually(lambda: spares_of(client))
        await client.content("[[text:other]]", tools=[BASH])
        used, ready = fake.runs()
        created = [each["options"]["agentId"] for each in fake.rpcs("CreateAgent")]
        assert [used["agent"], ready["agent"]] == created[:2]


async def spares_of(client: Client) -> int:
    return int((await client.get("/health"))[1]["warm"]["spares"])


# Errors


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("UNAUTHORIZED", 401, "agent_key_invalid"),
        ("API_KEY_NOT_FOUND", 401, "agent_key_invalid"),
        ("PLAN_REQUIRED", 402, "plan_required"),
        ("USAGE_LIMIT_EXCEEDED", 429, "quota_exceeded"),
        ("INVALID_MODEL", 400, "model_not_found"),
        ("UPSTREAM_ERROR", 503, "cursor_unreachable"),
    ],
)
async def test_an_error_of_the_bridge_keeps_its_meaning(
    client: Client, kind: str, status: int, code: str
) -> None:
    found, error = await client.error(f"[[error:{kind} 0 so it is]]")
    assert (found, error["code"]) == (status, code)
    assert "so it is" in error["message"]


async def test_a_client_is_told_when_to_come_back(client: Client) -> None:
    async with client.chat("[[error:RATE_LIMIT_EXCEEDED 17 slow down]]") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "17")


async def test_a_run_that_fails_in_a_stream_that_succeeds_has_failed(client: Client) -> None:
    status, error = await client.error("[[error-event:You have hit your usage limit]]")
    assert (status, error["code"]) == (429, "quota_exceeded")


async def test_a_run_may_say_why_it_failed_in_its_result_only(client: Client) -> None:
    status, error = await client.error("[[fail-as-result:rate_limited: slow down]]")
    assert (status, error["code"]) == (429, "rate_limited")


@pytest.mark.parametrize("vice", ["no-last-frame", "cut-off", "half-line", "garbage", "huge"])
async def test_a_stream_that_breaks_is_a_failure_that_may_pass(client: Client, vice: str) -> None:
    status, error = await client.error(f"[[{vice}]][[error-event:x]]")
    assert (status, error["code"]) == (502, "agent_failed")


@pytest.mark.parametrize("vice", ["no-done", "linger", "noise", "stderr", "flood:1000000"])
async def test_an_answer_that_is_whole_is_an_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch, vice: str
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.sdk.sending.END_SECONDS", 0.1)
    messages = [turn("user", f"[[{vice}]][[text:Hello]]")]
    for _ in range(2):
        messages.append((await client.answer(messages))["choices"][0]["message"])
        assert messages[-1]["content"] == "Hello"
        messages.append(turn("user", "[[text:Hello]]"))


async def test_a_stream_without_a_result_is_a_failure(client: Client) -> None:
    assert (await client.error("[[no-result]][[own:read {}]]"))[0] == 502


async def test_frames_may_be_split_anywhere(start: Start, fake: FakeAgent) -> None:
    fake.put("split-frames", "3")
    async with start() as client:
        assert await client.content("[[think:Hm]][[text:Hello ]][[text:world]]") == "Hello world"


async def test_busy_is_never_shown(client: Client, fake: FakeAgent) -> None:
    fake.put("busy", "1")
    fake.put("busy-typed")
    status, error = await client.error("[[text:hi]]")
    assert (status, error["type"]) == (502, "server_error")


async def test_an_agent_that_says_nothing_is_stopped(start: Start, fake: FakeAgent) -> None:
    fake.put("keep-alive", "0.05")
    for name, steps in (
        ("first_event_timeout", "[[hang]]"),
        ("idle_timeout", "[[own:read {}]][[hang]]"),
        ("total_timeout", "[[hang]]"),
    ):
        async with start(**{name: 0.3}) as client:
            status, error = await client.error(steps)
            assert (status, error["code"]) == (504, "agent_timed_out")
            assert name in error["message"]
            await eventually(lambda: not fake.at_work())


async def test_an_answer_that_nobody_reads_ends_with_an_error(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.sdk.sending.MOST_CHARACTERS", 1000)
    async with start() as client:
        status, _ = await client.error("[[pour:1]]")
        assert status == 502
        await eventually(lambda: not fake.at_work())


# What is told of it


async def test_health_tells_of_it(client: Client, fake: FakeAgent) -> None:
    await client.content("[[text:hi]]")
    status, health = await client.get("/health")
    assert status == 200
    assert health["agent"] == {"kind": "sdk", "path": str(fake.bridge), "version": "1.0.0"}
    assert (health["auth"], health["account"]) == ("authenticated", "dev@example.com")
    assert health["bridge"]["pid"] and health["bridge"]["restarts"] == 0


async def test_without_a_key_nobody_can_be_served(start: Start, fake: FakeAgent) -> None:
    del fake.env["CURSOR_API_KEY"]
    async with start() as client:
        status, health = await client.get("/health")
        assert (status, health["error"]["code"]) == (503, "not_authenticated")
        assert "CURSOR_API_KEY" in health["error"]["message"]
        assert (await client.error("[[text:hi]]"))[0] in (401, 403)


async def test_without_a_bridge_nobody_can_be_served(start: Start, fake: FakeAgent) -> None:
    fake.env["CURSOR_SDK_BRIDGE_BIN"] = "/nowhere"
    async with start() as client:
        _, health = await client.get("/health")
        assert health["error"]["code"] == "agent_not_found"
        assert "pip install 'cursor-gateway[sdk]'" in health["error"]["message"]


@pytest.mark.parametrize(
    ("switch", "value", "code", "words"),
    [
        ("schema-version", "2", "agent_outdated", "schemaVersion '2'"),
        ("dies-at-start", "no node here", "agent_failed", "no node here"),
        ("offline", "", "cursor_unreachable", "Network request failed"),
    ],
)
async def test_a_bridge_that_cannot_be_used_is_a_clear_problem(
    start: Start, fake: FakeAgent, switch: str, value: str, code: str, words: str
) -> None:
    fake.put(switch, value)
    async with start() as client:
        health = await eventually(lambda: problem_of(client))
        assert health["code"] == code and words in health["message"]
        status, error = await client.error("[[text:hi]]")
        assert error["code"] == code, status


async def problem_of(client: Client) -> Any:
    return (await client.get("/health"))[1].get("error")


async def test_a_bridge_that_is_never_ready_is_given_up(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.sdk.bridge.READY_SECONDS", 0.2)
    fake.put("never-ready")
    async with start() as client:
        health = await eventually(lambda: problem_of(client))
        assert "did not get ready" in health["message"]


async def test_a_token_in_the_ready_line_is_not_logged(
    start: Start, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    fake.put("token-in-line")
    async with start(debug=True) as client:
        await client.content("[[text:hi]]")
    assert "authToken" not in caplog.text
