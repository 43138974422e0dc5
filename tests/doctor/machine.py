"""The machine that the doctor examines, and what it says."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import FakeAgent
from tests.support.programs import run


def bin_folder(fake: FakeAgent) -> Path:
    return fake.home.parent / "bin"


def program(fake: FakeAgent, name: str, script: str) -> None:
    path = bin_folder(fake) / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def delay(fake: FakeAgent, question: str) -> None:
    """Let the agent take a second for this one."""
    first, rest = (bin_folder(fake) / "cursor-agent").read_text().split("\n", 1)
    (bin_folder(fake) / "cursor-agent").write_text(
        f'{first}\ntest "$1" = {question} && sleep 1\n{rest}'
    )


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def config(fake: FakeAgent, name: str, text: str) -> Path:
    path = Path(fake.env["XDG_CONFIG_HOME"]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def cursor_file(fake: FakeAgent, name: str, text: str) -> Path:
    path = Path(fake.env["HOME"]) / ".cursor" / name
    path.parent.mkdir()
    path.write_text(text)
    return path


def examined(fake: FakeAgent, *words: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The problems by check, and all that was said."""
    return said(run(fake, "doctor", "--json", *words))


def examined_after(
    fake: FakeAgent, *commands: str, words: str = ""
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The same in the shell of a person who first does what was printed."""
    quiet = [f"{command} >/dev/null" for command in commands]
    script = "\n".join([*quiet, f"cursor-gateway doctor --json {words}"])
    done = subprocess.run(
        ["sh", "-c", script], env=fake.env, capture_output=True, text=True, check=False, timeout=100
    )
    return said(done)


def said(
    done: subprocess.CompletedProcess[str],
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    report = json.loads(done.stdout)
    problems = {each["check"]: each for each in report["findings"] if each["verdict"] == "fault"}
    assert done.returncode == (0 if report["healthy"] else 1)
    assert report["healthy"] is not bool(problems)
    return problems, report
