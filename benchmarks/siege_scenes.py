"""The attacks of `make siege`, each as its author would carry it out."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import orjson

from benchmarks.chaos_answers import BASH, chat, function
from benchmarks.outside import ROOT, Home
from benchmarks.siege import Besieged, Scene, running, until

MEGABYTE = 1_000_000
REFUSED = (400, 413)
BRIDGE = ROOT / "tests" / "bridge"


# Schemas of clients


def doubling(reference: str, draft: str) -> dict[str, Any]:
    """A schema in which each definition refers twice to the next, so that a naive check never
    ends."""
    count = 60
    definitions: dict[str, Any] = {f"d{count}": {"type": "object"}}
    for number in range(count):
        following = {reference: f"#/$defs/d{number + 1}"}
        if reference == "$dynamicRef":
            following = {reference: f"#d{number + 1}"}
        definitions[f"d{number}"] = {"allOf": [following, following]}
    if reference == "$dynamicRef":
        for name, definition in definitions.items():
            definition["$dynamicAnchor"] = name
    return {"$schema": draft, "$defs": definitions, "$ref": "#/$defs/d0"}


def recursive() -> dict[str, Any]:
    twice = [{"$recursiveRef": "#"}, {"$recursiveRef": "#"}]
    deeper = {"type": "object", "properties": {"a": {"allOf": twice}}}
    return {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        **deeper,
    }


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def in_format(schema: Any, said: str = "{}") -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "trap", "schema": schema}}
    return chat(f"[[text:{said}]]", stream=False)[1] | {"response_format": wanted}


def in_tool(schema: Any, arguments: str = "{}") -> dict[str, Any]:
    body = chat(f"[[call:write {arguments}]]", stream=False)[1]
    return body | {"tools": [function("write", schema)]}


async def schemas(besieged: Besieged, bodies: Iterable[dict[str, Any]]) -> None:
    """The gateway may refuse a request, answer it, or fail because the model's document does not
    fit."""
    for body in bodies:
        await besieged.expect([200, 400, 422], "/chat/completions", body)


async def doubling_schemas(besieged: Besieged) -> None:
    modern = "https://json-schema.org/draft/2020-12/schema"
    deep = orjson.dumps(nested(40)).decode()
    traps = ((doubling("$ref", modern), "{}"), (doubling("$dynamicRef", modern), "{}"))
    for schema, document in (*traps, (recursive(), deep)):
        await schemas(besieged, (in_format(schema, document), in_tool(schema, document)))


async def costly_keywords(besieged: Besieged) -> None:
    objects = orjson.dumps({"all": [{"n": number} for number in range(3_000)]}).decode()
    words = orjson.dumps({"all": ["a" * 30 + "!"] * 1_000}).decode()
    trap = {"properties": {"all": {"items": {"pattern": "^(a+)+$"}}}}
    unique = {"properties": {"all": {"uniqueItems": True}}}
    await schemas(besieged, (in_format(unique, objects), in_format(trap, words)))


async def large_schemas(besieged: Besieged) -> None:
    many = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(2_000)}}
    huge = {"anyOf": [{"type": "string"}] * 200_000}
    bodies = [in_format(many)] * 10 + [in_format(huge), in_tool(huge), in_tool(many)]
    await schemas(besieged, [*bodies, in_format(nested(500)), in_tool(nested(500))])


# Words of agents


async def blanks(besieged: Besieged) -> None:
    await asyncio.gather(
        *(
            besieged.post(*chat(f"[[sh:{command}]][[exit:1]]", stream=False))
            for command in (
                "head -c 65536 /dev/zero | tr '\\\\0' ' ' >&2",
                "yes '' | head -c 65536 >&2",
                "yes '{' | head -c 1000000 >&2",
            )
        ),
        fenced_blanks(besieged),
    )


async def fenced_blanks(besieged: Besieged) -> None:
    body = chat("[[text:```json\n" + " " * 120_000 + "]]", stream=False)[1]
    wanted = {"type": "json_object"}
    await besieged.post("/chat/completions", body | {"response_format": wanted})


async def blank_result(besieged: Besieged) -> None:
    failed = '{"type":"result","subtype":"error","is_error":true,"result":"%s"}'
    command = f"printf '{failed}' \"$(head -c 1000000 /dev/zero | tr '\\\\0' ' ')\""
    await besieged.post(*chat(f"[[text:a]][[sh:{command}]][[exit:1]]", stream=False))


# Bodies


async def large_bodies(besieged: Besieged) -> None:
    message = b'{"role":"user","content":"a"}'
    million = b",".join([message] * MEGABYTE)
    part = b'{"type":"text","text":"a"}'
    parts = b",".join([part] * MEGABYTE)
    deep = b'{"a":' * 400 + b"1" + b"}" * 400
    tool = b'{"type":"function","function":{"name":"t%d","parameters":' + deep + b"}}"
    tools = b",".join(tool.replace(b"%d", b"%d" % n) for n in range(5_000))
    for body in (
        b'{"model":"auto","messages":[' + million + b"]}",
        b'{"model":"auto","messages":[{"role":"user","content":[' + parts + b"]}]}",
        b'{"model":"auto","messages":[{"role":"user","content":"'
        + b"\\\\" * 25 * MEGABYTE
        + b'"}]}',
        b'{"model":"auto","messages":[{"role":"user","content":"\\ud800' + b"\\" * 45 * MEGABYTE,
        b'{"model":"auto","messages":[' + message + b'],"tools":[' + tools + b"]}",
    ):
        await besieged.expect((200, *REFUSED), "/chat/completions", body)


async def bodies_at_once(besieged: Besieged) -> None:
    words = b"a" * (50 * MEGABYTE - 200)
    body = b'{"model":"auto","messages":[{"role":"user","content":"' + words + b'"}]}'
    await asyncio.gather(*(besieged.post("/chat/completions", body) for _ in range(3)))


# Connections


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[asyncio.StreamWriter]:
    """A connection from which nothing is read."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    try:
        yield writer
    finally:
        writer.transport.abort()


def request(path: str, body: Any, key: str = "") -> bytes:
    data = orjson.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{key}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def pipelined(besieged: Besieged) -> None:
    body = chat("[[slowly:2000]]", stream=True)[1]
    more = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000
    async with connection(besieged.served.port) as writer:
        writer.write(request("/v1/chat/completions", body))
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(8):
                for _ in range(90):
                    writer.write(more)
                    await writer.drain()
        await asyncio.sleep(3)


async def stalled_readers(besieged: Besieged) -> None:
    """Unread answers take both slots, which are free again after `total_timeout`."""
    body = chat("[[line:1000000]]" + "[[many:200000]]", stream=True)[1]
    async with AsyncExitStack() as stack:
        for _ in range(4):
            writer = await stack.enter_async_context(connection(besieged.served.port))
            writer.write(request("/v1/chat/completions", body))
        socket = await stack.enter_async_context(
            besieged.session.ws_connect(besieged.served.url + "/chat/completions/ws")
        )
        await socket.send_bytes(orjson.dumps(body))
        await until_health(besieged, is_free)


def is_free(health: dict[str, Any]) -> bool:
    """Whether no request is served but that of the other client."""
    return bool(health["slots"]["busy"] + health["slots"]["waiting"] <= 1)


async def until_health(besieged: Besieged, wanted: Callable[[dict[str, Any]], bool]) -> None:
    while True:
        if wanted(await besieged.served.health(besieged.session)):
            return
        await asyncio.sleep(0.1)


async def abandoned_calls(besieged: Besieged) -> None:
    for number in range(60):
        steps = f'[[relay:bash {{"command": "{number}"}}]]'
        body = chat(steps, stream=False)[1] | {"tools": [function("bash", BASH)]}
        await besieged.expect([200], "/chat/completions", body)


async def connections_without_end(besieged: Besieged) -> None:
    async with AsyncExitStack() as stack:
        with suppress(OSError):
            for _ in range(400):
                writer = await stack.enter_async_context(connection(besieged.served.port))
                writer.write(b"GET /health HTTP/1.1\r\n")
        await asyncio.sleep(3)


async def listeners(besieged: Besieged) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(1_000):
            writer = await stack.enter_async_context(connection(besieged.served.port))
            writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for number in range(20):
            await besieged.expect([200], *chat(f"[[text:{number}]]", stream=False))


# Processes


def tree(kind: str, size: int) -> Callable[[Besieged], Coroutine[Any, Any, None]]:
    async def grow(besieged: Besieged) -> None:
        grown = besieged.home.path / "agent" / "grown"
        grown.unlink(missing_ok=True)
        body = chat(f"[[tree:{kind} {size}]][[text:a]][[hang]]", stream=True)[1]
        async with running(forget(besieged.post("/chat/completions", body))):
            await until(grown.exists)
        await until(lambda: len(besieged.home.processes()) < 8)

    return grow


async def forget(work: Coroutine[Any, Any, object]) -> None:
    await work


async def daemon(besieged: Besieged) -> None:
    """A daemon without our mark, parent or directory; only its name shows the test whose it is."""
    name = besieged.home.path / "daemon"
    command = f"cd / && env -i setsid bash -c 'exec -a {name} sleep 600' &"
    await leave(besieged, f"[[text:a]][[sh:{command}]][[hang]]", after=1.0)


async def leave(besieged: Besieged, steps: str, after: float) -> None:
    body = chat(steps, stream=True)[1]
    with suppress(TimeoutError):
        await besieged.post("/chat/completions", body, timeout=aiohttp.ClientTimeout(after))
    # The gateway, its guardian and the agents of the other client.
    await until(lambda: len(besieged.home.processes()) < 8)


# MCP servers


@asynccontextmanager
async def rogues(home: Home) -> AsyncIterator[None]:
    """Local and remote MCP servers that misbehave, and one that does not."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    local = {"type": "local", "environment": {"FAKE_MCP_HOME": str(home.path)}}
    servers: dict[str, Any] = {
        vice: local | {"command": [sys.executable, str(BRIDGE / "fake_server.py"), vice]}
        for vice in ("good", "traps", "ten-thousand", "wordy", "schemas", "floods")
    }
    servers["rogue"] = {"type": "remote", "url": f"http://127.0.0.1:{port}/mcp", "timeout": 3000}
    folder = home.path / "config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_bytes(orjson.dumps({"mcp": servers}))
    program = str(BRIDGE / "rogue_server.py")
    process = await asyncio.create_subprocess_exec(sys.executable, program, str(port), "storm")
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def until_connected(besieged: Besieged) -> None:
    await until_health(besieged, lambda health: health["mcp"]["servers"] > 5)
    await besieged.expect([200], "/tools/mcp__good__echo/call", {"arguments": {"text": "hello"}})


async def call_rogues(besieged: Besieged) -> None:
    """Whatever a server answers, the call of its tool ends with a result that says what
    happened."""
    asked = [f"rogue__{name}" for name in ("endless", "bomb", "eventful", "values", "parts")]
    async with asyncio.TaskGroup() as calls:
        for name in (
            *asked,
            "rogue__drip",
            "traps__slow",
            "traps__doubling",
            "good__echo",
            "ten-thousand__tool_1",
        ):
            path = f"/tools/mcp__{name}/call"
            body = {"arguments": {"text": "hello"}}
            calls.create_task(besieged.expect([200, 404, 502], path, body))


# Files


async def tmp_cleaner(besieged: Besieged) -> None:
    for number in itertools.count():
        await besieged.expect([200], *chat(f"[[text:{number}]]", stream=False))
        if number == 5:
            return
        for root in (besieged.home.path / "tmp").iterdir():
            shutil.rmtree(root, ignore_errors=True)


# Parked runs expire before the final check.
ABANDONED = ("--slots", "2", "--session-ttl", "10")
SCENES = (
    Scene("schemas that double", doubling_schemas),
    Scene("schemas with costly keywords", costly_keywords),
    Scene("schemas of many nodes", large_schemas),
    Scene("blanks from the agent", blanks),
    Scene("a result of blanks", blank_result),
    Scene("large bodies", large_bodies, ("--max-body-mb", "64")),
    Scene(
        "large bodies, little memory",
        bodies_at_once,
        ("--max-body-mb", "64"),
        through=("prlimit", "--as=900000000"),
    ),
    Scene("pipelined requests", pipelined),
    Scene("readers that stall", stalled_readers, ("--slots", "2", "--total-timeout", "5")),
    Scene("calls that are abandoned", abandoned_calls, ABANDONED),
    Scene(
        "calls abandoned, few descriptors",
        abandoned_calls,
        ABANDONED,
        through=("prlimit", "--nofile=256:256"),
    ),
    Scene(
        "connections without end", connections_without_end, through=("prlimit", "--nofile=256:256")
    ),
    Scene("a thousand listeners", listeners),
    Scene(
        "MCP servers that go astray",
        call_rogues,
        ("--mcp-call-endpoint",),
        before=until_connected,
        beside=rogues,
    ),
    Scene("a tree 1,500 deep", tree("deep", 1500)),
    Scene("a tree 1,500 deep, SIGKILL", tree("deep", 1500), ending=signal.SIGKILL),
    Scene("a tree 1,500 wide", tree("wide", 1500)),
    Scene("a tree that grows again", tree("stubborn", 100)),
    Scene("a tree that runs away", tree("fleeing", 10), ending=signal.SIGKILL),
    Scene("a daemon", daemon, ending=signal.SIGKILL),
    Scene("a cleaner of temporary files", tmp_cleaner, hits_others=True),
)
