"""The commands as people and scripts run them: as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cursor_gateway.cli.main import cli
from tests.conftest import FakeAgent
from tests.support.programs import run


def test_help_names_every_command(fake: FakeAgent) -> None:
    done = run(fake, "--help")
    assert done.returncode == 0
    for command in cli.commands:
        assert command in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2], "a summary is cut off"
    assert run(fake, "--version").stdout.startswith("cursor-gateway, version ")


def test_help_loads_nothing_heavy(fake: FakeAgent) -> None:
    program = (
        "import sys; from cursor_gateway.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "heavy = {'asyncio', 'aiohttp', 'mcp', 'rich', 'jsonschema', 'orjson', 'yaml', 'tomlkit',\n"
        "         'cursor_gateway.clients', 'cursor_gateway.cli.supervisors'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=fake.env, check=False)
    assert done.returncode == 0


def test_ask_prints_the_answer(fake: FakeAgent) -> None:
    done = run(fake, "ask", "[[think:hm]][[text:Hello ]][[text:world]]")
    assert (done.returncode, done.stdout) == (0, "Hello world\n")
    assert "hm" not in done.stderr  # thinking is for terminals
    assert run(fake, "ask", stdin="[[text:from a pipe]]").stdout == "from a pipe\n"


def test_ask_as_json_is_a_chat_completion(fake: FakeAgent) -> None:
    body = json.loads(run(fake, "ask", "--json", "[[think:hm]][[text:Hi]]").stdout)
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "hm",
    }


def test_ask_into_a_closed_pipe_ends_quietly(fake: FakeAgent) -> None:
    program = [sys.executable, "-m", "cursor_gateway", "ask", "[[slowly:200]]"]
    with subprocess.Popen(
        program, env=fake.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ask:
        assert ask.stdout is not None and ask.stderr is not None
        ask.stdout.read(1)
        ask.stdout.close()
        complaints = ask.stderr.read()
    assert (ask.returncode, complaints) == (1, b"")


def test_ask_says_what_went_wrong_and_what_to_do(fake: FakeAgent) -> None:
    done = run(fake, "ask", "--model", "gpt-99", "hi")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: There is no model 'gpt-99'.")
    fake.sign_out()
    done = run(fake, "ask", "hi")
    assert done.returncode == 1 and "cursor-gateway login" in done.stderr
    fake.env["PATH"] = "/usr/bin:/bin"
    done = run(fake, "ask", "hi")
    assert done.returncode == 1 and "cursor.com/install" in done.stderr


def test_models_are_listed_for_people_and_for_scripts(fake: FakeAgent) -> None:
    assert "composer-2.5-fast" in run(fake, "models").stdout
    listed = json.loads(run(fake, "models", "--json").stdout)
    assert {"id": "auto", "name": "Auto"} in listed


def test_status_shows_the_sign_in_and_where_it_may_lie(fake: FakeAgent) -> None:
    done = run(fake, "status")
    assert done.returncode == 0
    assert "signed in as dev@example.com" in done.stdout
    fake.env["CURSOR_CONFIG_DIR"] = str(fake.home)
    fake.put("auth.json", "secret-canary")
    state = json.loads(run(fake, "status", "--json").stdout)
    assert state["authenticated"] is True
    assert {"path": str(fake.home / "auth.json"), "exists": True} in state["files"]
    assert "secret-canary" not in json.dumps(state)
    fake.sign_out()
    done = run(fake, "status")
    assert done.returncode == 1
    assert "cursor-gateway login" in done.stderr


def test_status_for_scripts_is_json_without_an_agent_too(fake: FakeAgent) -> None:
    fake.env["PATH"] = "/usr/bin:/bin"
    done = run(fake, "status", "--json")
    state = json.loads(done.stdout)
    assert (done.returncode, state["agent"], state["authenticated"]) == (1, None, False)
    assert state["error"]["code"] == "agent_not_found" and "Error: " in done.stderr


def test_what_is_said_of_a_remote_agent_is_not_about_this_machine(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_AGENT_COMMAND"] = "env cursor-agent"
    done = run(fake, "status")
    assert done.returncode == 0 and "cli-config.json" not in done.stdout
    assert "files of a remote agent" in run(fake, "doctor").stdout
    fake.env["CURSOR_GATEWAY_AGENT_COMMAND"] = "nosuch box cursor-agent"
    done = run(fake, "status")
    assert done.returncode == 1 and "`agent_command`" in done.stderr
    assert "cursor.com/install" not in done.stderr


def test_login_is_the_clis_own(fake: FakeAgent) -> None:
    fake.sign_out()
    assert run(fake, "login").returncode == 0
    assert run(fake, "status").returncode == 0


def test_config_shows_values_and_where_they_came_from(fake: FakeAgent, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('slots = 3\n[aliases]\nfast = "composer-2.5-fast"\n')
    fake.env.update({"PORT": "1234", "CURSOR_GATEWAY_API_KEY": "key-canary"})
    shown = json.loads(run(fake, "config", "--json", "--config", str(file)).stdout)
    assert shown["port"] == {"value": "1234", "origin": "env PORT"}
    assert shown["slots"] == {"value": "3", "origin": f"file {file}"}
    assert shown["aliases"]["value"] == "fast=composer-2.5-fast"
    assert shown["host"] == {"value": "127.0.0.1", "origin": "default"}
    assert shown["api_key"]["value"] == "***"
    table = run(fake, "config").stdout
    assert "env PORT" in table and "key-canary" not in table


@pytest.mark.parametrize(
    ("words", "env", "complaint"),
    [
        (["serve", "--host", "0.0.0.0"], {}, "needs a key"),
        (["serve"], {"PORT": "many"}, "port (env PORT) must be a whole number"),
        (["serve", "--workspace", "/nonexistent"], {}, "names /nonexistent, which is no directory"),
        (["serve", "--config", "/nonexistent"], {}, "no configuration file"),
        (["serve"], {"CURSOR_GATEWAY_CONFIG": "/nonexistent"}, "no configuration file"),
        (["serve", "--host", "0.0.0.0"], {"CURSOR_GATEWAY_API_KEY": "  "}, "needs a key"),
        (["serve", "--agent-mode", "wild"], {}, "'wild' is not one of"),
        (["serve", "--port"], {}, "requires an argument"),
        (["serve"], {"HOST": "x86_64-conda-linux-gnu"}, "(env HOST)"),
        (["serve"], {"HOST": "x86_64-conda-linux-gnu"}, "`unset HOST`, or serve with --host 127"),
        (["serve"], {"CURSOR_GATEWAY_PORT": "1"}, "Did you mean PORT?"),
        (["dance"], {}, "No such command"),
        (["ask", " "], {}, "nothing to ask"),
        (["ask", "--demo"], {}, "nothing to ask"),
    ],
)
def test_a_wrong_word_is_one_clear_line(
    fake: FakeAgent, words: list[str], env: dict[str, str], complaint: str
) -> None:
    fake.env.update(env)
    done = run(fake, *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("serve", "--queue", "-5"), "queue (flag) must be between 0 and 1000000000, not -5."),
        (("serve", "--keep-alive", "nan"), "keep_alive (flag) must be more than 0 and at most"),
        (("doctor", "--live", "--hold", "nan"), "nan is not between 0.1 and 3600."),
    ],
)
def test_a_number_that_cannot_be_is_refused(
    fake: FakeAgent, words: tuple[str, ...], complaint: str
) -> None:
    done = run(fake, *words)
    assert done.returncode == 2 and complaint in done.stderr
