"""Large bodies, deep ones and many at once: whoever sends them, all others are served."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.json_text import MAX_DEPTH
from cursor_gateway.dialects.content import MAX_MESSAGES
from cursor_gateway.errors import InvalidJson
from cursor_gateway.web.body import MAX_HALF_CHARACTERS, MAX_VALUES, SMALL, Bodies, parse_body
from tests.conftest import Client, FakeAgent, Start, eventually

HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)


async def post(client: Client, body: bytes, path: str = "/v1/chat/completions") -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    data = io.BytesIO(body)
    async with client.session.post(client.url(path), data=data, headers=headers) as response:
        return response.status, await response.json()


def asking(**fields: bytes) -> bytes:
    said = {"model": b'"auto"', "messages": b'[{"role":"user","content":"x"}]', "input": b'"x"'}
    return b"{%b}" % b",".join(b'"%b":%b' % (k.encode(), v) for k, v in (said | fields).items())


def array(value: bytes, times: int) -> bytes:
    return b"[%b]" % b",".join([value] * times)


@pytest.mark.parametrize(
    "field",
    [
        {"metadata": array(b"[]", MAX_VALUES // 2)},
        {"metadata": array(b"1", MAX_VALUES)},
        {"metadata": array(b"[" * 100 + b"]" * 100, MAX_VALUES // 100)},
        {"messages": array(b'{"role":"user","content":"x"}', MAX_VALUES // 2)},
        {"messages": b'[{"role":"user","content":%b}]' % array(b"{}", MAX_VALUES)},
        {"tools": array(b'{"name":"f","parameters":{}}', MAX_VALUES)},
    ],
    ids=["arrays", "numbers", "deep arrays", "messages", "parts", "tools"],
)
async def test_more_values_than_a_model_could_read_are_refused(
    client: Client, fake: FakeAgent, field: dict[str, bytes]
) -> None:
    status, body = await post(client, asking(**field))
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert f"more than {MAX_VALUES} values" in body["error"]["message"]
    assert fake.runs() == []


async def test_a_long_text_is_not_many_values(client: Client) -> None:
    body = asking(messages=b'[{"role":"user","content":"%b [[text:ok]]"}]' % (b"x" * MAX_VALUES))
    assert (await post(client, body))[0] == 200


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "messages"),
        ("/v1/messages", "messages"),
        ("/v1/messages/count_tokens", "messages"),
        ("/v1/responses", "input"),
    ],
)
async def test_more_messages_than_a_model_could_read_are_refused(
    client: Client, fake: FakeAgent, path: str, field: str
) -> None:
    messages = array(b'{"role":"user","content":"x"}', MAX_MESSAGES + 1)
    status, body = await post(client, asking(**{field: messages}), path)
    assert status == 400
    assert f"`{field}` holds more than {MAX_MESSAGES} messages" in body["error"]["message"]
    assert fake.runs() == []


RESULT = b'[{"role":"tool","tool_call_id":"c","content":%b}]'
ARGUMENTS = (
    b'[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":%b}]},'
    b'{"role":"user","content":"x"}]'
)


@pytest.mark.parametrize(
    ("path", "field", "around"),
    [
        ("/v1/responses", "metadata", b"%b"),
        ("/v1/responses", "input", b'[{"type":"reasoning","content":%b},{"role":"user"}]'),
        ("/v1/chat/completions", "messages", RESULT),
        ("/v1/chat/completions", "response_format", b"%b"),
        ("/v1/chat/completions", "tools", b'[{"name":"f","parameters":%b}]'),
        ("/v1/messages", "messages", ARGUMENTS),
        ("/v1/completions", "nobody_knows_it", b"%b"),
    ],
)
@pytest.mark.parametrize("levels", [260, 490, 900])
async def test_what_is_nested_too_deeply_is_a_400_that_names_the_field(
    client: Client, path: str, field: str, around: bytes, levels: int
) -> None:
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    status, body = await post(client, asking(**{field: around % deep}), path)
    assert status == 400
    assert f"`{field}` is nested more than {MAX_DEPTH} levels deep" in body["error"]["message"]


async def test_what_is_just_not_too_deep_comes_back(client: Client) -> None:
    levels = MAX_DEPTH - 1
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    status, body = await post(client, asking(metadata=deep), "/v1/responses")
    assert (status, body["metadata"]) == (200, json.loads(deep))


async def test_where_there_is_no_room_for_a_large_body_small_ones_are_served(
    start: Start, fake: FakeAgent
) -> None:
    large = "x" * 950_000
    async with start(max_body_mb=1) as client:
        half_sent = []
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
            writer.write(HEAD + b"Content-Length: 1000000\r\n\r\n" + large.encode())
            await writer.drain()
            half_sent.append(writer)
        answers = [asyncio.ensure_future(client.text(f"{large}[[hang]]")) for _ in range(2)]
        await eventually(lambda: len(fake.runs()) == 2)
        async with client.chat(f"{large}[[text:ok]]") as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (503, "no_memory")
            assert response.headers["Retry-After"]
        assert await client.content("[[text:small]]") == "small"
        for writer in half_sent:
            writer.close()
        for answer in answers:
            answer.cancel()
        await asyncio.wait(answers)
        await eventually(lambda: not fake.at_work())
        assert await client.content(f"{large}[[text:ok]]") == "ok"


async def test_messages_of_a_websocket_count_as_bodies_do(start: Start, fake: FakeAgent) -> None:
    large = [{"role": "user", "content": "x" * 950_000 + "[[hang]]"}]
    async with start(max_body_mb=1) as client:
        url = client.url("/v1/chat/completions/ws")
        sockets = [await client.session.ws_connect(url) for _ in range(5)]
        for number, socket in enumerate(sockets[:4], 1):
            await socket.send_json({"model": "auto", "messages": large})
            await eventually(lambda: len(fake.runs()) == number)  # noqa: B023 - at once
        await sockets[4].send_json({"model": "auto", "messages": large})
        assert (await sockets[4].receive_json())["error"]["code"] == "no_memory"
        for socket in sockets:
            await socket.close()


LARGE = b"x" * (SMALL + 1)


async def test_between_large_bodies_everybody_else_has_a_turn() -> None:
    bodies = Bodies(0)
    happened: list[str] = []

    async def live() -> None:
        while happened.count("large") < 10:
            happened.append("other")
            await asyncio.sleep(0)

    understand = (bodies.in_turn(LARGE, lambda _: happened.append("large")) for _ in range(10))
    await asyncio.gather(live(), *understand)
    assert happened.count("large") == 10
    assert "large large" not in " ".join(happened)


async def test_who_leaves_while_waiting_for_a_turn_stops_nobody() -> None:
    bodies = Bodies(0)
    waiting = [asyncio.ensure_future(bodies.in_turn(LARGE, len)) for _ in range(3)]
    await asyncio.sleep(0)
    for one in waiting[:2]:
        one.cancel()
    await asyncio.wait(waiting)
    assert await bodies.in_turn(LARGE, len) == len(LARGE)


# A body whose parsing the memory does not suffice for, in a process that may not have more.
WITHOUT_MEMORY = """
import resource, sys
from cursor_gateway.web.body import parse_body
from cursor_gateway.errors import NoMemory
body = b'{"messages":[' + b",".join([b'{"role":"user","content":"%b"}' % (b"x" * 200)] * 100_000)
body += b"]}"
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]) * len(body),) * 2)
try:
    parse_body(body)
except NoMemory:
    print("refused")
else:
    print("parsed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its size")
@pytest.mark.parametrize(("times", "outcome"), [(2, "refused"), (13, "refused"), (40, "parsed")])
def test_a_body_that_memory_does_not_suffice_for_ends_nobody(times: int, outcome: str) -> None:
    argv = [sys.executable, "-c", WITHOUT_MEMORY, str(times)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, outcome), done.stderr


ESCAPES = ["\\\\", "\\ud83d", "\\uDC4D", "\\ud83d\\udc4d", "\\n", "\\u00e9", "ud83d", "x", '\\"']


@given(st.lists(st.sampled_from(ESCAPES)).map("".join))
def test_halves_of_characters_are_replaced_and_nothing_else_changes(text: str) -> None:
    body = f'{{"a":"{text}"}}'.encode()
    meant = json.loads(body)["a"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert parse_body(body)["a"] == meant


def test_halves_of_characters_are_not_replaced_without_end() -> None:
    cut = b'{"a":"%b"}' % (b"\\ud83d" * MAX_HALF_CHARACTERS)
    assert parse_body(cut)["a"] == "\ufffd" * MAX_HALF_CHARACTERS
    with pytest.raises(InvalidJson):
        parse_body(b'{"a":"%b"}' % (b"\\ud83d" * (MAX_HALF_CHARACTERS + 1)))


def test_what_no_json_contains_is_not_made_into_json() -> None:
    with pytest.raises(InvalidJson):
        parse_body(b'{"a":"\0\0\\ud83d"}')
