"""The journal over HTTP: `/v1/requests` for pages, `/metrics` for Prometheus."""

from __future__ import annotations

from aiohttp import web

from cursor_gateway import __version__
from cursor_gateway.errors import InvalidRequest, RequestNotFound
from cursor_gateway.gateway import Gateway
from cursor_gateway.journal.metrics import CONTENT_TYPE, Given
from cursor_gateway.journal.ring import RECENT, Journal
from cursor_gateway.web.admission import Admission
from cursor_gateway.web.curl import as_curl
from cursor_gateway.web.delivery import json_response

LISTED = 100


def journal_routes(journal: Journal, gateway: Gateway, admission: Admission) -> list[web.RouteDef]:
    async def list_requests(request: web.Request) -> web.Response:
        limit = _limit(request.query.get("limit", str(LISTED)))
        records = [record for _, record in zip(range(limit), journal.listed(), strict=False)]
        return json_response({"object": "list", "data": [each.as_json() for each in records]})

    async def show_request(request: web.Request) -> web.Response:
        record = journal.find(request.match_info["id"])
        if record is None:
            raise RequestNotFound(f"Not among the running and the last {RECENT} requests.")
        curl = as_curl(record, str(request.url.origin()), with_key=admission.needs_key)
        return json_response(record.as_json() | record.words() | {"curl": curl})

    async def measure(request: web.Request) -> web.Response:
        text = journal.metrics_text(_gauges(gateway))
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    return [
        web.get("/metrics", measure),
        *(web.get(f"{prefix}/requests", list_requests) for prefix in ("/v1", "")),
        *(web.get(prefix + "/requests/{id}", show_request) for prefix in ("/v1", "")),
    ]


def _limit(wanted: str) -> int:
    if not wanted.isdecimal():
        raise InvalidRequest("`limit` must be a whole number.", param="limit")
    return min(int(wanted), RECENT)


def _gauges(gateway: Gateway) -> dict[str, Given]:
    health = gateway.health()
    slots, sessions, warm = health["slots"], health["sessions"], health["warm"]
    return {
        "info": {(__version__, health["agent"]["kind"] or "none"): 1},
        "healthy": int(health["status"] == "ok"),
        "slots": slots["total"],
        "slots_busy": slots["busy"],
        "queue_length": slots["waiting"],
        "spares": warm["spares"],
        "spares_used_total": warm["used"],
        "mcp_calls_total": gateway.bridge.calls,
        "parked_runs": sessions["parked"],
        "kept_chats": sessions["chats"],
    }
