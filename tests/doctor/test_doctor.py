"""`cursor-gateway doctor`: problems are planted, found, and fixed by the command that it prints."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.agents.cursor.version_facts import VersionFacts, write_facts
from cursor_gateway.processes import guardian, tree
from cursor_gateway.running_gateways import running
from tests.conftest import FakeAgent, eventually
from tests.doctor.machine import bin_folder, cursor_file, delay, examined, examined_after, program
from tests.doctor.planted import PLANTED
from tests.support.programs import gateway_process, run


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_problem_is_found_and_what_is_printed_fixes_it(
    fake: FakeAgent, plant: Callable[[FakeAgent], None]
) -> None:
    plant(fake)
    check, words = PLANTED[plant]
    problems, _ = examined(fake)
    assert list(problems) == [check]
    assert words in problems[check]["what"] and problems[check]["why"]
    assert examined_after(fake, problems[check]["fix"])[0] == {}


async def test_a_port_that_is_taken_is_found_and_another_one_offered(fake: FakeAgent) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        fake.env["PORT"] = str(taken.getsockname()[1])
        problems, _ = await asyncio.to_thread(examined, fake)
        assert f"(pid {os.getpid()})" in problems["port"]["what"]
        serve = problems["port"]["fix"]
        gateway = await asyncio.create_subprocess_shell(
            f"exec {serve}", env=fake.env, stderr=subprocess.DEVNULL
        )
        (presence,) = await eventually(lambda: running(fake.env))
        problems, report = await asyncio.to_thread(examined, fake)
        gateway.terminate()
        await gateway.wait()
    assert problems == {}
    assert any(f"serves {presence.base_url}" in each["what"] for each in report["findings"])


async def test_a_gateway_that_hangs_is_found(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        process.send_signal(signal.SIGSTOP)
        problems, _ = await asyncio.to_thread(examined, fake)
        assert f"{url} (pid {process.pid}" in problems["port"]["what"]
        assert problems["port"]["fix"] == f"kill -9 {process.pid}"
        assert (await asyncio.to_thread(examined_after, fake, problems["port"]["fix"]))[0] == {}


@pytest.mark.parametrize("name", ["opencode", "codex"])
async def test_a_client_whose_key_the_gateway_refuses_is_found(fake: FakeAgent, name: str) -> None:
    assert run(fake, "setup", name, "--write").returncode == 0
    async with gateway_process(fake, "--port", fake.env["PORT"], "--api-key", "key-canary"):
        problems, _ = await asyncio.to_thread(examined, fake)
        assert list(problems) == ["clients"] and "refuses the key" in problems["clients"]["what"]
        fix = problems["clients"]["fix"]
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", fix, env=fake.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        await shell.communicate(b"key-canary\n")
        assert (await asyncio.to_thread(examined, fake))[0] == {}


async def test_a_key_that_a_client_takes_from_elsewhere_is_no_problem(fake: FakeAgent) -> None:
    assert run(fake, "setup", "opencode", "--write").returncode == 0
    path = Path(fake.env["XDG_CONFIG_HOME"]) / "opencode" / "opencode.json"
    path.write_text(path.read_text().replace('"-"', '"{env:MY_KEY}"'))
    fake.env["CURSOR_GATEWAY_API_KEY"] = "key-canary"
    async with gateway_process(fake, "--port", fake.env["PORT"]):
        problems, report = await asyncio.to_thread(examined, fake)
    (note,) = (each for each in report["findings"] if each["check"] == "clients")
    assert problems == {} and (note["verdict"], "wants a key" in note["what"]) == ("note", True)
    assert note["fix"] == "cursor-gateway setup opencode --write"


async def test_how_a_running_gateway_does_is_said(fake: FakeAgent) -> None:
    fake.sign_out()
    async with gateway_process(fake) as (process, _):
        problems, report = await asyncio.to_thread(examined, fake)
        (port,) = (each for each in report["findings"] if each["check"] == "port")
        assert list(problems) == ["sign-in"] and "cursor-gateway login" in port["why"]
        (file,) = (fake.home.parent / "runtime" / "cursor-gateway").iterdir()
        file.write_text(json.dumps(json.loads(file.read_text()) | {"version": "0.0.1"}))
        problems, _ = await asyncio.to_thread(examined, fake)
        assert "version 0.0.1) is not " in problems["port"]["what"]
        assert problems["port"]["fix"].startswith(
            f"kill {process.pid}; cursor-gateway serve --port "
        )


@pytest.mark.processes
def test_orphans_are_found(fake: FakeAgent) -> None:
    stray = subprocess.Popen(["/bin/sleep", "600"], env={tree.MARK: "beef.1."})
    try:
        problem = examined(fake)[0]["strays"]
        assert str(stray.pid) in problem["what"]
        # Others on this machine may have left some, too; they are not ours to end.
        program, *pids = problem["fix"].split()
        assert program == "kill" and str(stray.pid) in pids
    finally:
        stray.kill()
        stray.wait()
    assert str(stray.pid) not in examined(fake)[0].get("strays", {}).get("what", "").split()


@pytest.mark.processes
def test_agents_of_a_gateway_that_runs_are_no_orphans(fake: FakeAgent) -> None:
    agent = subprocess.Popen(["/bin/sleep", "600"], env={tree.MARK: "cafe.1."})
    words = ["cafe.", str(fake.home / "no")]
    guarding = subprocess.Popen(guardian.command(words), stdin=subprocess.PIPE)
    assert agent.pid not in tree.ownerless()
    guarding.communicate()  # which ends what it guards
    assert agent.wait() == -signal.SIGKILL


# What it says when all is well, and how.


def files_of(fake: FakeAgent) -> Iterator[tuple[str, str]]:
    for path in sorted(fake.home.parent.rglob("*")):
        if path.is_file() and "calls" not in path.parts:
            yield str(path), hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_healthy_machine_is_left_as_it_was(fake: FakeAgent) -> None:
    cursor_file(fake, "cli-config.json", "{}")
    before = list(files_of(fake))
    problems, report = examined(fake)
    assert problems == {} and list(files_of(fake)) == before
    seen = {each["check"]: each["what"] for each in report["findings"]}
    assert seen["sign-in"] == "as de…@example.com, by the browser"
    assert seen["agent"].startswith(str(bin_folder(fake) / "cursor-agent"))
    assert seen["agent-version"] == "2026.09.18-fake"
    assert set(seen) == {
        *("versions", "scratch", "agent", "agent-version", "sign-in", "models", "config-race"),
        *("port", "mcp", "strays", "clients", "probed", "state", "isolation"),
        *("warm", "obedience", "hooks", "approval"),
    }


def test_secrets_are_not_shown(fake: FakeAgent) -> None:
    fake.env.update({"CURSOR_GATEWAY_API_KEY": "sesame", "CURSOR_API_KEY": "crsr_right"})
    fake.env.update({"CURSOR_AGENT_EXECUTABLE": "/sesame/crsr_right"})
    done = run(fake, "doctor")
    assert "CURSOR_AGENT_EXECUTABLE names '/***/***'" in done.stdout
    assert "sesame" not in done.stdout + done.stderr and "crsr" not in done.stdout + done.stderr


def test_people_read_what_why_and_how(fake: FakeAgent) -> None:
    fake.sign_out()
    done = run(fake, "doctor")
    assert done.returncode == 1
    lines = [line.strip() for line in done.stdout.splitlines()]
    at = lines.index("problem sign-in       nobody is signed in")
    assert lines[at + 1] == "Cursor answers nobody who is not signed in."
    assert lines[at + 2] == "$ cursor-gateway login"
    assert "skipped models        not looked at before `sign-in` is fixed" in lines
    assert lines[-1] == "1 problem."
    assert done.stderr == ""


def test_a_terminal_shows_what_is_looked_at(fake: FakeAgent) -> None:
    # Long enough to be in some picture of the terminal, of which there are ten in a second.
    delay(fake, "models")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cursor_gateway", "doctor"],
        env=fake.env | {"TERM": "xterm"}, stderr=theirs, stdout=subprocess.DEVNULL,
    ):  # fmt: skip
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # which is how a terminal ends
            while data := os.read(ours, 4096):
                shown += data
    os.close(ours)
    assert b"looking at the models" in shown


def test_what_is_no_problem_is_a_note(fake: FakeAgent) -> None:
    program(fake, "aider", "exit 0")
    cursor_file(fake, "cli-config.json.bad", "{")
    fake.put("version", "2027.01.01-abc")
    fake.env["HTTP_PROXY"] = "http://proxy.example.com:3128"
    problems, report = examined(fake)
    notes = {each["check"]: each for each in report["findings"] if each["verdict"] == "note"}
    assert problems == {} and set(notes) == {"agent-version", "config-race", "clients", "probed"}
    fixes = [each["fix"] for each in report["findings"] if each["check"] == "clients"]
    assert fixes[0] == "cursor-gateway setup aider --write" and "NO_PROXY" in fixes[1]


@pytest.mark.parametrize(
    ("early", "verdict", "words"),
    [
        (True, "ok", "boots before it has its prompt (first output 0.1 s after the prompt, 6.2 s"),
        (False, "note", "warm starts do not help with this version of the CLI and are not made"),
        (None, "ok", "is not known yet"),
    ],
)
def test_whether_warm_starts_help_is_said(
    fake: FakeAgent, early: bool | None, verdict: str, words: str
) -> None:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "versions"
    facts = VersionFacts(boots_before_prompt=early, cold_start_s=6.2, warm_start_s=0.1)
    write_facts(folder, "2026.09.18-fake", facts)
    fake.env["CURSOR_GATEWAY_WARM"] = "1"
    _, report = examined(fake)
    (found,) = (each for each in report["findings"] if each["check"] == "warm")
    assert found["verdict"] == verdict and words in found["what"]


def findings(report: dict[str, Any], check: str) -> list[dict[str, Any]]:
    return [each for each in report["findings"] if each["check"] == check]


def test_hooks_and_approvals_of_the_user_are_found_and_never_shown(fake: FakeAgent) -> None:
    _, report = examined(fake)
    assert [each["what"] for each in findings(report, "hooks")] == ["there are none"]
    assert findings(report, "approval")[0]["verdict"] == "ok"
    home, folder = Path(fake.env["HOME"]), Path(fake.env["HOME"], "elsewhere")
    fake.env["CURSOR_CONFIG_DIR"] = str(folder)
    hook = {"beforeShellExecution": [{"command": "canary"}], "stop": []}
    write(home / ".cursor" / "hooks.json", {"version": 1, "hooks": hook})
    write(home / ".claude" / "settings.json", {"hooks": {"PreToolUse": [{"command": "canary"}]}})
    write(folder / "cli-config.json", {"approvalMode": "unrestricted", "token": "canary"})
    problems, report = examined(fake)
    assert problems == {} and "canary" not in json.dumps(report)
    cursor, claude = findings(report, "hooks")
    assert cursor["what"] == f"{home}/.cursor/hooks.json has hooks: beforeShellExecution"
    assert claude["what"] == f"{home}/.claude/settings.json has hooks: PreToolUse"
    (approval,) = findings(report, "approval")
    assert {cursor["verdict"], claude["verdict"], approval["verdict"]} == {"note"}
    assert "rewrite" in cursor["why"] and "MCP servers" in approval["why"]
    assert approval["fix"] == f"${{EDITOR:-vi}} {folder}/cli-config.json"


@pytest.mark.parametrize(
    ("text", "times"), [("[]", 1), ("{", 1), ('{"hooks": 1}', 1), ("[", 100_000), (" ", 2_000_000)]
)
def test_a_file_of_the_users_that_cannot_be_read_says_nothing(
    fake: FakeAgent, text: str, times: int
) -> None:
    file = Path(fake.env["HOME"], ".cursor", "hooks.json")
    file.parent.mkdir()
    file.write_text(text * times)
    assert [each["what"] for each in findings(examined(fake)[1], "hooks")] == ["there are none"]


def write(file: Path, content: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(("obeys", "verdict"), [(None, "ok"), (True, "ok"), (False, "fault")])
def test_that_the_cli_was_seen_to_disobey_is_said(
    fake: FakeAgent, obeys: bool | None, verdict: str
) -> None:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "versions"
    write_facts(folder, "2026.09.18-fake", VersionFacts(obeys_deny_list=obeys))
    (found,) = findings(examined(fake)[1], "obedience")
    assert found["verdict"] == verdict
    assert found["fix"].endswith(" update") is (verdict == "fault")
