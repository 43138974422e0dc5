"""Clients that ask and then do not read: they hold nothing for longer than an answer may take."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start, eventually

ENDLESS = "[[pour:100]]"
# In /proc/net/tcp.
ESTABLISHED = "01"


@asynccontextmanager
async def stalled(client: Client, request: bytes) -> AsyncIterator[socket.socket]:
    """A client that has sent its request, with little room for what comes back."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, ("127.0.0.1", client.server.port))
        await loop.sock_sendall(connection, request)
        yield connection


def post(body: dict[str, Any], path: str = "/v1/chat/completions") -> bytes:
    data = json.dumps({"model": "auto"} | body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def frame(body: dict[str, Any]) -> bytes:
    """A message of a WebSocket client, masked with nothing."""
    data = json.dumps({"model": "auto"} | body).encode()
    assert len(data) < 126
    return bytes((0x81, 0x80 | len(data), 0, 0, 0, 0)) + data


UPGRADE = get(
    "/v1/chat/completions/ws",
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
ASKED = {"messages": [{"role": "user", "content": ENDLESS}], "stream": True}


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(ASKED),
        post({"input": ENDLESS, "stream": True}, "/v1/responses"),
        UPGRADE + frame({"messages": ASKED["messages"]}),
    ],
    ids=["chat", "responses", "websocket"],
)
async def test_one_that_stops_reading_holds_its_slot_until_the_total_timeout(
    start: Start, fake: FakeAgent, request_bytes: bytes
) -> None:
    async with start(slots=1, total_timeout=1.5) as client, stalled(client, request_bytes):
        await eventually(fake.processes)
        async with asyncio.timeout(30):
            assert await client.content("[[text:My turn.]]") == "My turn."
        await eventually(lambda: not fake.at_work())


async def test_one_that_does_not_take_a_whole_answer_is_cut_off(start: Start) -> None:
    request = post({"messages": [{"role": "user", "content": "[[pour:5]]"}]})
    async with start(total_timeout=2.0) as client, stalled(client, request) as connection:
        await eventually(lambda: has_unread(connection))
        await eventually(lambda: not connections(client))


def has_unread(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def connections(client: Client) -> int:
    """How many the gateway holds open, by what the operating system says of its port."""
    port = f":{client.server.port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    local_and_state = [(line.split()[1], line.split()[3]) for line in lines]
    return sum(local.endswith(port) and state == ESTABLISHED for local, state in local_and_state)
