"""Chat over a WebSocket: the same requests, the same chunks, on a connection that stays."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import hypothesis
import pytest
import websockets
from aiohttp import web
from hypothesis import strategies as st

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually, text_of
from tests.http.dialogue import BASH
from tests.support.machine import is_blocked_on_its_pipe, resident_mb

API = Path(__file__).parents[2] / "docs" / "api.md"
PATH = "/v1/chat/completions/ws"
ENDS = ("done", "cancelled", "error")


@asynccontextmanager
async def opened(client: Client, **options: Any) -> AsyncIterator[Talk]:
    async with client.session.ws_connect(client.url(PATH), **options) as socket:
        yield Talk(socket)


class Talk:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def ask(self, prompt: str, **body: Any) -> None:
        messages = [{"role": "user", "content": prompt}]
        await self.socket.send_json({"model": "auto", "messages": messages} | body)

    async def hear(self) -> dict[str, Any]:
        return dict(await self.socket.receive_json())

    async def rest(self) -> list[dict[str, Any]]:
        """Everything up to the end of the answer."""
        heard = [await self.hear()]
        while heard[-1].get("type") not in ENDS:
            heard.append(await self.hear())
        return heard

    async def text(self, prompt: str, **body: Any) -> str:
        await self.ask(prompt, **body)
        *chunks, end = await self.rest()
        assert end["type"] == "done", end
        return text_of(chunks)

    async def hear_text(self) -> str:
        while not (said := text_of([await self.hear()])):
            pass
        return said

    async def closed(self) -> int | None:
        while (await self.socket.receive()).type not in (
            aiohttp.WSMsgType.CLOSE,
            aiohttp.WSMsgType.CLOSED,
            aiohttp.WSMsgType.ERROR,
        ):
            pass
        return self.socket.close_code


def alike(chunk: Any) -> Any:
    """A chunk without what is new in every answer."""
    return {name: value for name, value in chunk.items() if name not in ("id", "created")}


@EITHER_AGENT
@pytest.mark.parametrize("prompt", ["[[think:hm]][[text:a\n\nbü🙂]]", "[[tool:read]]"])
async def test_the_messages_are_the_chunks_of_the_stream(client: Client, prompt: str) -> None:
    options = {"stream_options": {"include_usage": True}}
    *frames, done = await client.frames(prompt, **options)
    assert done == "[DONE]"
    async with opened(client) as talk:
        await talk.ask(prompt, **options)
        *chunks, end = await talk.rest()
    assert [alike(chunk) for chunk in chunks] == [alike(frame) for frame in frames]
    assert set(end) == {"type", "request_id"} and end["type"] == "done"


@EITHER_AGENT
async def test_a_whole_answer_is_one_message_where_it_is_asked_for(client: Client) -> None:
    async with opened(client) as talk:
        await talk.ask("[[text:Hello]]", stream=False)
        answer, end = await talk.rest()
    assert answer["object"] == "chat.completion" and end["type"] == "done"
    assert answer["choices"][0]["message"]["content"] == "Hello"


@EITHER_AGENT
async def test_one_connection_takes_one_request_after_the_other(client: Client) -> None:
    async with opened(client) as talk:
        for number in range(3):
            assert await talk.text(f"[[text:{number}]]") == str(number)


@EITHER_AGENT
async def test_tool_calls_go_to_and_fro_on_one_connection_and_one_agent(
    client: Client, fake: FakeAgent
) -> None:
    question = {"role": "user", "content": '[[relay:bash {"command": "ls"}]][[say-result]]'}
    async with opened(client) as talk:
        await talk.socket.send_json({"model": "auto", "messages": [question], "tools": [BASH]})
        *chunks, end = await talk.rest()
        (call,) = [c for f in chunks for c in f["choices"][0]["delta"].get("tool_calls", ())]
        assert end["type"] == "done" and call["function"]["name"] == "bash"
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "notes.txt"}
        messages = [question, asked, result]
        await talk.socket.send_json({"model": "auto", "messages": messages, "tools": [BASH]})
        *chunks, end = await talk.rest()
    assert text_of(chunks) == "notes.txt"
    assert len(fake.runs()) == 1


async def test_a_cancel_stops_the_agent_and_leaves_the_connection_usable(
    client: Client, fake: FakeAgent
) -> None:
    async with opened(client) as talk:
        await talk.ask("[[deaf]][[text:Hello]][[slowly:100000]]")
        await talk.hear_text()
        await talk.socket.send_json({"type": "cancel"})
        assert (await talk.rest())[-1]["type"] == "cancelled"
        await eventually(lambda: not fake.at_work())
        assert await talk.text("[[text:again]]") == "again"


@EITHER_AGENT
async def test_a_cancel_stops_what_has_not_said_a_word(client: Client, fake: FakeAgent) -> None:
    async with opened(client) as talk:
        await talk.ask("[[hang]]")
        await eventually(fake.runs)
        await talk.socket.send_json({"type": "cancel"})
        (end,) = await talk.rest()
        assert end["type"] == "cancelled"
        await eventually(lambda: not fake.at_work())


@EITHER_AGENT
async def test_a_cancel_that_comes_too_late_changes_nothing(client: Client) -> None:
    async with opened(client) as talk:
        await talk.socket.send_json({"type": "cancel"})
        assert await talk.text("[[text:one]]") == "one"
        await talk.socket.send_json({"type": "cancel"})
        assert await talk.text("[[text:two]]") == "two"


@EITHER_AGENT
@pytest.mark.parametrize("prompt", ["[[hang]]", "[[text:Hello]][[slowly:100000]]"])
@pytest.mark.parametrize("how", ["close", "vanish"])
async def test_a_client_that_leaves_stops_its_agent(
    client: Client, fake: FakeAgent, prompt: str, how: str
) -> None:
    async with opened(client) as talk:
        await talk.ask(prompt)
        await eventually(fake.runs)
        if how == "vanish":
            talk.socket._response.connection.transport.abort()  # type: ignore[union-attr]
        else:
            await talk.socket.close()
        await eventually(lambda: not fake.at_work())


async def test_a_client_that_does_not_read_makes_the_agent_wait(
    client: Client, fake: FakeAgent
) -> None:
    async with opened(client, max_msg_size=0) as talk:
        resident = resident_mb()
        await talk.ask("[[many:3000000]]")
        (agent,) = await eventually(fake.processes)
        await eventually(lambda: is_blocked_on_its_pipe(agent))
        assert resident_mb() - resident < 60


# What goes wrong


@EITHER_AGENT
@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        ({"messages": []}, "missing_messages", 400),
        ({"model": "nobody"}, "model_not_found", 400),
        ({"n": 2}, "unsupported_parameter", 400),
    ],
)
async def test_a_failure_has_the_body_that_it_has_over_http(
    client: Client, body: dict[str, Any], code: str, status: int
) -> None:
    over_http = await client.answer("hi", **body)
    async with opened(client) as talk:
        await talk.ask("hi", **body)
        (end,) = await talk.rest()
        assert await talk.text("[[text:still here]]") == "still here"
    assert end.pop("type") == "error"
    assert end["error"].pop("request_id") and over_http["error"].pop("request_id")
    assert end == over_http
    assert (end["error"]["code"], end["error"]["status"]) == (code, status)


@EITHER_AGENT
async def test_an_answer_that_breaks_off_ends_with_the_error(client: Client) -> None:
    async with opened(client) as talk:
        await talk.ask("[[text:half]][[exit:1]]")
        *chunks, end = await talk.rest()
        assert text_of(chunks) == "half"
        assert (end["type"], end["error"]["code"]) == ("error", "agent_failed")
        assert await talk.text("[[text:whole]]") == "whole"


NONSENSE: dict[str, tuple[str | bytes, str]] = {
    "no JSON": ("{", "invalid_json"),
    "no object": ("[1, 2]", "invalid_value"),
    "a text": ('"cancel"', "invalid_value"),
    "nothing": ("", "invalid_json"),
    "an unknown type": ('{"type": "response.create"}', "invalid_message"),
    "a type that is no word": ('{"type": {"cancel": 1}}', "invalid_message"),
    "binary": (b'{"model": "auto"}', "invalid_message"),
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_nonsense_is_told_and_the_connection_stays(client: Client, what: str) -> None:
    message, code = NONSENSE[what]
    async with opened(client) as talk:
        await send(talk, message)
        told = await talk.hear()
        assert (told["type"], told["error"]["code"]) == ("error", code)
        assert await talk.text("[[text:fine]]") == "fine"


async def send(talk: Talk, message: str | bytes) -> None:
    if isinstance(message, str):
        await talk.socket.send_str(message)
    else:
        await talk.socket.send_bytes(message)


@EITHER_AGENT
@pytest.mark.parametrize("message", ['{"model": "auto", "messages": []}', "{", b"\0"])
async def test_what_comes_during_an_answer_is_refused_and_the_answer_goes_on(
    client: Client, fake: FakeAgent, message: str | bytes
) -> None:
    async with opened(client) as talk:
        await talk.ask("[[text:one ]][[await:go]][[text:two]]")
        assert await talk.hear_text() == "one "
        await send(talk, message)
        told = await talk.hear()
        assert told["type"] == "refused"
        if message == '{"model": "auto", "messages": []}':
            assert told["error"]["code"] == "answer_in_progress"
        fake.put("go")
        *chunks, end = await talk.rest()
        assert (text_of(chunks), end["type"]) == ("two", "done")
    assert len(fake.runs()) == 1


async def test_any_messages_at_all_do_no_harm(client: Client, fake: FakeAgent) -> None:
    """Nearly right ones and noise, in one connection, which then still answers."""
    scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    values = st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ("type", "model", "messages", "stream", "tools", "role", "content")
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )
    messages = st.binary(max_size=20) | st.text(max_size=20) | values.map(json.dumps)
    sent = _examples(messages, 400)
    async with opened(client) as talk:
        hearing = asyncio.ensure_future(_hear_until(talk, "done", "the end"))
        for message in sent:
            await send(talk, message)
        # Whatever of that was a request is over soon: none of it is whole.
        while not hearing.done():
            await talk.ask("[[text:the end]]")
            await asyncio.wait({hearing}, timeout=0.2)
        for told in await hearing:
            assert "error" not in told or told["error"]["status"] < 500, told


def _examples(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    found: list[Any] = []

    @hypothesis.settings(max_examples=count, database=None, derandomize=True)
    @hypothesis.given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


async def _hear_until(talk: Talk, kind: str, text: str) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    while not (heard and heard[-1].get("type") == kind and text in text_of(heard[-9:])):
        heard.append(await talk.hear())
    return heard


async def test_a_message_over_the_limit_closes_with_1009(start: Start, fake: FakeAgent) -> None:
    async with start(max_body_mb=1) as client, opened(client) as talk:
        await talk.ask("x" * 1024 * 1024)
        assert await talk.closed() == 1009
    assert fake.runs() == []


# Who may connect


async def refused(client: Client, **options: Any) -> tuple[int, str]:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    async with client.session.get(client.url(PATH), headers=headers | options) as response:
        body = await response.json()
        return response.status, str(body["error"]["code"])


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example"]
)
async def test_a_foreign_page_is_refused(client: Client, origin: str) -> None:
    assert await refused(client, Origin=origin) == (403, "origin_not_allowed")


async def test_a_rebound_name_is_refused(client: Client) -> None:
    assert await refused(client, Host="evil.example") == (403, "host_not_allowed")


async def test_a_local_page_is_let_in(client: Client) -> None:
    async with opened(client, origin="http://localhost:3000") as talk:
        assert await talk.text("[[text:hi]]") == "hi"


async def test_the_key_comes_by_header_or_as_a_protocol_and_is_not_repeated(start: Start) -> None:
    async with start(api_key="s3cret") as client:
        assert await refused(client) == (401, "invalid_api_key")
        wrong = {"Sec-WebSocket-Protocol": "chat-completions, openai-insecure-api-key.wrong"}
        assert await refused(client, **wrong) == (401, "invalid_api_key")
        async with opened(client, headers={"Authorization": "Bearer s3cret"}) as talk:
            assert await talk.text("[[text:by header]]") == "by header"
        key = "openai-insecure-api-key.s3cret"
        for protocols in ((key,), (key, "chat-completions"), ("chat-completions", key)):
            async with opened(client, protocols=protocols) as talk:
                chosen = "chat-completions" if "chat-completions" in protocols else None
                assert talk.socket.protocol == chosen
                assert await talk.text("[[text:by protocol]]") == "by protocol"


async def test_a_plain_get_is_told_what_is_here(client: Client) -> None:
    status, body = await client.get(PATH)
    assert (status, body["error"]["code"]) == (426, "websocket_expected")


# Silence, shutdown, the journal


@EITHER_AGENT
async def test_silence_is_filled_with_pings(start: Start) -> None:
    async with (
        start(keep_alive=0.05) as client,
        opened(client, autoping=False) as talk,
    ):
        for _ in range(3):
            assert (await talk.socket.receive()).type is aiohttp.WSMsgType.PING


@EITHER_AGENT
async def test_a_shutdown_lets_the_answer_finish_and_closes_with_1001(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client, opened(client) as busy, opened(client) as idle:
        await busy.ask("[[text:one ]][[await:go]][[text:two]]")
        await busy.hear_text()
        draining = asyncio.ensure_future(client.server.drain())
        assert await idle.closed() == 1001
        fake.put("go")
        *chunks, end = await busy.rest()
        assert (text_of(chunks), end["type"]) == ("two", "done")
        assert await busy.closed() == 1001
        await draining


@EITHER_AGENT
async def test_a_shutdown_does_not_wait_for_an_answer_that_is_cancelled(start: Start) -> None:
    async with start(shutdown_grace=600) as client, opened(client) as busy, opened(client) as idle:
        await busy.ask("[[text:one]][[hang]]")
        await busy.hear_text()
        draining = asyncio.ensure_future(client.server.drain())
        assert await idle.closed() == 1001
        await busy.socket.send_json({"type": "cancel"})
        assert (await busy.rest())[-1]["type"] == "cancelled"
        assert await busy.closed() == 1001
        await draining


@EITHER_AGENT
async def test_an_answer_that_a_shutdown_cuts_off_is_told_why(start: Start) -> None:
    async with start(shutdown_grace=0.1) as client, opened(client) as talk:
        await talk.ask("[[text:one]][[hang]]")
        await talk.hear_text()
        await client.server.drain()
        closing = asyncio.ensure_future(client.server.close())
        (end,) = await talk.rest()
        assert (end["type"], end["error"]["code"]) == ("error", "shutting_down")
        assert await talk.closed() == 1001
        await closing


@EITHER_AGENT
async def test_each_request_has_its_record_under_an_id_of_its_own(client: Client) -> None:
    async with opened(client, headers={"X-Request-Id": "mine"}) as talk:
        await talk.text("[[text:one]]")
        await talk.ask("hi", model="nobody")
        await talk.rest()
        await talk.ask("[[text:one]][[hang]]")
        await talk.hear_text()
        await talk.socket.send_json({"type": "cancel"})
        cancelled = (await talk.rest())[-1]
    assert cancelled["request_id"] == "mine-3"
    _, listed = await client.get("/v1/requests")
    kept = [(r["id"], r["dialect"], r["outcome"], r["status"]) for r in listed["data"]]
    assert kept == [
        ("mine-3", "chat", "client_gone", 499),
        ("mine-2", "chat", "model_not_found", 400),
        ("mine-1", "chat", "complete", 200),
    ]


# Clients that nobody here wrote


async def test_the_websockets_library_gets_its_answer(start: Start, fake: FakeAgent) -> None:
    async with start(api_key="s3cret", keep_alive=0.05) as client:
        address = client.url(PATH).replace("http://", "ws://")
        protocols = [
            websockets.Subprotocol("chat-completions"),
            websockets.Subprotocol("openai-insecure-api-key.s3cret"),
        ]
        async with websockets.connect(address, subprotocols=protocols) as socket:
            assert socket.subprotocol == "chat-completions"
            body = {"model": "auto", "messages": [{"role": "user", "content": "[[text:Hello]]"}]}
            await socket.send(json.dumps(body))
            heard = [json.loads(await socket.recv())]
            while heard[-1].get("type") != "done":
                heard.append(json.loads(await socket.recv()))
            assert text_of(heard[:-1]) == "Hello"
            assert await (await socket.ping()) >= 0
        assert socket.close_code == 1000


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt install chromium)")
async def test_what_the_docs_have_for_a_page_works_in_a_browser(
    start: Start, fake: FakeAgent, tmp_path: Path
) -> None:
    section = API.read_text().split("## GET /v1/chat/completions/ws\n")[1].split("\n## ")[0]
    script = section.split("```js\n")[1].split("```")[0]
    fake.put("habits.json", json.dumps([["Tell me a story", "[[text:Once]][[await:end]]"]]))
    async with start(api_key="s3cret") as client, page(client, script, tmp_path) as told:
        assert await told.get() == "Once"
        assert (await told.get())["type"] == "cancelled"
    assert fake.processes() == []


@asynccontextmanager
async def page(client: Client, script: str, tmp_path: Path) -> AsyncIterator[asyncio.Queue[Any]]:
    """A page on this machine that runs `script`, tells what it shows, and presses Escape."""
    told: asyncio.Queue[Any] = asyncio.Queue()
    script = script.replace("127.0.0.1:32124", client.url("/").split("/")[2])
    tell = (
        "const tell = (words) => fetch('/told', {method: 'POST', body: JSON.stringify(words)});"
        "socket.addEventListener('message', ({data}) => {"
        "  if (JSON.parse(data).type) tell(JSON.parse(data));"
        "  else if (document.body.textContent.trim() === 'Once') { tell('Once');"
        "    document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'})); } });"
    )
    html = f"<script type=module>const key = 's3cret';\n{script}\n{tell}</script><body>"

    async def show(request: web.BaseRequest) -> web.Response:
        if request.path == "/told":
            told.put_nowait(await request.json())
        return web.Response(text=html, content_type="text/html")

    runner = web.ServerRunner(web.Server(show))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    browser = await asyncio.create_subprocess_exec(
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={tmp_path}/profile", "--remote-debugging-port=0"),
        f"http://127.0.0.1:{runner.addresses[0][1]}/",
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield told
    finally:
        browser.terminate()
        await browser.wait()
        await runner.cleanup()
