"""The page at `/`: who gets its files, what they may do, and the routes behind them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import aiohttp
import pytest

from cursor_gateway.clients import CLIENTS
from cursor_gateway.journal.record import Record
from cursor_gateway.web import live_events
from cursor_gateway.web.routes.page import FILES
from tests.conftest import WAIT_SECONDS, Client, FakeAgent, Start
from tests.dialects.answers import REQUESTS
from tests.http.dialogue import Dialogue, tool

KEY = "gw-canary-key"


async def fetched(client: Client, path: str, **headers: str) -> aiohttp.ClientResponse:
    async with client.session.get(client.url(path), headers=headers) as response:
        await response.read()
        return response


def basic(password: str) -> str:
    return f"Basic {b64encode(f'anyone:{password}'.encode()).decode()}"


async def told(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    event = ""
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            yield event, json.loads(value)


# The files


@pytest.mark.parametrize("path", FILES)
async def test_each_file_may_load_only_what_the_gateway_itself_serves(
    client: Client, path: str
) -> None:
    response = await fetched(client, path)
    assert response.status == 200
    policy = dict(
        part.strip().split(" ", 1)
        for part in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    for name in ("base-uri", "form-action", "frame-ancestors"):
        assert policy[name] == "'none'"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
    suffix = path.rpartition(".")[2] if path != "/" else "html"
    assert response.content_type == kinds.get(suffix, "image/svg+xml")


@pytest.mark.parametrize("path", FILES)
def test_no_file_names_another_origin_or_holds_script_in_markup(path: str) -> None:
    text = FILES[path].read_text()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    if path == "/":
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


def test_the_files_stay_readable() -> None:
    for file in FILES.values():
        assert file.read_text().count("\n") <= 400


@pytest.mark.parametrize("path", ["/page/", "/page/../server.py", "/page/%2e%2e/server.py"])
async def test_nothing_but_the_files_is_served(client: Client, path: str) -> None:
    assert (await fetched(client, path)).status == 404


async def test_a_browser_on_this_machine_gets_the_files_but_no_data_without_the_key(
    start: Start,
) -> None:
    async with start(api_key=KEY) as client:
        for path in FILES:
            assert (await fetched(client, path)).status == 200
        for path in ("/v1/events", "/v1/clients", "/v1/requests"):
            refused = await fetched(client, path)
            assert refused.status == 401
            # The page asks for the key itself; a browser's own question would come before it.
            assert "WWW-Authenticate" not in refused.headers


async def test_a_browser_from_elsewhere_is_asked_for_the_key(start: Start) -> None:
    elsewhere = own_address()
    async with start(api_key=KEY, host="0.0.0.0") as client:
        url = f"http://{elsewhere}:{client.server.port}"
        for path in FILES:
            async with client.session.get(url + path) as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"].startswith("Basic ")
        for offered, status in ((basic(KEY), 200), (f"Bearer {KEY}", 200), (basic("x"), 401)):
            for path in ("/", "/v1/models"):
                async with client.session.get(
                    url + path, headers={"Authorization": offered}
                ) as response:
                    assert response.status == status


def own_address() -> str:
    """An address of this machine by which it does not look like itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize("offered", ["Basic", "Basic ???", "Basic bm9jb2xvbg==", basic("")])
async def test_a_broken_password_is_no_key(start: Start, offered: str) -> None:
    async with start(api_key=KEY) as client:
        refused = await fetched(client, "/v1/models", Authorization=offered)
        assert refused.status == 401


@pytest.mark.parametrize("scheme", ["Bearer schlüssel", basic("schlüssel")])
async def test_a_key_is_compared_by_its_bytes(start: Start, scheme: str) -> None:
    async with start(api_key="schlüssel") as client:
        assert (await fetched(client, "/v1/models", Authorization=scheme)).status == 200
        refused = await fetched(client, "/v1/models", Authorization="Bearer schlussel")
        assert refused.status == 401


async def test_the_page_obeys_the_laws_of_host_and_origin(client: Client) -> None:
    for path in ("/", "/v1/events", "/v1/clients"):
        assert (await fetched(client, path, Host="evil.example")).status == 403
        assert (await fetched(client, path, Origin="https://evil.example")).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_serve_prints_where_the_page_opens(fake: FakeAgent, host: str) -> None:
    serve = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cursor_gateway", "serve", "--demo", "--port", "0"),
        *("--host", host),
        env=fake.env | {"CURSOR_GATEWAY_API_KEY": KEY},
        stderr=subprocess.PIPE,
    )
    try:
        assert serve.stderr is not None
        lines = [(await serve.stderr.readline()).decode() for _ in range(2)]
        (url,) = re.findall(r"^page (http://127\.0\.0\.1:\d+/)$", lines[1].strip())
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert "<title>cursor-gateway</title>" in await response.text()
    finally:
        serve.terminate()
        await serve.communicate()


# What happens, as it happens


async def test_events_tell_what_is_and_then_what_changes(start: Start) -> None:
    async with start() as client:
        await client.content("[[text:before]]", headers={"X-Request-Id": "one"})
        async with client.session.get(client.url("/v1/events")) as response:
            assert response.content_type == "text/event-stream"
            news = told(response)
            first = [await anext(news), await anext(news)]
            assert [event for event, _ in first] == ["health", "requests"]
            assert [record["id"] for record in first[1][1]] == ["one"]
            await client.content("[[text:after]]", headers={"X-Request-Id": "two"})
            async for event, data in news:
                if event == "requests" and data[-1]["outcome"] == "complete":
                    break
            assert [record["id"] for record in data] == ["two"]


async def test_events_show_a_request_while_it_runs(client: Client) -> None:
    async with (
        client.session.get(client.url("/v1/events")) as response,
        client.chat("[[text:begun]][[hang]]", stream=True),
    ):
        async for event, data in told(response):
            if event == "requests" and data[0]["first_token_ms"] is not None:
                break
        assert data[0]["outcome"] == "running"


async def test_listeners_do_not_hold_up_the_shutdown(start: Start) -> None:
    async with start() as client, client.session.get(client.url("/v1/events")) as response:
        news = told(response)
        await anext(news)
        await client.server.close()
        assert [event async for event, _ in news if event == "never"] == []


async def test_what_changes_is_put_into_words_once_for_all_listeners(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []
    real = Record.as_json

    def as_json(record: Record) -> dict[str, Any]:
        words.append(record.id)
        return real(record)

    monkeypatch.setattr(Record, "as_json", as_json)
    async with start() as client, AsyncExitStack() as listeners:
        connect = partial(client.session.get, client.url("/v1/events"))
        told_to = [told(await listeners.enter_async_context(connect())) for _ in range(40)]
        await client.content("[[text:hi]]", headers={"X-Request-Id": "one"})
        for news in told_to:
            while (last := await anext(news))[0] != "requests" or not last[1][0]["status"]:
                pass
    # At each look at which it had changed; and once for the journal's file.
    assert words.count("one") < len(told_to)


async def test_there_are_not_more_listeners_than_the_gateway_can_serve(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "MOST_LISTENERS", 2)
    async with start() as client:
        connect = partial(client.session.get, client.url("/v1/events"))
        async with connect() as first, connect():
            async with connect() as third:
                assert third.status == 429 and third.headers["Retry-After"]
                assert (await third.json())["error"]["code"] == "too_many_listeners"
            first.close()
            await until_one_is_let_in(connect)


async def until_one_is_let_in(connect: Callable[[], Any]) -> None:
    status = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while status != 200:
            async with connect() as response:
                status = response.status


async def test_a_listener_that_does_not_read_gives_way(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "MOST_LISTENERS", 1)
    monkeypatch.setattr(live_events, "STALLED_AFTER", 0.05)
    monkeypatch.setattr(live_events, "_frame", lambda event, data: bytes(16 * 1024 * 1024))
    async with start() as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" in await reader.readline()
        await until_one_is_let_in(partial(client.session.get, client.url("/v1/events")))
        writer.close()


# One request


WITH_CURL = pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl here")


def run_by_a_shell(command: str, env: dict[str, str]) -> Any:
    done = subprocess.run(
        ["sh", "-c", command], env=env, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


@WITH_CURL
@pytest.mark.parametrize("path", REQUESTS)
async def test_the_replay_of_a_request_is_a_request(start: Start, path: str) -> None:
    body = {"model": "auto"} | REQUESTS[path]
    async with start() as client:
        async with client.session.post(client.url(f"/v1{path}"), json=body) as answered:
            asked = answered.headers["X-Request-Id"]
        _, record = await client.get(f"/v1/requests/{asked}")
        assert "request" not in record and "not recorded" in record["curl"]
        said = await asyncio.to_thread(run_by_a_shell, record["curl"], {"PATH": "/usr/bin:/bin"})
        assert "Hello" in said and not json.loads(said).get("error")


@WITH_CURL
async def test_a_recorded_request_is_replayed_with_its_very_words(start: Start) -> None:
    words = 'it\'s $HOME `id` \\ "quoted" END_OF_REQUEST\nEND_OF_REQUEST\n; echo hacked'
    async with start(record_prompts=True, api_key=KEY) as client:
        client.headers = {"Authorization": f"Bearer {KEY}"}
        await client.content(words, headers={"X-Request-Id": "mine"})
        _, record = await client.get("/v1/requests/mine")
        env = {"PATH": "/usr/bin:/bin", "CURSOR_GATEWAY_API_KEY": KEY}
        said = await asyncio.to_thread(run_by_a_shell, record["curl"], env)
        assert KEY not in record["curl"]
        assert json.loads(said)["choices"][0]["message"]["content"].startswith("; echo hacked")
        _, listed = await client.get("/v1/requests")
        replayed = [await client.get(f"/v1/requests/{each['id']}") for each in listed["data"]]
        assert len({json.dumps(json.loads(each["request"])) for _, each in replayed}) == 1


async def test_a_request_that_is_not_kept_whole_is_replayed_with_a_small_one(start: Start) -> None:
    async with start(record_prompts=True) as client:
        await client.content("é" * 600_000, headers={"X-Request-Id": "long"})
        _, record = await client.get("/v1/requests/long")
    assert len(record["curl"]) < 1000 and "a part is kept" in record["curl"]


async def test_a_browser_is_called_one(client: Client) -> None:
    headers = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}
    await client.content("hi", headers=headers)
    _, listed = await client.get("/v1/requests")
    assert listed["data"][0]["client"] == "browser"


# The clients


async def test_each_client_has_its_set_up_for_the_address_that_was_asked(
    start: Start, fake: FakeAgent
) -> None:
    async with start(api_key=KEY) as client:
        client.headers = {"x-api-key": KEY}
        _, body = await client.get("/v1/clients", Host="localhost:7")
    assert [each["name"] for each in body["data"]] == list(CLIENTS)
    for each in body["data"]:
        assert "http://localhost:7" in each["content"]
        assert KEY not in json.dumps(each)
        assert each["file"].startswith(fake.env["HOME"]) and each["points"] == "nowhere"
        # A variable's name would be sent as it is by clients that expand none.
        assert body["key"] == "YOUR-GATEWAY-KEY" and body["key"] in each["content"]
        assert "CURSOR_GATEWAY_API_KEY" not in each["content"]
    opencode = json.loads(body["data"][0]["content"])
    assert "composer-2.5-fast" in opencode["provider"]["cursor-gateway"]["models"]
    seconds = {each["name"]: each["second_file"] for each in body["data"]}
    assert "default: cursor-gateway/auto" in seconds["oh-my-pi"]["content"]
    assert seconds["oh-my-pi"]["file"].endswith("/config.yml") and seconds["codex"] is None


async def test_the_set_up_is_there_while_nobody_is_signed_in(start: Start, fake: FakeAgent) -> None:
    fake.sign_out()
    async with start() as client:
        status, body = await client.get("/v1/clients")
        assert status == 200 and len(body["data"]) == len(CLIENTS)


# The demo agent


async def test_the_demo_agent_has_a_call_go_round(start: Start) -> None:
    async with start(demo="on") as client:
        talk = Dialogue(client, [tool("get_time")])
        await talk.say("What time is it?")
        assert talk.asked == [("get_time", {})]
        assert "half past nine" in (await talk.bring("half past nine"))["content"]
        assert "no model has read it" in (await talk.say("Thank you"))["content"]
