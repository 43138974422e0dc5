"""The place where agents work: taken away, replaced, full."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cursor_gateway import scratch
from tests.conftest import WAIT_SECONDS, Client, FakeAgent, Start, eventually, frames_of, text_of
from tests.http.dialogue import BASH, Dialogue
from tests.support.views import ALL, denied, spare

pytestmark = pytest.mark.processes

UNUSABLE = "scratch_unusable"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the gateway's scratch directory is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def root_in(place: Path) -> Path:
    [root] = place.iterdir()
    return root


def names_in(place: Path) -> list[str]:
    return [path.name for path in place.glob("*")]


# Taken away, or replaced


def with_a_file(root: Path) -> None:
    shutil.rmtree(root)
    root.write_text("in the way")


def with_a_link(root: Path) -> None:
    shutil.rmtree(root)
    (root.parent.parent / "elsewhere").mkdir()
    root.symlink_to(root.parent.parent / "elsewhere")


def with_its_parent(root: Path) -> None:
    shutil.rmtree(root.parent)


def opened_up(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir(mode=0o777)
    root.chmod(0o777)


@pytest.mark.parametrize(
    "vice", [shutil.rmtree, with_a_file, with_a_link, with_its_parent, opened_up]
)
async def test_a_root_that_is_gone_is_made_again_and_no_request_fails(
    start: Start, fake: FakeAgent, place: Path, vice: Callable[[Path], object]
) -> None:
    async with start(session_reuse=False) as client:
        assert await client.content("[[text:before]]") == "before"
        root = root_in(place)
        vice(root)
        assert await client.content("[[text:after]]") == "after"
        assert root_in(place) == root and root.lstat().st_mode == 0o40700
        assert denied(fake.runs()[1]) == ALL
        assert (await client.get("/health"))[0] == 200
    assert names_in(place) == names_in(place.parent / "elsewhere") == []


async def test_a_removed_root_changes_nothing_for_who_works_there(
    start: Start, fake: FakeAgent, place: Path
) -> None:
    async with (
        start() as client,
        client.chat("[[text:one]][[await:go]][[text:two]]", stream=True) as response,
    ):
        frames = frames_of(response)
        first = [await anext(frames), await anext(frames)]
        shutil.rmtree(root_in(place))
        assert await client.content("[[text:meanwhile]]") == "meanwhile"
        fake.put("go")
        assert text_of([*first, *[frame async for frame in frames]]) == "onetwo"
    assert names_in(place) == []


async def test_a_chat_goes_on_where_its_directory_was_removed(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    shutil.rmtree(Path(fake.runs()[0]["cwd"]).parent)
    assert (await talk.say("[[text:second]]"))["content"] == "second"
    assert fake.runs()[1]["cwd"] == fake.runs()[0]["cwd"]
    assert denied(fake.runs()[1]) == ALL


def directory_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/cwd").readlink()


def lose(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("lost", ["", ".cursor", ".cursor/cli.json"])
async def test_an_agent_that_waits_without_its_permissions_serves_nobody(
    start: Start, fake: FakeAgent, lost: str
) -> None:
    async with start(warm=1, session_reuse=False) as client:
        await client.content("[[text:first]]")
        pid = await spare(client, fake)
        lose(directory_of(pid) / lost)
        assert await client.content("[[text:second]]") == "second"
        assert fake.runs()[1]["pid"] != pid
        assert denied(fake.runs()[1]) == ALL


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_what_another_user_has_put_there_is_not_used(start: Start, place: Path) -> None:
    async with start(session_reuse=False) as client:
        await client.content("[[text:before]]")
        root = root_in(place)
        shutil.rmtree(root)
        root.mkdir(mode=0o777)
        os.chown(root, 12345, 12345)
        status, error = await client.error("[[text:no]]")
        assert (status, error["code"]) == (503, UNUSABLE)
        assert str(root) in error["message"] and "another user" in error["message"]
        assert list(root.iterdir()) == []
        assert (await client.get("/health"))[1]["error"]["code"] == UNUSABLE
        root.rmdir()
        assert await client.content("[[text:yes]]") == "yes"


# Those who clear up


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="systemd is not installed")
async def test_systemd_leaves_it_alone(start: Start, place: Path, tmp_path: Path) -> None:
    (place / "old").mkdir()
    (tmp_path / "clean.conf").write_text(f"d {place} - - - 0\n")
    async with start() as client:
        await client.content("[[text:one]]")
        command = ["systemd-tmpfiles", "--clean", str(tmp_path / "clean.conf")]
        await asyncio.to_thread(subprocess.run, command, check=True)
        assert list(root_in(place).iterdir())


async def test_it_never_looks_old(
    start: Start, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "TOUCHED_EVERY", 0.01)
    async with start():
        root = root_in(place)
        os.utime(root, (0, 0))
        hour_ago = time.time() - 3600
        await eventually(lambda: min(root.stat().st_atime, root.stat().st_mtime) > hour_ago)


# No room


BWRAP = shutil.which("bwrap") or ""


def sandboxed(*how: str) -> list[str]:
    return [BWRAP, "--dev-bind", "/", "/", "--die-with-parent", *how]


def can_make_small_disks() -> bool:
    command = sandboxed("--size", "4096", "--tmpfs", "/mnt", "true")
    return bool(BWRAP) and subprocess.run(command, check=False, capture_output=True).returncode == 0


async def serve(fake: FakeAgent, wrapper: list[str], **env: str) -> tuple[Any, str]:
    process = await asyncio.create_subprocess_exec(
        *(*wrapper, sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"),
        env=fake.env | {"COLUMNS": "200"} | env,
        stderr=subprocess.PIPE,
    )
    said = ""
    while " on http://" not in said:
        line = (await process.stderr.readline()).decode()  # type: ignore[union-attr]
        if not line:
            break
        said += line
    return process, said


@pytest.mark.skipif(not can_make_small_disks(), reason="bubblewrap is missing or too old")
async def test_a_full_disk_is_named_to_whoever_asks_until_there_is_room(
    fake: FakeAgent, place: Path
) -> None:
    small = sandboxed("--size", "65536", "--tmpfs", str(place))
    process, said = await serve(fake, small, TMPDIR=str(place))
    try:
        base = said.split(" on ")[1].split("/v1")[0]
        async with aiohttp.ClientSession(base) as session:
            assert await asked(session, "before") == (200, "")
            [inner] = await eventually(lambda: _children(process.pid))
            filler = Path(f"/proc/{inner}/root{place}/filler")
            async with asyncio.timeout(WAIT_SECONDS):
                error = await full(session, filler)
            assert f"{place}/cursor-gateway-" in error["message"]
            assert "No space left on device" in error["message"]
            empty(filler)
            assert await asked(session, "room") == (200, "")
            await until_healthy(session)
    finally:
        process.kill()
        await process.communicate()


async def full(session: aiohttp.ClientSession, filler: Path) -> dict[str, str]:
    """What `/health` says of it. Runs that end meanwhile leave a little room, for a moment."""
    while True:
        fill(filler)
        refused = await asked(session, "full") == (503, UNUSABLE)
        async with session.get("/health") as response:
            state = await response.json()
        if refused and response.status == 503:
            return dict(state["error"])


def fill(path: Path) -> None:
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def empty(path: Path) -> None:
    path.unlink()


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


async def asked(session: aiohttp.ClientSession, prompt: str) -> tuple[int, str]:
    """With a tool, for which a file is written at each request."""
    messages = [{"role": "user", "content": f"[[text:{prompt}]]"}]
    body = {"model": "auto", "messages": messages, "tools": [BASH]}
    headers = {"X-Cursor-Session": "off"}
    async with session.post("/v1/chat/completions", json=body, headers=headers) as response:
        answer = await response.json()
        return response.status, answer.get("error", {}).get("code", "")


async def until_healthy(session: aiohttp.ClientSession) -> None:
    status = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while status != 200:
            async with session.get("/health") as response:
                status = response.status


@pytest.mark.skipif(not BWRAP, reason="bubblewrap is missing")
async def test_without_any_place_it_says_so_and_does_not_start(fake: FakeAgent) -> None:
    nowhere = [BWRAP, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    process, said = await serve(fake, [*nowhere, "--die-with-parent"], TMPDIR="/tmp")
    assert await process.wait() == 1
    assert "Traceback" not in said
    assert "No directory for agents can be made" in said and "'/tmp'" in said and "TMPDIR" in said


async def test_numbers_of_directories_that_cannot_be_made_are_used_again(
    start: Start, fake: FakeAgent, place: Path
) -> None:
    async with start(session_reuse=False) as client:
        root = root_in(place)
        with_a_file(place)
        for number in range(3):
            assert (await client.error(f"[[text:{number}]]"))[1]["code"] == UNUSABLE
        empty(place)
        assert await client.content("[[text:one]]") == "one"
        assert Path(fake.runs()[0]["cwd"]) == root / "run-1"
