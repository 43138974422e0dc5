"""Settings: one table that feeds the flags, the environment, the file and docs/configuration.md.

Precedence: flag, environment, file, default. Each value remembers where it came from.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class SettingsError(Exception):
    """A setting that cannot be used; the message says which, where it stands and what fits."""


def setting(default: Any, env: str, help: str, *, secret: bool = False, choices: str = "") -> Any:
    metadata = {"env": env, "help": help, "secret": secret, "choices": tuple(choices.split())}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = setting(
        "127.0.0.1", "HOST", "Address to listen on. Any other than loopback needs `api_key`."
    )
    port: int = setting(32124, "PORT", "Port to listen on; 0 takes a free one.")
    api_key: str = setting(
        "",
        "CURSOR_GATEWAY_API_KEY",
        "Key that clients must send to the gateway, as `Authorization: Bearer` or `x-api-key`.",
        secret=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_ALLOWED_HOSTS",
        "Names besides loopback under which clients may reach the gateway (the `Host` header).",
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_CORS_ORIGINS",
        "Origins of web pages besides loopback that may use the gateway, such as `https://chat.example.com`.",
    )
    max_body_mb: int = setting(
        64, "CURSOR_GATEWAY_MAX_BODY_MB", "Largest request body, in megabytes."
    )
    agent_executable: str = setting(
        "",
        "CURSOR_AGENT_EXECUTABLE",
        "The `cursor-agent` to run. Unset, it is looked for on PATH and in `~/.local/bin`.",
    )
    agent_command: str = setting(
        "",
        "CURSOR_GATEWAY_AGENT_COMMAND",
        "How to run it elsewhere: `ssh devbox cursor-agent`, `docker exec -i box cursor-agent`.",
    )
    demo: str = setting(
        "off",
        "CURSOR_GATEWAY_DEMO",
        "Answer from the built-in demo agent: `on`, or `if-missing` without a `cursor-agent`.",
        choices="off on if-missing",
    )
    agent_mode: str = setting(
        "ask",
        "CURSOR_GATEWAY_AGENT_MODE",
        "`ask`: the agent can read but not act. `agent`: it may edit files in `workspace`.",
        choices="ask agent",
    )
    workspace: str = setting(
        "",
        "CURSOR_GATEWAY_WORKSPACE",
        "Directory the agent works in. Unset, each request gets an empty one, removed after it.",
    )
    workspace_roots: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_WORKSPACE_ROOTS",
        "Directories below which a request may choose one by the header `X-Cursor-Workspace`.",
    )
    isolate: bool = setting(
        False,
        "CURSOR_GATEWAY_ISOLATE",
        "Let agents see their workspace and Cursor's own files only (Linux, by bubblewrap).",
    )
    aliases: Mapping[str, str] = setting(
        {},
        "CURSOR_GATEWAY_ALIASES",
        "Other names for models: `fast=composer-2.5-fast,best=claude-opus-5-thinking-high`.",
    )
    slots: int = setting(10, "CURSOR_GATEWAY_SLOTS", "How many agents may run at once.")
    queue: int = setting(
        100, "CURSOR_GATEWAY_QUEUE", "How many requests may wait for a slot before 429."
    )
    warm: int = setting(
        1,
        "CURSOR_GATEWAY_WARM",
        "How many agents are kept started for the next request of the same kind; 0 keeps none.",
    )
    first_event_timeout: float = setting(
        120.0,
        "CURSOR_GATEWAY_FIRST_EVENT_TIMEOUT",
        "Seconds in which a started agent must say its first word.",
    )
    idle_timeout: float = setting(
        300.0,
        "CURSOR_GATEWAY_IDLE_TIMEOUT",
        "Seconds of silence after which an agent is given up; four times that in a tool call.",
    )
    total_timeout: float = setting(
        3600.0, "CURSOR_GATEWAY_TOTAL_TIMEOUT", "Seconds that one answer may take in all."
    )
    keep_alive: float = setting(
        15.0,
        "CURSOR_GATEWAY_KEEP_ALIVE",
        "Seconds of silence after which a stream gets an SSE comment.",
    )
    heartbeat: float = setting(
        120.0,
        "CURSOR_GATEWAY_HEARTBEAT",
        "Seconds of silence after which a stream gets an empty event, as some ignore comments.",
    )
    shutdown_grace: float = setting(
        10.0,
        "CURSOR_GATEWAY_SHUTDOWN_GRACE",
        "Seconds that running answers get to finish after the first Ctrl-C or SIGTERM.",
    )
    shutdown_delay: float = setting(
        0.0,
        "CURSOR_GATEWAY_SHUTDOWN_DELAY",
        "Seconds before that in which it still serves but `/health` says 503, for a balancer.",
    )
    max_prompt_mb: int = setting(
        32,
        "CURSOR_GATEWAY_MAX_PROMPT_MB",
        "Longest conversation, as the agent reads it, in megabytes; more is refused, never cut.",
    )
    kept_responses_mb: int = setting(
        64,
        "CURSOR_GATEWAY_KEPT_RESPONSES_MB",
        "Megabytes of finished Responses kept in memory, for `previous_response_id`; 0 keeps none.",
    )
    tool_loop_max_repeat: int = setting(
        2,
        "TOOL_LOOP_MAX_REPEAT",
        "How often a tool call may be repeated with the same result before it is stopped.",
    )
    tool_channel: str = setting(
        "auto",
        "CURSOR_GATEWAY_TOOL_CHANNEL",
        "How the model calls the client's tools: `relay` (over MCP, the agent waits for the "
        "result), `text` (in its answer), or `auto`: the relay where the agent uses it.",
        choices="auto relay text",
    )
    relay_hold: float = setting(
        50.0,
        "CURSOR_GATEWAY_RELAY_HOLD",
        "Seconds that a call over the relay is held before the agent gets a ticket to wait with. "
        "The CLI gives up after 60.",
    )
    session_reuse: bool = setting(
        True,
        "CURSOR_SESSION_REUSE",
        "Go on with a finished chat by `--resume` instead of sending the whole conversation again.",
    )
    session_ttl: float = setting(
        900.0,
        "CURSOR_GATEWAY_SESSION_TTL",
        "Seconds that an agent waits for the client's results, and that a finished chat is kept.",
    )
    show_activity: bool = setting(
        False,
        "CURSOR_GATEWAY_SHOW_ACTIVITY",
        "Show the tools that the agent runs by itself as `reasoning_content`.",
    )
    mcp: bool = setting(
        True,
        "CURSOR_GATEWAY_MCP",
        "Connect the MCP servers that `opencode.json` names, and offer their tools.",
    )
    mcp_other_files: bool = setting(
        False,
        "CURSOR_GATEWAY_MCP_OTHER_FILES",
        "Take MCP servers from Cursor's `mcp.json` and from `.mcp.json`, too.",
    )
    mcp_allow: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_MCP_ALLOW",
        "The only tools of MCP servers to use, such as `github/get_*`, or `github` for all of one.",
    )
    mcp_deny: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_MCP_DENY",
        "Tools of MCP servers not to use, in the same form; wins over `mcp_allow`.",
    )
    mcp_connect_timeout: float = setting(
        60.0,
        "CURSOR_GATEWAY_MCP_CONNECT_TIMEOUT",
        "Seconds in which an MCP server must be ready; the first `npx` of one downloads it.",
    )
    mcp_call_timeout: float = setting(
        120.0,
        "CURSOR_GATEWAY_MCP_CALL_TIMEOUT",
        "Seconds that an MCP server may be silent in a call, where its entry has no `timeout`.",
    )
    mcp_call_endpoint: bool = setting(
        False,
        "CURSOR_GATEWAY_MCP_CALL_ENDPOINT",
        "Let clients call MCP tools directly, by `POST /v1/tools/{id}/call`.",
    )
    journal_mb: int = setting(
        50,
        "CURSOR_GATEWAY_JOURNAL_MB",
        "Megabytes that the journal of requests may take on disk, in all; 0 writes none.",
    )
    record_prompts: bool = setting(
        False,
        "CURSOR_GATEWAY_RECORD_PROMPTS",
        "Put what was asked and answered into the journal, too.",
    )
    auth_check_timeout_ms: int = setting(
        5000, "CURSOR_ACP_AUTH_CHECK_TIMEOUT", "Milliseconds that `cursor-agent status` may take."
    )
    debug: bool = setting(
        False, "CURSOR_DEBUG", "Log in detail. Prompts and secrets stay out of it."
    )
    timing: bool = setting(
        False, "CURSOR_TIMING", "Log for each answer when its first word came and when it ended."
    )

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    # Setting -> where its value came from: `flag`, `env NAME`, `file PATH` or `default`.
    origins: Mapping[str, str]


FIELDS: Mapping[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Settings)}

# What a running gateway takes over on SIGHUP. The rest is bound to what was started with it: the
# socket, the slots, the agent and its directories.
RELOADED = (
    *("api_key", "allowed_hosts", "cors_origins", "aliases", "keep_alive", "heartbeat"),
    *("shutdown_grace", "shutdown_delay", "debug", "timing"),
)


def load(flags: Mapping[str, Any], env: Mapping[str, str], file: Path | None = None) -> Loaded:
    path = file or config_file(env)
    written = _read(path, required=file is not None or bool(env.get("CURSOR_GATEWAY_CONFIG")))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, spec in FIELDS.items():
        variable = spec.metadata["env"]
        if flags.get(name) is not None:
            value, origin = flags[name], "flag"
        elif env.get(variable):
            value, origin = env[variable], f"env {variable}"
        elif name in written:
            value, origin = written[name], f"file {path}"
        else:
            origins[name] = "default"
            continue
        values[name] = _convert(spec, value, origin)
        origins[name] = origin
    settings = Settings(**values)
    _check(settings, origins)
    return Loaded(settings, origins)


def reloaded(running: Settings, fresh: Settings) -> tuple[Settings, list[str]]:
    """What a running gateway goes on with, and which changed settings need a restart."""
    changed = [name for name in FIELDS if getattr(running, name) != getattr(fresh, name)]
    taken = {name: getattr(fresh, name) for name in changed if name in RELOADED}
    settings = dataclasses.replace(running, **taken)
    # Again: the key may have gone from a file whose new host would not need one.
    _check(settings, {})
    return settings, [name for name in changed if name not in RELOADED]


def config_file(env: Mapping[str, str]) -> Path:
    if named := env.get("CURSOR_GATEWAY_CONFIG"):
        return Path(named)
    base = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME", ""), ".config")  # noqa: PTH118
    return Path(base) / "cursor-gateway" / "config.toml"


def shown(name: str, value: Any) -> str:
    """A value as people may see it."""
    if FIELDS[name].metadata["secret"]:
        return "***" if value else ""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={target}" for key, target in value.items())
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read(path: Path, *, required: bool) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            written = tomllib.load(file)
    except FileNotFoundError:
        if required:
            raise SettingsError(f"There is no configuration file {path}.") from None
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    for name in written:
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            suggestion = f" Did you mean {near[0]!r}?" if near else ""
            raise SettingsError(f"{path}: there is no setting {name!r}.{suggestion}")
    return written


def _convert(spec: dataclasses.Field[Any], value: Any, origin: str) -> Any:
    try:
        converted = _CONVERTERS[str(spec.type)](value)
    except (AttributeError, KeyError, TypeError, ValueError):
        kind = _KINDS[str(spec.type)]
        raise SettingsError(f"{spec.name} ({origin}) must be {kind}, not {value!r}.") from None
    choices = spec.metadata["choices"]
    if choices and converted not in choices:
        raise SettingsError(
            f"{spec.name} ({origin}) must be one of {', '.join(choices)}, not {value!r}."
        )
    return converted


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"1": True, "true": True, "yes": True, "on": True,
            "0": False, "false": False, "no": False, "off": False}[str(value).lower()]  # fmt: skip


def _strings(value: Any) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    return tuple(entry.strip() for entry in listed if entry.strip())


def _pairs(value: Any) -> Mapping[str, str]:
    if isinstance(value, Mapping):
        return {str(key): str(target) for key, target in value.items()}
    return dict(_pair(entry) for entry in _strings(value))


def _pair(entry: str) -> tuple[str, str]:
    key, equals, target = entry.partition("=")
    if not equals:
        raise ValueError(entry)
    return key.strip(), target.strip()


_CONVERTERS: Mapping[str, Any] = {
    "str": lambda value: str(value).strip(),
    "int": int,
    "float": float,
    "bool": _boolean,
    "tuple[str, ...]": _strings,
    "Mapping[str, str]": _pairs,
}
_KINDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "tuple[str, ...]": "a list",
    "Mapping[str, str]": "pairs such as name=model",
}


_DURATIONS = (
    *("first_event_timeout", "idle_timeout", "total_timeout", "keep_alive", "heartbeat"),
    *("relay_hold", "session_ttl"),
    *("mcp_connect_timeout", "mcp_call_timeout"),
)


def _check(settings: Settings, origins: Mapping[str, str]) -> None:
    def wrong(name: str, words: str) -> SettingsError:
        return SettingsError(f"{name} ({origins.get(name, 'as it runs')}) {words}.")

    if not 0 <= settings.port <= 65535:
        raise wrong("port", f"must be between 0 and 65535, not {settings.port}")
    for name in ("tool_loop_max_repeat", "kept_responses_mb", "warm", "journal_mb"):
        if getattr(settings, name) < 0:
            raise wrong(name, "must not be negative")
    for name in ("slots", "max_body_mb", "max_prompt_mb", "auth_check_timeout_ms"):
        if getattr(settings, name) < 1:
            raise wrong(name, "must be at least 1")
    for name in _DURATIONS:
        if getattr(settings, name) <= 0:
            raise wrong(name, "must be more than 0")
    if settings.workspace and not Path(settings.workspace).expanduser().is_dir():
        raise wrong("workspace", f"names {settings.workspace}, which is no directory")
    if not settings.is_loopback and not settings.api_key:
        key = "set CURSOR_GATEWAY_API_KEY or pass --api-key"
        raise wrong("host", f"is {settings.host}, which lets others in and so needs a key: {key}")
