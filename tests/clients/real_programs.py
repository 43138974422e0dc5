"""Real coding agents from npm, against the gateway with the fake agent: `make clients`.

Not part of `make test`: it downloads half a gigabyte. `CLIENTS_DIR` names the folder whose
`node_modules` holds the programs.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Client, FakeAgent, Start

BIN = Path(os.environ["CLIENTS_DIR"]).resolve() / "node_modules" / ".bin"
SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Program:
    """How a client is configured and run, as its guide in docs/clients/ says."""

    name: str
    shell: str
    configure: Callable[[Path, str], None]
    argv: tuple[str, ...]
    # Put before the prompt to go on with the last conversation; None where that needs a login.
    resume: tuple[str, ...] | None
    # What its shell tool calls the command.
    argument: str = "command"


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def opencode(home: Path, url: str) -> None:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": "-"},
        "models": {"auto": {"tool_call": True, "limit": {"context": 200000, "output": 32000}}},
    }
    config = {
        "provider": {"cursor": provider},
        "model": "cursor/auto",
        "small_model": "cursor/auto",
    }
    write_json(home / ".config" / "opencode" / "opencode.json", config)


def pi(home: Path, url: str) -> None:
    provider = {
        "baseUrl": url,
        "apiKey": "NO_KEY",
        "api": "openai-completions",
        "models": [{"id": "auto", "name": "auto"}],
    }
    write_json(home / ".pi" / "agent" / "models.json", {"providers": {"cursor": provider}})


def omp(home: Path, url: str) -> None:
    path = home / ".omp" / "agent" / "models.yml"
    path.parent.mkdir(parents=True)
    path.write_text(
        "providers:\n  cursor:\n"
        f"    baseUrl: {url}\n    apiKey: NO_KEY\n    api: openai-completions\n"
        "    models:\n      - id: auto\n        name: auto\n        reasoning: false\n"
        "        input: [text]\n        contextWindow: 200000\n        maxTokens: 32000\n"
        "        cost: {input: 0, output: 0, cacheRead: 0, cacheWrite: 0}\n"
    )


def droid(home: Path, url: str) -> None:
    model = {
        "model": "auto",
        "id": "custom:cursor",
        "index": 0,
        "displayName": "Cursor",
        "baseUrl": url,
        "apiKey": "-",
        "provider": "generic-chat-completion-api",
        "maxOutputTokens": 16000,
    }
    write_json(home / ".factory" / "settings.json", {"customModels": [model]})


def claude_code(home: Path, url: str) -> None:
    """All of it is environment; its base has no `/v1`."""
    (home / "base_url").write_text(url.removesuffix("/v1"))


def codex(home: Path, url: str) -> None:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(
        'model = "auto"\nmodel_provider = "cursor"\n\n'
        f'[model_providers.cursor]\nname = "Cursor"\nbase_url = "{url}"\n'
        'env_key = "NO_KEY"\nwire_api = "responses"\n'
    )


PROGRAMS = (
    Program(
        "codex",
        "exec_command",
        codex,
        (
            *(str(BIN / "codex"), "exec", "--skip-git-repo-check"),
            "--dangerously-bypass-approvals-and-sandbox",
        ),
        ("resume", "--last"),
        argument="cmd",
    ),
    Program(
        "claude-code",
        "Bash",
        claude_code,
        (str(BIN / "claude"), "-p", "--dangerously-skip-permissions"),
        ("-c",),
    ),
    Program(
        "opencode", "bash", opencode, (str(BIN / "opencode"), "run", "-m", "cursor/auto"), ("-c",)
    ),
    Program(
        "pi",
        "bash",
        pi,
        (str(BIN / "pi"), "-p", "--provider", "cursor", "--model", "auto"),
        ("-c",),
    ),
    Program(
        "oh-my-pi",
        "bash",
        omp,
        (str(BIN / "bun"), str(BIN / "omp"), "-p", "--model", "cursor/auto", "--auto-approve"),
        ("-c",),
    ),
    Program(
        "droid",
        "Execute",
        droid,
        (str(BIN / "droid"), "exec", "--skip-permissions-unsafe", "-m", "custom:cursor"),
        None,
    ),
)
EVERY_PROGRAM = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@dataclass(slots=True)
class Desk:
    """A user with a project, a configured client and a gateway."""

    program: Program
    home: Path
    project: Path

    @property
    def anthropic_url(self) -> str:
        path = self.home / "base_url"
        return path.read_text() if path.exists() else ""

    async def run(self, prompt: str, *options: str, may_fail: bool = False) -> str:
        env = {
            "HOME": str(self.home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "NO_KEY": "-",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": "-",
            "ANTHROPIC_MODEL": "auto",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
        }
        process = await asyncio.create_subprocess_exec(
            *self.program.argv, *options, prompt, env=env, cwd=self.project,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert may_fail or process.returncode == 0, output.decode()
        return output.decode()


def desk(program: Program, client: Client, tmp_path: Path) -> Desk:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    program.configure(home, client.server.base_url)
    return Desk(program, home, project)


def call(program: Program, command: str) -> str:
    return f"[[shell-call:{program.shell} {program.argument} {command}]]"


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_a_plain_answer_is_shown(program: Program, client: Client, tmp_path: Path) -> None:
    output = await desk(program, client, tmp_path).run("[[text:The answer is ]][[text:forty-two.]]")
    assert "The answer is forty-two." in output


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_a_tool_round_trip_changes_a_file(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = desk(program, client, tmp_path)
    made = user.project / "made.txt"
    prompt = call(program, f"echo hello > {made}; echo RESULT")
    output = await user.run(f"{prompt}[[then]][[text:Done.]]")
    assert made.read_text() == "hello\n"
    assert "Done." in output
    assert "RESULT" in fake.runs()[-1]["prompt"].split("<tool_result")[-1]


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_parallel_calls_are_all_executed(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = desk(program, client, tmp_path)
    calls = "".join(call(program, f"echo {n} > {user.project}/file{n}") for n in range(3))
    output = await user.run(f"{calls}[[then]][[text:All done.]]")
    assert sorted(path.read_text() for path in user.project.glob("file*")) == ["0\n", "1\n", "2\n"]
    assert "All done." in output
    assert fake.runs()[-1]["prompt"].count("<tool_result id=") == 3


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_a_task_of_several_steps_takes_one_agent(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = desk(program, client, tmp_path)
    steps = [
        f"{kind}:{program.shell} {program.argument} echo {n} >> {user.project}/file{n}"
        for n, kind in enumerate(("shell-relay", "shell-relay", "shell-announce", "shell-relay"))
    ]
    script = "".join(f"[[{step}]]" for step in steps)
    output = await user.run(f"{script}[[text:All four.]][[then]][[text:Replayed.]]")
    files = sorted(path.read_text() for path in user.project.glob("file*"))
    assert files == ["0\n", "1\n", "2\n", "3\n"]
    assert "All four." in output
    assert sum("--approve-mcps" in run["argv"] for run in fake.runs()) == 1


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_the_agents_own_shell_is_the_clients_shell(
    program: Program, client: Client, tmp_path: Path
) -> None:
    user = desk(program, client, tmp_path)
    made = user.project / "native.txt"
    native = f"[[native-shell:echo native > {made}]][[hang]]"
    output = await user.run(f"{native}[[then]][[text:Done.]]")
    assert made.read_text() == "native\n"
    assert "Done." in output


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_a_second_turn_knows_the_first(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    if program.resume is None:
        pytest.skip("its resume wants a login")
    user = desk(program, client, tmp_path)
    await user.run("[[text:I am the first answer.]]")
    output = await user.run("[[text:And I am the second.]]", *program.resume)
    assert "And I am the second." in output
    last = fake.runs()[-1]
    assert "--resume" in last["argv"] or "I am the first answer." in last["prompt"]


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_a_refusal_says_what_to_do(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    """Signed out of Cursor: the user must read how to sign in, not watch a spinner."""
    user = desk(program, client, tmp_path)
    fake.sign_out()
    options = ("-o", "stream-json") if program.name == "droid" else ()
    assert "cursor-gateway login" in await user.run("Hello", *options, may_fail=True)


@pytest.mark.timeout(600)
async def test_codex_that_tries_a_websocket_goes_on_over_http_at_once(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (program,) = (program for program in PROGRAMS if program.name == "codex")
    user = desk(program, client, tmp_path)
    with (user.home / ".codex" / "config.toml").open("a") as config:
        config.write("supports_websockets = true\n")
    with caplog.at_level("INFO", "cursor_gateway.server"):
        output = await user.run("[[text:The answer is ]][[text:forty-two.]]")
    assert "The answer is forty-two." in output
    assert sum("GET /v1/responses 426" in record.message for record in caplog.records) == 1


@pytest.mark.timeout(600)
async def test_claude_code_shows_a_wrong_key_at_once(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (program,) = (program for program in PROGRAMS if program.name == "claude-code")
    with caplog.at_level("INFO", "cursor_gateway.server"):
        async with start(api_key="another") as client:
            output = await desk(program, client, tmp_path).run("Hello", may_fail=True)
    assert "Invalid API key" in output
    assert sum("POST /v1/messages 403" in record.message for record in caplog.records) == 1
