"""The gateway as a service of the user's session: systemd on Linux, launchd on macOS."""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cursor_gateway import foreign_files

Env = Mapping[str, str]

NAME = "cursor-gateway"
_LABEL = "io.github.cursor-gateway"
# More than `shutdown_grace` by default, so that running answers may finish.
_STOP_SECONDS = 30
# What a shell says of a command that it does not find.
_NOT_FOUND = 127
_BY_HAND = (
    "Nothing was installed. `cursor-gateway service install --print` shows the file for a "
    "supervisor of your own."
)


class ServiceError(Exception):
    """Why the service cannot be installed or asked, for the person who wants it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the service runs. PATH is that of the shell, where the agent and its tools are."""

    argv: tuple[str, ...]
    path: str
    config_folder: Path


class Supervisor(Protocol):
    """Starts the gateway at sign-in and restarts it on a crash."""

    def file(self, env: Env) -> Path: ...

    def text(self, wanted: Wanted, env: Env) -> str: ...

    def install_commands(self, file: Path) -> Sequence[Sequence[str]]: ...

    def uninstall_commands(self, file: Path) -> Sequence[Sequence[str]]: ...

    def status_command(self) -> Sequence[str]: ...

    def log_command(self, env: Env, lines: int, follow: bool) -> Sequence[str]: ...


class Systemd:
    def file(self, env: Env) -> Path:
        base = env.get("XDG_CONFIG_HOME") or Path(foreign_files.home(env), ".config")
        return Path(base) / "systemd" / "user" / f"{NAME}.service"

    def text(self, wanted: Wanted, env: Env) -> str:
        """Exit code 2 is a setting that cannot be used: a restart would not fix it."""
        return f"""\
[Unit]
Description=cursor-gateway, the models of a Cursor subscription at a local address

[Service]
Type=exec
ExecStart={" ".join(_quoted(word) for word in wanted.argv)}
ExecReload=/bin/kill -HUP $MAINPID
Environment={_quoted(f"PATH={wanted.path}")}
EnvironmentFile=-{_escaped(str(wanted.config_folder / "env"))}
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec={_STOP_SECONDS}
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""

    def install_commands(self, file: Path) -> Sequence[Sequence[str]]:
        return (
            ("systemctl", "--user", "daemon-reload"),
            ("systemctl", "--user", "enable", file.name),
            ("systemctl", "--user", "restart", file.name),
        )

    def uninstall_commands(self, file: Path) -> Sequence[Sequence[str]]:
        return (("systemctl", "--user", "disable", "--now", file.name),)

    def status_command(self) -> Sequence[str]:
        return ("systemctl", "--user", "is-active", f"{NAME}.service")

    def log_command(self, env: Env, lines: int, follow: bool) -> Sequence[str]:
        command = ("journalctl", "--user", "--unit", NAME, "--lines", str(lines))
        return (*command, "--follow") if follow else (*command, "--no-pager")


class Launchd:
    def file(self, env: Env) -> Path:
        return Path(foreign_files.home(env), "Library", "LaunchAgents", f"{_LABEL}.plist")

    def text(self, wanted: Wanted, env: Env) -> str:
        job = {
            "Label": _LABEL,
            "ProgramArguments": list(wanted.argv),
            "EnvironmentVariables": {"PATH": wanted.path},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ExitTimeOut": _STOP_SECONDS,
            "StandardOutPath": str(_launchd_log(env)),
            "StandardErrorPath": str(_launchd_log(env)),
        }
        return plistlib.dumps(job, sort_keys=False).decode()

    def install_commands(self, file: Path) -> Sequence[Sequence[str]]:
        return (("launchctl", "bootstrap", _domain(), str(file)),)

    def uninstall_commands(self, file: Path) -> Sequence[Sequence[str]]:
        return (("launchctl", "bootout", f"{_domain()}/{_LABEL}"),)

    def status_command(self) -> Sequence[str]:
        return ("launchctl", "print", f"{_domain()}/{_LABEL}")

    def log_command(self, env: Env, lines: int, follow: bool) -> Sequence[str]:
        command = ("tail", "-n", str(lines), str(_launchd_log(env)))
        return (*command[:1], "-f", *command[1:]) if follow else command


def supervisor(platform: str = sys.platform) -> Supervisor:
    if platform == "darwin":
        return Launchd()
    if platform == "linux":
        return Systemd()
    raise ServiceError("The service works on Linux (systemd) and macOS (launchd) only.")


def wanted(config_file: Path, named: Path | None, env: Env) -> Wanted:
    """The gateway of this very Python. A file that was named stays named."""
    argv = [sys.executable, "-m", "cursor_gateway", "serve"]
    if named is not None:
        argv += ["--config", str(named.resolve())]
    return Wanted(tuple(argv), env.get("PATH", os.defpath), config_file.parent)


def install(by: Supervisor, what: Wanted, env: Env) -> Path:
    file = by.file(env)
    if file.exists():
        uninstall(by, env)
    try:
        foreign_files.replace(file, by.text(what, env).encode())
    except OSError as error:
        raise ServiceError(f"{file} cannot be written: {error.strerror}. {_BY_HAND}") from None
    try:
        for command in by.install_commands(file):
            _call(command, env)
    except ServiceError:
        # Otherwise it would start at the next sign-in, and `status` would call it installed.
        file.unlink()
        raise
    return file


def uninstall(by: Supervisor, env: Env) -> Path:
    """Also where it does not run, or the supervisor does not know it any more."""
    file = by.file(env)
    if not file.exists():
        raise ServiceError(f"There is no service: {file} does not exist.")
    for command in by.uninstall_commands(file):
        _call(command, env, may_fail=True)
    file.unlink()
    return file


def is_active(by: Supervisor, env: Env) -> bool:
    return _call(by.status_command(), env, may_fail=True) == 0


def _call(command: Sequence[str], env: Env, *, may_fail: bool = False) -> int:
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        if may_fail:
            return _NOT_FOUND
        raise ServiceError(f"There is no {command[0]} here. {_BY_HAND}") from None
    if done.returncode and not may_fail:
        said = done.stderr.strip()
        raise ServiceError(f"`{shlex.join(command)}` failed: {said}. {_BY_HAND}")
    return done.returncode


def _quoted(word: str) -> str:
    """One word of a unit file: `%` begins a specifier there, `$` a variable."""
    text = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{text}"' if set(text) & set(" \t'\";\\") else text


def _escaped(word: str) -> str:
    return word.replace("%", "%%")


def _launchd_log(env: Env) -> Path:
    return Path(foreign_files.home(env), "Library", "Logs", f"{NAME}.log")


def _domain() -> str:
    return f"gui/{os.getuid()}"
