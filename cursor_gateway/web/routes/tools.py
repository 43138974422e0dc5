"""The tools of the user's MCP servers: listed, and called where the settings allow it."""

from __future__ import annotations

from aiohttp import web

from cursor_gateway.errors import InvalidRequest, ToolCallsNotAllowed, ToolNotFound
from cursor_gateway.mcp_bridge.bridge import Bridge
from cursor_gateway.web.active_requests import ActiveRequests
from cursor_gateway.web.admission import check_content_type
from cursor_gateway.web.body import Bodies, parse_body
from cursor_gateway.web.delivery import json_response


def tool_routes(
    prefix: str, bridge: Bridge, bodies: Bodies, active: ActiveRequests, *, may_call: bool
) -> list[web.RouteDef]:
    async def list_tools(request: web.Request) -> web.Response:
        counts = {name: bridge.summary()[name] for name in ("servers", "tools")}
        return json_response({"object": "list", "data": bridge.listing(), "mcp": counts})

    async def call_tool(request: web.Request) -> web.Response:
        if not may_call:
            raise ToolCallsNotAllowed("Tools may not be called directly.")
        check_content_type(request.headers.get("Content-Type", ""))
        with bodies.hold() as held:
            arguments = parse_body(await held.read(request)).get("arguments", {})
            if not isinstance(arguments, dict):
                raise InvalidRequest("`arguments` must be an object.", param="arguments")
            name = request.match_info["id"]
            if not bridge.knows(name):
                raise ToolNotFound(f"There is no tool {name!r}.")
            with active.one():
                return json_response(await bridge.call(name, arguments))

    return [
        web.get(f"{prefix}/tools", list_tools),
        web.post(prefix + "/tools/{id}/call", call_tool),
    ]
