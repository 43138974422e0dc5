"""The test double's own test: it must keep the contract, or the other tests prove nothing."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.agents.demo import program
from tests.conftest import FakeAgent

RUN = ("--print", "--output-format", "stream-json", "--trust", "--model", "auto")
DEMO = (sys.executable, program.__file__)


def call(
    fake: FakeAgent, *argv: str, prompt: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env=fake.env,
        input=prompt,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=cwd,
    )


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.split("\n") if line]


def said(event: dict[str, Any]) -> str:
    return str(event["message"]["content"][0]["text"])


@pytest.mark.parametrize("agent", [("cursor-agent",), DEMO])
def test_unknown_flags_are_refused_in_the_clis_words(fake: FakeAgent, agent: tuple[str]) -> None:
    done = call(fake, *agent, "--system-prompt", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: unknown option '--system-prompt'\n"
    done = call(fake, *agent, "--mode", "agent")
    assert done.returncode == 1 and "is invalid" in done.stderr
    done = call(fake, *agent, "--model")
    assert done.returncode == 1 and "argument missing" in done.stderr


@pytest.mark.parametrize("agent", [("cursor-agent",), DEMO])
def test_all_root_flags_are_known(fake: FakeAgent, agent: tuple[str]) -> None:
    flags = (
        "--force --yolo --sandbox enabled --approve-mcps --workspace /tmp --add-dir /x "
        "--resume=0f7bd36c-4c5b-4e2f-9a51-1d1b3f6f7a10 --header=K:V -w --plan --continue "
        "--mode ask --stream-partial-output"
    ).split()
    done = call(fake, *agent, *RUN, *flags, prompt="hi")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("agent", [("cursor-agent",), DEMO])
def test_the_prompt_comes_from_the_words_or_from_stdin(fake: FakeAgent, agent: tuple[str]) -> None:
    by_words = events(call(fake, *agent, *RUN, "two", "words").stdout)
    by_stdin = events(call(fake, *agent, *RUN, prompt="two words").stdout)
    after_dashes = events(call(fake, *agent, *RUN, "--", "-dash").stdout)
    assert said(by_words[1]) == said(by_stdin[1]) == "two words"
    assert said(after_dashes[1]) == "-dash"


def test_the_buffer_is_repeated_at_the_four_places_with_the_right_fields(fake: FakeAgent) -> None:
    prompt = (
        "[[text:a]][[text:b]][[tool:read]][[text:c]][[query:webFetch]][[text:d]][[retry]][[text:e]]"
    )
    lines = events(
        call(fake, "cursor-agent", *RUN, "--stream-partial-output", prompt=prompt).stdout
    )
    shape = [
        (said(event), "timestamp_ms" in event, "model_call_id" in event)
        if event["type"] == "assistant"
        else event["type"]
        for event in lines[2:]
    ]
    assert shape == [
        *(("a", True, False), ("b", True, False), ("ab", True, True)),
        *("tool_call", "tool_call"),
        *(("c", True, False), ("c", True, False), "interaction_query", "interaction_query"),
        *(("d", True, False), ("d", True, False), "retry"),
        *(("e", True, False), ("e", False, False), "result"),
    ]
    assert lines[-1]["result"] == "abcde"


def test_without_the_partial_flag_each_segment_comes_once(fake: FakeAgent) -> None:
    prompt = "[[text:a]][[text:b]][[tool:read]][[text:c]]"
    lines = events(call(fake, "cursor-agent", *RUN, prompt=prompt).stdout)
    assert [said(event) for event in lines if event["type"] == "assistant"] == ["ab", "c"]


def test_a_background_shell_comes_back_at_once_and_notices_are_no_words(fake: FakeAgent) -> None:
    prompt = (
        "[[text:a]][[background-shell:sleep 0.1]][[text:b]][[end-turn]]"
        "[[notify:background_shell_timeout]][[exit:0]]"
    )
    lines = events(
        call(fake, "cursor-agent", *RUN, "--stream-partial-output", prompt=prompt).stdout
    )
    shape = [(event["type"], event.get("subtype"), "timestamp_ms" in event) for event in lines]
    assert shape[-5:] == [
        ("tool_call", "started", True),
        ("tool_call", "completed", True),
        ("assistant", None, True),
        ("assistant", None, False),
        ("system", "background_shell_timeout", True),
    ]
    assert lines[-5]["tool_call"]["shellToolCall"]["args"]["isBackground"] is True


def test_a_server_of_the_users_is_called_only_where_nobody_has_to_be_asked(
    fake: FakeAgent, tmp_path: Path
) -> None:
    prompt = "[[own-server:notes find {}]][[say-result]]"
    refused = call(fake, "cursor-agent", *RUN, prompt=prompt)
    assert "rejected" in said(events(refused.stdout)[-2])
    (tmp_path / ".cursor").mkdir(exist_ok=True)
    (tmp_path / ".cursor" / "cli-config.json").write_text('{"approvalMode": "unrestricted"}')
    # It gets as far as to look for the server, which is not there.
    assert call(fake, "cursor-agent", *RUN, prompt=prompt).returncode != 0


@pytest.mark.parametrize(("boots", "is_early"), [("before", True), ("after", False)])
def test_it_boots_before_its_stdin_ends_or_once_it_has(
    fake: FakeAgent, boots: str, is_early: bool
) -> None:
    fake.put(f"boots-{boots}-prompt", "0.1")
    pipe = subprocess.PIPE
    agent = subprocess.Popen(("cursor-agent", *RUN), env=fake.env, stdin=pipe, stdout=pipe)
    assert agent.stdin is not None
    deadline = time.monotonic() + (15 if is_early else 1)
    while not (fake.home / "booted").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (fake.home / "booted").exists() is is_early
    output, _ = agent.communicate(b"[[text:here]]", timeout=60)
    assert said(events(output.decode())[-2]) == "here"
    assert (fake.home / "booted").read_text() == f"{agent.pid}\n"


def test_status_exits_with_0_signed_in_or_not(fake: FakeAgent) -> None:
    signed_in = call(fake, "cursor-agent", "status")
    assert (signed_in.returncode, "✓ Logged in as dev@example.com" in signed_in.stdout) == (0, True)
    fake.sign_out()
    signed_out = call(fake, "cursor-agent", "status")
    assert (signed_out.returncode, signed_out.stdout) == (0, "Not logged in\n")
    as_json = json.loads(call(fake, "cursor-agent", "status", "--format", "json").stdout)
    assert as_json["isAuthenticated"] is False


@pytest.mark.parametrize(
    ("vice", "knows", "grows"), [(None, True, True), ("", False, True), ("frozen", False, False)]
)
def test_a_resumed_chat_comes_back_with_its_history_or_without(
    fake: FakeAgent, vice: str | None, knows: bool, grows: bool
) -> None:
    def stored() -> int:
        return sum(store.stat().st_size for store in fake.cursor.glob("chats/*/*/store.db"))

    first = events(call(fake, "cursor-agent", *RUN, prompt="word " * 1000).stdout)
    before = stored()
    if vice is not None:
        fake.put("forgets", vice)
    resume = ("--resume", first[0]["session_id"])
    second = events(call(fake, "cursor-agent", *RUN, *resume, prompt="And?").stdout)
    assert second[0]["session_id"] == first[0]["session_id"]
    usage = second[-1]["usage"]
    assert (usage["cacheReadTokens"] > 1000, usage["inputTokens"] < 50) == (knows, True)
    assert (stored() > before) is grows


def test_status_takes_the_time_that_it_is_told(fake: FakeAgent) -> None:
    fake.put("status-takes", "0.1")
    assert "Logged in" in call(fake, "cursor-agent", "status").stdout
    fake.put("status-takes", "600")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["cursor-agent", "status"], env=fake.env, check=False, timeout=1)


def test_signed_out_nothing_runs(fake: FakeAgent) -> None:
    fake.sign_out()
    done = call(fake, "cursor-agent", *RUN, prompt="hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Authentication required" in done.stderr
    assert call(fake, "cursor-agent", "models").returncode == 1


def test_it_fails_as_often_as_it_is_told(fake: FakeAgent) -> None:
    fake.put("flaky", "1")
    prompt = "[[flaky:Error: No.]][[text:Yes.]]"
    failed, answered = (call(fake, "cursor-agent", *RUN, prompt=prompt) for _ in range(2))
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", "Error: No.")
    assert (answered.returncode, events(answered.stdout)[-1]["result"]) == (0, "Yes.")


def test_the_demo_agent_answers_in_every_format(fake: FakeAgent) -> None:
    text = call(fake, *DEMO, "--print", "--output-format", "text", prompt="Why?")
    assert "“Why?”" in text.stdout
    fast = ("--model", "demo-fast", "--stream-partial-output")
    lines = events(call(fake, *DEMO, *RUN, *fast, prompt="Why?").stdout)
    assert lines[-1]["result"] + "\n" == text.stdout
    assert lines[0]["model"] == "Demo Fast"
    schema = call(fake, *DEMO, "--print", prompt="Why?\n\nReply with one JSON document")
    assert json.loads(schema.stdout)["demo"] is True
    turns = '<turn from="user">\nOne\n</turn>\n\n<turn from="user">\nTwo\n</turn>'
    assert "“Two”" in call(fake, *DEMO, "--print", prompt=turns).stdout


def test_the_demo_agent_knows_the_sub_commands(fake: FakeAgent) -> None:
    assert "Logged in as demo" in call(fake, *DEMO, "status").stdout
    assert json.loads(call(fake, *DEMO, "status", "--format", "json").stdout)["isAuthenticated"]
    assert "Tip:" in call(fake, *DEMO, "models").stdout
    assert call(fake, *DEMO, "--version").stdout.endswith("-demo\n")
    assert "needs no sign-in" in call(fake, *DEMO, "login").stdout
    unknown = call(fake, *DEMO, "--print", "--model", "gpt-99", prompt="hi")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("Cannot use this model: gpt-99. Available models: auto")


DENIED = ("Read(**)", "Read(/**)", "Shell(*)", "Write(**)", "WebFetch(*)")
TRIES = (
    ("read", {"path": "{outside}"}, "error"),
    ("read", {"path": "inside"}, "error"),
    ("shell", {"command": "touch made"}, "permissionDenied"),
    ("edit", {"path": "made", "streamContent": "x"}, "writePermissionDenied"),
    ("glob", {"globPattern": "*"}, "success"),
    ("webFetch", {"url": "https://example.com/x"}, "rejected"),
)


def workspace(tmp_path: Path, *deny: str) -> Path:
    folder = tmp_path / "project"
    (folder / ".cursor").mkdir(parents=True)
    (folder / "inside").write_text("in")
    (tmp_path / "outside").write_text("secret")
    permissions = {"permissions": {"allow": [], "deny": list(deny)}}
    (folder / ".cursor" / "cli.json").write_text(json.dumps(permissions))
    return folder


def tried(fake: FakeAgent, folder: Path, name: str, args: dict[str, Any], *flags: str) -> Any:
    words = json.dumps(args).replace("{outside}", str(folder.parent / "outside"))
    done = call(fake, "cursor-agent", *RUN, *flags, prompt=f"[[try:{name} {words}]]", cwd=folder)
    completed = [event for event in events(done.stdout) if event.get("subtype") == "completed"]
    return completed[0]["tool_call"][f"{name}ToolCall"]


@pytest.mark.parametrize(("name", "args", "shape"), TRIES)
@pytest.mark.parametrize("mode", [(), ("--mode", "ask")])
def test_what_is_denied_is_refused_in_every_mode_and_comes_back_without_its_arguments(
    fake: FakeAgent, tmp_path: Path, name: str, args: dict[str, Any], shape: str, mode: tuple[str]
) -> None:
    folder = workspace(tmp_path, *DENIED)
    body = tried(fake, folder, name, args, *mode)
    assert list(body) == ["result"]
    assert list(body["result"]) == [shape]
    assert body["result"]["success"]["totalFiles"] == 0 if shape == "success" else True
    assert not (folder / "made").exists() and "secret" not in str(body)


def test_in_ask_mode_files_elsewhere_are_read_and_commands_run_unless_that_is_denied(
    fake: FakeAgent, tmp_path: Path
) -> None:
    folder = workspace(tmp_path)
    read = tried(fake, folder, "read", {"path": "{outside}"}, "--mode", "ask")
    assert read["result"]["success"]["content"] == "secret"
    tried(fake, folder, "shell", {"command": "touch made"}, "--mode", "ask")
    assert (folder / "made").exists()
    edit = tried(fake, folder, "edit", {"path": "x", "streamContent": "y"}, "--mode", "ask")
    assert "writePermissionDenied" in edit["result"]


@pytest.mark.parametrize(
    ("token", "path", "is_read"),
    [
        ("Read(**)", "inside", False),
        ("Read(**)", "{outside}", True),
        ("Read(/**)", "{outside}", False),
        ("Read(~/**)", "~/outside", False),
        ("Read(~/**)", "{outside}", False),
        ("Read(/*/**)", "inside", False),
        ("Read(i?side)", "inside", False),
        ("Read(/elsewhere/**)", "inside", True),
        ("Write(**)", "inside", True),
    ],
)
def test_globs_of_paths_are_about_the_workspace_the_home_or_everything(
    fake: FakeAgent, tmp_path: Path, token: str, path: str, is_read: bool
) -> None:
    body = tried(fake, workspace(tmp_path, token), "read", {"path": path})
    assert ("success" in body["result"]) is is_read


def test_a_directory_must_be_trusted(fake: FakeAgent, tmp_path: Path) -> None:
    folder = workspace(tmp_path)
    untrusting = [flag for flag in RUN if flag != "--trust"]
    done = call(fake, "cursor-agent", *untrusting, prompt="hi", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Workspace Trust Required" in done.stderr
    assert call(fake, "cursor-agent", *untrusting, "--yolo", prompt="hi", cwd=folder).stdout
    assert call(fake, "cursor-agent", *untrusting, prompt="hi", cwd=folder).returncode == 1
    assert call(fake, "cursor-agent", *RUN, prompt="hi", cwd=folder).stdout
    assert call(fake, "cursor-agent", *untrusting, prompt="hi", cwd=folder).stdout


@pytest.mark.parametrize("told", ["", "CURSOR_CONFIG_DIR", "XDG_CONFIG_HOME"])
def test_every_run_leaves_its_chat_and_its_transcript(
    fake: FakeAgent, tmp_path: Path, told: str
) -> None:
    config = fake.cursor
    if told == "CURSOR_CONFIG_DIR":
        config = tmp_path / "configured"
        fake.env[told] = str(config)
    elif told:
        config = tmp_path / "config" / "cursor"
        fake.put("xdg")
    folder = workspace(tmp_path)
    done = call(fake, "cursor-agent", *RUN, prompt="[[text:all of it]]", cwd=folder)
    session = events(done.stdout)[0]["session_id"]
    digest = hashlib.md5(str(folder.resolve()).encode(), usedforsecurity=False).hexdigest()
    assert "all of it" in (config / "chats" / digest / session / "store.db").read_text()
    project = config / "projects" / re.sub("[^a-zA-Z0-9]", "-", str(folder)).strip("-")
    assert {path.name for path in project.iterdir()} == {
        *(".workspace-trusted", "worker.log", "agent-transcripts")
    }
    transcript = project / "agent-transcripts" / session / f"{session}.jsonl"
    assert [json.loads(line)["role"] for line in transcript.read_text().splitlines()] == [
        *("user", "assistant")
    ]


def test_it_can_do_the_same_whatever_it_is_asked(fake: FakeAgent) -> None:
    fake.put("always", "[[text:Not today.]]")
    for prompt in ("Hello", "[[text:Hello]]"):
        done = call(fake, "cursor-agent", *RUN, prompt=prompt)
        assert events(done.stdout)[-1]["result"] == "Not today."
