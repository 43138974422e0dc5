"""What a running gateway tells others about itself, and what it lets itself be told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from cursor_gateway.running_gateways import RunningGateway, announced, running
from tests.conftest import FakeAgent, eventually
from tests.support.programs import gateway_process, run, streaming

pytestmark = pytest.mark.processes


async def test_a_running_gateway_tells_scripts_its_pid_and_port(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        file = Path(fake.env["XDG_RUNTIME_DIR"]) / "cursor-gateway" / f"{process.pid}.json"
        said = json.loads(file.read_text())
        assert (said["pid"], said["base_url"]) == (process.pid, url)
        assert file.stat().st_mode & 0o777 == 0o600
        assert [presence.pid for presence in running(fake.env)] == [process.pid]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert not file.exists()


def test_a_gateway_that_cannot_announce_itself_serves_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "runtime").write_text("no directory")
    env = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    with announced(RunningGateway(1, "127.0.0.1", 1, "http://127.0.0.1:1/v1"), env) as file:
        assert file is None
    assert "other commands cannot find this gateway" in caplog.text


async def test_the_file_of_a_killed_gateway_is_known_as_stale(
    fake: FakeAgent, tmp_path: Path
) -> None:
    del fake.env["XDG_RUNTIME_DIR"]
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "run"
    async with gateway_process(fake) as (process, _):
        process.kill()
        await process.wait()
        assert len(list(folder.iterdir())) == 1
        assert running(fake.env) == []
    async with gateway_process(fake) as (process, _):
        assert [file.stem for file in folder.iterdir()] == [str(process.pid)]


async def test_a_gateway_serves_though_it_cannot_keep_its_file(fake: FakeAgent) -> None:
    fake.env["XDG_RUNTIME_DIR"] = str(fake.home / "models.txt")
    async with gateway_process(fake) as (_, url), streaming(url, "[[text:one]]") as response:
        assert response.status == 200


async def test_who_has_the_port_is_said(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        port = url.split(":")[2].split("/")[0]
        done = await asyncio.to_thread(run, fake, "serve", "--port", port)
        assert f"in use by another cursor-gateway (pid {process.pid}, {url})" in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = await asyncio.to_thread(run, fake, "serve", "--port", str(taken.getsockname()[1]))
        assert done.returncode == 2 and f"(pid {os.getpid()})" in done.stderr


async def test_sighup_takes_over_what_is_safe(fake: FakeAgent, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    async with (
        gateway_process(fake, "--config", str(file)) as (process, url),
        aiohttp.ClientSession() as session,
        streaming(url, "[[text:one]][[hang]]") as answer,
    ):

        async def status(key: str = "") -> int:
            headers = {"Authorization": f"Bearer {key}"}
            async with session.get(f"{url}/models", headers=headers) as response:
                return response.status

        async def after_sighup(wanted: int, key: str = "") -> None:
            process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(15):
                while await status(key) != wanted:
                    pass

        assert await status() == 200
        file.write_text('api_key = "secret"\nslots = 1\n[aliases]\nmine = "auto"\n')
        await after_sighup(401)
        assert await status("secret") == 200
        file.write_text('api_key = "other"\nslots = 0')  # cannot be used: nothing changes
        process.send_signal(signal.SIGHUP)
        assert await status("secret") == 200
        file.write_text("")
        await after_sighup(200)
        assert not answer.content.at_eof() and len(fake.processes()) == 1


async def test_a_reload_never_opens_a_gateway_to_others(fake: FakeAgent, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('host = "0.0.0.0"\napi_key = "secret"\n')
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cursor_gateway", "serve", "--port", "0", "--config", str(file)),
        env=fake.env, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    await eventually(lambda: running(fake.env))
    file.write_text("")
    process.send_signal(signal.SIGHUP)
    line = b""
    while b"not reloaded" not in line:
        line = await process.stderr.readline()
    assert b"needs a key" in line
    process.terminate()
    await process.communicate()


async def test_a_closed_terminal_ends_the_gateway(fake: FakeAgent) -> None:
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"),
        env=fake.env, stdin=theirs, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    (presence,) = await eventually(lambda: running(fake.env))
    process.send_signal(signal.SIGHUP)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{presence.base_url}/models") as response,
    ):
        assert response.status == 200
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert await process.wait() == 0
