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
from cursor_gateway.clients import CLIENTS
from cursor_gateway.processes import guardian, tree
from cursor_gateway.running_gateways import running
from tests.conftest import FakeAgent, eventually
from tests.support.machine import OF_CLIENTS
from tests.support.programs import gateway_process, run


@pytest.fixture(autouse=True)
def machine(fake: FakeAgent) -> None:
    """A machine with nothing on it but the fake agent, the gateway and an editor."""
    for name in [name for name in fake.env if OF_CLIENTS.match(name)]:
        del fake.env[name]
    folder = bin_folder(fake)
    fake.env.update({"PATH": f"{folder}:/usr/bin:/bin", "PORT": str(free_port())})
    fake.env.update({"EDITOR": "edits", "FIXED": "{}"})
    program(fake, "edits", 'echo "$FIXED" > "$1"')
    program(fake, "cursor-gateway", f'exec "{sys.executable}" -P -m cursor_gateway "$@"')


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


def examined(fake: FakeAgent, *words: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The faults by check, and all that was said."""
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
    faults = {each["check"]: each for each in report["findings"] if each["verdict"] == "fault"}
    assert done.returncode == (0 if report["healthy"] else 1)
    assert report["healthy"] is not bool(faults)
    return faults, report


# Faults that a person can have, and the check that finds each.


def no_agent(fake: FakeAgent) -> None:
    (bin_folder(fake) / "cursor-agent").rename(fake.home / "download")
    program(
        fake,
        "curl",
        f'test "$1" = https://cursor.com/install && echo "mkdir -p ~/.local/bin; '
        f'mv {fake.home}/download ~/.local/bin/cursor-agent"',
    )


def wrong_executable(fake: FakeAgent) -> None:
    fake.env["CURSOR_AGENT_EXECUTABLE"] = "/nowhere/cursor-agent"


def wrong_command(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_AGENT_COMMAND"] = "no-such-ssh devbox cursor-agent"


def wrong_key(fake: FakeAgent) -> None:
    fake.sign_out()
    fake.put("key", "crsr_right")
    fake.env["CURSOR_API_KEY"] = "crsr_wrong"


def wrong_endpoint(fake: FakeAgent) -> None:
    fake.env["CURSOR_API_ENDPOINT"] = "https://nowhere.example.com"


def old_agent(fake: FakeAgent) -> None:
    fake.put("version", "2025.11.06-8fe8a63")


def cursor_file(fake: FakeAgent, name: str, text: str) -> Path:
    path = Path(fake.env["HOME"]) / ".cursor" / name
    path.parent.mkdir()
    path.write_text(text)
    return path


def broken_cli_config(fake: FakeAgent) -> None:
    cursor_file(fake, "cli-config.json", '{"version": 1, "permi')


def pipes_for_files(fake: FakeAgent) -> None:
    fake.cursor.mkdir()
    for name in ("cli-config.json", "hooks.json"):
        os.mkfifo(fake.cursor / name)


def left_by_a_race(fake: FakeAgent) -> None:
    os.utime(cursor_file(fake, "cli-config.json.tmp", "{}"), (0, 0))


def no_scratch(fake: FakeAgent) -> None:
    fake.env["TMPDIR"] = str(fake.home / "not there")


def bad_mcp_servers(fake: FakeAgent) -> None:
    servers = {name: {"type": "local", "command": ["/bin/false"]} for name in ("one", "two")}
    config(fake, "opencode/opencode.json", json.dumps({"mcp": servers}))


def bad_mcp_entry(fake: FakeAgent) -> None:
    config(fake, "opencode/opencode.json", '{"mcp": {"one": {"type": "pigeon"}}}')


def no_mcp_file(fake: FakeAgent) -> None:
    fake.env["OPENCODE_CONFIG"] = "/nowhere/opencode.json"


def client_of_another_name(fake: FakeAgent) -> None:
    """Its provider has a name that oh-my-pi has built in: prompts go past the gateway."""
    assert run(fake, "setup", "oh-my-pi", "--write").returncode == 0
    models = CLIENTS["oh-my-pi"].config(fake.env)
    models.write_text(models.read_text().replace("cursor-gateway:", "cursor:"))


def client_elsewhere(fake: FakeAgent) -> None:
    done = run(fake, "setup", "codex", "--write", "--url", "http://127.0.0.1:9/v1")
    assert done.returncode == 0


def unreadable_client(fake: FakeAgent) -> None:
    path = Path(fake.env["HOME"]) / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text("model = ")
    fake.env["FIXED"] = ""


def misspelt_setting(fake: FakeAgent) -> None:
    config(fake, "cursor-gateway/config.toml", "slotz = 4")
    fake.env["FIXED"] = "slots = 4"


def bad_variable(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_SLOTS"] = "many"


def missing_settings(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_CONFIG"] = "/nowhere/config.toml"


def workspace_gone(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_WORKSPACE"] = "/nowhere"


def impossible_port(fake: FakeAgent) -> None:
    fake.env["PORT"] = "99999"


def open_to_all(fake: FakeAgent) -> None:
    fake.env["HOST"] = "0.0.0.0"


def misspelt_variable(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_PORT"] = "1"


def no_bubblewrap(fake: FakeAgent) -> None:
    program(fake, "bwrap", "echo no permission >&2; exit 1")
    fake.env["CURSOR_GATEWAY_ISOLATE"] = "1"


def alias_of_nothing(fake: FakeAgent) -> None:
    config(fake, "cursor-gateway/config.toml", 'aliases = {fast = "gpt-99"}')
    fake.env["FIXED"] = 'aliases = {fast = "auto"}'


def state_is_a_file(fake: FakeAgent) -> None:
    Path(fake.env["XDG_STATE_HOME"]).write_text("")


def slow_status(fake: FakeAgent) -> None:
    """As slow as a cold disk: too slow for the first setting, not for the one that is printed."""
    delay(fake, "status")
    fake.env["CURSOR_ACP_AUTH_CHECK_TIMEOUT"] = "500"


def dead_agent(fake: FakeAgent) -> None:
    agent = bin_folder(fake) / "cursor-agent"
    agent.rename(fake.home / "download")
    program(fake, "cursor-agent", "echo cannot find module >&2; exit 1")
    program(fake, "curl", f"echo mv {fake.home}/download {agent}")


PLANTED: dict[Callable[[FakeAgent], None], tuple[str, str]] = {
    no_agent: ("agent", "looked in "),
    wrong_executable: ("agent", "/nowhere/cursor-agent"),
    wrong_command: ("agent", "no-such-ssh"),
    FakeAgent.sign_out: ("sign-in", "nobody is signed in"),
    wrong_key: ("sign-in", "API key is invalid"),
    wrong_endpoint: ("models", "ENOTFOUND"),
    old_agent: ("agent-version", "2025.11.06-8fe8a63 is older"),
    broken_cli_config: ("config-race", "cli-config.json is not JSON"),
    pipes_for_files: ("config-race", "cli-config.json cannot be read: it is not a file"),
    left_by_a_race: ("config-race", "left by a start that failed"),
    no_scratch: ("scratch", "TMPDIR names "),
    bad_mcp_servers: ("mcp", "two: it exited with code 1"),
    bad_mcp_entry: ("mcp", "mcp.one: `type` must be"),
    no_mcp_file: ("mcp", "named by OPENCODE_CONFIG"),
    client_elsewhere: ("clients", "Codex does not point to"),
    client_of_another_name: ("clients", "oh-my-pi does not point to"),
    unreadable_client: ("clients", "cannot be read"),
    misspelt_setting: ("settings", "Did you mean 'slots'?"),
    bad_variable: ("settings", "must be a whole number"),
    missing_settings: ("settings", "There is no configuration file"),
    workspace_gone: ("settings", "names /nowhere, which is no directory"),
    impossible_port: ("settings", "must be between 0 and 65535"),
    open_to_all: ("settings", "lets others in and so needs a key"),
    misspelt_variable: ("settings", "Did you mean PORT?"),
    no_bubblewrap: ("isolation", "bubblewrap does not work here: no permission"),
    alias_of_nothing: ("models", "There is no model 'gpt-99'"),
    state_is_a_file: ("state", "cannot be written to, because of "),
    slow_status: ("sign-in", "said nothing within 0.5 seconds"),
    dead_agent: ("agent-version", "it does not say which version it is"),
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_fault_is_found_and_what_is_printed_mends_it(
    fake: FakeAgent, plant: Callable[[FakeAgent], None]
) -> None:
    plant(fake)
    check, words = PLANTED[plant]
    faults, _ = examined(fake)
    assert list(faults) == [check]
    assert words in faults[check]["what"] and faults[check]["why"]
    assert examined_after(fake, faults[check]["fix"])[0] == {}


async def test_a_port_that_is_taken_is_found_and_another_one_offered(fake: FakeAgent) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        fake.env["PORT"] = str(taken.getsockname()[1])
        faults, _ = await asyncio.to_thread(examined, fake)
        assert f"(pid {os.getpid()})" in faults["port"]["what"]
        serve = faults["port"]["fix"]
        gateway = await asyncio.create_subprocess_shell(
            f"exec {serve}", env=fake.env, stderr=subprocess.DEVNULL
        )
        (presence,) = await eventually(lambda: running(fake.env))
        faults, report = await asyncio.to_thread(examined, fake)
        gateway.terminate()
        await gateway.wait()
    assert faults == {}
    assert any(f"serves {presence.base_url}" in each["what"] for each in report["findings"])


async def test_a_gateway_that_hangs_is_found(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        process.send_signal(signal.SIGSTOP)
        faults, _ = await asyncio.to_thread(examined, fake)
        assert f"{url} (pid {process.pid}" in faults["port"]["what"]
        assert faults["port"]["fix"] == f"kill -9 {process.pid}"
        assert (await asyncio.to_thread(examined_after, fake, faults["port"]["fix"]))[0] == {}


@pytest.mark.parametrize("name", ["opencode", "codex"])
async def test_a_client_whose_key_the_gateway_refuses_is_found(fake: FakeAgent, name: str) -> None:
    assert run(fake, "setup", name, "--write").returncode == 0
    async with gateway_process(fake, "--port", fake.env["PORT"], "--api-key", "key-canary"):
        faults, _ = await asyncio.to_thread(examined, fake)
        assert list(faults) == ["clients"] and "refuses the key" in faults["clients"]["what"]
        mend = faults["clients"]["fix"]
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", mend, env=fake.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        await shell.communicate(b"key-canary\n")
        assert (await asyncio.to_thread(examined, fake))[0] == {}


async def test_a_key_that_a_client_takes_from_elsewhere_is_no_fault(fake: FakeAgent) -> None:
    assert run(fake, "setup", "opencode", "--write").returncode == 0
    path = Path(fake.env["XDG_CONFIG_HOME"]) / "opencode" / "opencode.json"
    path.write_text(path.read_text().replace('"-"', '"{env:MY_KEY}"'))
    fake.env["CURSOR_GATEWAY_API_KEY"] = "key-canary"
    async with gateway_process(fake, "--port", fake.env["PORT"]):
        faults, report = await asyncio.to_thread(examined, fake)
    (note,) = (each for each in report["findings"] if each["check"] == "clients")
    assert faults == {} and (note["verdict"], "wants a key" in note["what"]) == ("note", True)
    assert note["fix"] == "cursor-gateway setup opencode --write"


async def test_how_a_running_gateway_does_is_told(fake: FakeAgent) -> None:
    fake.sign_out()
    async with gateway_process(fake) as (process, _):
        faults, report = await asyncio.to_thread(examined, fake)
        (port,) = (each for each in report["findings"] if each["check"] == "port")
        assert list(faults) == ["sign-in"] and "cursor-gateway login" in port["why"]
        (file,) = (fake.home.parent / "runtime" / "cursor-gateway").iterdir()
        file.write_text(json.dumps(json.loads(file.read_text()) | {"version": "0.0.1"}))
        faults, _ = await asyncio.to_thread(examined, fake)
        assert "version 0.0.1) is not " in faults["port"]["what"]
        assert faults["port"]["fix"].startswith(f"kill {process.pid}; cursor-gateway serve --port ")


@pytest.mark.processes
def test_strays_are_found(fake: FakeAgent) -> None:
    stray = subprocess.Popen(["/bin/sleep", "600"], env={tree.MARK: "beef.1."})
    try:
        fault = examined(fake)[0]["strays"]
        assert str(stray.pid) in fault["what"]
        # Others on this machine may have left some, too; they are not ours to end.
        program, *pids = fault["fix"].split()
        assert program == "kill" and str(stray.pid) in pids
    finally:
        stray.kill()
        stray.wait()
    assert str(stray.pid) not in examined(fake)[0].get("strays", {}).get("what", "").split()


@pytest.mark.processes
def test_agents_of_a_gateway_that_runs_are_no_strays(fake: FakeAgent) -> None:
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
    faults, report = examined(fake)
    assert faults == {} and list(files_of(fake)) == before
    told = {each["check"]: each["what"] for each in report["findings"]}
    assert told["sign-in"] == "as de…@example.com, by the browser"
    assert told["agent"].startswith(str(bin_folder(fake) / "cursor-agent"))
    assert told["agent-version"] == "2026.09.18-fake"
    assert set(told) == {
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


def test_what_is_no_fault_is_a_note(fake: FakeAgent) -> None:
    program(fake, "aider", "exit 0")
    cursor_file(fake, "cli-config.json.bad", "{")
    fake.put("version", "2027.01.01-abc")
    fake.env["HTTP_PROXY"] = "http://proxy.example.com:3128"
    faults, report = examined(fake)
    notes = {each["check"]: each for each in report["findings"] if each["verdict"] == "note"}
    assert faults == {} and set(notes) == {"agent-version", "config-race", "clients", "probed"}
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
def test_whether_warm_starts_help_is_told(
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
    faults, report = examined(fake)
    assert faults == {} and "canary" not in json.dumps(report)
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
def test_that_the_cli_was_seen_to_disobey_is_told(
    fake: FakeAgent, obeys: bool | None, verdict: str
) -> None:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "versions"
    write_facts(folder, "2026.09.18-fake", VersionFacts(obeys_deny_list=obeys))
    (found,) = findings(examined(fake)[1], "obedience")
    assert found["verdict"] == verdict
    assert found["fix"].endswith(" update") is (verdict == "fault")
