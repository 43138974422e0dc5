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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cursor_gateway import __version__
from cursor_gateway.foreign_files import home
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
    """What shall outlive a restart of the machine."""
    base = env.get("XDG_STATE_HOME") or home(env) / ".local" / "state"
    return Path(base) / "cursor-gateway"


def versions_folder(env: Mapping[str, str]) -> Path:
    """The folder for what was learnt about each version of an agent."""
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
    return url_of(settings.host, settings.port)


def url_of(host: str, port: int) -> str:
    """What clients are configured with."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def holder(port: int, env: Mapping[str, str]) -> str:
    """Who listens on `port`, in words; empty if that cannot be found out."""
    for gateway in running(env):
        if gateway.port == port:
            return f"another cursor-gateway (pid {gateway.pid}, {gateway.base_url})"
    return _listener(port)


def _listener(port: int) -> str:
    """Only processes that may be looked into: for most users, their own."""
    import psutil  # here, since most commands need none of it

    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            for socket in process.net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN and socket.laddr.port == port:
                    return f"{process.name()} (pid {process.pid})"
    return ""
