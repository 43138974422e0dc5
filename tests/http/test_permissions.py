"""What an agent can read and do by itself: in a scratch directory nothing, whoever asks."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start
from tests.http.dialogue import BASH, Dialogue
from tests.support.views import ALL, denied

PNG = "data:image/png;base64,iVBORw0KGgoAAAAASUVORK5CYII="


def tries(tool: str, **arguments: str) -> str:
    return f"[[try:{tool} {json.dumps(arguments)}]][[say-result]]"


def content_of(file: Path) -> str:
    return file.read_text()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """In the user's home."""
    file = tmp_path / "diary"
    file.write_text("dear diary")
    return file


@pytest.mark.parametrize("spelling", ["{path}", "~/diary", "{up}{path}"])
async def test_a_plain_chat_cannot_read_a_file_of_the_user(
    client: Client, secret: Path, spelling: str
) -> None:
    path = spelling.format(path=secret, up="../" * 9)
    said = await client.content(tries("read", path=path))
    assert "Permission denied" in said and "dear diary" not in said


async def test_a_plain_chat_cannot_list_run_write_or_fetch(
    client: Client, tmp_path: Path, secret: Path
) -> None:
    assert "diary" in await client.content(tries("glob", targetDirectory="/", globPattern="diary"))
    said = await client.content(tries("glob", targetDirectory=str(tmp_path), globPattern="*"))
    assert json.loads(said)["success"]["totalFiles"] == 0
    said = await client.content(tries("shell", command=f"cat {secret}"))
    assert list(json.loads(said)) == ["permissionDenied"]
    said = await client.content(tries("edit", path=str(secret), streamContent="x"))
    assert "writePermissionDenied" in said and "dear diary" in content_of(secret)
    said = await client.content(tries("webFetch", url="https://example.com"))
    assert "Permission denied" in said


async def test_every_run_in_a_scratch_directory_is_denied_the_whole_set(
    client: Client, fake: FakeAgent
) -> None:
    await client.answer("[[text:hi]]")
    assert denied(fake.runs()[0]) == ALL
    await client.answer("[[text:hi]]", tools=[BASH])
    assert denied(fake.runs()[1]) == ALL[:-1]


async def test_a_refused_call_does_not_disturb_the_answer(client: Client, secret: Path) -> None:
    prompt = f"[[text:Let me look. ]]{tries('read', path=str(secret))}[[text: It seems not.]]"
    answer = await client.content(prompt)
    assert answer.startswith("Let me look.") and answer.endswith("It seems not.")


@pytest.fixture
def beside() -> Iterator[Path]:
    """What somebody else has where the scratch directories are."""
    with tempfile.TemporaryDirectory(prefix="cursor-") as folder:
        (Path(folder) / "note").write_text("not yours")
        yield Path(folder) / "note"


def with_image(prompt: str) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": PNG}}]
    return [{"role": "user", "content": parts}]


@pytest.mark.parametrize("spelling", ["image-1.png", "$PWD/image-1.png"])
async def test_with_an_image_the_image_can_be_read(client: Client, spelling: str) -> None:
    assert "success" in await client.content(with_image(tries("read", path=spelling)))


async def test_with_an_image_nothing_else_can_be_read(
    client: Client, fake: FakeAgent, secret: Path, beside: Path
) -> None:
    for path in (str(secret), "~/diary", "/etc/hostname", str(beside), ".cursor/cli.json"):
        said = await client.content(with_image(tries("read", path=path)))
        assert "Permission denied" in said, path
    said = await client.content(with_image(tries("shell", command="true")))
    assert "permissionDenied" in said


async def test_with_an_image_no_other_run_can_be_read(client: Client, fake: FakeAgent) -> None:
    for number in range(11):
        await client.answer(f"[[text:chat {number} is kept, and its directory]]")
    await client.answer(with_image("[[text:and this]]"))
    root = Path(fake.runs()[-1]["cwd"]).parent
    assert sorted(folder.name for folder in root.iterdir()) == sorted(
        f"run-{number}" for number in range(1, 13)
    )
    others = [1, 2, 9, 10, 11, 12, 14, 20, 130, 200]
    steps = [tries("read", path=f"{root}/run-{other}/image-1.png") for other in others]
    steps.append(tries("read", path=f"{root}/run-13/image-1.png"))
    said = await client.content(with_image("".join(steps)))
    assert said.count("Permission denied") == len(others) and said.count("success") == 1


async def test_scratch_directories_below_the_home_leave_the_rest_of_it_denied(
    start: Start, tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "te)mp (1").write_text("odd")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    async with start() as client:
        assert "success" in await client.content(with_image(tries("read", path="image-1.png")))
        for path in (str(secret), "~/diary", str(tmp_path / "te)mp (1"), "/etc/hostname"):
            said = await client.content(with_image(tries("read", path=path)))
            assert "Permission denied" in said, path


async def test_permissions_that_an_agent_changed_serve_nobody_else(
    start: Start, secret: Path
) -> None:
    async with start(session_reuse=False) as client:
        changed = """sed -i 's/"Read/"read/g' .cursor/cli.json"""
        assert await client.content(f"[[sh:{changed}]][[text:done]]") == "done"
        said = await client.content(tries("read", path=str(secret)))
        assert "Permission denied" in said


async def test_a_resumed_chat_is_denied_the_same(
    client: Client, fake: FakeAgent, secret: Path
) -> None:
    talk = Dialogue(client, tools=[])
    await talk.say("[[text:first]]")
    said = (await talk.say(tries("read", path=str(secret))))["content"]
    assert "--resume" in fake.runs()[1]["argv"] and "Permission denied" in said


async def test_in_a_real_workspace_nothing_is_put_and_nothing_is_denied(
    start: Start, fake: FakeAgent, tmp_path: Path, secret: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with start(workspace=str(project)) as client:
        assert "dear diary" in await client.content(tries("read", path=str(secret)))
        reads = (await client.get("/health"))[1]["agent_reads"]
        assert (reads["workspace"], reads["isolated"]) == ("everything that you can read", False)
    assert list(project.iterdir()) == []
