"""The page at `/`: its files, and what it shows that no other route has.

The files hold no data and are the same for everybody. All that the page shows it asks for itself,
with the key where there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from cursor_gateway.account import Account
from cursor_gateway.clients.client import KEY_PLACEHOLDER, NO_KEY, Client, Env, Target
from cursor_gateway.core.models import Model
from cursor_gateway.errors import GatewayError
from cursor_gateway.web.admission import Admission
from cursor_gateway.web.delivery import json_response

_FOLDER = Path(__file__).parents[1] / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Path -> file. No other file is served, whatever a path may lead to.
FILES: Mapping[str, Path] = {
    "/": _FOLDER / "index.html",
    **{f"/page/{file.name}": file for file in sorted(_FOLDER.iterdir()) if file.suffix in _TYPES},
}
# A browser on another machine asks its user for any name, and for the key as the password.
SIGN_IN = 'Basic realm="cursor-gateway, the key as password", charset="UTF-8"'

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # The browser refuses to turn any text into markup, even if the page did so by mistake.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def page_routes(account: Account, env: Env, admission: Admission) -> list[web.RouteDef]:
    async def list_clients(request: web.Request) -> web.Response:
        key = KEY_PLACEHOLDER if admission.needs_key else NO_KEY
        base_url, models = f"{request.url.origin()}/v1", await _listed(account)
        clients = await asyncio.to_thread(_clients, base_url, models, key, env)
        return json_response({"object": "list", "data": clients, "key": key})

    return [
        *(web.get(path, _show_file) for path in FILES),
        *(web.get(f"{prefix}/clients", list_clients) for prefix in ("/v1", "")),
    ]


async def _show_file(request: web.Request) -> web.Response:
    file = FILES[request.path]
    headers = _HEADERS | {"Content-Type": _TYPES[file.suffix]}
    return web.Response(body=file.read_bytes(), headers=headers)


async def _listed(account: Account) -> tuple[Model, ...]:
    try:
        return await account.models()
    except GatewayError:
        return ()


def _clients(base_url: str, models: tuple[Model, ...], key: str, env: Env) -> list[dict[str, Any]]:
    from cursor_gateway.clients import CLIENTS
    from cursor_gateway.clients.setup import models_for

    return [
        _set_up(client, Target(base_url, models_for(client, models), key), env)
        for client in CLIENTS.values()
    ]


def _set_up(client: Client, target: Target, env: Env) -> dict[str, Any]:
    from cursor_gateway.clients.setup import points
    from cursor_gateway.config_files import format_of

    file = client.config(env)
    return {
        "name": client.name,
        "title": client.title,
        "installed": client.installed(env) is not None,
        "points": points(client, target.base_url, env),
        "file": str(file),
        "content": format_of(file.name).merged("", client.wanted(target)),
        "second_file": _second(client, target, env),
        "example": client.example,
        "can_launch": client.launch is not None,
    }


def _second(client: Client, target: Target, env: Env) -> dict[str, str] | None:
    from cursor_gateway.config_files import format_of

    if client.second_file is None:
        return None
    file = client.second_file.config(env)
    content = format_of(file.name).merged("", client.second_file.wanted(target))
    return {"file": str(file), "content": content}
