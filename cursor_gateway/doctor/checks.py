"""The checks that ask the machine and the CLI, and no model: cheap, and they change nothing."""

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
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cursor_gateway import __version__, foreign_files, running_gateways
from cursor_gateway.account import cursor_files
from cursor_gateway.agents.cursor import isolation
from cursor_gateway.clients.setup import AnyStatus
from cursor_gateway.core.models import resolve
from cursor_gateway.doctor.clients import clients
from cursor_gateway.doctor.cursor_files import approval, hooks
from cursor_gateway.doctor.examination import EDITOR, Check, DoctorContext, Finding
from cursor_gateway.doctor.probes import probed
from cursor_gateway.doctor.versions import INSTALL, agent_version, obedience, warm_starts
from cursor_gateway.errors import AgentNotFound, AgentTimedOut, ModelNotFound
from cursor_gateway.mcp_bridge.bridge import Bridge
from cursor_gateway.processes import tree
from cursor_gateway.running_gateways import RunningGateway, state_folder
from cursor_gateway.settings import FIELDS, SettingsError
from cursor_gateway.settings_sources import config_file

# The CLI writes this file in a moment; one that is older was left by a start that failed.
TMP_IS_STALE_AFTER = 60.0
HEALTH_SECONDS = 3.0

_VARIABLE = re.compile(r"\(env (\w+)\)")
_DIGITS = re.compile(r"\d+")
_REQUIREMENT = re.compile(r"([\w.-]++).*?>=([\d.]+)")


def settings_fault(error: SettingsError, file: Path | None, env: Mapping[str, str]) -> Finding:
    """Without settings there is nothing to look at, so this is no check of the table."""
    named = _VARIABLE.search(str(error))
    path = file or config_file(env)
    if named:
        fix = f"unset {named[1]}"
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


async def isolated(context: DoctorContext) -> Sequence[Finding]:
    if not context.settings.isolate:
        return [Finding("ok", "not asked for (setting `isolate`)")]
    try:
        await asyncio.to_thread(isolation.check, context.env)
    except SettingsError as error:
        why = "The gateway does not start so. This switches isolation off."
        return [Finding("fault", str(error), why, _without("isolate", context.env))]
    return [Finding("ok", "bubblewrap works")]


def _without(setting: str, env: Mapping[str, str]) -> str:
    """The command that takes a setting back, where it was made."""
    variable = FIELDS[setting].metadata["env"]
    return f"unset {variable}" if env.get(variable) else f"{EDITOR} {_quoted(config_file(env))}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


async def agent(context: DoctorContext) -> Sequence[Finding]:
    settings, env = context.settings, context.env
    folders = [*env.get("PATH", os.defpath).split(os.pathsep), "~/.local/bin"]
    looked = f"looked in {', '.join(filter(None, dict.fromkeys(folders)))}"
    try:
        located = context.agent.locate()
    except AgentNotFound as error:
        named = "agent_command" if settings.agent_command else "agent_executable"
        if not getattr(settings, named):
            return [Finding("fault", f"{error} ({looked})", fix=INSTALL)]
        return [Finding("fault", str(error), fix=_without(named, env))]
    if located.kind == "demo":
        words = "the demo agent answers, no model (setting `demo`)"
        return [Finding("note", words, "Its answers are canned.", _without("demo", env))]
    return [Finding("ok", located.path if located.reach else f"{located.path} ({looked})")]


async def sign_in(context: DoctorContext) -> Sequence[Finding]:
    try:
        found = await context.account.sign_in()
    except AgentTimedOut as error:
        longer = 6 * context.settings.auth_check_timeout_ms
        fix = f"export CURSOR_ACP_AUTH_CHECK_TIMEOUT={longer}"
        return [Finding("fault", str(error), "It may only need more time.", fix)]
    if not found.authenticated:
        return [Finding("fault", "nobody is signed in", fix="cursor-gateway login")]
    if context.agent.has_api_key:
        return [Finding("ok", "by the key in CURSOR_API_KEY")]
    by = "the token in CURSOR_AUTH_TOKEN" if context.env.get("CURSOR_AUTH_TOKEN") else "the browser"
    return [Finding("ok", f"as {_masked(found.account) or 'somebody unnamed'}, by {by}")]


def _masked(address: str) -> str:
    """Enough for its owner to know it, and no more: people show to others what a doctor says."""
    name, at, domain = address.partition("@")
    return f"{name[:2]}…{at}{domain}" if at else address


async def models(context: DoctorContext) -> Sequence[Finding]:
    listed = await context.account.models()
    some = ", ".join(model.id for model in listed[:3])
    found = [Finding("ok", f"{len(listed)} models: {some}, …")]
    for alias, target in context.settings.aliases.items():
        try:
            resolve(target, listed, {})
        except ModelNotFound as error:
            why, fix = f"Who asks for {alias!r} gets an error.", _without("aliases", context.env)
            found.append(Finding("fault", f"alias {alias!r}: {error}", why, fix))
    return found


async def config_race(context: DoctorContext) -> Sequence[Finding]:
    """CLIs that start at the same moment rewrite one file, and may break it."""
    if context.settings.agent_command:
        return [Finding("ok", "not looked at: the files of an agent elsewhere are elsewhere")]
    files = [file for file in cursor_files(context.env) if file.name == "cli-config.json"]
    found = [finding for file in files for finding in _race_traces(file)]
    is_there = any(file.exists() for file in files)
    state = "cli-config.json is whole" if is_there else "there is no cli-config.json yet"
    return found or [Finding("ok", f"{state}, and no start has failed over it")]


def _race_traces(file: Path) -> Iterator[Finding]:
    draft, broken = file.with_name("cli-config.json.tmp"), file.with_name("cli-config.json.bad")
    try:
        if file.exists():
            json.loads(foreign_files.read(file))
    except (OSError, ValueError, RecursionError) as error:
        words = f"{file} is not JSON; agents started together broke it"
        if isinstance(error, OSError):
            words = f"{file} cannot be read: {error.strerror}"
        yield Finding("fault", words, fix=shlex.join(["mv", "--", str(file), str(broken)]))
    if draft.exists() and time.time() - draft.stat().st_mtime > TMP_IS_STALE_AFTER:
        fix = shlex.join(["rm", "--", str(draft)])
        yield Finding("fault", f"{draft} was left by a start that failed", fix=fix)
    elif broken.exists():
        fix = shlex.join(["rm", "--", str(broken)])
        yield Finding("note", f"{broken} was broken once, and put aside", fix=fix)


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


def _warned(warning: str) -> Finding:
    path = warning.partition(": ")[0]
    is_named = "OPENCODE_CONFIG" in warning
    fix = "unset OPENCODE_CONFIG" if is_named else f"{EDITOR} {shlex.quote(path)}"
    return Finding("fault", warning, fix=fix)


async def strays(context: DoctorContext) -> Sequence[Finding]:
    pids = await asyncio.to_thread(tree.ownerless)
    if not pids:
        return [Finding("ok", "none")]
    listed = " ".join(map(str, pids))
    words = f"{len(pids)} processes of a gateway that is gone: {listed}"
    return [Finding("fault", words, fix=f"kill {listed}")]


# The checks that tell of what runs and probes have found before.
OLD_RESULTS = ("probed", "warm", "obedience")

CHECKS = (
    Check("versions", "Python and packages", "An older one may lack what is used.", versions),
    Check(
        "scratch",
        "the scratch directory",
        "Every request works in a directory of its own there.",
        scratch,
    ),
    Check(
        "state",
        "the state directory",
        "The journal is kept there, and the files that `setup` has changed.",
        state,
    ),
    Check("isolation", "the isolation of agents", "The gateway does not start.", isolated),
    Check("agent", "cursor-agent", "No request can be answered without it.", agent, ("scratch",)),
    Check(
        "agent-version",
        "its version",
        "The gateway passes options that older versions do not know.",
        agent_version,
        ("agent",),
    ),
    Check(
        "warm",
        "agents that are started ahead",
        "They save the time that the CLI takes to boot.",
        warm_starts,
        ("agent-version",),
    ),
    Check(
        "obedience",
        "whether it obeys the deny list",
        "The deny list keeps a model from your files.",
        obedience,
        ("agent-version",),
    ),
    Check(
        "sign-in",
        "the sign-in",
        "Cursor answers nobody who is not signed in.",
        sign_in,
        ("agent-version",),
    ),
    Check("models", "the models", "Without a list only `auto` is known.", models, ("sign-in",)),
    Check(
        "config-race",
        "traces of the config race",
        "Agents that start together may stop each other; the gateway then starts them one by one.",
        config_race,
    ),
    Check("hooks", "hooks of your own", "They run in every request.", hooks),
    Check("approval", "what you approved beforehand", "Agents may do it.", approval),
    Check("port", "the port", "The gateway cannot listen there.", port),
    Check(
        "mcp",
        "MCP servers, one by one",
        "What it names is not offered to the models.",
        mcp_servers,
        ("scratch",),
    ),
    Check(
        "strays",
        "leftover processes of an earlier gateway",
        "They use memory, and your account.",
        strays,
    ),
    Check("clients", "the clients' configurations", "It does not reach the gateway.", clients),
    Check("probed", "what was probed before", "", probed, ("agent",)),
)
