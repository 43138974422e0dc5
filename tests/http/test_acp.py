"""Cursor's CLI as an ACP server answers: words, models, images, failures, what is told of it."""

from __future__ import annotations

import base64
import json

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually, text_of
from tests.http.dialogue import Dialogue

pytestmark = pytest.mark.agents("acp")

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def test_every_word_arrives_once(client: Client) -> None:
    steps = "[[think:Hm. ]][[text:Hello ]][[unknown]][[text:\U0001f469 world]]"
    assert await client.text(steps) == "Hello \U0001f469 world"
    message = (await client.answer(steps))["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm. "


async def test_words_are_passed_on_as_they_come(client: Client, fake: FakeAgent) -> None:
    async with client.chat("[[text:Hello]][[await:go]][[text: world]]", stream=True) as response:
        async for line in response.content:
            if b"Hello" in line:
                break
        fake.put("go")
        assert b" world" in await response.read()


async def test_sentences_around_a_tool_are_paragraphs(client: Client) -> None:
    steps = "[[text:Look.]][[own:read {}]][[text:There.]]"
    assert await client.content(steps) == "Look.\n\nThere."


@pytest.mark.parametrize(
    "vice", ["[[noise:Using worktree: x]]", "[[array]]", "[[cut-line:lost]]", "[[deep:3000]]"]
)
async def test_what_is_no_message_is_passed_over(client: Client, vice: str) -> None:
    assert await client.content(f"{vice}[[text:Hello]]") == "Hello"


async def test_banners_and_lines_of_megabytes_do_no_harm(client: Client, fake: FakeAgent) -> None:
    fake.put("banner", "Using worktree: /somewhere")
    assert await client.content("[[line:5000000]][[bytewise:Hell\u00f6]]") == "Hell\u00f6"


async def test_usage_is_estimated_and_says_so(client: Client) -> None:
    answer = await client.answer("[[text:Hello]]")
    assert answer["usage"]["completion_tokens"] > 0
    assert answer["usage"]["estimated"] is True


async def test_no_browser_is_opened_and_nobody_is_asked_to_sign_in(
    client: Client, fake: FakeAgent
) -> None:
    fake.env["CURSOR_GATEWAY_API_KEY"] = "secret"
    await client.content("[[text:hi]]")
    (run,) = fake.runs()
    assert run["env"]["NO_OPEN_BROWSER"] == "1" and run["env"]["BROWSER"].endswith("/true")
    assert not {"CURSOR_GATEWAY_API_KEY", "NODE_OPTIONS"} & run["env"].keys()
    assert fake.rpcs("authenticate") == []


async def test_it_works_in_an_empty_directory_where_it_may_do_nothing(
    client: Client, fake: FakeAgent
) -> None:
    account = fake.home / "account"
    steps = f'[[try:read {{"path": "{account}"}}]][[say-result]][[act:touch a]][[say-result]]'
    said = await client.content(steps)
    assert "Permission denied" in said and "rejected" in said
    (run,) = fake.runs()
    assert run["files"] == [".cursor"] and run["chosen"]["mode"] == "ask"


async def test_models_have_the_names_of_print_mode(client: Client, fake: FakeAgent) -> None:
    _, listed = await client.get("/v1/models")
    ids = {model["id"] for model in listed["data"]}
    assert {"auto", "gpt-5.6-sol-high", "composer-2.5-fast", "claude-opus-5-thinking-high"} <= ids
    await client.content("[[text:hi]]", model="composer-2.5-fast")
    await client.content("[[text:hi]]", model="gpt-5.6-sol-low")
    await client.content("[[text:hi]]", model="auto")
    fast, low, auto = (run["chosen"] for run in fake.runs())
    assert (fast["model"], fast["fast"]) == ("composer-2.5", "true")
    assert (low["model"], low["reasoning"]) == ("gpt-5.6-sol", "low")
    assert auto["model"] == "default"


async def test_models_are_never_asked_for_beside_a_living_process(
    client: Client, fake: FakeAgent
) -> None:
    fake.put("models-kill-acp")
    await client.content("[[text:hi]]")
    await client.error("[[text:hi]]", model="gpt-99")
    await client.get("/v1/models")
    assert not (fake.home / "models-beside-acp").exists()


async def test_a_model_that_there_is_not_is_not_found(client: Client) -> None:
    status, error = await client.error("[[text:hi]]", model="gpt-99")
    assert (status, error["code"]) == (400, "model_not_found")


async def test_an_image_goes_beside_the_text(client: Client, fake: FakeAgent) -> None:
    data = base64.b64encode(PIXEL).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    asked = [{"role": "user", "content": [image, {"type": "text", "text": "[[text:seen]]"}]}]
    assert await client.content(asked) == "seen"
    (run,) = fake.runs()
    assert run["images"] == [{"type": "image", "data": data, "mimeType": "image/png"}]
    assert "[image: number 1 of those beside this text]" in run["prompt"]


# Failures

FAILURES = {
    "T: [resource_exhausted] Error": (429, "rate_limited"),
    "RetriableError: [internal] Failed to run step, exceeded max retries": (
        503,
        "cursor_unreachable",
    ),
    "I: AI Model Not Found Model name is not valid: gpt": (400, "model_not_found"),
    "T: [canceled] http/2 stream closed with error code CANCEL": (503, "cursor_unreachable"),
    "You've hit your usage limit": (429, "quota_exceeded"),
    "S: nobody knows": (502, "agent_failed"),
}


@pytest.mark.parametrize(("words", "told"), FAILURES.items())
async def test_a_failure_that_looks_like_an_answer_is_a_failure(
    client: Client, words: str, told: tuple[int, str]
) -> None:
    status, error = await client.error(f"[[error-text:{words}]]")
    assert (status, error["code"]) == told


@pytest.mark.parametrize(("words", "told"), FAILURES.items())
async def test_behind_words_it_ends_the_stream_with_an_error(
    client: Client, words: str, told: tuple[int, str]
) -> None:
    frames = await client.frames(f"[[text:Hello]][[error-text:{words}]]")
    assert text_of(frames[:-1]) == "Hello"
    assert frames[-1]["error"]["code"] == told[1]


async def test_words_about_errors_are_an_answer(client: Client) -> None:
    assert await client.content("[[error-text:handling in Go is explicit.]]") == (
        "Error: handling in Go is explicit."
    )
    assert await client.content("[[words:Error: handling in Go.]]") == "Error: handling in Go."


@pytest.mark.parametrize(
    ("step", "status", "code"),
    [
        ("[[rpc-error:-32000 Authentication required]]", 401, "not_authenticated"),
        ("[[rpc-error:-32603 connect ECONNREFUSED]]", 503, "cursor_unreachable"),
        ('[[rpc-error:-32603 [{"code": "invalid_type"}]]]', 502, "agent_failed"),
    ],
)
async def test_what_a_prompt_is_refused_with_is_a_status(
    client: Client, step: str, status: int, code: str
) -> None:
    found, error = await client.error(step)
    assert (found, error["code"]) == (status, code)


async def test_signed_out_is_401_at_once(client: Client, fake: FakeAgent) -> None:
    fake.sign_out()
    status, error = await client.error("[[text:hi]]")
    assert (status, error["code"]) == (401, "not_authenticated")


async def test_a_fault_that_passes_is_tried_once_more(client: Client, fake: FakeAgent) -> None:
    fake.put("fails-session-new", "-32603 1 Failed to initialize session services")
    assert await client.content("[[text:hi]]") == "hi"
    assert len(fake.rpcs("session/new")) == 2


async def test_one_that_stays_is_told(client: Client, fake: FakeAgent) -> None:
    fake.put("fails-session-new", "-32603 0 Failed to initialize session services")
    status, error = await client.error("[[text:hi]]")
    assert (status, error["code"]) == (503, "cursor_unreachable")
    assert len(fake.rpcs("session/new")) == 2


async def test_a_key_that_is_not_valid_is_401(start: Start, fake: FakeAgent) -> None:
    fake.env["CURSOR_API_KEY"] = "wrong"
    fake.put("key", "right")
    async with start() as client:
        status, error = await client.error("[[text:hi]]")
    assert (status, error["code"]) == (401, "agent_key_invalid")


@pytest.mark.parametrize(
    ("method", "limit"),
    [("initialize", "INITIALIZE"), ("session-new", "SESSION"), ("session-set_mode", "OPTION")],
)
async def test_silence_at_the_start_ends(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch, method: str, limit: str
) -> None:
    monkeypatch.setattr(f"cursor_gateway.agents.acp.session.{limit}_SECONDS", 0.3)
    fake.put("ignores", method)
    async with start() as client:
        status, error = await client.error("[[text:hi]]")
    assert (status, error["code"]) == (504, "agent_timed_out")
    assert method.replace("session-", "session/") in error["message"]


async def test_a_death_at_the_start_says_what_stderr_says(client: Client, fake: FakeAgent) -> None:
    fake.put("dies-at-start", "error: unknown command 'acp'")
    status, error = await client.error("[[text:hi]]")
    assert (status, error["code"]) == (400, "agent_outdated")
    fake.put("dies-at-start", "")
    assert (await client.error("[[text:ho]]"))[0] == 502


async def test_agents_that_meet_in_one_file_start_again(client: Client, fake: FakeAgent) -> None:
    race = "ENOENT: rename '/home/dev/.cursor/cli-config.json.tmp' -> cli-config.json"
    fake.put("dies-at-start", race)
    asked = client.error("[[text:hi]]")
    status, _ = await asked
    assert status == 502
    assert len([call for call in fake.calls() if call["argv"] == ["acp"]]) >= 5


# What is told of it


async def test_health_tells_of_it(client: Client, fake: FakeAgent) -> None:
    await client.content("[[text:hi]]")
    _, health = await client.get("/health")
    assert health["agent"]["kind"] == "acp" and health["agent"]["path"].endswith("cursor-agent")
    assert health["tools"]["channel"] == "relay"
    assert health["auth"] == "authenticated"
    await eventually(lambda: health_is(client, "ok"))


async def health_is(client: Client, status: str) -> bool:
    return bool((await client.get("/health"))[1]["status"] == status)


async def test_the_journal_names_its_session_and_its_process(
    client: Client, fake: FakeAgent
) -> None:
    await client.content("[[text:hi]]")
    _, listed = await client.get("/v1/requests")
    (run,), (record,) = fake.runs(), listed["data"]
    assert record["agent"] == "fresh"
    assert run["session"] in json.dumps(record)


async def test_a_chat_goes_on_in_the_same_session(client: Client, fake: FakeAgent) -> None:
    talk = Dialogue(client, [])
    for word in ("one", "two", "three", "four"):
        assert (await talk.say(f"[[text:{word}]]"))["content"] == word
    assert len(fake.rpcs("session/new")) == 1
    assert [run["prompt"] for run in fake.runs()][1:] == [
        f"[[text:{word}]]" for word in ("two", "three", "four")
    ]
    _, listed = await client.get("/v1/requests")
    assert {entry["agent"] for entry in listed["data"][:3]} == {"resumed"}
