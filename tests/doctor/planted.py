"""Problems that a person can have, and the check that finds each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from cursor_gateway.clients import CLIENTS
from tests.conftest import FakeAgent
from tests.doctor.machine import bin_folder, config, cursor_file, delay, program
from tests.support.programs import run


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
