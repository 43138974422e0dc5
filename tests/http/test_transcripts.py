"""What the CLI keeps on disk of our runs is removed with their directories, and nothing else is."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from cursor_gateway.agents.cursor.transcripts import Transcripts
from tests.conftest import GUARDIAN, FakeAgent, Start, children_of, command_line, eventually
from tests.http.dialogue import BASH, Dialogue

pytestmark = pytest.mark.processes
OF_THE_CLI = pytest.mark.agents("cli", "acp")

SESSION = "0f7bd36c-4c5b-4e2f-9a51-1d1b3f6f7a10"


def kept(config: Path) -> list[str]:
    """All files below its folders for conversations, by their paths in there."""
    places = (config / "chats", config / "projects", config / "acp-sessions")
    # Unlike a Path it does not mind folders that go away meanwhile.
    walks = [walk for place in places for walk in os.walk(place)]
    files = [Path(folder, name) for folder, _, names in walks for name in names]
    return sorted(str(path.relative_to(config)) for path in files)


def chats_of(directory: str) -> str:
    return hashlib.md5(directory.encode(), usedforsecurity=False).hexdigest()


def slug_of(directory: str) -> str:
    return re.sub("[^A-Za-z0-9]", "-", directory).strip("-")


@pytest.fixture
def strangers(fake: FakeAgent, tmp_path: Path) -> list[str]:
    """Chats of the user's own, some in directories with names like ours."""
    directories = [str(tmp_path), "/tmp/cursor-gateway-mine/run-1", "/tmp/cursor-gateway-/run-1"]
    for directory in directories:
        project = fake.cursor / "projects" / slug_of(directory)
        for path in (
            fake.cursor / "chats" / chats_of(directory) / SESSION / "store.db",
            project / "agent-transcripts" / SESSION / f"{SESSION}.jsonl",
            fake.cursor / "acp-sessions" / SESSION / "store.db",
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("the user's own")
    return kept(fake.cursor)


@OF_THE_CLI
async def test_nothing_of_a_scratch_run_stays_behind(
    start: Start, fake: FakeAgent, strangers: list[str]
) -> None:
    async with start(session_reuse=False) as client:
        assert await client.content("[[text:a secret plan]]") == "a secret plan"
        await client.answer("[[text:with tools]]", tools=[BASH])
        await client.answer("[[init]][[stderr:it dies]][[exit:1]]")
        assert len(fake.runs()) == 3
        await eventually(lambda: kept(fake.cursor) == strangers)
    assert sorted({path.name for path in fake.cursor.glob("*/*")}) == sorted(
        {path.split("/")[1] for path in strangers}
    )


async def test_a_chat_is_kept_until_it_is_forgotten(
    start: Start, fake: FakeAgent, strangers: list[str]
) -> None:
    async with start() as client:
        talk = Dialogue(client, tools=[])
        await talk.say("[[text:first]]")
        store = f"chats/{chats_of(fake.runs()[0]['cwd'])}"
        assert any(path.startswith(store) for path in kept(fake.cursor))
        await talk.say("[[text:second]]")
        assert "--resume" in fake.runs()[1]["argv"]
        assert "first" in "".join(p.read_text() for p in (fake.cursor / store).rglob("store.db"))
    assert kept(fake.cursor) == strangers


async def test_the_next_run_in_the_same_directory_finds_nothing_of_the_last(
    start: Start, fake: FakeAgent
) -> None:
    async with start(session_reuse=False) as client:
        for number in range(4):
            text = await client.content(
                f"[[text:{number}: ]][[sh:ls -A ~/.cursor/projects/*/agent-transcripts "
                f"> {fake.home}/seen-{number}]]"
            )
            assert text == f"{number}: "
            assert len((fake.home / f"seen-{number}").read_text().split()) == 1
            await eventually(lambda: kept(fake.cursor) == [])


@OF_THE_CLI
@pytest.mark.parametrize("told", ["CURSOR_CONFIG_DIR", "XDG_CONFIG_HOME"])
async def test_the_clis_folder_may_be_somewhere_else(
    start: Start, fake: FakeAgent, tmp_path: Path, told: str
) -> None:
    config = tmp_path / "config" / "cursor"
    if told == "CURSOR_CONFIG_DIR":
        fake.env[told] = str(config)
    else:
        fake.put("xdg")
    async with start() as client:
        await client.answer("[[text:hi]]")
        assert kept(config)
    assert kept(config) == []


async def test_transcripts_can_be_kept(start: Start, fake: FakeAgent) -> None:
    async with start(transcripts="keep", session_reuse=False) as client:
        await client.answer("[[text:hi]]")
    assert [Path(path).name for path in kept(fake.cursor)] == [
        "store.db",
        ".workspace-trusted",
        Path(kept(fake.cursor)[2]).name,
        "worker.log",
    ]
    assert not (Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "scratch").exists()


@pytest.mark.parametrize("reuse", [True, False])
async def test_in_a_real_workspace_only_our_sessions_are_removed(
    start: Start, fake: FakeAgent, tmp_path: Path, strangers: list[str], reuse: bool
) -> None:
    async with start(workspace=str(tmp_path), session_reuse=reuse) as client:
        talk = Dialogue(client, tools=[])
        await talk.say("[[text:first]]")
        await talk.say("[[text:second]]")
        ours = set(kept(fake.cursor)) - set(strangers)
        assert ("--resume" in fake.runs()[1]["argv"]) is reuse
        assert (len(ours) == 4) if reuse else True
    project = f"projects/{slug_of(str(tmp_path))}"
    # The directory is the user's, and so is its being trusted.
    left = {*strangers, f"{project}/.workspace-trusted", f"{project}/worker.log"}
    await eventually(lambda: set(kept(fake.cursor)) == left)


@pytest.mark.parametrize("place", ["projects", "chats"])
async def test_links_are_removed_and_not_followed(
    start: Start, fake: FakeAgent, tmp_path: Path, place: str
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    async with start(session_reuse=False) as client:
        lay = f'rm -rf "$0" && ln -s {precious} "$0" && ln -s {precious} {precious}/loop'
        folder = fake.cursor / place
        chats = f'mkdir -p {fake.cursor}/chats/$(printf %s "$PWD" | md5sum | cut -c1-32)'
        script = f"{chats}; for d in {folder}/*; do sh -c '{lay}' $d; done"
        await client.answer(f"[[init]][[text:x]][[sh:{script}]][[exit:1]]")
        await eventually(lambda: not list(folder.iterdir()))
    assert (precious / "file").read_text() == "mine"


async def test_a_link_among_the_users_own_folders_leads_nobody_out(
    start: Start, fake: FakeAgent, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    precious = tmp_path / "precious"
    async with start(workspace=str(project)) as client:
        await client.answer("[[text:x]]")
        transcripts = fake.cursor / "projects" / slug_of(str(project)) / "agent-transcripts"
        transcripts.rename(precious)
        transcripts.symlink_to(precious)
        before = kept_below(precious)
    assert kept_below(precious) == before and before


def kept_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_an_odd_session_id_removes_nothing(fake: FakeAgent, tmp_path: Path) -> None:
    (fake.cursor / "chats").mkdir(parents=True)
    found = Transcripts(fake.env, tmp_path, keep=False)
    odd = ["", ".", "..", "../..", "a/b"]
    assert found.of_sessions(tmp_path, odd) == []
    assert [found.of_names("chats", session) for session in odd] == [[]] * len(odd)
    for session in odd:
        found.note_names("chats", session)
    found.fulfil()
    assert (fake.cursor / "chats").exists()


# After a crash


def served(fake: FakeAgent) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"]
    process = subprocess.Popen(
        command, env=fake.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://\S+/v1", line):
            return process, found[0]
    raise AssertionError("it did not start")


def ask(base_url: str) -> None:
    body = b'{"model": "auto", "messages": [{"role": "user", "content": "[[text:hi]]"}]}'
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{base_url}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200


def guardian_of(pid: int) -> int:
    return next(child for child in children_of(pid) if GUARDIAN in command_line(child))


def notes(fake: FakeAgent) -> list[Path]:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "scratch"
    return list(folder.glob("*"))


async def test_what_a_full_disk_does_not_take_of_a_note_is_written_later(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.write, [10, 0]

    def write(fd: int, data: bytes) -> int:
        if not room or os.fstat(fd).st_ino != inode:
            return real(fd, data)
        if not (taken := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:taken])

    async with start() as client:
        [note] = notes(fake)
        inode = note.stat().st_ino
        monkeypatch.setattr("cursor_gateway.agents.cursor.transcripts.os.write", write)
        for word in ("one", "two", "three"):
            assert await client.content(f"[[text:{word}]]") == word
        lines = [json.loads(line) for line in content_of(note).splitlines()]
        root = lines[0]["root"]
        assert lines[1:] == [root, *(f"{root}/run-{number}" for number in (1, 2, 3))]


def content_of(note: Path) -> str:
    return note.read_text()


@OF_THE_CLI
@pytest.mark.parametrize("with_guardian", [False, True])
async def test_a_killed_gateway_leaves_no_transcript(
    start: Start, fake: FakeAgent, strangers: list[str], with_guardian: bool
) -> None:
    process, base_url = served(fake)
    try:
        ask(base_url)
        assert len(kept(fake.cursor)) > len(strangers) and len(notes(fake)) == 1
        if with_guardian:
            os.kill(guardian_of(process.pid), signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    if with_guardian:
        assert len(kept(fake.cursor)) > len(strangers)
        async with start():
            pass
    await eventually(lambda: kept(fake.cursor) == strangers and not notes(fake))
    assert not Path(fake.runs()[0]["cwd"]).parent.exists()


@pytest.mark.parametrize(
    "head",
    ["", "[]", "{}", "[" * 5000, '{"root": 3, "folders": []}', '{"root": "/", "folders": [%r]}'],
)
async def test_a_damaged_note_removes_nothing_and_keeps_nobody_from_serving(
    start: Start, fake: FakeAgent, strangers: list[str], head: str
) -> None:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "scratch"
    folder.mkdir(parents=True)
    head = head.replace("%r", json.dumps(str(fake.cursor)))
    (folder / "old.json").write_text(f'{head}\n"/tmp/cursor-gateway-mine/run-1"\n7\n"cut')
    async with start():
        await eventually(lambda: not (folder / "old.json").exists())
    assert kept(fake.cursor) == strangers


async def test_a_gateway_that_starts_leaves_those_that_live_alone(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client:
        talk = Dialogue(client, tools=[])
        await talk.say("[[text:first]]")
        before = kept(fake.cursor)
        async with start() as other:
            await other.answer("[[text:other]]")
        assert kept(fake.cursor) == before
        await talk.say("[[text:second]]")
        assert "--resume" in fake.runs()[-1]["argv"]
    assert kept(fake.cursor) == [] and notes(fake) == []


def test_a_note_that_was_cut_short_or_written_by_somebody_else_does_no_harm(
    fake: FakeAgent, tmp_path: Path, strangers: list[str]
) -> None:
    state = tmp_path / "state" / "cursor-gateway"
    (state / "scratch").mkdir(parents=True)
    folders = f'"folders": ["{fake.cursor}"]'
    for number, note in enumerate(
        (
            "",
            '{"root"',
            f'{{"root": "/tmp/cursor-gateway-x", {folders}}}\n"{tmp_path}"\n"/tmp/cur',
            f'{{"root": "/", {folders}}}\n',
            f'{{"root": "/tmp/cursor-gateway-x", {folders}}}\n["chats"]\n["chats", ".."]\n[1, 2]',
        )
    ):
        (state / "scratch" / f"{number}.json").write_text(note)
    Transcripts(fake.env, state, keep=False).clear_behind_others()
    assert notes(fake) == [] and kept(fake.cursor) == strangers


async def test_where_nothing_can_be_noted_the_gateway_serves(
    start: Start, fake: FakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("in the way")
    async with start() as client:
        assert await client.content("[[text:hi]]") == "hi"
    assert kept(fake.cursor) == []
