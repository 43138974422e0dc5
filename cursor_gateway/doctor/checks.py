"""The checks that ask the machine and the agent, and no model: cheap, and they change nothing."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import platform
import re
import shlex
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cursor_gateway import __version__, running_gateways
from cursor_gateway.agents import Agent, chosen
from cursor_gateway.agents.model_families import MODEL_FAMILIES
from cursor_gateway.clients.setup import AnyStatus
from cursor_gateway.core.models import resolve
from cursor_gateway.doctor.clients import clients
from cursor_gateway.doctor.examination import DoctorContext
from cursor_gateway.errors import AgentTimedOut, ModelNotFound
from cursor_gateway.findings import EDITOR, Check, Finding, Row
from cursor_gateway.mcp_bridge.bridge import Bridge
from cursor_gateway.mcp_bridge.config import ConfigWarning
from cursor_gateway.processes import tree
from cursor_gateway.redaction import masked_address
from cursor_gateway.running_gateways import RunningGateway, state_folder
from cursor_gateway.settings import SettingsError
from cursor_gateway.settings_sources import config_file, undo_command

HEALTH_SECONDS = 3.0

_DIGITS = re.compile(r"\d+")
_REQUIREMENT = re.compile(r"([\w.-]++).*?>=([\d.]+)")


def settings_fault(error: SettingsError, file: Path | None, env: Mapping[str, str]) -> Finding:
    """Without settings there is nothing to look at, so this is no check of the table."""
    path = file or config_file(env)
    if error.variable:
        fix = f"unset {error.variable}"
    elif file is None and not path.exists():
        fix = "unset CURSOR_GATEWAY_CONFIG"
    else:
        fix = f"{EDITOR} {_quoted(path)}"
    return Finding("fault", str(error), "The gateway does not start with it.", fix)


async def versions(context: DoctorContext) -> Sequence[Finding]:
    python = f"Python {platform.python_version()} ({sys.executable})"
    found = [Finding("ok", f"cursor-gateway {__version__}, {python}, {platform.platform()}")]
    installed: list[str] = []
    for name, wanted in _requirements():
        version = _installed(name)
        installed.append(f"{name} {version or 'missing'}")
        if not version or _numbers(version) < _numbers(wanted):
            is_there = f"is {version}" if version else "is missing"
            fix = f"{shlex.quote(sys.executable)} -m pip install '{name}>={wanted}'"
            found.append(Finding("fault", f"{name} {is_there}, {wanted} is needed", fix=fix))
    return [*found, Finding("ok", ", ".join(installed))] if len(found) == 1 else found


def _requirements() -> Iterator[tuple[str, str]]:
    try:
        listed = importlib.metadata.requires("cursor-gateway") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return
    for line in listed:
        if "extra ==" not in line and (match := _REQUIREMENT.match(line)):
            yield match[1], match[2]


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, _DIGITS.findall(version)))


async def scratch(context: DoctorContext) -> Sequence[Finding]:
    return [_scratch(context)]


def _scratch(context: DoctorContext) -> Finding:
    named = context.env.get("TMPDIR")
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x" * 4096)
        used = tempfile.gettempdir()
    except OSError as error:
        fix = f"export TMPDIR=$HOME/tmp; mkdir -p {named or '$HOME/tmp'}"
        return Finding("fault", f"no temporary file can be written: {error.strerror}", fix=fix)
    if named and not (Path(named).exists() and Path(named).samefile(used)):
        words = f"TMPDIR names {named}, which cannot be written to; {used} is used instead"
        return Finding("fault", words, fix=f"mkdir -p {shlex.quote(named)}")
    return Finding("ok", f"{used} is writable")


async def state(context: DoctorContext) -> Sequence[Finding]:
    folder = state_folder(context.env)
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if place.is_dir() and os.access(place, os.W_OK):
        return [Finding("ok", f"{folder} can be written to")]
    fix = "export XDG_STATE_HOME=$HOME/.cursor-gateway; mkdir -p $XDG_STATE_HOME"
    return [Finding("fault", f"{folder} cannot be written to, because of {place}", fix=fix)]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


async def sign_in(context: DoctorContext) -> Sequence[Finding]:
    try:
        found = await context.account.sign_in()
    except AgentTimedOut as error:
        longer = 6 * context.settings.auth_check_timeout_ms
        fix = f"export CURSOR_ACP_AUTH_CHECK_TIMEOUT={longer}"
        return [Finding("fault", str(error), "It may only need more time.", fix)]
    if not found.authenticated:
        return [Finding("fault", "nobody is signed in", fix="cursor-gateway login")]
    if context.agent.key_variable:
        return [Finding("ok", f"by the key in {context.agent.key_variable}")]
    by = "the token in CURSOR_AUTH_TOKEN" if context.env.get("CURSOR_AUTH_TOKEN") else "the browser"
    return [Finding("ok", f"as {masked_address(found.account) or 'somebody unnamed'}, by {by}")]


async def models(context: DoctorContext) -> Sequence[Finding]:
    listed = await context.account.models()
    some = ", ".join(model.id for model in listed[:3])
    found = [Finding("ok", f"{len(listed)} models: {some}, …")]
    for alias, target in context.settings.aliases.items():
        try:
            resolve(target, listed, {}, MODEL_FAMILIES)
        except ModelNotFound as error:
            why, fix = (
                f"Who asks for {alias!r} gets an error.",
                undo_command("aliases", context.env),
            )
            found.append(Finding("fault", f"alias {alias!r}: {error}", why, fix))
    return found


async def port(context: DoctorContext) -> Sequence[Finding]:
    if gateways := running_gateways.running(context.env):
        return [await asyncio.to_thread(_health, gateway) for gateway in gateways]
    settings = context.settings
    problem = _listening_problem(settings.host, settings.port)
    if not problem:
        place = f"{settings.host}:{settings.port}" if settings.port else "any port"
        return [Finding("ok", f"{place} is free; no gateway runs")]
    holder = await asyncio.to_thread(running_gateways.holder, settings.port, context.env)
    words = f"{settings.host}:{settings.port} cannot be listened on: {problem}"
    words += f", by {holder}" if holder else ""
    fix = f"cursor-gateway serve --host 127.0.0.1 --port {_free_port()}"
    return [Finding("fault", words, fix=fix)]


def _health(gateway: RunningGateway) -> Finding:
    """How a running gateway does. A proxy from the environment cannot reach it."""
    who = f"{gateway.base_url} (pid {gateway.pid}, version {gateway.version})"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), AnyStatus())
    url = f"{gateway.base_url.removesuffix('/v1')}/health"
    try:
        with opener.open(url, timeout=HEALTH_SECONDS) as response:
            state = json.load(response)
    except (OSError, ValueError):
        fix = f"kill -9 {gateway.pid}"
        return Finding("fault", f"{who} does not answer", "Nothing else can have its port.", fix)
    if gateway.version != __version__:
        why = "What was installed since then is not in use."
        return Finding("fault", f"{who} is not {__version__}", why, _restart(gateway))
    if state.get("status") == "starting":
        why = "It waits for the first word of `cursor-agent status`."
        return Finding("note", f"{who} is starting", why)
    if state.get("status") != "ok":
        why = f"It says: {state.get('error', {}).get('message', 'nothing more')}"
        return Finding("note", f"{who} cannot serve now", why, _restart(gateway))
    return Finding("ok", f"a gateway serves {who}")


def _restart(gateway: RunningGateway) -> str:
    return f"kill {gateway.pid}; cursor-gateway serve --port {gateway.port}"


def _listening_problem(host: str, number: int) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, number))
            trial.listen()
        except OSError as error:
            return (error.strerror or "no reason given").lower()
    return ""


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


async def mcp_servers(context: DoctorContext) -> Sequence[Finding]:
    bridge = Bridge(context.settings, context.env, context.children)
    bridge.start()
    try:
        await bridge.settled()
        servers, warnings = bridge.state(), bridge.warnings
    finally:
        await bridge.close()
    bad = [str(server["name"]) for server in servers if server["state"] != "connected"]
    denied = ",".join((*context.settings.mcp_deny, *bad))
    leave_out = f"export CURSOR_GATEWAY_MCP_DENY={shlex.quote(denied)}"
    found = [_warned(warning) for warning in warnings]
    for server in servers:
        if server["name"] in bad:
            why = f"Its tools are missing. It stands in {server['file']}; this leaves it out."
            found.append(Finding("fault", f"{server['name']}: {server['error']}", why, leave_out))
        else:
            words = f"{server['name']}: connected, {server['tools']} tools ({server['file']})"
            left_out = server["left_out"]
            why = f"Tools are left out: {left_out}." if left_out else ""
            found.append(Finding("note" if left_out else "ok", words, why))
    return found or [Finding("ok", "none are configured")]


def _warned(warning: ConfigWarning) -> Finding:
    edit = f"{EDITOR} {shlex.quote(warning.path)}"
    fix = f"unset {warning.variable}" if warning.variable else edit
    return Finding("fault", str(warning), fix=fix)


async def strays(context: DoctorContext) -> Sequence[Finding]:
    pids = await asyncio.to_thread(tree.ownerless)
    if not pids:
        return [Finding("ok", "none")]
    listed = " ".join(map(str, pids))
    words = f"{len(pids)} processes of a gateway that is gone: {listed}"
    return [Finding("fault", words, fix=f"kill {listed}")]


async def agent(context: DoctorContext) -> Sequence[Finding]:
    located = context.agent.locate()
    return [Finding("ok", f"{located.kind}: {located.path}")]


# In the order in which they are made. Those of the agent's own come in the place of `agent`.
CHECKS: tuple[Row[DoctorContext], ...] = (
    Row("versions", "Python and packages", "An older one may lack what is used.", versions),
    Row(
        "scratch",
        "the scratch directory",
        "Every request works in a directory of its own there.",
        scratch,
    ),
    Row(
        "state",
        "the state directory",
        "The journal is kept there, and the files that `setup` has changed.",
        state,
    ),
    Row("agent", "the agent", "No request can be answered without it.", agent, ("scratch",)),
    Row(
        "sign-in",
        "the sign-in",
        "Cursor answers nobody who is not signed in.",
        sign_in,
        ("agent", "agent-version"),
    ),
    Row("models", "the models", "Without a list only `auto` is known.", models, ("sign-in",)),
    Row("port", "the port", "The gateway cannot listen there.", port),
    Row(
        "mcp",
        "MCP servers, one by one",
        "What it names is not offered to the models.",
        mcp_servers,
        ("scratch",),
    ),
    Row(
        "strays",
        "leftover processes of an earlier gateway",
        "They use memory, and your account.",
        strays,
    ),
    Row("clients", "the clients' configurations", "It does not reach the gateway.", clients),
)


def in_order(agent: type[Agent]) -> list[Row[Any]]:
    """Every row, as they are made: an agent's own rows come in the place of `agent`, and one with
    the name of ours in the place of that."""
    own = list(agent.checks())
    replaced = {row.name for row in own}
    at = [row.name for row in CHECKS].index("agent")
    before = [row for row in CHECKS[: at + 1] if row.name not in replaced]
    after = [row for row in CHECKS[at + 1 :] if row.name not in replaced]
    return [*before, *own, *after]


def all_checks(context: DoctorContext) -> list[Check]:
    """Every check of the agent that is chosen."""
    agent = chosen(context.settings)
    ours = set(map(id, CHECKS))
    return [
        row.of((lambda: context) if id(row) in ours else (lambda: context.agent))
        for row in in_order(agent)
    ]


def checks_with_probes(context: DoctorContext, model: str, holds: tuple[float, ...]) -> list[Check]:
    """Those and the probes, which find anew what the former only remember."""
    agent = chosen(context.settings)
    remembered = {row.name for row in agent.checks() if row.is_from_memory}
    probes = [row.of(lambda: context.agent) for row in agent.probes(model, holds)]
    return [*(check for check in all_checks(context) if check.name not in remembered), *probes]
