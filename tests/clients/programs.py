"""The real coding agents, as `make clients` installs them, and a user who runs one of them.

`CLIENTS_DIR` names the folder whose `node_modules` holds the programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cursor_gateway.clients import CLIENTS
from cursor_gateway.clients.client import NO_KEY, PROVIDER, Target
from cursor_gateway.core.models import AUTO, Model
from tests.conftest import Client

ROOT = Path(os.environ["CLIENTS_DIR"]).resolve()
BIN = ROOT / "node_modules" / ".bin"
SECONDS = 150.0
# Of those that `cursor-gateway setup` does not know.
TITLES = {"kilo": "Kilo", "qwen-code": "Qwen Code", "gptme": "gptme"}


@dataclass(frozen=True, slots=True)
class Program:
    """How a client is run, as its guide in docs/clients/ says, once it has been set up."""

    name: str
    # The command that runs it once, the prompt left out.
    argv: tuple[str, ...]
    # Its shell tool, and what that calls the command; empty for a client that offers no tools.
    shell: str = ""
    argument: str = "command"
    # Put before the prompt to go on with the last conversation; None where that is not possible.
    resume: tuple[str, ...] | None = None
    # Writes its files, where `cursor-gateway setup` does not know it.
    configure: Callable[[Desk], None] | None = None
    # What it takes from the environment only; `{url}` is the gateway's.
    env: Mapping[str, str] = field(default_factory=dict)
    # Of several calls in one answer it takes the first and forgets the others.
    takes_one_call: bool = False
    # Whether its shell tool has a shape that a shell call of the agent's own can be given.
    is_native_shell: bool = True
    # What a model does last, where words alone do not end the client's work.
    farewell: str = ""
    # Its name in the table of failures, where it is run in more than one way.
    row: str = ""
    mode: str = ""
    # Why it shows no message whatever the gateway says.
    hides: str = ""

    @property
    def title(self) -> str:
        named = CLIENTS[self.name].title if self.name in CLIENTS else TITLES[self.name]
        return f"{named}, {self.mode}" if self.mode else named


@dataclass(slots=True)
class Desk:
    """A user with a project, a configured client and a gateway."""

    program: Program
    url: str
    home: Path
    project: Path

    async def run(self, prompt: str, *options: str, may_fail: bool = False) -> str:
        words = (*options, f"{prompt}{self.program.farewell}")
        return await self.call(*self.program.argv, *words, may_fail=may_fail)

    async def setup(self, *words: str) -> str:
        gateway = (sys.executable, "-m", "cursor_gateway", "setup", self.program.name)
        return await self.call(*gateway, "--url", self.url, *words)

    async def call(self, *argv: str, may_fail: bool = False) -> str:
        process = await self.start(*argv)
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await process.communicate()
        finally:
            await self.end(process)
        assert may_fail or process.returncode == 0, output.decode()
        return output.decode()

    async def start(self, *argv: str) -> asyncio.subprocess.Process:
        """All that the client knows of the gateway is in its files."""
        env = {
            "HOME": str(self.home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "IS_SANDBOX": "1",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
        }
        own = {name: value.format(url=self.url) for name, value in self.program.env.items()}
        return await asyncio.create_subprocess_exec(
            *argv, env=env | own, cwd=self.project, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip

    async def end(self, process: asyncio.subprocess.Process) -> None:
        """End it and what it left behind, such as Cline's hub, whose port the next one wants."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()

    def _processes(self) -> list[int]:
        marker = f"HOME={self.home}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and marker in (entry / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(int(entry.name))
        return found


async def desk(program: Program, client: Client, tmp_path: Path) -> Desk:
    user = Desk(program, client.server.base_url, tmp_path / "home", tmp_path / "project")
    user.home.mkdir()
    user.project.mkdir()
    if program.configure:
        program.configure(user)
    else:
        await user.setup("--write")
    return user


def _configure_kilo(user: Desk) -> None:
    """It is a fork of OpenCode and reads the same configuration in another place."""
    target = Target(user.url, (Model(AUTO, "Auto"),))
    file = user.home / ".config" / "kilo" / "kilo.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(CLIENTS["opencode"].wanted(target)))


def _configure_nothing(user: Desk) -> None:
    """The environment says it all."""


_OPENAI = {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": NO_KEY}

PROGRAMS = (
    Program(
        "codex",
        (
            *("codex", "exec", "--skip-git-repo-check"),
            "--dangerously-bypass-approvals-and-sandbox",
        ),
        shell="exec_command",
        argument="cmd",
        resume=("resume", "--last"),
    ),
    Program(
        "claude-code", ("claude", "-p", "--dangerously-skip-permissions"), "Bash", resume=("-c",)
    ),
    Program("opencode", ("opencode", "run"), "bash", resume=("-c",)),
    Program("pi", ("pi", "-p", "--provider", PROVIDER, "--model", "auto"), "bash", resume=("-c",)),
    Program(
        "oh-my-pi",
        ("omp", "-p", "--auto-approve"),
        "bash",
        resume=("-c",),
    ),
    # Its resume wants a login.
    Program(
        "droid",
        ("droid", "exec", "--skip-permissions-unsafe"),
        "Execute",
        hides="`droid exec` prints “Exec failed”; the message is in `-o stream-json`",
    ),
    Program("kilo", ("kilo", "run", "--auto"), "bash", resume=("-c",), configure=_configure_kilo),
    Program("continue", ("cn", "-p", "--auto"), "Bash", resume=("--resume",)),
    Program(
        "cline",
        ("cline", "--auto-approve", "true"),
        "run_commands",
        "commands[]",
        is_native_shell=False,
    ),
    Program(
        "qwen-code",
        ("qwen", "--yolo"),
        "run_shell_command",
        resume=("-c",),
        configure=_configure_nothing,
        env=_OPENAI | {"OPENAI_MODEL": AUTO},
    ),
    Program(
        "aider", ("aider", "--no-git", "--no-check-update", "--no-show-model-warnings", "--message")
    ),
    Program(
        "gptme",
        ("gptme", "-n", "-m", f"local/{AUTO}", "--tool-format", "tool"),
        "shell",
        configure=_configure_nothing,
        env=_OPENAI,
        farewell="[[relay:complete {}]]",
        takes_one_call=True,
    ),
)
