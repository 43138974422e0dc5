"""How the gateway is: once at `/health`, and as it changes at `/v1/events`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from cursor_gateway.gateway import Gateway
from cursor_gateway.processes import resources
from cursor_gateway.web.admission import Admission
from cursor_gateway.web.delivery import json_response
from cursor_gateway.web.live_events import LiveEvents

State = Callable[[], dict[str, Any]]


def health_routes(
    gateway: Gateway, admission: Admission, state: State, events: LiveEvents
) -> list[web.RouteDef]:
    async def show_health(request: web.Request) -> web.Response:
        """Probes need no key; without it they see no more than they need."""
        await gateway.look_at_disk()
        health = state()
        if health["status"] == "starting":
            await gateway.account.first_check()
            health = state()
        if admission.has_key(request.headers):
            # The count changes with every connection, so it is not in the state, of which
            # listeners of `/v1/events` get every change.
            health["descriptors"] = resources.descriptors()
        else:
            health = {name: health[name] for name in ("status", "version", "auth", "mcp")}
        return json_response(health, 200 if health["status"] == "ok" else 503)

    return [
        web.get("/health", show_health),
        *(web.get(f"{prefix}/events", events.stream) for prefix in ("/v1", "")),
    ]
