"""Which gateways run on this machine, and which process holds a port.

Each gateway that owns its process writes a file `PID.json` for scripts, and locks it for as long as
it lives: a file without a lock was left by a gateway that was killed. A pid alone would not be
enough, since the system gives the same number to another process later.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cursor_gateway import __version__
from cursor_gateway.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningGateway:
    pid: int
    host: str
    port: int
    base_url: str
    version: str = __version__


def state_folder(env: Mapping[str, str]) -> Path:
    """The folder for files that outlive a restart of the machine."""
    base = env.get("XDG_STATE_HOME") or Path(env.get("HOME") or Path.home(), ".local", "state")
    return Path(base) / "cursor-gateway"


def versions_folder(env: Mapping[str, str]) -> Path:
    """The folder for what was learnt about each version of the CLI."""
    return state_folder(env) / "versions"


def run_folder(env: Mapping[str, str]) -> Path:
    """The folder for files of running processes."""
    if runtime := env.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "cursor-gateway"
    return state_folder(env) / "run"


@contextmanager
def announced(gateway: RunningGateway, env: Mapping[str, str]) -> Iterator[Path | None]:
    """Write the file of this gateway, and remove it at the end. If that fails, the gateway serves
    all the same."""
    folder = run_folder(env)
    path = folder / f"{gateway.pid}.json"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale(folder)
        lock = _written(path, gateway)
    except OSError as error:
        log.warning("other commands cannot find this gateway: %s: %s", path, error.strerror)
        yield None
        return
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(lock)


def _written(path: Path, gateway: RunningGateway) -> int:
    """Write the file and return its lock. The file is locked before it gets its name, so that no
    other gateway takes it for a stale one."""
    draft = path.with_suffix(".new")
    lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, json.dumps(asdict(gateway)).encode() + b"\n")
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        os.close(lock)
        raise
    return lock


def running(env: Mapping[str, str]) -> list[RunningGateway]:
    """The gateways that run now, the newest last."""
    found = []
    for path in run_folder(env).glob("*.json"):
        with suppress(OSError, ValueError, TypeError):
            if _is_locked(path):
                found.append((path.stat().st_mtime, RunningGateway(**json.loads(path.read_text()))))
    return [gateway for _, gateway in sorted(found, key=lambda entry: entry[0])]


def _remove_stale(folder: Path) -> None:
    for path in folder.glob("*.json"):
        with suppress(OSError):
            if not _is_locked(path):
                path.unlink()


def base_url(settings: Settings, env: Mapping[str, str]) -> str:
    """The address of the gateway that runs here, or else the one that the settings would give."""
    if found := running(env):
        same = [gateway for gateway in found if gateway.port == settings.port]
        return (same or found)[-1].base_url
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}/v1"


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def holder(port: int, env: Mapping[str, str]) -> str:
    """Which program listens on `port`, in words; empty if that cannot be found out."""
    for gateway in running(env):
        if gateway.port == port:
            return f"another cursor-gateway (pid {gateway.pid}, {gateway.base_url})"
    pid = _listener_by_proc(port) or _listener_by_lsof(port, env)
    return f"{_program(pid)} (pid {pid})" if pid else ""


def _listener_by_proc(port: int) -> int | None:
    """Linux: the inode of the listening socket, then the process that has it open."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) in sockets:
                        return int(process.name)
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                is_listening = fields[3] == "0A"
                if is_listening and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _listener_by_lsof(port: int, env: Mapping[str, str]) -> int | None:
    command = ["lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-t"]
    with suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
        done = subprocess.run(
            command, env=dict(env), capture_output=True, text=True, timeout=5, check=False
        )
        return int(done.stdout.split()[0])
    return None


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "a process"
