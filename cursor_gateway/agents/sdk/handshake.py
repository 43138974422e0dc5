"""The line by which the bridge tells that it is ready, and where. It is never logged: older bridges
put their token into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from cursor_gateway.agents.sdk.texts import BridgeFault, BridgeOutdated
from cursor_gateway.settings import is_loopback

PROTOCOL = "sdk.v1"

_READY = b"cursor-sdk-bridge ready "
# All that it may write before that line, which itself has some hundred bytes.
_MOST_BEFORE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ready:
    url: str
    token_file: str
    pid: int


class ReadyLine:
    """Takes what the bridge writes to stderr, until the line is there."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._read = 0
        self.found: Ready | None = None

    def feed(self, data: bytes) -> Ready | None:
        """What the line says, once. Raises BridgeFault or BridgeOutdated where that cannot be
        used."""
        if self.found is not None:
            return None
        self._read += len(data)
        *lines, rest = (bytes(self._line) + data).split(b"\n")
        self._line[:] = rest
        for line in lines:
            if line.startswith(_READY):
                self.found = _ready(line.removeprefix(_READY))
                self._line.clear()
                return self.found
        if self._read > _MOST_BEFORE:
            raise BridgeFault("it writes, and does not get ready")
        return None


def without_ready_line(stderr: str) -> str:
    """What it wrote, for people."""
    prefix = _READY.decode()
    return "\n".join(line for line in stderr.splitlines() if not line.startswith(prefix))


def check_version(version: dict[str, Any]) -> str:
    """The bridge's version, if it speaks the protocol."""
    spoken = version.get("protocolVersion")
    if spoken != PROTOCOL:
        raise BridgeOutdated(f"Cursor's SDK bridge speaks {spoken!r}, not {PROTOCOL!r}.")
    return str(version.get("bridgeVersion", ""))


def _ready(data: bytes) -> Ready:
    try:
        told = orjson.loads(data)
    except orjson.JSONDecodeError:
        told = None
    if not isinstance(told, dict):
        raise BridgeFault("its line `ready` is no JSON")
    for name, wanted in (("schemaVersion", 1), ("transport", "tcp"), ("protocol", "connect")):
        if told.get(name) != wanted:
            raise BridgeOutdated(
                f"Cursor's SDK bridge has {name} {str(told.get(name))[:40]!r}, not {wanted!r}."
            )
    pid = told.get("pid")
    return Ready(_url(told), str(told.get("authTokenFile", "")), pid if isinstance(pid, int) else 0)


def _url(told: dict[str, Any]) -> str:
    """Its address, which must be on this machine: the key goes there."""
    host = str(told.get("host", ""))
    bracketed = f"[{host}]" if ":" in host else host
    url = str(told.get("url") or f"http://{bracketed}:{told.get('port')}")
    try:
        parts = urlsplit(url)
        is_good = parts.scheme == "http" and is_loopback(parts.hostname or "") and parts.port
    except ValueError:
        is_good = False
    if not is_good:
        raise BridgeFault("it listens somewhere else than on this machine")
    return f"http://{parts.netloc}"
