"""`cursor-gateway setup`, as a person runs it, on files as people have them."""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.clients import CLIENTS
from cursor_gateway.clients.client import PROVIDER, Client, Target
from cursor_gateway.clients.setup import (
    FileChanged,
    configured_key,
    files_of,
    is_set_up,
    plan,
    points,
    undo,
    write,
)
from cursor_gateway.config_files import format_of
from cursor_gateway.config_files.edits import plain
from cursor_gateway.core.models import Model
from tests.conftest import WAIT_SECONDS, FakeAgent
from tests.support.machine import OF_CLIENTS
from tests.support.programs import gateway_process, run

CONFIGS = Path(__file__).parent / "client_configs"
DOCS = Path(__file__).parent.parent / "docs" / "clients"
URL = "http://127.0.0.1:32124/v1"
CHOICE = ("--model", "auto", "--model", "composer-2.5")
EVERY_CLIENT = pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda c: c.name)


@pytest.fixture(autouse=True)
def without_the_developers_own_clients(fake: FakeAgent) -> None:
    for name in [name for name in fake.env if OF_CLIENTS.match(name)]:
        del fake.env[name]
    fake.env["PATH"] = f"{fake.env['PATH'].split(os.pathsep)[0]}:/usr/bin:/bin"


def golden(client: Client, part: str = "") -> bytes:
    return next(CONFIGS.glob(f"{client.name}{part}.[jyt]*")).read_bytes()


def given(client: Client, fake: FakeAgent) -> Path:
    """The user's file, where the client looks for it."""
    path = client.config(fake.env)
    if client.name == "opencode":
        path = path.with_suffix(".jsonc")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(golden(client))
    return path


def install(fake: FakeAgent, program: str, script: str = "exit 0") -> None:
    path = Path(fake.env["PATH"].split(os.pathsep)[0]) / program
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@EVERY_CLIENT
def test_write_keeps_all_else_and_undo_gives_every_byte_back(
    fake: FakeAgent, client: Client
) -> None:
    path = given(client, fake)
    path.chmod(0o640)
    assert client.url(Target(URL, ())) in ok(run(fake, "setup", client.name, *CHOICE))
    assert path.read_bytes() == golden(client)
    ok(run(fake, "setup", client.name, "--write", *CHOICE))
    assert path.read_bytes() == golden(client, ".after")
    assert path.stat().st_mode & 0o777 == 0o640
    again = ok(run(fake, "setup", client.name, "--write", *CHOICE))
    assert "already" in again and path.read_bytes() == golden(client, ".after")
    assert points(client, URL, fake.env) == "here"
    ok(run(fake, "setup", client.name, "--undo"))
    assert path.read_bytes() == golden(client)
    assert not list((Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "setup").iterdir())


@EVERY_CLIENT
def test_a_file_that_was_not_there_is_gone_after_undo(fake: FakeAgent, client: Client) -> None:
    ok(run(fake, "setup", client.name, "--write", *CHOICE))
    path = client.config(fake.env)
    assert path.stat().st_mode & 0o777 == 0o600
    target = Target(URL, (Model("auto", "auto"), Model("composer-2.5", "composer-2.5")))
    assert format_of(path.name).read(path.read_text()) == plain(client.wanted(target))
    ok(run(fake, "setup", client.name, "--undo"))
    assert not any(file.config(fake.env).exists() for file in files_of(client))


@EVERY_CLIENT
def test_undo_after_a_second_write_goes_back_to_the_first_file(
    fake: FakeAgent, client: Client
) -> None:
    path = given(client, fake)
    ok(run(fake, "setup", client.name, "--write", "--model", "auto"))
    ok(run(fake, "setup", client.name, "--write", "--model", "gpt-5", "--url", f"{URL[:-4]}9/v1"))
    assert points(client, URL, fake.env) == "elsewhere"
    ok(run(fake, "setup", client.name, "--undo"))
    assert path.read_bytes() == golden(client)


ROLES = """\
theme: dark  # easier at night
modelRoles:
  default: anthropic/claude-sonnet-4-5
  vision: google/gemini-3.1-pro
"""


def test_oh_my_pi_asks_the_gateway_unless_told_otherwise(fake: FakeAgent) -> None:
    """Its default stands in a file of its own; the roles that we do not set stay the user's."""
    models, roles = (file.config(fake.env) for file in files_of(CLIENTS["oh-my-pi"]))
    roles.parent.mkdir(parents=True)
    roles.write_text(ROLES)
    shown = ok(run(fake, "setup", "oh-my-pi", "--model", "gpt-5"))
    assert "+++ " + str(models) in shown and "+++ " + str(roles) in shown
    said = ok(run(fake, "setup", "oh-my-pi", "--write", "--model", "gpt-5"))
    assert f"({models} and {roles})" in said
    ours = dict.fromkeys(("default", "smol", "slow"), f"{PROVIDER}/gpt-5")
    now = format_of(roles.name).read(roles.read_text())
    assert now == {"theme": "dark", "modelRoles": ours | {"vision": "google/gemini-3.1-pro"}}
    assert "# easier at night" in roles.read_text()
    assert f"({models} and {roles})" in ok(run(fake, "setup", "oh-my-pi", "--undo"))
    assert roles.read_text() == ROLES and not models.exists()


def test_a_second_file_that_cannot_be_changed_leaves_the_first_alone(fake: FakeAgent) -> None:
    models, roles = (file.config(fake.env) for file in files_of(CLIENTS["oh-my-pi"]))
    roles.parent.mkdir(parents=True)
    roles.write_text("modelRoles: {")
    done = run(fake, "setup", "oh-my-pi", "--write")
    assert done.returncode == 1 and f"{roles} cannot be changed" in done.stderr
    assert not models.exists() and roles.read_text() == "modelRoles: {"


def provider_names(config: Any) -> set[str]:
    """What the providers, and the models of the providers, are called in a configuration."""
    if isinstance(config, dict):
        below = set().union(*map(provider_names, config.values()))
        places = [config.get(name) for name in ("provider", "providers", "model_providers")]
        return below | {name for place in places if isinstance(place, dict) for name in place}
    if isinstance(config, list):
        return set().union(*map(provider_names, config))
    found = re.match(r"(?:custom:)?(cursor[\w-]*?)[-/]auto$", str(config))
    return {found[1]} if found else set()


@EVERY_CLIENT
def test_our_provider_has_one_name_that_no_client_has_built_in(client: Client) -> None:
    """oh-my-pi has a `cursor` of its own, which leads to Cursor's servers. aider, Claude Code,
    Continue and Cline know no providers but their own, and are given the address of one of them."""
    target = Target(URL, (Model("auto", "Auto"),))
    names = [provider_names(plain(file.wanted(target))) for file in files_of(client)]
    own = {"cline": {"openai-compatible"}, "aider": set(), "continue": set(), "claude-code": set()}
    assert all(found == own.get(client.name, {PROVIDER}) for found in names)


@EVERY_CLIENT
def test_a_provider_that_had_another_name_does_not_stay_behind(
    fake: FakeAgent, client: Client
) -> None:
    def as_it_was(target: Target) -> dict[str, Any]:
        config = json.dumps(plain(client.wanted(target)))
        return dict(json.loads(config.replace(PROVIDER, "cursor")))

    path = given(client, fake)
    target = Target(URL, (Model("auto", "auto"), Model("composer-2.5", "composer-2.5")))
    write(plan(replace(client, wanted=as_it_was), target, fake.env), fake.env)
    ok(run(fake, "setup", client.name, "--write", *CHOICE))
    assert path.read_bytes() == golden(client, ".after")
    ok(run(fake, "setup", client.name, "--undo"))
    assert path.read_bytes() == golden(client)


def with_crlf(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


# How else the same file may be written.
VARIANTS: dict[str, Callable[[bytes], bytes]] = {
    "crlf": with_crlf,
    "no newline at the end": lambda content: content.rstrip(b"\r\n"),
    "blank lines at the end": lambda content: content.rstrip(b"\r\n") + b"\n\n\n",
    "byte order mark": lambda content: codecs.BOM_UTF8 + content.removeprefix(codecs.BOM_UTF8),
    "empty": lambda content: b"",
    "blank": lambda content: b"\n",
}


@EVERY_CLIENT
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("mode", [0o640, 0o444])
def test_undo_gives_every_byte_back_however_the_file_is_written(
    fake: FakeAgent, client: Client, variant: str, mode: int
) -> None:
    path = given(client, fake)
    content = VARIANTS[variant](golden(client))
    path.write_bytes(content)
    path.chmod(mode)
    target = Target(URL, (Model("auto", "Auto"), Model("gpt-5", "GPT-5")))
    write(plan(client, target, fake.env), fake.env)
    written = path.read_bytes()
    assert points(client, URL, fake.env) == "here"
    assert written.startswith(codecs.BOM_UTF8) is content.startswith(codecs.BOM_UTF8)
    assert variant != "crlf" or written == with_crlf(written)
    assert plan(client, target, fake.env).is_done
    undo(client, fake.env)
    assert path.read_bytes() == content and path.stat().st_mode & 0o777 == mode


def test_undo_leaves_what_was_changed_since(fake: FakeAgent) -> None:
    """Cline and Droid write their files themselves while they run."""
    client = CLIENTS["cline"]
    path = given(client, fake)
    ok(run(fake, "setup", "cline", "--write"))
    now = json.loads(path.read_text())
    now["providers"]["openai-compatible"]["updatedAt"] = "2027-01-01T00:00:00.000Z"
    now["modes"] = {"plan": "cline"}
    path.write_text(json.dumps(now, indent=2))
    ok(run(fake, "setup", "cline", "--write", "--model", "gpt-5"))
    ok(run(fake, "setup", "cline", "--undo"))
    assert json.loads(path.read_text()) == json.loads(golden(client)) | {"modes": now["modes"]}


def test_a_link_stays_a_link(fake: FakeAgent, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_bytes(golden(CLIENTS["codex"]))
    link = CLIENTS["codex"].config(fake.env)
    link.parent.mkdir()
    link.symlink_to(real)
    ok(run(fake, "setup", "codex", "--write", *CHOICE))
    assert link.is_symlink() and real.read_bytes() == golden(CLIENTS["codex"], ".after")


def test_a_link_that_led_nowhere_does_so_again_after_undo(fake: FakeAgent, tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "config.toml", CLIENTS["codex"].config(fake.env)
    link.parent.mkdir()
    link.symlink_to(real)
    ok(run(fake, "setup", "codex", "--write"))
    assert link.is_symlink() and real.exists()
    ok(run(fake, "setup", "codex", "--undo"))
    assert link.is_symlink() and not real.exists()


def test_a_file_that_cannot_be_written_is_told_and_nothing_is_remembered(fake: FakeAgent) -> None:
    link = CLIENTS["codex"].config(fake.env)
    link.parent.mkdir()
    link.symlink_to("/proc/nowhere/config.toml")
    done = run(fake, "setup", "codex", "--write")
    assert done.returncode == 1 and "cannot be written: No such file" in done.stderr
    assert "Traceback" not in done.stderr
    assert "was not set up" in run(fake, "setup", "codex", "--undo").stderr


def test_a_memory_that_was_spoilt_is_told(fake: FakeAgent) -> None:
    ok(run(fake, "setup", "codex", "--write"))
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "setup" / "codex"
    (folder / "change.json").write_text("{")
    for words in (["--undo"], ["--write"]):
        done = run(fake, "setup", "codex", *words)
        assert done.returncode == 1 and f"{folder} cannot be read" in done.stderr
    assert run(fake, "doctor").stderr == ""


def test_without_a_place_for_the_old_file_nothing_is_written(fake: FakeAgent) -> None:
    path = given(CLIENTS["codex"], fake)
    Path(fake.env["XDG_STATE_HOME"]).write_text("not a folder")
    done = run(fake, "setup", "codex", "--write")
    assert done.returncode == 1 and "cannot be written: Not a directory." in done.stderr
    assert "Traceback" not in done.stderr and path.read_bytes() == golden(CLIENTS["codex"])


@pytest.mark.parametrize(
    ("words", "content", "complaint"),
    [
        (["codex", "--undo"], b"", "was not set up by"),
        (["codex", "--write"], b"model = ", "cannot be changed"),
        (["codex"], b"\xff", "is not UTF-8"),
        (["--write"], b"", "Name a client"),
        (["emacs"], b"", "is not one of 'opencode'"),
        (["codex", "--launch"], b"", "is not installed"),
        (["pi", "--launch"], b"", "Use `--write`"),
        (["codex", "--write", "--undo"], b"", "--write and --undo cannot be used together"),
        (["codex", "extra"], b"", "Unexpected argument 'extra'."),
        (["codex", "--write", "--url", "localhost:1"], b"", "is not like http://"),
        (["codex", "--write", "--url", "ftp://x/v1"], b"", "is not like http://"),
        (["codex", "--write", "--url", "http://x:99999"], b"", "is not like http://"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    fake: FakeAgent, words: list[str], content: bytes, complaint: str
) -> None:
    install(fake, "pi")
    path = CLIENTS["codex"].config(fake.env)
    path.parent.mkdir()
    path.write_bytes(content)
    done = run(fake, "setup", *words)
    assert done.returncode != 0 and complaint in done.stderr
    assert "Traceback" not in done.stderr and path.read_bytes() == content


def test_a_second_place_is_refused_before_the_first_is_undone(
    fake: FakeAgent, tmp_path: Path
) -> None:
    ok(run(fake, "setup", "codex", "--write"))
    fake.env["CODEX_HOME"] = str(tmp_path / "other")
    done = run(fake, "setup", "codex", "--write")
    assert done.returncode == 1 and "--undo" in done.stderr
    assert not (tmp_path / "other").exists()


def test_a_file_that_became_unreadable_is_not_touched_by_undo(fake: FakeAgent) -> None:
    path = given(CLIENTS["codex"], fake)
    ok(run(fake, "setup", "codex", "--write"))
    path.write_text("model = ")
    done = run(fake, "setup", "codex", "--undo")
    assert done.returncode == 1 and "before" in done.stderr
    assert path.read_text() == "model = "


@pytest.mark.parametrize(
    ("name", "env", "file"),
    [
        ("opencode", {"OPENCODE_CONFIG": "{tmp}/oc.json"}, "oc.json"),
        ("opencode", {"XDG_CONFIG_HOME": "{tmp}/xdg"}, "xdg/opencode/opencode.json"),
        ("oh-my-pi", {"PI_CODING_AGENT_DIR": "{tmp}/a"}, "a/models.yml"),
        ("oh-my-pi", {"PI_CONFIG_DIR": ".pa"}, ".pa/agent/models.yml"),
        ("droid", {"FACTORY_HOME_OVERRIDE": "{tmp}/f"}, "f/.factory/settings.json"),
        ("codex", {"CODEX_HOME": "{tmp}/c"}, "c/config.toml"),
        ("claude-code", {"CLAUDE_CONFIG_DIR": "{tmp}/cc"}, "cc/settings.json"),
        ("continue", {"CONTINUE_GLOBAL_DIR": "{tmp}/co"}, "co/config.yaml"),
        ("cline", {"CLINE_DIR": "{tmp}/cl"}, "cl/data/settings/providers.json"),
        ("cline", {"CLINE_DATA_DIR": "{tmp}/cd"}, "cd/settings/providers.json"),
        ("cline", {"CLINE_PROVIDER_SETTINGS_PATH": "{tmp}/p.json"}, "p.json"),
    ],
)
def test_a_client_is_set_up_where_its_environment_says(
    fake: FakeAgent, tmp_path: Path, name: str, env: dict[str, str], file: str
) -> None:
    fake.env.update({key: value.replace("{tmp}", str(tmp_path)) for key, value in env.items()})
    ok(run(fake, "setup", name, "--write"))
    assert URL.removesuffix("/v1") in (tmp_path / file).read_text()


async def test_the_running_gateway_is_found_with_all_its_models(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (_, url):
        shown = json.loads(ok(run(fake, "setup", "opencode", "--json")))
        assert url in shown["diff"] and "composer-2.5-fast" in shown["diff"]
        assert shown["done"] is False
        listed = json.loads(ok(run(fake, "setup", "--json")))
        assert listed["base_url"] == url


@EVERY_CLIENT
async def test_without_the_key_of_the_running_gateway_nothing_is_written(
    fake: FakeAgent, client: Client
) -> None:
    async with gateway_process(fake, "--api-key", "key-canary") as (_, url):
        for words in ([], ["--model", "auto"]):
            done = run(fake, "setup", client.name, "--write", *words)
            assert done.returncode == 1 and f"{url} wants its key" in done.stderr
            assert "CURSOR_GATEWAY_API_KEY" in done.stderr and "config.toml" in done.stderr
        assert not client.config(fake.env).exists()
        fake.env["CURSOR_GATEWAY_API_KEY"] = "key-canary"
        ok(run(fake, "setup", client.name, "--write"))
        assert configured_key(client, url, fake.env) == "key-canary"


async def test_a_model_that_the_gateway_does_not_know_is_warned_of(fake: FakeAgent) -> None:
    async with gateway_process(fake, "--aliases", "fast=composer-2.5-fast"):
        done = run(fake, "setup", "opencode", "--model", "fast", "--model", "composer-2.6")
    assert "composer-2.6" in ok(done)
    assert done.stderr.startswith("Warning: There is no model 'composer-2.6'.")
    assert done.stderr.count("Warning") == 1


async def test_models_of_the_demo_are_not_written(fake: FakeAgent) -> None:
    async with gateway_process(fake, "--demo"):
        done = run(fake, "setup", "opencode")
    assert '"auto"' in ok(done) and "demo-echo" not in done.stdout
    assert "no account has those of the built-in agent" in done.stderr


def test_a_base_url_without_a_path_gets_the_one_of_the_api(fake: FakeAgent) -> None:
    assert "http://box:1/v1" in ok(run(fake, "setup", "codex", "--url", "http://box:1/"))


def test_without_a_gateway_the_agent_names_the_models(fake: FakeAgent) -> None:
    assert "composer-2.5-fast" in ok(run(fake, "setup", "droid"))
    fake.sign_out()
    done = run(fake, "setup", "droid")
    assert "custom:cursor-gateway-auto" in ok(done) and "cursor-gateway login" in done.stderr


@EVERY_CLIENT
def test_a_key_is_written_but_never_shown(fake: FakeAgent, client: Client) -> None:
    fake.env["CURSOR_GATEWAY_API_KEY"] = "key-canary"
    for words in ([], ["--json"], ["--write"]):
        done = run(fake, "setup", client.name, "--model", "auto", *words)
        assert "key-canary" not in ok(done) + done.stderr
    assert "key-canary" in client.config(fake.env).read_text()


# A client that shows all it was given: arguments, environment, and the file that either names.
SHOW = """echo "$@"; env
cat "$FACTORY_RUNTIME_SETTINGS_PATH" "$CLINE_PROVIDER_SETTINGS_PATH" "$2" 2>/dev/null
exit 7"""


@pytest.mark.parametrize("name", [name for name, client in CLIENTS.items() if client.launch])
def test_launch_changes_no_file_and_passes_the_exit_code_on(fake: FakeAgent, name: str) -> None:
    client = CLIENTS[name]
    install(fake, client.program, SHOW)
    path = given(client, fake)
    fake.env["CURSOR_GATEWAY_API_KEY"] = "key-canary"
    done = run(fake, "setup", name, "--launch", "--model", "auto", "--", "--its-own", "word")
    assert done.returncode == 7
    arguments, _, rest = done.stdout.partition("\n")
    assert arguments.endswith("--its-own word") and "key-canary" not in arguments
    assert client.url(Target(URL, ())) in done.stdout and "key-canary" in rest
    assert path.read_bytes() == golden(client)


def test_alone_it_shows_what_is_installed_and_where_it_points(fake: FakeAgent) -> None:
    install(fake, "codex")
    ok(run(fake, "setup", "codex", "--write"))
    CLIENTS["aider"].config(fake.env).write_text("openai-api-base: http://elsewhere/v1\n")
    CLIENTS["pi"].config(fake.env).parent.mkdir(parents=True)
    CLIENTS["pi"].config(fake.env).write_text("{")
    shown = ok(run(fake, "setup"))
    assert re.search(r"codex +/\S+/codex +\S+config.toml +this gateway", shown)
    assert re.search(r"aider +- +\S+ +another address", shown)
    assert re.search(r"pi +- +\S+ +file cannot be read", shown)
    listed: dict[str, Any] = json.loads(ok(run(fake, "setup", "--json")))
    assert [row["client"] for row in listed["clients"]] == list(CLIENTS)


def test_alone_in_a_terminal_it_offers_what_is_installed(fake: FakeAgent) -> None:
    install(fake, "claude")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cursor_gateway", "setup"],
        env=fake.env, stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        os.write(ours, b"claude-code\ny\n")
        said = b""
        while process.poll() is None or b"Try:" not in said:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the terminal is gone with its last user
                break
    os.close(ours)
    assert process.returncode == 0, said.decode()
    assert b"(claude-code, none)" in said and b"+++" in said
    assert points(CLIENTS["claude-code"], URL, fake.env) == "here"


class Terminal:
    """`cursor-gateway setup` in a terminal, with somebody who reads before they type."""

    def __init__(self, fake: FakeAgent) -> None:
        self.ours, theirs = pty.openpty()
        program = [sys.executable, "-m", "cursor_gateway", "setup"]
        self.process = subprocess.Popen(
            program, env=fake.env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.said = b""

    def read_until(self, words: bytes, times: int = 1) -> None:
        while self.said.count(words) < times:
            assert select.select([self.ours], [], [], WAIT_SECONDS)[0], self.said.decode()
            self.said += os.read(self.ours, 4096)

    def type(self, words: bytes) -> None:
        os.write(self.ours, words)

    def end(self) -> int:
        code = self.process.wait(WAIT_SECONDS)
        os.close(self.ours)
        return code


def test_what_the_client_wrote_while_the_change_was_on_the_screen_is_not_lost(
    fake: FakeAgent,
) -> None:
    install(fake, "claude")
    path = given(CLIENTS["claude-code"], fake)
    terminal = Terminal(fake)
    terminal.type(b"claude-code\n")
    terminal.read_until(b"Write it")
    path.write_text('{"theme": "chosen-meanwhile"}')
    terminal.type(b"y\n")
    terminal.read_until(b"was changed meanwhile")
    assert path.read_text() == '{"theme": "chosen-meanwhile"}'
    terminal.read_until(b"Write it", times=2)
    assert b"chosen-meanwhile" in terminal.said.rpartition(b"was changed meanwhile")[2]
    terminal.type(b"y\n")
    terminal.read_until(b"Try:")
    assert terminal.end() == 0
    assert json.loads(path.read_text())["theme"] == "chosen-meanwhile"
    assert points(CLIENTS["claude-code"], URL, fake.env) == "here"


def test_a_plan_is_not_carried_out_on_another_file_than_it_was_made_for(fake: FakeAgent) -> None:
    codex = CLIENTS["codex"]
    path = given(codex, fake)
    change = plan(codex, Target(URL, (Model("auto", "auto"),)), fake.env)
    path.write_text("model = 'mine'\n")
    with pytest.raises(FileChanged, match="was changed meanwhile"):
        write(change, fake.env)
    assert path.read_text() == "model = 'mine'\n" and [path] == list(path.parent.iterdir())
    assert not is_set_up(codex, fake.env)
    path.unlink()
    with pytest.raises(FileChanged, match="was changed meanwhile"):
        write(change, fake.env)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_whose_file_it_is_does_not_change_where_root_sets_a_client_up(
    fake: FakeAgent, tmp_path: Path
) -> None:
    """As with `sudo`, which leaves HOME as it is on some systems."""
    somebody = (4242, 4343)
    os.chown(tmp_path, *somebody)
    codex, pi = given(CLIENTS["codex"], fake), CLIENTS["pi"].config(fake.env)
    os.chown(codex, *somebody)
    codex.chmod(0o640)
    for name in ("codex", "pi"):
        ok(run(fake, "setup", name, "--write", *CHOICE))
    state = Path(fake.env["XDG_STATE_HOME"])
    made = [codex, pi, pi.parent, state, *state.rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {somebody}
    assert (codex.stat().st_mode & 0o777, pi.stat().st_mode & 0o777) == (0o640, 0o600)
    ok(run(fake, "setup", "codex", "--undo"))
    assert (codex.stat().st_uid, codex.stat().st_gid) == somebody


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [_fifo, _socket, _device, Path.mkdir])
def test_what_is_no_file_holds_nobody_up(
    fake: FakeAgent, make: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = CLIENTS["codex"].config(fake.env)
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    make(path)
    done = run(fake, "setup", "codex", "--write", *CHOICE)
    assert done.returncode == 1 and f"{path} cannot be read: it is not a file." in done.stderr
    assert points(CLIENTS["codex"], URL, fake.env) == "unreadable"


@EVERY_CLIENT
def test_the_clients_page_shows_what_is_set(client: Client) -> None:
    page = (DOCS / client.page).read_text()
    suffix = client.config({"HOME": "/"}).suffix.lstrip(".").replace("yml", "yaml")
    shown = re.findall(rf"```{suffix}\n(.*?)```", page, re.DOTALL)
    target = Target(URL, (Model("auto", "Auto"),))
    assert len(shown) >= len(files_of(client))
    for file, block in zip(files_of(client), shown, strict=False):
        assert format_of(f"x.{suffix}").read(block) == plain(file.wanted(target))
    assert f"cursor-gateway setup {client.name} --write" in page and client.example in page
