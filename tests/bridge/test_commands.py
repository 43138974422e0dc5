"""`cursor-gateway mcp` as people and scripts run it."""

from __future__ import annotations

import json

import pytest

from tests.bridge.conftest import Mcp
from tests.conftest import FakeAgent
from tests.test_cli import run


def test_list_shows_servers_tools_and_what_is_wrong(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("good")
    mcp.add("bad", "crashes")
    mcp.write("strange", {"type": "pigeon"})
    done = run(fake, "mcp", "list")
    assert done.returncode == 0
    assert "mcp__good__echo" in done.stdout and "Does echo." in done.stdout
    assert "bad: it exited with code 1: boom" in done.stderr
    assert done.stderr.count("mcp.strange: `type` must be") == 1
    listed = json.loads(run(fake, "mcp", "list", "--json").stdout)
    states = {server["name"]: server["state"] for server in listed["servers"]}
    assert states == {"good": "connected", "bad": "failed"}
    assert listed["tools"][0]["id"] == "mcp__good__echo"
    assert len(listed["warnings"]) == 1
    assert mcp.processes() == []


def test_tools_that_are_left_out_are_told_by_all_who_list_them(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("wordy", "wordy")
    for words in (["list"], ["test", "wordy"]):
        assert "wordy: tools are left out: too large: 'long'" in run(fake, "mcp", *words).stderr
    assert "Tools are left out: too large: 'long'" in run(fake, "doctor").stdout


def test_list_without_servers_says_so(fake: FakeAgent) -> None:
    assert "No MCP servers are configured" in run(fake, "mcp", "list").stdout


def test_test_tells_how_it_went(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("good")
    mcp.add("bad", "crashes")
    done = run(fake, "mcp", "test", "good")
    assert done.returncode == 0
    assert done.stdout.startswith("good: connected in ")
    assert "fake 1, protocol 2025-11-25, 14 tools" in done.stdout
    done = run(fake, "mcp", "test", "bad")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bad: it exited with code 1: boom")
    done = run(fake, "mcp", "test", "bad", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (1, "failed")


def test_debug_shows_what_a_server_writes_to_stderr(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("bad", "crashes")
    fake.env["CURSOR_DEBUG"] = "1"
    assert "MCP server bad: boom: no such module" in run(fake, "mcp", "test", "bad").stderr


def test_call_prints_what_the_tool_says(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add("good")
    done = run(fake, "mcp", "call", "good", "echo", '{"text": "hello"}')
    assert (done.returncode, done.stdout) == (0, "hello\n")
    body = json.loads(run(fake, "mcp", "call", "good", "structured", "--json").stdout)
    assert body["structuredContent"] == {"answer": 42}
    assert run(fake, "mcp", "call", "good", "image").stdout == "[image, png, 24 bytes]\n"
    done = run(fake, "mcp", "call", "good", "fail")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "it went wrong\n")


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["call", "good", "echo", "{"], 2, "not valid JSON"),
        (["call", "good", "echo", "[]"], 2, "must be a JSON object"),
        (["call", "good", "sing"], 2, "good has no tool 'sing'"),
        (["call", "bad", "echo"], 1, "bad: it exited with code 1"),
        (["call", "nobody", "echo"], 2, "There is no MCP server 'nobody' that is enabled."),
        (["test", "strange"], 2, "mcp.strange: `type` must be"),
    ],
)
def test_a_wrong_word_is_told(
    fake: FakeAgent, mcp: Mcp, words: list[str], code: int, complaint: str
) -> None:
    mcp.add("good")
    mcp.add("bad", "crashes")
    mcp.write("strange", {"type": "pigeon"})
    done = run(fake, "mcp", *words)
    assert done.returncode == code
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
