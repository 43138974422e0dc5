"""What comes before a request, and beside it: expectations, pipelines, no descriptors."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import WAIT_SECONDS, Client, FakeAgent, Start
from tests.support.programs import gateway_process

KEY = "gw-canary-key"
BODY = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "[[text:ok]]"}]})


async def answered(port: int, head: str, body: str = "") -> bytes:
    """All that a client hears that sends the body only if it is asked for it."""
    async with asyncio.timeout(WAIT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = (head, "Host: localhost", "Connection: close", f"Content-Length: {len(body)}")
        writer.write("\r\n".join((*lines, "Content-Type: application/json", "", "")).encode())
        heard = await reader.readuntil(b"\r\n\r\n")
        if b" 100 " in heard:
            writer.write(body.encode())
            heard += await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", heard)
        # After its answer a server still waits a while for a body that was announced.
        heard += await (reader.readexactly(int(length[1])) if body and length else reader.read())
        writer.close()
        return heard


POST = "POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue"


async def test_a_body_is_asked_for_when_its_sender_may_send_it(start: Start) -> None:
    async with start(api_key=KEY) as client:
        port = client.server.port
        heard = await answered(port, f"{POST}\r\nx-api-key: {KEY}", BODY)
        assert heard.startswith(b"HTTP/1.1 100 ") and b"HTTP/1.1 200 " in heard
        for refused, status in (
            (POST, 401),
            (f"{POST}\r\nx-api-key: wrong", 401),
            (f"{POST}\r\nx-api-key: {KEY}\r\nOrigin: http://evil.example", 403),
            (POST.replace("/v1/", "/nothing/"), 401),
        ):
            assert (await answered(port, refused, BODY)).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/nothing"])
async def test_what_nobody_can_expect_is_told_in_the_clients_own_shape(
    client: Client, path: str
) -> None:
    heard = await answered(client.server.port, f"POST {path} HTTP/1.1\r\nExpect: nonsense", BODY)
    head, _, body = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 417 ") and b"X-Request-Id" in head
    assert json.loads(body)["error"]["code"] == "expectation_failed"
    assert ("type" in json.loads(body)) == (path == "/v1/messages")


async def test_head_of_the_events_has_no_body(client: Client) -> None:
    heard = await answered(client.server.port, "HEAD /v1/events HTTP/1.1")
    head, _, body = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and b"text/event-stream" in head
    assert body == b""


async def test_requests_behind_a_stream_are_not_read_before_their_time(client: Client) -> None:
    prompt = [{"role": "user", "content": "[[text:begun]][[hang]]"}]
    body = json.dumps({"model": "auto", "stream": True, "messages": prompt})
    head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length:"
    reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\n{head} {len(body)}\r\n\r\n{body}".encode())
    await reader.readuntil(b"begun")
    # More than the system itself keeps for a program that does not read.
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await writer.drain()
    assert (await client.get("/health"))[0] == 200
    writer.transport.abort()


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process, as Linux can")
async def test_without_descriptors_idle_connections_make_room(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        health = url.replace("/v1", "/health")
        assert await status(f"{url}/models") == 200
        used = descriptors(process.pid)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 10, used + 10))
        where = ("127.0.0.1", int(url.rsplit(":", 1)[1].partition("/")[0]))
        silent = [socket.create_connection(where) for _ in range(100)]
        async with asyncio.timeout(WAIT_SECONDS):
            assert await status(health) == 200
        for connection in silent:
            connection.close()
        process.terminate()
        assert await process.wait() == 0
    said = (fake.home / "log").read_text()
    assert said.count("new connections must wait") == 1
    assert "socket.accept()" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process, as Linux can")
async def test_without_descriptors_and_idle_connections_new_ones_wait(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        health = url.replace("/v1", "/health")
        assert await status(f"{url}/models") == 200
        enough = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, enough[1]))
        late = asyncio.ensure_future(status(health))
        await asyncio.wait({late}, timeout=0.5)
        assert not late.done()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, enough)
        async with asyncio.timeout(WAIT_SECONDS):
            assert await late == 200
    said = (fake.home / "log").read_text()
    assert said.count("new connections must wait") == 1
    assert "socket.accept()" not in said


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def status(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status
