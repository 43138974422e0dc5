"""What became of each request: in memory, for pages; in a file, for later."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from typing import Any

import pytest

from cursor_gateway.journal.record import Record
from tests.conftest import (
    EITHER_AGENT,
    WAIT_SECONDS,
    Client,
    FakeAgent,
    Start,
    eventually,
    frames_of,
)
from tests.http.dialogue import BASH, Dialogue
from tests.support.views import folder, listed

CANARY = "canary-9321"
UNKNOWN = {"model": "gpt-99"}
NOTHING_SAID = {"model": "auto", "max_tokens": 9, "messages": []}


def written(fake: FakeAgent) -> list[dict[str, Any]]:
    """The file, once its gateway is gone."""
    lines = (folder(fake) / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@EITHER_AGENT
async def test_a_record_says_what_became_of_a_request(start: Start, fake: FakeAgent) -> None:
    async with start(aliases={"fast": "composer-2.5-fast"}) as client:
        headers = {"User-Agent": "opencode/1.18.33 (linux; x64)", "X-Request-Id": "mine-1"}
        await client.content("[[think:hm]][[text:Hello]]", model="fast", headers=headers)
        (shown,) = await listed(client)
    (record,) = written(fake)
    assert record["id"] == "mine-1" and record["client"] == "opencode/1.18.33"
    assert (record["dialect"], record["stream"]) == ("chat", False)
    assert (record["model"], record["resolved"]) == ("fast", "composer-2.5-fast")
    assert (record["outcome"], record["status"]) == ("complete", 200)
    assert (record["channel"], record["agent"]) == ("none", "fresh")
    assert record["agent_kind"] == {"cli": "cursor-agent"}.get(fake.kind, fake.kind)
    assert record["tokens"]["output"] > 0 and record["tokens"]["estimated"] is False
    assert record["chat"] and record["calls"] == [] and record["loop"] is None
    assert shown | {"agents": []} == record | {"agents": []}


@EITHER_AGENT
async def test_the_timeline_is_in_order(client: Client) -> None:
    await client.content("[[text:Hello]]")
    (record,) = await listed(client)
    moments = ["queued", "started", "agent_started", "first_event", "first_token", "end"]
    assert list(record["timeline"]) == moments
    assert sorted(record["timeline"].values()) == list(record["timeline"].values())
    assert record["first_token_ms"] == record["timeline"]["first_token"]
    assert record["duration_ms"] == record["timeline"]["end"]
    assert record["queue_ms"] <= record["first_token_ms"]


@EITHER_AGENT
async def test_the_log_tells_the_timeline_of_an_answer_if_it_is_asked_to(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with start(timing=True) as client:
        await client.content("[[text:Hello]]")
        await client.answer("never begun", **UNKNOWN)
        moments = (await listed(client))[-1]["timeline"]
    (line,) = [line for line in caplog.messages if line.startswith("timing ")]
    assert f"first event {moments['first_token']} ms, end {moments['end']} ms" in line


@EITHER_AGENT
async def test_the_first_event_is_not_the_first_word(client: Client) -> None:
    """An answer that is held back until it is checked has events long before it has words."""
    text = '[[text:{"a":]][[text: 1}]]'
    await client.content(text, response_format={"type": "json_object"})
    (record,) = await listed(client)
    assert record["timeline"]["first_event"] < record["timeline"]["first_token"]


@pytest.mark.parametrize(
    ("user_agent", "client_name"),
    [
        ("claude-cli/2.1.325 (external, cli)", "claude-cli/2.1.325"),
        ("OpenAI/Python 2.3.0", "OpenAI/Python 2.3.0"),
        ("AsyncOpenAI/Python 2.3.0 x", "AsyncOpenAI/Python 2.3.0"),
        ("x" * 500, "x" * 60),
        ("\u00e9t\u00e9", ""),
        ("", ""),
    ],
)
async def test_a_client_is_known_by_its_first_word(
    client: Client, user_agent: str, client_name: str
) -> None:
    await client.error("hi", **UNKNOWN, headers={"User-Agent": user_agent})
    assert [record["client"] for record in await listed(client)] == [client_name]


async def test_what_is_refused_has_a_record_too(start: Start, fake: FakeAgent) -> None:
    async with start(api_key="right") as client:
        await client.error("hi")
        client.headers = {"x-api-key": "right"}
        await client.error("hi", **UNKNOWN)
        await client.error([], headers={"Content-Type": "text/plain"})
        url = client.url("/v1/messages")
        async with client.session.post(url, json=NOTHING_SAID, headers=client.headers) as response:
            assert response.status == 400
        # No conversations, so no records.
        await client.get("/v1/models")
        await client.get("/v1/chat/completions")
    assert "gpt-99" in written(fake)[1]["error"]
    told = [
        tuple(record[it] for it in ("dialect", "status", "outcome")) for record in written(fake)
    ]
    assert told == [
        ("chat", 401, "invalid_api_key"),
        ("chat", 400, "model_not_found"),
        ("chat", 415, "unsupported_media_type"),
        ("messages", 400, "missing_messages"),
    ]


async def test_an_answer_that_breaks_off_is_no_complete_one(start: Start, fake: FakeAgent) -> None:
    async with start(record_prompts=True) as client:
        await client.frames("[[text:Hello]][[stderr:Error: it broke]][[exit:3]]")
    (record,) = written(fake)
    assert (record["status"], record["outcome"]) == (200, "agent_failed")
    assert "it broke" in record["error"]
    assert [agent["exit"] for agent in record["agents"]] == [3]
    assert "first_token" in record["timeline"] and record["tokens"] is None


@EITHER_AGENT
@pytest.mark.parametrize("prompt", ["[[hang]]", "[[text:Hello]][[hang]]"])
async def test_a_client_that_left_is_noted(start: Start, fake: FakeAgent, prompt: str) -> None:
    async with start() as client:
        request = asyncio.ensure_future(client.frames(prompt))
        await eventually(fake.at_work)
        request.cancel()
        while (await listed(client))[0]["outcome"] == "running":
            pass
    (record,) = written(fake)
    assert (record["status"], record["outcome"]) == (499, "client_gone")


@EITHER_AGENT
async def test_an_unexpected_error_is_noted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr("cursor_gateway.core.turn.Turn.feed", broken)
    await client.error("hi")
    (record,) = await listed(client)
    assert (record["status"], record["outcome"]) == (500, "server_error")


@EITHER_AGENT
async def test_running_and_waiting_requests_are_shown(start: Start) -> None:
    async with start(slots=1) as client:
        async with client.chat("[[text:one]][[hang]]", stream=True) as response:
            await anext(frames_of(response))
            waiting = asyncio.ensure_future(client.content("[[text:two]]"))
            while len(await listed(client)) < 2:
                pass
            second, first = await listed(client)
            assert first["outcome"] == second["outcome"] == "running"
            assert first["status"] is None and first["duration_ms"] >= first["first_token_ms"]
            assert list(second["timeline"]) == ["queued"] and second["queue_ms"] is None
        await waiting
        finished = {record["id"]: record for record in await listed(client)}
        assert finished[second["id"]]["queue_ms"] > 0


@EITHER_AGENT
async def test_a_record_follows_the_agent_over_several_requests(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client:
        await calls_and_goes_on(client)
    called, continued, resumed = written(fake)
    assert [each["agent"] for each in (called, continued, resumed)] == [
        "fresh",
        "continued",
        "resumed",
    ]
    assert {each["channel"] for each in (called, continued, resumed)} == {"relay"}
    assert called["calls"] == ["bash"] and "calls" in called["timeline"]
    assert called["chat"] == continued["chat"] == resumed["chat"]


async def test_a_record_names_the_process_of_its_run(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        await calls_and_goes_on(client)
    called, continued, resumed = written(fake)
    assert called["agents"][0]["exit"] is None, "it waits for the result"
    assert called["agents"][0]["run"] == continued["agents"][0]["run"]
    assert called["agents"][0]["run"] != resumed["agents"][0]["run"]


async def calls_and_goes_on(client: Client) -> None:
    talk = Dialogue(client)
    await talk.say('[[relay:bash {"command": "ls"}]][[text:ok]]')
    await talk.bring("a.txt")
    await talk.say("[[text:again]]")


@EITHER_AGENT
@pytest.mark.parametrize(
    ("step", "channel"),
    [('[[call:bash {"command": "ls"}]]', "text"), ('[[native:shell {"command": "ls"}]]', "native")],
)
async def test_the_channel_of_a_call_is_noted(client: Client, step: str, channel: str) -> None:
    await Dialogue(client).say(step)
    (record,) = await listed(client)
    assert (record["channel"], record["calls"]) == (channel, ["bash"])


@EITHER_AGENT
async def test_a_stopped_loop_is_noted(client: Client) -> None:
    await client.answer('[[own:semSearch {"q": "x"}]]' * 6 + "[[hang]]")
    (record,) = await listed(client)
    assert record["loop"]["tool"] == "semSearch" and record["outcome"] == "complete"
    assert [agent["how"] for agent in record["agents"]] == ["fresh", "fresh"]


async def test_an_agent_that_was_started_early_is_noted(start: Start, fake: FakeAgent) -> None:
    async with start(warm=1) as client:
        await client.content("[[text:one]]")
        while (await client.get("/health"))[1]["warm"]["spares"] == 0:
            pass
        await client.content("[[text:two]]")
    first, second = written(fake)
    assert [each["agents"][0]["spare"] for each in (first, second)] == [False, True]
    assert fake.runs()[1]["env"]["CURSOR_GATEWAY_RUN"] == second["agents"][0]["run"]


async def test_an_agents_process_leads_to_its_request(client: Client, fake: FakeAgent) -> None:
    async with client.chat("[[text:one]][[hang]]", stream=True) as response:
        await anext(frames_of(response))
        (pid,) = fake.processes()
        (record,) = await listed(client)
        (agent,) = record["agents"]
        assert agent["pid"] == pid
        (run,) = fake.runs()
        assert run["env"]["CURSOR_GATEWAY_RUN"] == agent["run"]
        assert record["id"] == response.headers["X-Request-Id"]


async def test_one_record_in_detail(client: Client) -> None:
    _, error = await client.error("hi", **UNKNOWN)
    status, record = await client.get(f"/v1/requests/{error['request_id']}")
    assert (status, record["outcome"]) == (200, "model_not_found")
    assert await client.get(f"/requests/{error['request_id']}") == (200, record)
    status, body = await client.get("/v1/requests/nobody")
    assert (status, body["error"]["code"]) == (404, "request_not_found")


async def test_the_list_is_as_long_as_it_is_wanted(client: Client) -> None:
    ids = [(await client.error("hi", **UNKNOWN))[1]["request_id"] for _ in range(3)]
    _, body = await client.get("/v1/requests?limit=2")
    assert [record["id"] for record in body["data"]] == [ids[2], ids[1]]
    for wrong in ("x", "-1", ""):
        assert (await client.get(f"/v1/requests?limit={wrong}"))[0] == 400


async def test_only_the_last_ones_are_kept_in_memory(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.journal.ring.RECENT", 3)
    async with start() as client:
        for _ in range(5):
            await client.error("hi", **UNKNOWN)
        assert len(await listed(client)) == 3
    assert len(written(fake)) == 5


@pytest.mark.parametrize("path", ["/v1/requests", "/v1/requests/x", "/metrics"])
async def test_the_key_guards_the_journal(start: Start, path: str) -> None:
    async with start(api_key="right") as client:
        assert (await client.get(path))[0] == 401
        assert (await client.get(path, Origin="https://evil.example"))[0] == 403


@EITHER_AGENT
async def test_prompts_and_answers_stay_out(start: Start, fake: FakeAgent) -> None:
    prompt = f'{CANARY} [[think:{CANARY}]][[text:{CANARY}]][[call:bash {{"command": "{CANARY}"}}]]'
    async with start() as client:
        await Dialogue(client).say(prompt)
        await client.error(f"{CANARY}[[stderr:{CANARY}]][[exit:1]]")
        for record in await listed(client):
            shown = await client.get(f"/v1/requests/{record['id']}")
            assert CANARY not in json.dumps(shown)
    assert len(written(fake)) == 2
    assert CANARY not in (folder(fake) / "journal.jsonl").read_text()


@EITHER_AGENT
async def test_prompts_and_answers_are_recorded_on_demand(start: Start, fake: FakeAgent) -> None:
    async with start(record_prompts=True) as client:
        body = {"tools": [BASH], "headers": {"X-Request-Id": "mine"}}
        await client.answer('Hi [[think:hm]][[text:yes\n]][[call:bash {"command": "ls"}]]', **body)
        (record,) = await listed(client)
        assert "request" not in record and "answer" not in record
        _, shown = await client.get("/v1/requests/mine")
    assert json.loads(shown["request"])["messages"][0]["content"].startswith("Hi ")
    calls = [{"name": "bash", "arguments": '{"command":"ls"}'}]
    assert shown["answer"] == {"text": "yes\n", "thinking": "hm", "calls": calls}
    (record,) = written(fake)
    assert (record["request"], record["answer"]) == (shown["request"], shown["answer"])


async def test_only_the_last_ones_keep_their_words_in_memory(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.journal.ring.RECENT_WITH_WORDS", 2)
    monkeypatch.setattr("cursor_gateway.journal.ring.WORDS_KEPT", 20)
    async with start(record_prompts=True) as client:
        for name in ("one", "two", "three"):
            await client.error("hi", **UNKNOWN, headers={"X-Request-Id": name})
        shown = [(await client.get(f"/v1/requests/{name}"))[1] for name in ("one", "two", "three")]
    assert ["request" in record for record in shown] == [False, True, True]
    assert [len(record["request"]) for record in written(fake)] == [20, 20, 20]


async def test_the_file_is_nobody_elses(start: Start, fake: FakeAgent) -> None:
    before = os.umask(0)
    try:
        async with start() as client:
            await client.error("hi", **UNKNOWN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder(fake).stat().st_mode) == 0o700
    assert stat.S_IMODE((folder(fake) / "journal.jsonl").stat().st_mode) == 0o600


async def test_the_files_never_outgrow_their_limit(start: Start, fake: FakeAgent) -> None:
    big = "x" * 50_000
    async with start(journal_mb=1, record_prompts=True) as client:
        for _ in range(30):
            await client.error(big, **UNKNOWN)
    files = sorted(folder(fake).glob("journal*"))
    names = [path.name for path in files]
    assert names == ["journal.jsonl", *(f"journal.jsonl.{number}" for number in (1, 2, 3, 4))]
    sizes = [path.stat().st_size for path in files]
    assert 800_000 < sum(sizes) < 1024 * 1024


async def test_two_gateways_share_one_journal(start: Start, fake: FakeAgent) -> None:
    small = {"journal_mb": 1, "record_prompts": True}
    async with start(**small) as one, start(**small) as two:
        errors = [client.error("x" * 3000, **UNKNOWN) for client in (one, two) * 100]
        await asyncio.gather(*errors)
    files = list(folder(fake).glob("journal*"))
    assert len(files) > 1
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len({json.loads(line)["id"] for line in lines}) == len(lines) == 200


async def test_without_a_size_nothing_is_written(start: Start, fake: FakeAgent) -> None:
    async with start(journal_mb=0) as client:
        await client.error("hi", **UNKNOWN)
        assert len(await listed(client)) == 1
    assert not list(folder(fake).glob("journal*"))


async def test_a_disk_that_fails_costs_only_the_records(
    start: Start, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    folder(fake).parent.write_text("not a directory")
    async with start() as client:
        for _ in range(3):
            assert await client.content("[[text:fine]]") == "fine"
        assert len(await listed(client)) == 3
    assert caplog.text.count("cannot be written") == 1


async def test_a_full_disk_leaves_no_half_lines(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    full = True

    def write(fd: int, data: bytes) -> int:
        is_journal = data.startswith(b'{"id":')
        return real(fd, data[:10] if is_journal and full else data)

    monkeypatch.setattr("cursor_gateway.journal.file.os.write", write)
    async with start() as client:
        await client.error("hi", **UNKNOWN)
        while "journal_lost_total 1" not in await metrics(client):
            pass
        full = False
        await client.error("hi", **UNKNOWN)
    assert len(written(fake)) == 1


@pytest.mark.parametrize("value", [object(), 2**80, "\ud800"])
async def test_a_record_that_is_no_json_costs_only_itself(
    start: Start,
    fake: FakeAgent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    value: object,
) -> None:
    real = Record.as_json

    def as_json(record: Record) -> dict[str, Any]:
        return real(record) | ({"odd": value} if record.id.startswith("odd") else {})

    monkeypatch.setattr(Record, "as_json", as_json)
    async with start() as client:
        for name in ("odd-1", "odd-2"):
            await client.error("hi", **UNKNOWN, headers={"X-Request-Id": name})
        async with asyncio.timeout(WAIT_SECONDS):
            while "journal_lost_total 2" not in await metrics(client):
                pass
        await client.error("hi", **UNKNOWN, headers={"X-Request-Id": "even"})
    assert [record["id"] for record in written(fake)] == ["even"]
    assert caplog.text.count("a record is missing in the journal") == 1


async def test_an_answer_is_whole_though_it_cannot_be_noted(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Record, "processes", lambda record: 1 / 0)
    assert await client.text("[[text:fine]]") == "fine"
    assert "a request is missing in the journal" in caplog.text


async def metrics(client: Client) -> str:
    async with client.session.get(client.url("/metrics")) as response:
        return await response.text()


async def test_a_disk_that_hangs_delays_nobody(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it is bounded; the end of the gateway waits a moment, not for ever."""
    monkeypatch.setattr("cursor_gateway.journal.file.MAX_WAITING", 2)
    monkeypatch.setattr("cursor_gateway.journal.file.CLOSE_SECONDS", 0.05)
    folder(fake).mkdir(parents=True)
    os.mkfifo(folder(fake) / "journal.jsonl")  # whose opening waits for a reader
    async with start() as client:
        while "journal_lost_total 3" not in await metrics(client):
            await client.error("hi", **UNKNOWN)
    reader = os.open(folder(fake) / "journal.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    os.close(reader)
