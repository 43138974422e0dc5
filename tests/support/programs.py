"""The command `cursor-gateway` as a process of its own."""

from __future__ import annotations

import asyncio
import atexit
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import FakeAgent, eventually
from tests.support import command_server


@functools.cache
def loaded_command() -> tuple[str, ...]:
    """What stands for `python -m cursor_gateway` where its start is not what a test is about."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    address = f"{folder}/commands"
    server = subprocess.Popen(
        [sys.executable, "-m", command_server.__name__, address],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    atexit.register(server.communicate)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return sys.executable, "-I", "-S", command_server.__file__, address


def run(fake: FakeAgent, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*loaded_command(), *words],
        env=fake.env, input=stdin, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@asynccontextmanager
async def gateway_process(
    fake: FakeAgent, *flags: str, launcher: Sequence[str] = ()
) -> AsyncIterator[tuple[Any, str]]:
    scratch = fake.home / "tmp"
    scratch.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *(*launcher, sys.executable, "-m", "cursor_gateway", "serve", "--port", "0", *flags),
        env=fake.env | {"TMPDIR": str(scratch), "COLUMNS": "200"},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    while " on http://" not in line:
        assert line, "the gateway did not start"
        line = (await process.stderr.readline()).decode()
    drain = asyncio.ensure_future(process.stderr.read())
    try:
        yield process, line.split(" on ")[1].strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        (fake.home / "log").write_bytes(await drain)


@asynccontextmanager
async def streaming(base_url: str, prompt: str) -> AsyncIterator[aiohttp.ClientResponse]:
    body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base_url}/chat/completions", json=body) as response,
    ):
        yield response


@asynccontextmanager
async def serving_process(fake: FakeAgent, log: Path) -> AsyncIterator[str]:
    """Its base URL. Ends as Ctrl-C would end it."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"),
            env=fake.env | {"COLUMNS": "200"},
            stderr=stderr,
        )
    try:
        found = await eventually(lambda: re.search(r"on (http://\S+)\n", log.read_text()))
        yield found[1]
        process.terminate()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
