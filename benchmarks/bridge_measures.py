"""The measures of `make bench AGENT=sdk`: with the SDK's bridge as the agent, where that changes
something.

The bridge is the one of the tests, which is written in Python. So what an answer costs is not
compared, but what a chat waits for, and what a gateway keeps while its client executes a call.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.measures import Row
from benchmarks.rig import Client, Rig, Server, start_gateway
from tests.fakes import command

BOOT_MS = 500
TURNS = 5
CHATS = 3
PARKED_AT_FIRST, PARKED = 16, 200
# The same words of either agent, each of which reads its own half of the question.
WORDS = "token0 x"
QUESTION = f"Go. [[bench deltas=1 boot_ms={BOOT_MS}]][[text:{WORDS}]]"
# What a client has said before it calls, which nobody needs while it executes the call.
HISTORY = [
    {"role": "user", "content": "All work and no play. " * 5_000},
    {"role": "assistant", "content": WORDS},
]
# Tools as coding agents have them, with as much to read.
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "What it does, and when it is the right one. " * 20,
            "parameters": {
                "type": "object",
                "properties": {f"field_{at}": {"type": "string"} for at in range(5)},
            },
        },
    }
    for number in range(15)
]


async def rows(rig: Rig) -> AsyncIterator[Row]:
    for row in await _chats(rig):
        yield row
    for count in (1, len(TOOLS)):
        yield await _memory_per_parked_call(rig, count)


@dataclass(slots=True)
class _Asked:
    """A gateway with one of the agents, and what its chats were like."""

    server: Server
    started: Path
    # To the first word of every turn but the first.
    seconds: list[float] = field(default_factory=list)

    @property
    def starts(self) -> int:
        """How many processes have been started to answer."""
        return len(self.started.read_text().splitlines())

    async def chat(self, number: int) -> None:
        messages: list[dict[str, str]] = []
        with closing(await Client.connect(self.server)) as client:
            for _ in range(TURNS):
                messages.append({"role": "user", "content": f"Chat {number}. {QUESTION}"})
                answer = await client.ask(_body(messages))
                self.seconds += [answer.first] if len(messages) > 1 else []
                messages.append({"role": "assistant", "content": WORDS})


async def _chats(rig: Rig) -> tuple[Row, Row]:
    """Chats whose turns are asked back to back, with agents that take as long to start."""
    with _cli(rig) as cli, _sdk(rig, BOOT_MS / 1000) as sdk:
        for number in range(CHATS):
            for asked in (cli, sdk):
                await asked.chat(number)
        processes = sdk.starts, cli.starts
    ours, theirs = (statistics.median(asked.seconds) * 1e3 for asked in (sdk, cli))
    first = f"first word, turns 2 to {TURNS}, {BOOT_MS} ms boot"
    started = f"agent processes, {CHATS} chats of {TURNS} turns"
    return (
        Row(first, "ms", ours, theirs, "CLI", ours / theirs, at_most=0.1),
        Row(started, "", processes[0], processes[1], "CLI", processes[0], at_most=1),
    )


async def _memory_per_parked_call(rig: Rig, tools: int) -> Row:
    """Memory of a fresh gateway: memory that was freed before would hide what calls take."""
    with _sdk(rig) as asked:
        await _park(asked.server, PARKED_AT_FIRST, tools)
        few = asked.server.memory()
        await _park(asked.server, PARKED, tools)
        used = (asked.server.memory() - few) / PARKED / 1e3
        _check_parked(asked.server, PARKED_AT_FIRST + PARKED)
    name = f"memory per parked call, tools: {tools}"
    return Row(name, "KB", used, None, "", used, at_most=50)


async def _park(server: Server, count: int, tools: int) -> None:
    """Hand out so many calls, eight at a time, to clients of which none comes back."""
    left = iter(range(count))
    await asyncio.gather(*(_ask_for_calls(server, left, TOOLS[:tools]) for _ in range(8)))
    await asyncio.sleep(1)


async def _ask_for_calls(server: Server, left: Iterator[int], tools: list[Any]) -> None:
    with closing(await Client.connect(server)) as client:
        for number in left:
            call = f'[[relay:tool_0 {{"field_0": "{number}"}}]]'
            question = {"role": "user", "content": f"Go. [[text:{WORDS}]]{call}"}
            await client.ask(_body([*HISTORY, question], tools=tools))


def _check_parked(server: Server, wanted: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health") as response:
        parked = orjson.loads(response.read())["sessions"]["parked"]
    if parked != wanted:
        raise RuntimeError(f"{parked} calls are parked, not {wanted}")


def _body(messages: list[dict[str, str]], **more: Any) -> bytes:
    return orjson.dumps({"model": "auto", "stream": True, "messages": messages, **more})


# The agents


@contextmanager
def _cli(rig: Rig) -> Iterator[_Asked]:
    program, started = _counted(rig.agent, rig.folder)
    yield from _serving(start_gateway(program), started)


@contextmanager
def _sdk(rig: Rig, boot_seconds: float = 0.0) -> Iterator[_Asked]:
    home = Path(tempfile.mkdtemp(dir=rig.folder))
    (home / "account").write_text(command.ACCOUNT)
    (home / "models.txt").write_text("auto - Auto (default)\n")
    (home / "ready-takes").write_text(str(boot_seconds))
    program, started = _counted(_executable(home / "bridge", command.bridge(home)), home)
    env = {"CURSOR_SDK_BRIDGE_BIN": str(program), "CURSOR_API_KEY": "key"}
    yield from _serving(start_gateway(program, CURSOR_GATEWAY_AGENT="sdk", **env), started)


def _serving(server: Server, started: Path) -> Iterator[_Asked]:
    try:
        yield _Asked(server, started)
    finally:
        server.stop()


def _counted(program: Path, folder: Path) -> tuple[Path, Path]:
    """The program as another one that writes a line whenever it is started to answer; and where."""
    started = folder / "started"
    started.touch()
    script = f"""#!/bin/sh
case "$1" in status|models|--version) ;; *) echo >> "{started}" ;; esac
exec "{program}" "$@"
"""
    return _executable(folder / "counted", script), started


def _executable(program: Path, script: str) -> Path:
    program.write_text(script)
    program.chmod(0o755)
    return program
