"""An MCP server across HTTP that keeps to the protocol until one of its tools is called.

    python rogue_server.py PORT [VICE]

Each tool is named for what its answer does. `/mcp` speaks streamable HTTP, `/sse` the older SSE. A
vice is what the stream of unasked messages holds. Standard library only, and by hand, because no
library would send what it sends.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

PORT = int(sys.argv[1])
VICE = sys.argv[2] if len(sys.argv) > 2 else ""
MB = 1024 * 1024
OK = "HTTP/1.1 200 OK\r\n"
JSON = "Content-Type: application/json\r\n"
EVENTS = "Content-Type: text/event-stream\r\nCache-Control: no-store\r\n"
TILL_CLOSED = "Connection: close\r\n\r\n"

Writer = asyncio.StreamWriter
# Answers that the server writes, or tries to.
at_work: set[str] = set()
# Who reads from `/sse`.
listeners: list[Writer] = []
readers: dict[Writer, asyncio.StreamReader] = {}


async def send(writer: Writer, text: str | bytes) -> None:
    writer.write(text.encode() if isinstance(text, str) else text)
    await writer.drain()


def reply(request: Any, result: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


async def whole(writer: Writer, body: str, more: str = "") -> None:
    head = f"{OK}{JSON}{more}Content-Length: {len(body.encode())}\r\n\r\n"
    await send(writer, head + body)


async def endless(writer: Writer, request: Any) -> None:
    """A JSON text without end."""
    await send(writer, OK + JSON + TILL_CLOSED + reply(request, text("x"))[:-5])
    while True:
        await send(writer, b"x" * 65536)


async def bomb(writer: Writer, request: Any) -> None:
    """The same in little: a megabyte of these is a gigabyte."""
    await send(writer, OK + JSON + "Content-Encoding: gzip\r\n" + TILL_CLOSED)
    await send(writer, gzip.compress(reply(request, text("x"))[:-5].encode()))
    blast = gzip.compress(b"x" * 16 * MB)
    while True:
        await send(writer, blast)


async def drip(writer: Writer, request: Any) -> None:
    await send(writer, OK + JSON + TILL_CLOSED)
    while True:
        await send(writer, b" ")
        await asyncio.sleep(0.05)


async def silence(writer: Writer, request: Any) -> None:
    """Not even headers, until the other side leaves."""
    await readers[writer].read()
    raise ConnectionResetError


async def headers(writer: Writer, request: Any) -> None:
    await send(writer, OK)
    while True:
        await send(writer, "X-More: " + "x" * 1000 + "\r\n")


async def circle(writer: Writer, request: Any) -> None:
    await send(writer, "HTTP/1.1 307 Again\r\nLocation: /mcp\r\nContent-Length: 0\r\n\r\n")


async def values(writer: Writer, request: Any) -> None:
    """Few bytes, but two million values."""
    await whole(writer, reply(request, {"content": [], "structuredContent": {"a": 0}}).replace(
        '"a": 0', '"a": [' + "[]," * MB + "0]"
    ))  # fmt: skip


async def parts(writer: Writer, request: Any) -> None:
    await whole(writer, reply(request, {"content": text("")["content"] * 20_000}))


async def event(writer: Writer, request: Any) -> None:
    """One event of as many bytes as asked for."""
    size = request["params"]["arguments"]["bytes"]
    await send(writer, OK + EVENTS + TILL_CLOSED)
    await send(writer, f"event: message\r\ndata: {reply(request, text('x' * size))}\r\n\r\n")
    writer.close()


async def eventful(writer: Writer, request: Any) -> None:
    """One event without end."""
    await send(writer, OK + EVENTS + TILL_CLOSED + "id: 7\ndata: ")
    while True:
        await send(writer, b"x" * 65536)


async def at_work_now(writer: Writer, request: Any) -> None:
    await whole(writer, reply(request, text(json.dumps(sorted(at_work - {"at_work_now"})))))


async def echo(writer: Writer, request: Any) -> None:
    await whole(writer, reply(request, text(request["params"]["arguments"].get("text", ""))))


TOOLS: dict[str, Callable[[Writer, Any], Awaitable[None]]] = {
    tool.__name__: tool
    for tool in (
        endless, bomb, drip, silence, headers, circle, values, parts, event, eventful,
        at_work_now, echo,
    )
}  # fmt: skip


def answer(request: Any) -> dict[str, Any] | None:
    """What needs no vice."""
    if request["method"] == "initialize":
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "rogue", "version": "1"},
        }
    if request["method"] == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    return {} if request["method"] == "ping" else None


async def post(writer: Writer, request: Any) -> None:
    if "id" not in request or "method" not in request:
        await send(writer, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    elif request["method"] == "ping" and VICE == "clings":
        await silence(writer, request)
    elif (known := answer(request)) is not None:
        session = "Mcp-Session-Id: 1\r\n" if request["method"] == "initialize" else ""
        await whole(writer, reply(request, known), session)
    else:
        name = request["params"]["name"]
        at_work.add(name)
        try:
            await TOOLS[name](writer, request)
        finally:
            at_work.discard(name)


async def post_to_listener(writer: Writer, request: Any) -> None:
    await send(writer, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    if "id" in request and "method" in request:
        said = answer(request)
        if said is None:
            arguments = request["params"]["arguments"]
            said = text(arguments.get("text", "x" * arguments.get("bytes", 0)))
        await send(listeners[-1], f"event: message\ndata: {reply(request, said)}\n\n")


async def listen(writer: Writer, path: str) -> None:
    if path == "/moved":
        await send(writer, "HTTP/1.1 307 Moved\r\nLocation: /sse\r\nContent-Length: 0\r\n\r\n")
        return
    await send(writer, OK + EVENTS + TILL_CLOSED)
    if path == "/sse":
        listeners.append(writer)
        address = "http://localhost.example/messages" if VICE == "elsewhere" else "/messages"
        await send(writer, f"event: endpoint\ndata: {address}\n\n")
    noise: dict[str, str] = {
        "storm": '{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}',
        "logs": '{"jsonrpc": "2.0", "method": "notifications/message", "params": '
        '{"level": "info", "data": "' + "x" * 100 + '"}}',
        "asks": '{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    }
    said = f"data: {noise[VICE]}\n\n" if VICE in noise else ":\n" if VICE == "comments" else ""
    while True:
        if said:
            await send(writer, said * 500)
        else:
            await asyncio.sleep(1)


async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
    readers[writer] = reader
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().split("\r\n")
            method, path, _ = lines[0].split(" ")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            if method == "GET":
                await listen(writer, path)
            elif method == "DELETE" and VICE == "clings":
                await silence(writer, None)
            elif method == "DELETE":
                await whole(writer, "{}")
            elif path == "/messages":
                await post_to_listener(writer, json.loads(body))
            else:
                await post(writer, json.loads(body))
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        del readers[writer]
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", PORT)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
