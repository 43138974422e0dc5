"""`cursor-gateway logs`, as people and scripts run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import Client, FakeAgent, Start
from tests.http.dialogue import Dialogue
from tests.support.programs import run, serving_process


def shown(fake: FakeAgent, *words: str) -> list[dict[str, Any]]:
    done = run(fake, "logs", "--json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def ids(fake: FakeAgent, *words: str) -> list[str]:
    return [record["id"] for record in shown(fake, *words)]


def named(name: str, client: str) -> dict[str, dict[str, str]]:
    return {"headers": {"X-Request-Id": name, "User-Agent": client}}


async def used(client: Client) -> None:
    await client.content("[[text:x]]", **named("first", "opencode/1.0"))
    await client.error("hi", model="gpt-99", **named("second", "claude-cli/2.0"))
    await client.error("[[exit:1]]", model="composer-2.5-fast", **named("third", "OpenCode/2.0"))


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], ["first", "second", "third"]),
        (["-n", "2"], ["second", "third"]),
        (["--outcome", "complete"], ["first"]),
        (["--outcome", "error"], ["second", "third"]),
        (["--outcome", "agent_failed"], ["third"]),
        (["--client", "opencode"], ["first", "third"]),
        (["--client", "opencode", "--outcome", "error"], ["third"]),
        (["--model", "composer"], ["third"]),
        (["--model", "GPT"], ["second"]),
        (["--since", "1h"], ["first", "second", "third"]),
        (["--since", "2001-01-01"], ["first", "second", "third"]),
        (["--since", "2999-01-01T00:00:00+00:00"], []),
        (["second"], ["second"]),
        (["sec"], ["second"]),
    ],
)
async def test_requests_are_found(
    start: Start, fake: FakeAgent, filters: list[str], found: list[str]
) -> None:
    async with start() as client:
        await used(client)
    assert ids(fake, *filters) == found


async def test_people_get_a_table(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        await used(client)
        await Dialogue(client).say('[[relay:bash {"command": "ls"}]]')
        await client.answer('[[own:semSearch {"q": "x"}]]' * 6 + "[[hang]]")
    head, first, second, third, called, stopped = run(fake, "logs").stdout.splitlines()
    assert head.split()[:3] == ["time", "client", "model"]
    for word in ("opencode/1.0", "auto", "chat", "fresh", "complete", "first"):
        assert word in first
    assert "gpt-99" in second and "model_not_found" in second
    assert "composer-2.5-fast" in third and "agent_failed" in third
    assert "relay" in called and "1 call" in called
    assert "loop stopped" in stopped
    assert "~" in stopped and "~" not in first, "an estimate is shown as one"


async def test_one_request_is_shown_whole(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        await used(client)
    record = json.loads(run(fake, "logs", "first").stdout)
    assert list(record["timeline"])[-1] == "end"
    mark = fake.runs()[0]["env"]["CURSOR_GATEWAY_RUN"]
    assert ids(fake, mark) == ["first"]
    done = run(fake, "logs", "tenth")
    assert done.returncode == 1 and "has no request 'tenth'" in done.stderr


async def test_the_beginning_of_an_id_must_be_enough(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        for name in ("one-1", "one-12", "one-2"):
            await client.content("[[text:x]]", **named(name, "c"))
    assert ids(fake, "one-1") == ["one-1"]
    done = run(fake, "logs", "one")
    assert done.returncode == 1 and "3 requests begin with 'one': one-1, " in done.stderr


async def test_an_outcome_that_none_has_is_told_with_those_there_are(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client:
        await used(client)
    done = run(fake, "logs", "--outcome", "err")
    assert done.returncode == 0
    assert "The journal has: agent_failed, complete, model_not_found." in done.stderr


async def test_older_files_are_read_too_and_broken_lines_passed_over(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client:
        await used(client)
    file = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "journal.jsonl"
    first, *rest = file.read_text().splitlines(keepends=True)
    file.with_name("journal.jsonl.1").write_text(first + "[]\n")
    file.write_text("{half\n" + "".join(rest) + '{"id": "unended')
    assert ids(fake) == ["first", "second", "third"]


def following(fake: FakeAgent, *words: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "cursor_gateway", "logs", "--follow", "--json", *words]
    return subprocess.Popen(program, env=fake.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def test_what_comes_is_shown_as_it_comes(start: Start, fake: FakeAgent) -> None:
    """Also where the file did not exist, and after another has taken its place."""
    with following(fake) as logs:
        assert logs.stdout is not None and logs.stderr is not None
        assert b"no journal" in logs.stderr.readline()
        for name in ("one", "two"):
            async with start() as client:
                await client.error("hi", model="gpt-99", **named(name, "x"))
            assert json.loads(logs.stdout.readline())["id"] == name
            file = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "journal.jsonl"
            file.rename(file.with_name("journal.jsonl.1"))
        logs.send_signal(signal.SIGINT)
        assert logs.stderr.read().strip() == b""
    assert logs.returncode == 130


async def test_following_begins_with_the_last_ones(start: Start, fake: FakeAgent) -> None:
    async with start() as client:
        await used(client)
    with following(fake, "-n", "1") as logs:
        assert logs.stdout is not None
        assert json.loads(logs.stdout.readline())["id"] == "third"
        logs.send_signal(signal.SIGINT)


def test_without_a_journal_it_says_so(fake: FakeAgent) -> None:
    done = run(fake, "logs")
    assert done.returncode == 0 and "There is no journal" in done.stderr


def test_less_than_no_lines_is_refused(fake: FakeAgent) -> None:
    done = run(fake, "logs", "-n", "-3")
    assert done.returncode == 2 and "-3 is not in the range" in done.stderr


@pytest.mark.parametrize("time", ["yesterday-ish", "999999d"])
def test_a_time_that_is_none_is_refused(fake: FakeAgent, time: str) -> None:
    done = run(fake, "logs", "--since", time)
    assert done.returncode == 2 and "10m" in done.stderr


async def test_every_line_of_the_servers_log_names_its_request(
    fake: FakeAgent, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    prompt = '[[own:semSearch {"q": "x"}]]' * 6 + "[[hang]]"
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}]}
    async with (
        serving_process(fake, log) as url,
        aiohttp.ClientSession(headers={"X-Request-Id": "mine"}) as session,
        session.post(f"{url}/chat/completions", json=body) as response,
    ):
        assert response.headers["X-Request-Id"] == "mine"
    lines = log.read_text().splitlines()
    (stopped,) = [line for line in lines if "loop guard stopped" in line]
    assert stopped.endswith(" [mine]")
    (served,) = [line for line in lines if "POST /v1/chat" in line]
    assert served.endswith(" ms mine")
    assert "waiting for running answers" in lines[-1] and "mine" not in lines[-1]
