"""What the real clients print, for their pages in docs/clients/: `make captures`.

The gateway and the client are real, as is the command that the client's shell executes. In the
model's place stands the fake agent, which asks for that command and then says the answer.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cursor_gateway.clients import CLIENTS
from cursor_gateway.clients.client import PROVIDER
from tests.clients.programs import Desk, Program
from tests.conftest import Client, FakeAgent

PAGES = Path(__file__).parents[2] / "docs" / "clients"
BEGINS = "<!-- what it printed, written by `make captures` -->"
ENDS = "<!-- end of what it printed -->"
QUESTION = "How many lines does notes.txt have?"
COMMAND, ANSWER = "wc -l notes.txt", "notes.txt has 3 lines."
BASH, LOWER_BASH = (f"shell-relay:{name} command {COMMAND}" for name in ("Bash", "bash"))
_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|\r")


# What clients say about the machine of the capture and about their own libraries.
_NOISE = re.compile(
    r"^(?:WARNING: proceeding, even though we could not create PATH aliases.*"
    r"|Reading additional input from stdin.*|Detected dumb terminal.*"
    r"|HTTPSConnectionPool.*|(?:Deprecation)?Warning: AI SDK.*(?:\n +at .*)*)\n?",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Scene:
    client: str
    # As a person types it, the question left out.
    words: tuple[str, ...]
    # What the fake agent calls before it answers; empty for a client that offers no tools.
    call: str = ""


SCENES = (
    Scene("opencode", ("opencode", "run"), LOWER_BASH),
    Scene("oh-my-pi", ("omp", "-p", "--auto-approve"), LOWER_BASH),
    Scene("droid", ("droid", "exec"), 'relay:Read {"file_path": "{project}/notes.txt"}'),
    Scene(
        "codex",
        ("codex", "exec", "--sandbox", "danger-full-access"),
        f"shell-relay:exec_command cmd {COMMAND}",
    ),
    Scene(
        "claude-code",
        ("claude", "-p", "--allowedTools=Bash"),
        BASH,
    ),
    Scene(
        "aider", ("aider", "--no-git", "--no-check-update", "--no-show-model-warnings", "--message")
    ),
    Scene("continue", ("cn", "-p", "--auto"), BASH),
    Scene("cline", ("cline", "--auto-approve", "true")),
    Scene(
        "pi",
        ("pi", "-p", "--provider", PROVIDER, "--model", "auto"),
        LOWER_BASH,
    ),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.client)
async def test_the_page_shows_what_the_client_prints(
    scene: Scene, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    program = Program(scene.client, scene.words)
    user = Desk(program, client.server.base_url, tmp_path / "home", tmp_path / "project")
    user.home.mkdir()
    user.project.mkdir()
    (user.project / "notes.txt").write_text("milk\nbread\ntea\n")
    await user.call("git", "init", "-q")
    call = scene.call and f"[[{scene.call.replace('{project}', str(user.project))}]]"
    fake.put("habits.json", json.dumps([[re.escape(QUESTION), f"{call}[[text:{ANSWER}]]"]]))
    await user.setup("--write")
    printed = clean(await user.run(QUESTION), user)
    assert ANSWER in printed
    _, journal = await client.get("/v1/requests")
    assert any(record["calls"] for record in journal["data"]) is bool(scene.call)
    write(CLIENTS[scene.client].page, f'{" ".join(scene.words)} "{QUESTION}"', printed)


async def test_the_page_shows_what_the_sdk_prints(
    client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    page = (PAGES / "openai-sdk.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    calls = "".join(f'[[relay:weather {{"city": "{city}"}}]]' for city in ("Ulm", "Bern"))
    fake.put("habits.json", json.dumps([["weather in Ulm", f"{calls}[[say-results]]"]]))
    program = tmp_path / "weather.py"
    program.write_text(source.replace("http://127.0.0.1:32124/v1", client.server.base_url))
    user = Desk(Program("", ()), "", tmp_path, tmp_path)
    printed = clean(await user.call(sys.executable, str(program)), user)
    write("openai-sdk.md", "python weather.py", printed)


def clean(output: str, user: Desk) -> str:
    """Without colours, and with the names that a reader has."""
    text = _NOISE.sub("", _COLOURS.sub("", output)).replace(
        user.url or "\0", "http://127.0.0.1:32124/v1"
    )
    text = text.replace(str(user.project), "~/project").replace(str(user.home), "~")
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def write(name: str, command: str, printed: str) -> None:
    page = PAGES / name
    head, begins, rest = page.read_text().partition(BEGINS)
    _, ends, tail = rest.partition(ENDS)
    assert begins and ends, f"{name} has no place for it"
    page.write_text(f"{head}{BEGINS}\n\n```console\n$ {command}\n{printed}\n```\n\n{ENDS}{tail}")
