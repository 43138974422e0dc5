"""What commands print and the log holds, of words that others chose: nothing that steers."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.request_ids import LogLines
from tests.bridge.conftest import Mcp
from tests.conftest import FakeAgent, eventually
from tests.support.programs import run, serving_process

# Clears the screen, twice, in two ways; rings; reads backwards; begins a line anew.
EVIL = "\x1b[2J\x9b2J\x07\u202elive\u2028\r"
SEEN = r"\x1b[2J\x9b2J\x07\u202elive\u2028\r"
# An ANSI sequence that the CLI wrote is taken for colour and dropped.
LEFT = SEEN.replace(r"\x1b[2J", "")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def mcp(fake: FakeAgent, tmp_path: Path) -> Mcp:
    return Mcp(fake, tmp_path / "mcp-home")


def printed(fake: FakeAgent, *words: str) -> str:
    done = run(fake, *words)
    said = done.stdout + done.stderr
    assert not STEERING.search(said), said.encode()
    assert "Traceback" not in said
    return said


def test_names_of_models_and_accounts_do_not_steer(fake: FakeAgent) -> None:
    listing = f"Available models\n\nevil-1 - A {EVIL}name [red]x[/]\n\nTip: use\n"
    fake.put("models.txt", listing.replace("\r", ""))
    assert f"A {LEFT}name [red]x[/]".replace(r"\r", "") in printed(fake, "models")
    fake.put("account", f"dev{EVIL}@example.com")
    assert "signed in as dev" in printed(fake, "status")
    account = json.loads(printed(fake, "status", "--json"))["account"]
    assert account.startswith("dev") and account.endswith("@example.com")


def test_words_of_a_failure_do_not_steer(fake: FakeAgent) -> None:
    said = printed(fake, "ask", f"[[stderr:no {EVIL}such luck]][[exit:1]]")
    assert r"no \x9b2J\x07\u202elive such luck" in said
    fake.env["CURSOR_AGENT_EXECUTABLE"] = f"/nowhere/{EVIL}"
    assert "/nowhere/" in printed(fake, "doctor")


def test_a_configuration_file_does_not_steer(fake: FakeAgent, tmp_path: Path) -> None:
    file = tmp_path / f"c{EVIL}.toml"
    assert f"c{SEEN}.toml" in printed(fake, "config", "--config", str(file))
    file.write_text(r'"\u001b[2J\u202elive" = 1')
    assert r"no setting '\x1b[2J\u202elive'" in printed(fake, "config", "--config", str(file))


def test_the_journal_does_not_steer(fake: FakeAgent) -> None:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway"
    folder.mkdir(parents=True)
    entry = {"id": "1", "at": "2026-11-01T00:00:00+00:00", "client": "c\x1b[2J", "dialect": EVIL}
    entry |= {"model": "m\nforged line", "resolved": "", "channel": "none", "agent": "none"}
    facts: dict[str, Any] = {
        "first_token_ms": None,
        "duration_ms": 1.0,
        "tokens": None,
        "outcome": "complete",
    }
    facts |= {"loop": None, "calls": [], "agents": [], "error": EVIL}
    (folder / "journal.jsonl").write_text(f"{json.dumps(entry | facts)}\n")
    rows = printed(fake, "logs").splitlines()
    assert len(rows) == 2 and r"c\x1b[2J" in rows[1] and r"m\nforged line" in rows[1]
    for words in (["--json"], ["1"]):
        assert json.loads(printed(fake, "logs", *words))["error"] == EVIL


def test_mcp_servers_do_not_steer(fake: FakeAgent, mcp: Mcp) -> None:
    mcp.add(f"described{EVIL}", "describes")
    mcp.add(f"evil{EVIL}", "crashes")
    mcp.write(f"strange{EVIL}", {"type": "pigeon"})
    listed = printed(fake, "mcp", "list")
    assert f"evil{SEEN}" in listed and f"strange{SEEN}" in listed
    assert r"Does echo, \x1b[2J\u202eand more" in listed
    assert "boom" in printed(fake, "mcp", "call", f"evil{EVIL}", "echo")


def in_terminal(fake: FakeAgent, *words: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cursor_gateway", *words],
        env=fake.env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    ):  # fmt: skip
        os.close(theirs)
        said = b""
        while data := _read(ours):
            said += data
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # it is gone with its last user
        return b""


def test_an_answer_is_exact_in_a_pipe_and_harmless_in_a_terminal(fake: FakeAgent) -> None:
    ask = ("ask", f"[[text:one\ttwo\n{EVIL}three]]")
    piped = subprocess.run(
        [sys.executable, "-m", "cursor_gateway", *ask],
        env=fake.env, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert piped.stdout.decode() == f"one\ttwo\n{EVIL}three\n"
    # A terminal draws a tab as blanks.
    assert in_terminal(fake, *ask).expandtabs() == f"one\ttwo\n{SEEN}three\n".expandtabs()


def test_thoughts_do_not_steer_a_terminal(fake: FakeAgent) -> None:
    shown = in_terminal(fake, "ask", f"[[think:hm {EVIL}]][[text:ok]]")
    assert f"\x1b[2mhm {SEEN}\x1b[0m" in shown
    assert not STEERING.search(shown.replace("\x1b[2m", "").replace("\x1b[0m", ""))


def test_a_tools_result_is_exact_in_a_pipe_and_harmless_in_a_terminal(
    fake: FakeAgent, mcp: Mcp
) -> None:
    mcp.add("good")
    call = ("mcp", "call", "good", "echo", json.dumps({"text": f"a {EVIL}b"}))
    piped = subprocess.run(
        [sys.executable, "-m", "cursor_gateway", *call],
        env=fake.env, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert piped.stdout.decode() == f"a {EVIL}b\n"
    assert in_terminal(fake, *call) == f"a {SEEN}b\n"


async def test_no_line_of_the_log_can_be_forged(fake: FakeAgent, mcp: Mcp, tmp_path: Path) -> None:
    """A key in it is struck out, too."""
    fake.env["OTHER_TOKEN"] = "canary-token"
    mcp.add(f"evil\n12:00:00 I forged canary-token {EVIL}", "crashes")
    log = tmp_path / "log"
    async with serving_process(fake, log):
        await eventually(lambda: "forged" in log.read_text())
    lines = log.read_text().splitlines()
    assert not any(line.startswith("12:00:00 I forged") for line in lines)
    (told,) = [line for line in lines if "forged" in line and "boom" in line]
    assert r"evil\n12:00:00 I forged *** " in told and SEEN in told
    assert not STEERING.search("".join(lines))


def test_words_of_an_exception_do_not_pass_for_lines_of_the_log() -> None:
    def fail() -> None:
        raise ValueError(f"no\n12:00:00 I forged {EVIL}")

    try:
        fail()
    except ValueError:
        failed = sys.exc_info()
    record = logging.LogRecord("x", logging.ERROR, "", 1, "failed: %s", ("a\nb",), failed)
    first, *rest = LogLines().format(record).split("\n")
    assert first.endswith(r"E failed: a\nb")
    assert rest[0] == "  Traceback (most recent call last):"
    assert all(row.startswith("  ") for row in rest) and f"I forged {SEEN}" in rest[-1]
