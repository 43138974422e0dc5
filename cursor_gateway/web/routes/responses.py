"""Stored responses: shown, listed and deleted by their ids."""

from __future__ import annotations

from aiohttp import web

from cursor_gateway.dialects import responses
from cursor_gateway.dialects.response_history import find_record, render_input_items
from cursor_gateway.errors import UnsupportedParameter
from cursor_gateway.web.admission import caller_of
from cursor_gateway.web.delivery import json_response
from cursor_gateway.web.response_store import ResponsesOf, ResponseStore


def response_routes(prefix: str, store: ResponseStore) -> list[web.RouteDef]:
    def own(request: web.Request) -> ResponsesOf:
        return store.of(caller_of(request.headers))

    async def show_response(request: web.Request) -> web.Response:
        if request.query.get("stream") == "true":
            raise UnsupportedParameter("A stored response cannot be streamed.", param="stream")
        return json_response(find_record(own(request), request.match_info["id"])["response"])

    async def delete_response(request: web.Request) -> web.Response:
        response_id, stored = request.match_info["id"], own(request)
        find_record(stored, response_id)
        stored.remove(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def list_input_items(request: web.Request) -> web.Response:
        record = find_record(own(request), request.match_info["id"])
        ascending = request.query.get("order") == "asc"
        return json_response(render_input_items(record, ascending=ascending))

    one = prefix + responses.PATH + "/{id}"
    return [
        web.get(one, show_response),
        web.delete(one, delete_response),
        web.get(f"{one}/input_items", list_input_items),
    ]
