"""The gateway as a service of the session, in a container and in the shell."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cursor_gateway.cli.supervisors import Launchd, ServiceError, Systemd, Wanted, supervisor
from tests.conftest import FakeAgent
from tests.support.programs import run

ROOT = Path(__file__).parent.parent
WANTED = Wanted(
    ("/opt/my python/bin/python", "-m", "cursor_gateway", "serve", "--config", "/etc/100%.toml"),
    "/usr/bin:/bin",
    Path("/home/me/.config/cursor-gateway"),
)
ENV = {"HOME": "/home/me"}

UNIT = """\
[Unit]
Description=cursor-gateway, the models of a Cursor subscription at a local address

[Service]
Type=exec
ExecStart="/opt/my python/bin/python" -m cursor_gateway serve --config /etc/100%%.toml
ExecReload=/bin/kill -HUP $MAINPID
Environment=PATH=/usr/bin:/bin
EnvironmentFile=-/home/me/.config/cursor-gateway/env
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec=30
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""

PLIST = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>io.github.cursor-gateway</string>
	<key>ProgramArguments</key>
	<array>
		<string>/opt/my python/bin/python</string>
		<string>-m</string>
		<string>cursor_gateway</string>
		<string>serve</string>
		<string>--config</string>
		<string>/etc/100%.toml</string>
	</array>
	<key>EnvironmentVariables</key>
	<dict>
		<key>PATH</key>
		<string>/usr/bin:/bin</string>
	</dict>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>ThrottleInterval</key>
	<integer>10</integer>
	<key>ExitTimeOut</key>
	<integer>30</integer>
	<key>StandardOutPath</key>
	<string>/home/me/Library/Logs/cursor-gateway.log</string>
	<key>StandardErrorPath</key>
	<string>/home/me/Library/Logs/cursor-gateway.log</string>
</dict>
</plist>
"""


def test_the_unit_and_the_plist_are_these() -> None:
    assert Systemd().text(WANTED, ENV) == UNIT
    assert Launchd().text(WANTED, ENV) == PLIST
    assert plistlib.loads(PLIST.encode())["ProgramArguments"] == list(WANTED.argv)
    assert str(Systemd().file(ENV)) == "/home/me/.config/systemd/user/cursor-gateway.service"
    assert str(Launchd().file(ENV)).startswith("/home/me/Library/LaunchAgents/")


def test_launchd_is_asked_for_its_own_domain(tmp_path: Path) -> None:
    by, domain = supervisor("darwin"), f"gui/{os.getuid()}"
    assert by.install_commands(tmp_path) == (("launchctl", "bootstrap", domain, str(tmp_path)),)
    ours = f"{domain}/io.github.cursor-gateway"
    assert by.uninstall_commands(tmp_path) == (("launchctl", "bootout", ours),)
    assert by.status_command() == ("launchctl", "print", ours)
    log = "/home/me/Library/Logs/cursor-gateway.log"
    assert by.log_command(ENV, 5, follow=True) == ("tail", "-f", "-n", "5", log)
    assert by.log_command(ENV, 5, follow=False) == ("tail", "-n", "5", log)
    with pytest.raises(ServiceError, match="Linux"):
        supervisor("win32")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_understands_the_unit(fake: FakeAgent, tmp_path: Path) -> None:
    unit = tmp_path / "cursor-gateway.service"
    unit.write_text(run(fake, "service", "install", "--print").stdout)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env=fake.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "cursor-gateway" not in done.stderr, done.stderr


@pytest.fixture
def systemctl(fake: FakeAgent, tmp_path: Path) -> Path:
    """A systemctl and a journalctl that note what they were asked."""
    notes = tmp_path / "asked"
    for name in ("systemctl", "journalctl"):
        program = Path(fake.env["PATH"].split(os.pathsep)[0]) / name
        program.write_text(f'#!/bin/sh\necho "{name} $@" >> {notes}\nexit $FAKE_EXIT\n')
        program.chmod(0o755)
    fake.env["FAKE_EXIT"] = "0"
    return notes


@pytest.mark.skipif(sys.platform != "linux", reason="launchd is asked on macOS")
def test_a_service_is_installed_looked_at_and_removed(fake: FakeAgent, systemctl: Path) -> None:
    unit = Path(fake.env["XDG_CONFIG_HOME"]) / "systemd" / "user" / "cursor-gateway.service"
    printed = run(fake, "service", "install", "--print")
    assert not unit.exists() and not systemctl.exists()
    assert run(fake, "service", "status").returncode == 1
    assert run(fake, "service", "install").returncode == 0
    assert unit.read_text() == printed.stdout
    assert f"ExecStart={sys.executable} -m cursor_gateway serve\n" in printed.stdout
    assert json.loads(run(fake, "service", "status", "--json").stdout) == {
        "installed": True, "active": True, "file": str(unit), "running": [],
    }  # fmt: skip
    assert run(fake, "service", "install").returncode == 0  # again: anew
    assert run(fake, "service", "logs", "-f", "-n", "7").returncode == 0
    assert run(fake, "service", "uninstall").returncode == 0
    assert not unit.exists()
    asked = [" ".join(line.split()[1:]) for line in systemctl.read_text().splitlines()]
    begin = ["daemon-reload", "enable cursor-gateway.service", "restart cursor-gateway.service"]
    end = "disable --now cursor-gateway.service"
    assert [word.removeprefix("--user ") for word in asked] == [
        *begin, "is-active cursor-gateway.service", end, *begin,
        "--unit cursor-gateway --lines 7 --follow", end,
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="launchd is asked on macOS")
def test_what_a_service_cannot_do_is_one_clear_line(fake: FakeAgent, systemctl: Path) -> None:
    assert "does not exist" in run(fake, "service", "uninstall").stderr
    fake.env["FAKE_EXIT"] = "1"
    done = run(fake, "service", "install")
    assert done.returncode == 1 and "`systemctl --user daemon-reload` failed" in done.stderr
    assert "service install --print" in done.stderr
    assert "not installed" in run(fake, "service", "status").stdout
    fake.env["PATH"] = str(fake.home)
    for words in (["service", "install"], ["service", "logs"]):
        done = run(fake, *words)
        assert done.returncode == 1 and "There is no " in done.stderr
    fake.env["CURSOR_GATEWAY_SLOTS"] = "0"
    done = run(fake, "service", "install")
    assert done.returncode == 2 and "must be between 1" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="launchd is asked on macOS")
def test_a_service_keeps_the_configuration_that_was_named(fake: FakeAgent, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("slots = 3\n")
    by_flag = run(fake, "service", "install", "--print", "--config", str(file)).stdout
    fake.env["CURSOR_GATEWAY_CONFIG"] = str(file)
    assert f"serve --config {file}\n" in by_flag
    assert run(fake, "service", "install", "--print").stdout == by_flag


def test_completion_knows_commands_options_and_clients(fake: FakeAgent) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_CURSOR_GATEWAY_COMPLETE" in run(fake, "completion", shell).stdout

    def completed(*words: str) -> str:
        fake.env.update(
            _CURSOR_GATEWAY_COMPLETE="bash_complete",
            COMP_WORDS=" ".join(("cursor-gateway", *words)),
            COMP_CWORD=str(len(words)),
        )
        return run(fake).stdout

    assert "plain,serve" in completed("se") and "plain,setup" in completed("se")
    assert completed("setup", "cl").split() == ["plain,claude-code", "plain,cline"]
    assert "plain,--write" in completed("setup", "codex", "--w")


def test_the_container_has_few_rights_and_is_looked_after() -> None:
    gateway: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"][
        "gateway"
    ]
    assert gateway["read_only"] is True and gateway["cap_drop"] == ["ALL"]
    assert gateway["user"] == "1000:1000"
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    assert "/health" in " ".join(gateway["healthcheck"]["test"])
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "\nUSER 1000:1000\n" in dockerfile and "\nHEALTHCHECK " in dockerfile
    assert "/health" in dockerfile


def test_the_image_is_built_of_what_it_copies_and_nothing_else_is_sent() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in re.findall("^COPY (?!--).*", dockerfile, re.MULTILINE)]
    sent = re.findall("^!(.*)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(name for names in copied for name in names) == sorted(sent)
    assert all((ROOT / name).exists() for name in sent)
