"""Settings: one table that feeds the flags, the environment, the file and docs/configuration.md.

A row says everything about its setting: default, variable, help, limits with their unit, choices,
whether it is secret and whether a running gateway takes it over on SIGHUP.
Precedence: flag, environment, file, default. Each value remembers where it came from.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cursor_gateway.redaction import MASK
from cursor_gateway.settings_row import Limits, Setting, setting


class SettingsError(Exception):
    """A setting that cannot be used; the message says which, where it stands and what fits.

    `variable` is the environment variable that it comes from, if it does.
    """

    def __init__(self, message: str, variable: str = "") -> None:
        super().__init__(message)
        self.variable = variable


# What is longer is no time-out, and may be no number that can be counted with.
_TEN_YEARS = 10 * 365 * 86_400
_SECONDS = Limits(0, _TEN_YEARS, "seconds", is_open=True)
_SECONDS_OR_NONE = Limits(0, _TEN_YEARS, "seconds")
_MILLISECONDS = Limits(1, _TEN_YEARS * 1000, "milliseconds")
_MEGABYTES = Limits(1, 10**9, "megabytes")
_MEGABYTES_OR_NONE = Limits(0, 10**9, "megabytes")
_COUNT = Limits(1, 10**9)
_COUNT_OR_NONE = Limits(0, 10**9)


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = setting(
        "127.0.0.1", "HOST", "Address to listen on. Any other than loopback needs `api_key`."
    )
    port: int = setting(
        32124,
        "PORT",
        "Port to listen on; 0 takes a free one.",
        Limits(0, 65535),
    )
    api_key: str = setting(
        "",
        "CURSOR_GATEWAY_API_KEY",
        "Key that clients must send to the gateway, as `Authorization: Bearer` or `x-api-key`.",
        secret=True,
        reloads=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_ALLOWED_HOSTS",
        "Names besides loopback under which clients may reach the gateway (the `Host` header).",
        reloads=True,
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_CORS_ORIGINS",
        "Origins of web pages besides loopback that may use the gateway, such as `https://chat.example.com`.",
        reloads=True,
    )
    max_body_mb: int = setting(
        64,
        "CURSOR_GATEWAY_MAX_BODY_MB",
        "Largest request body, in megabytes. All bodies together may take four times as much.",
        _MEGABYTES,
    )
    agent: str = setting(
        "cli",
        "CURSOR_GATEWAY_AGENT",
        "Who answers: `cli` is Cursor's print CLI, `acp` the same CLI as an ACP server (it stays "
        "between answers), `sdk` the bridge of Cursor's SDK (only with an API key), `demo` the "
        "built-in demo agent.",
        choices=("cli", "acp", "sdk", "demo"),
    )
    agent_executable: str = setting(
        "",
        "CURSOR_AGENT_EXECUTABLE",
        "The `cursor-agent` to run. If unset, the gateway looks on PATH and in `~/.local/bin`.",
    )
    agent_command: str = setting(
        "",
        "CURSOR_GATEWAY_AGENT_COMMAND",
        "Command that runs the agent on another machine or in a container: "
        "`ssh devbox cursor-agent`, `docker exec -i box cursor-agent`.",
    )
    demo: str = setting(
        "off",
        "CURSOR_GATEWAY_DEMO",
        "Answer from the built-in demo agent: `on`, or `if-missing` (no `cursor-agent` found).",
        choices=("off", "on", "if-missing"),
    )
    agent_mode: str = setting(
        "ask",
        "CURSOR_GATEWAY_AGENT_MODE",
        "In a `workspace`: with `ask` the agent only reads, with `agent` it may also edit files.",
        choices=("ask", "agent"),
    )
    workspace: str = setting(
        "",
        "CURSOR_GATEWAY_WORKSPACE",
        "Directory the agent works in. If unset, each request gets an empty directory, which the "
        "gateway removes afterwards.",
    )
    workspace_roots: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_WORKSPACE_ROOTS",
        "A request may choose a workspace below these directories, by the header "
        "`X-Cursor-Workspace`.",
    )
    isolate: bool = setting(
        False,
        "CURSOR_GATEWAY_ISOLATE",
        "Agents see only their workspace and Cursor's own files (Linux, with bubblewrap).",
    )
    transcripts: str = setting(
        "remove",
        "CURSOR_GATEWAY_TRANSCRIPTS",
        "What the gateway does with the transcripts that Cursor's CLI writes to disk: `remove` or "
        "`keep`.",
        choices=("remove", "keep"),
    )
    aliases: Mapping[str, str] = setting(
        {},
        "CURSOR_GATEWAY_ALIASES",
        "Other names for models: `fast=composer-2.5-fast,best=claude-opus-5-thinking-high`.",
        reloads=True,
    )
    slots: int = setting(
        10,
        "CURSOR_GATEWAY_SLOTS",
        "How many agents may run at once.",
        _COUNT,
    )
    queue: int = setting(
        100,
        "CURSOR_GATEWAY_QUEUE",
        "How many requests may wait for a slot; the next one gets a 429.",
        _COUNT_OR_NONE,
    )
    parked_per_slot: int = setting(
        4,
        "CURSOR_GATEWAY_PARKED_PER_SLOT",
        "For each slot, how many agents may wait for the results of their client's tools, besides "
        "those that run. Each is a live process. If there are more, the gateway ends the one that "
        "waited longest.",
        _COUNT_OR_NONE,
    )
    warm: int = setting(
        1,
        "CURSOR_GATEWAY_WARM",
        "How many warm agents the gateway starts in advance for the next request of the same kind; "
        "0 starts none.",
        _COUNT_OR_NONE,
    )
    first_event_timeout: float = setting(
        120.0,
        "CURSOR_GATEWAY_FIRST_EVENT_TIMEOUT",
        "Seconds within which a started agent must write its first event.",
        _SECONDS,
    )
    idle_timeout: float = setting(
        300.0,
        "CURSOR_GATEWAY_IDLE_TIMEOUT",
        "Seconds of silence after which the gateway stops an agent; four times as long during a "
        "tool call.",
        _SECONDS,
    )
    total_timeout: float = setting(
        3600.0,
        "CURSOR_GATEWAY_TOTAL_TIMEOUT",
        "Seconds that one answer may take in total, including the time in which the client reads.",
        _SECONDS,
    )
    keep_alive: float = setting(
        15.0,
        "CURSOR_GATEWAY_KEEP_ALIVE",
        "Seconds of silence after which a stream gets an SSE comment.",
        _SECONDS,
        reloads=True,
    )
    heartbeat: float = setting(
        120.0,
        "CURSOR_GATEWAY_HEARTBEAT",
        "Seconds of silence after which a stream gets an empty event, because some clients ignore "
        "comments.",
        _SECONDS,
        reloads=True,
    )
    shutdown_grace: float = setting(
        10.0,
        "CURSOR_GATEWAY_SHUTDOWN_GRACE",
        "Seconds that running answers get to finish after the first Ctrl-C or SIGTERM.",
        _SECONDS_OR_NONE,
        reloads=True,
    )
    shutdown_delay: float = setting(
        0.0,
        "CURSOR_GATEWAY_SHUTDOWN_DELAY",
        "Seconds that the gateway still serves after that signal, before `shutdown_grace` begins. "
        "`/health` answers 503 meanwhile, so that a load balancer notices.",
        _SECONDS_OR_NONE,
        reloads=True,
    )
    max_prompt_mb: int = setting(
        32,
        "CURSOR_GATEWAY_MAX_PROMPT_MB",
        "Longest conversation, as the agent reads it, in megabytes. The gateway refuses a longer "
        "one and never cuts it.",
        _MEGABYTES,
    )
    kept_responses_mb: int = setting(
        64,
        "CURSOR_GATEWAY_KEPT_RESPONSES_MB",
        "Megabytes of finished Responses that stay in memory for `previous_response_id`; 0 stores "
        "none.",
        _MEGABYTES_OR_NONE,
    )
    tool_loop_max_repeat: int = setting(
        2,
        "TOOL_LOOP_MAX_REPEAT",
        "How often a model may repeat a tool call with the same result before the loop guard acts.",
        _COUNT_OR_NONE,
    )
    tool_channel: str = setting(
        "auto",
        "CURSOR_GATEWAY_TOOL_CHANNEL",
        "How the model calls the client's tools: `relay` (over MCP; the agent waits for the "
        "result), `text` (in its answer), or `auto` (the relay if the agent uses it).",
        choices=("auto", "relay", "text"),
    )
    relay_hold: float = setting(
        50.0,
        "CURSOR_GATEWAY_RELAY_HOLD",
        "Seconds that the gateway holds a call over the relay before it gives the agent a ticket "
        "to wait with. The CLI gives up after 60.",
        _SECONDS,
    )
    session_reuse: bool = setting(
        True,
        "CURSOR_SESSION_REUSE",
        "Resume a finished chat by `--resume` instead of sending the whole conversation again.",
    )
    session_ttl: float = setting(
        900.0,
        "CURSOR_GATEWAY_SESSION_TTL",
        "Seconds that an agent waits for the client's results, and that a finished chat stays "
        "resumable.",
        _SECONDS,
    )
    show_activity: bool = setting(
        False,
        "CURSOR_GATEWAY_SHOW_ACTIVITY",
        "Show the tools that the agent itself runs as `reasoning_content`.",
    )
    mcp: bool = setting(
        True,
        "CURSOR_GATEWAY_MCP",
        "Connect the MCP servers that `opencode.json` names, and offer their tools to the models.",
    )
    mcp_other_files: bool = setting(
        False,
        "CURSOR_GATEWAY_MCP_OTHER_FILES",
        "Also connect the MCP servers of Cursor's `mcp.json` and of `.mcp.json`.",
    )
    mcp_allow: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_MCP_ALLOW",
        "Use only these tools of MCP servers: `github/get_*`, or `github` for all of a server.",
    )
    mcp_deny: tuple[str, ...] = setting(
        (),
        "CURSOR_GATEWAY_MCP_DENY",
        "Do not use these tools of MCP servers (same form); it overrides `mcp_allow`.",
    )
    mcp_connect_timeout: float = setting(
        60.0,
        "CURSOR_GATEWAY_MCP_CONNECT_TIMEOUT",
        "Seconds within which an MCP server must be ready; its first start by `npx` downloads it.",
        _SECONDS,
    )
    mcp_call_timeout: float = setting(
        120.0,
        "CURSOR_GATEWAY_MCP_CALL_TIMEOUT",
        "Seconds that an MCP server may be silent during a call, if its entry has no `timeout`.",
        _SECONDS,
    )
    mcp_call_endpoint: bool = setting(
        False,
        "CURSOR_GATEWAY_MCP_CALL_ENDPOINT",
        "Let clients call MCP tools directly, by `POST /v1/tools/{id}/call`.",
    )
    journal_mb: int = setting(
        50,
        "CURSOR_GATEWAY_JOURNAL_MB",
        "Megabytes that the journal of requests may take on disk in total; 0 writes no journal.",
        _MEGABYTES_OR_NONE,
    )
    record_prompts: bool = setting(
        False,
        "CURSOR_GATEWAY_RECORD_PROMPTS",
        "Also write prompts and answers to the journal.",
    )
    auth_check_timeout_ms: int = setting(
        15000,
        "CURSOR_ACP_AUTH_CHECK_TIMEOUT",
        "Milliseconds that `cursor-agent status` may take.",
        _MILLISECONDS,
    )
    debug: bool = setting(
        False,
        "CURSOR_DEBUG",
        "Log in detail. Prompts and secrets stay out of it.",
        reloads=True,
    )
    timing: bool = setting(
        False,
        "CURSOR_TIMING",
        "Log for each answer when its first word came and when it ended.",
        reloads=True,
    )

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


FIELDS: Mapping[str, Setting] = {
    each.name: dataclasses.replace(each.metadata["row"], name=each.name, kind=str(each.type))
    for each in dataclasses.fields(Settings)
}

# Variables of ours that are no settings: the file's place, and the mark of each process of a run,
# in which somebody may start a gateway of their own.
CONFIG_VARIABLE = "CURSOR_GATEWAY_CONFIG"
NO_SETTINGS = (CONFIG_VARIABLE, "CURSOR_GATEWAY_RUN")


def shown(name: str, value: Any) -> str:
    """A value as people may see it."""
    if FIELDS[name].secret:
        return MASK if value else ""
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
