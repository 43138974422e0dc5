"""Whether the clients reach the gateway: the address in their files, and the key."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cursor_gateway import running_gateways
from cursor_gateway.clients import CLIENTS, setup
from cursor_gateway.clients.client import KEY_VARIABLE, NO_KEY, Client
from cursor_gateway.doctor.examination import DoctorContext
from cursor_gateway.findings import EDITOR, Finding

# Several clients take the name of a variable, a command or a template in the place of a key.
_REFERENCE = re.compile(r"[$!{].*|[A-Z][A-Z0-9_]+")


async def clients(context: DoctorContext) -> Sequence[Finding]:
    return await asyncio.to_thread(_clients, context)


def _clients(context: DoctorContext) -> list[Finding]:
    base_url = running_gateways.base_url(context.settings, context.env)
    found = [_client(client, base_url, context) for client in CLIENTS.values()]
    listed = [finding for finding in found if finding] or [Finding("ok", "none is installed")]
    return [*listed, *_proxied(context.env)]


def _proxied(env: Mapping[str, str]) -> Iterator[Finding]:
    proxy = next((name for name in ("HTTP_PROXY", "http_proxy") if env.get(name)), None)
    spared = f"{env.get('NO_PROXY', '')},{env.get('no_proxy', '')}"
    if proxy and "127.0.0.1" not in spared and "*" not in spared:
        words = f"{proxy} is set, and NO_PROXY does not name 127.0.0.1"
        fix = 'export NO_PROXY="127.0.0.1,localhost,$NO_PROXY"'
        yield Finding("note", words, "Some clients then ask the proxy for the gateway.", fix)


def _client(client: Client, base_url: str, context: DoctorContext) -> Finding | None:
    path, env = client.config(context.env), context.env
    if not path.exists() and not client.installed(env):
        return None
    where = setup.points(client, base_url, env)
    fix = f"cursor-gateway setup {client.name} --write"
    if where == "here":
        return _pointing_here(client, path, base_url, context)
    if where == "unreadable":
        words = f"{client.title}: {path} cannot be read"
        return Finding("fault", words, fix=f"{EDITOR} {shlex.quote(str(path))}")
    # Set up once, and not so now: its prompts go past the gateway.
    if setup.is_set_up(client, env):
        return Finding("fault", f"{client.title} does not point to {base_url} ({path})", fix=fix)
    words = "points elsewhere" if where == "elsewhere" else "does not use the gateway"
    return Finding("note", f"{client.title} {words} ({path})", fix=fix)


def _pointing_here(client: Client, path: Path, base_url: str, context: DoctorContext) -> Finding:
    key = setup.configured_key(client, base_url, context.env)
    if _is_taken(key or NO_KEY, base_url):
        return Finding("ok", f"{client.title} points to {base_url} ({path})")
    fix = f"cursor-gateway setup {client.name} --write"
    if not _is_taken(context.settings.api_key or NO_KEY, base_url):
        # Asked for, so that it stays out of the shell's history.
        fix = f"read -rs {KEY_VARIABLE} && export {KEY_VARIABLE} && {fix}"
    is_elsewhere = _REFERENCE.fullmatch(key) if key else not setup.is_set_up(client, context.env)
    if is_elsewhere:
        words = f"{client.title}: {base_url} wants a key, and {path} does not hold it"
        why = "It may take the right one from elsewhere; that cannot be seen from here."
        return Finding("note", words, why, fix)
    words = f"{client.title}: {base_url} refuses the key in {path}"
    return Finding("fault", words, "Each request gets 401. Set it up anew with the right key.", fix)


def _is_taken(key: str, base_url: str) -> bool:
    try:
        setup.models_of(base_url, key)
    except setup.KeyRefused:
        return False
    return True
