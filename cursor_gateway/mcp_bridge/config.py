"""MCP servers as users configure them: the texts of configuration files in, servers out.

OpenCode has `mcp` (version 2 has `servers` below it), all other programs have `mcpServers`. An
invalid entry is left out, with a warning that names the file and the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from cursor_gateway.config_files import jsonc
from cursor_gateway.redaction import named_secrets, secrets_in_address

Transport = Literal["auto", "http", "sse"]

_REMOTE_TYPES: Mapping[str, Transport] = {
    "remote": "auto",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
# Ten years. A longer value is no timeout, and may not even be finite.
_LONGEST_MS = 10 * 365 * 86_400_000
_PARTS_OF_QUERIES = re.compile(r"[?&=]")
_LOCAL_TYPES = frozenset({"local", "stdio"})


@dataclass(frozen=True, slots=True)
class ConfigFile:
    path: str
    text: str
    # OpenCode writes `{env:NAME}`; Cursor's and Claude Code's files write `${NAME}`.
    is_opencode: bool = True


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A program that is started and spoken to through its stdin and stdout."""

    name: str
    # The file in which it is configured.
    origin: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    # The working directory; empty for the project's.
    directory: str = ""
    # Seconds that one request may take; None for the gateway's own limit.
    timeout: float | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no error of this server may show: any value may be one."""
        return tuple(self.environment.values())

    @property
    def named_secrets(self) -> tuple[str, ...]:
        """What nothing that the gateway says may show: the values that are called secrets."""
        return tuple(named_secrets(self.environment))


@dataclass(frozen=True, slots=True)
class RemoteServer:
    name: str
    origin: str
    url: str
    headers: Mapping[str, str]
    transport: Transport = "auto"
    timeout: float | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        # Keys are also part of the address, and of headers after a word such as `Bearer`.
        words = (word for value in self.headers.values() for word in value.split())
        return (*words, *_PARTS_OF_QUERIES.split(self.url)[1:])

    @property
    def named_secrets(self) -> tuple[str, ...]:
        return (*named_secrets(self.headers), *secrets_in_address(self.url))


Server = LocalServer | RemoteServer


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """What is wrong in the file at `path`; `variable` names it, where the variable is wrong."""

    path: str
    what: str
    variable: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class Configured:
    servers: tuple[Server, ...] = ()
    warnings: tuple[ConfigWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tools are used: patterns such as `github/create_*`, or `github` for all of them."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def allows(self, server: str, tool: str) -> bool:
        names = (server, f"{server}/{tool}")
        return not _matches(self.deny, names) and (not self.allow or _matches(self.allow, names))

    def wants(self, server: str) -> bool:
        """Whether any tool of `server` can be allowed. If not, the server is not started."""
        # A server's own name may have a slash in it.
        servers = (*self.allow, *(entry.rpartition("/")[0] for entry in self.allow))
        denied = _matches(self.deny, (server, f"{server}/"))
        return not denied and (not self.allow or _matches(servers, (server,)))


def _matches(patterns: Sequence[str], names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


class _Bad(Exception):
    """An entry is invalid; the text says why."""


@dataclass(slots=True)
class _Entry:
    file: ConfigFile
    section: str
    name: str
    fields: dict[str, Any]
    # Another file that overrides some of its fields.
    changed_in: str = ""

    def warning(self, what: str) -> ConfigWarning:
        also = f" (changed in {self.changed_in})" if self.changed_in else ""
        return ConfigWarning(self.file.path, f"{self.section}.{self.name}{also}: {what}")


def parse(
    files: Sequence[ConfigFile], env: Mapping[str, str], read: Callable[[str, str], str]
) -> Configured:
    """The servers of `files`. A later file overrides the earlier ones.

    `read(path, named)` is the text of the file that the configuration file at `path` names.
    """
    entries: dict[str, _Entry] = {}
    warnings: list[ConfigWarning] = []
    for file in files:
        for entry in _entries(file, warnings):
            entries[entry.name] = _overriding(entry, entries.get(entry.name))
    servers: list[Server] = []
    for entry in entries.values():
        try:
            if _is_enabled(entry.fields):
                substitution = _Substitution(entry.file, env, read)
                servers.append(_server(entry, substitution.of(entry.fields)))
                warnings += [entry.warning(missing) for missing in substitution.missing()]
        except _Bad as bad:
            warnings.append(entry.warning(str(bad)))
        except RecursionError:
            warnings.append(entry.warning("it is nested too deeply"))
    return Configured(tuple(servers), tuple(warnings))


def _entries(file: ConfigFile, warnings: list[ConfigWarning]) -> Iterator[_Entry]:
    try:
        document = jsonc.loads(file.text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        warnings.append(ConfigWarning(file.path, f"not valid JSON: {error}"))
        return
    for section, listed in _sections(document):
        if not isinstance(listed, dict):
            warnings.append(ConfigWarning(file.path, f"{section}: must be an object"))
            continue
        for name, fields in listed.items():
            if isinstance(fields, dict):
                yield _Entry(file, section, name, fields)
            else:
                what = f"{section}.{name}: must be an object"
                warnings.append(ConfigWarning(file.path, what))


def _sections(document: object) -> Iterator[tuple[str, object]]:
    if not isinstance(document, dict):
        return
    if "mcpServers" in document:
        yield "mcpServers", document["mcpServers"]
    if "mcp" in document:
        listed = document["mcp"]
        below = listed.get("servers") if isinstance(listed, dict) else None
        if isinstance(below, dict) and not below.keys() & {"type", "command", "url", "enabled"}:
            yield "mcp.servers", below
        else:
            yield "mcp", listed


def _overriding(entry: _Entry, earlier: _Entry | None) -> _Entry:
    """Merge an entry without `command` or `url` into the earlier one: a project may switch a server
    of the user on or off without describing it again."""
    if earlier is None or entry.fields.keys() & {"command", "url"}:
        return entry
    fields = earlier.fields | entry.fields
    return _Entry(earlier.file, earlier.section, entry.name, fields, entry.file.path)


def _is_enabled(fields: Mapping[str, Any]) -> bool:
    enabled, disabled = fields.get("enabled", True), fields.get("disabled", False)
    if not isinstance(enabled, bool) or not isinstance(disabled, bool):
        raise _Bad("`enabled` must be true or false")
    return enabled and not disabled


def _server(entry: _Entry, fields: Mapping[str, Any]) -> Server:
    kind = fields.get("type", "remote" if "url" in fields else "local")
    name, origin, timeout = entry.name, entry.file.path, _timeout(fields.get("timeout"))
    if not isinstance(kind, str):
        raise _Bad("`type` must be `local` or `remote`")
    if kind in _REMOTE_TYPES:
        url = fields.get("url")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise _Bad("`url` must be an address that begins with http:// or https://")
        headers = _texts(fields.get("headers"), "headers")
        return RemoteServer(name, origin, url, headers, _REMOTE_TYPES[kind], timeout)
    if kind not in _LOCAL_TYPES:
        raise _Bad("`type` must be `local` or `remote`")
    environment = _texts(fields.get("environment", fields.get("env")), "environment")
    directory = fields.get("cwd", "")
    if not isinstance(directory, str):
        raise _Bad("`cwd` must be a path")
    return LocalServer(name, origin, _command(fields), environment, directory, timeout)


def _command(fields: Mapping[str, Any]) -> tuple[str, ...]:
    command, args = fields.get("command"), fields.get("args", [])
    words = [command] if isinstance(command, str) else command
    if not isinstance(words, list) or not isinstance(args, list) or not words or not words[0]:
        raise _Bad("`command` must be the words of a command, or a program with `args` beside it")
    if not all(isinstance(word, str) and "\0" not in word for word in (*words, *args)):
        raise _Bad("`command` and `args` may hold only texts")
    return (*words, *args)


def _texts(value: object, where: str) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Bad(f"`{where}` must be an object of texts")
    for name, text in value.items():
        if not isinstance(text, str | int | float) or "\0" in f"{name}{text}" or "=" in name:
            raise _Bad(f"`{where}.{name}` must be a text")
    return {name: _as_text(text) for name, text in value.items()}


def _as_text(value: str | int | float) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _timeout(value: object) -> float | None:
    """Seconds. The file has milliseconds, as OpenCode does; its version 2 has several timeouts."""
    if isinstance(value, dict):
        value = value.get("request")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Bad("`timeout` must be a number of milliseconds")
    if not 0 < value < _LONGEST_MS:
        raise _Bad("`timeout` must be a number of milliseconds")
    return value / 1000


class _Substitution:
    """Puts variables and files into the texts of one entry."""

    _OPENCODE = re.compile(r"\{(env|file):([^}]+)\}")
    _OTHERS = re.compile(r"\$\{(?:(env):)?(\w+)(?::-([^}]*))?\}")

    def __init__(
        self, file: ConfigFile, env: Mapping[str, str], read: Callable[[str, str], str]
    ) -> None:
        self._file = file
        self._env = env
        self._read = read
        self._unset: dict[str, None] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.of(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.of(inner) for inner in value]
        if not isinstance(value, str):
            return value
        if self._file.is_opencode:
            return self._OPENCODE.sub(self._opencode, value)
        return self._OTHERS.sub(self._other, value)

    def missing(self) -> Iterator[str]:
        if self._unset:
            yield f"{', '.join(self._unset)}: not set in the environment, and so empty"

    def _opencode(self, found: re.Match[str]) -> str:
        if found[1] == "env":
            return self._variable(found[2], None)
        try:
            return self._read(self._file.path, found[2]).strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text"
            raise _Bad(f"{found[0]} cannot be read: {reason}") from None

    def _other(self, found: re.Match[str]) -> str:
        return self._variable(found[2], found[3])

    def _variable(self, name: str, default: str | None) -> str:
        value = self._env.get(name) or default
        if value is None:
            self._unset[name] = None
        return value or ""
