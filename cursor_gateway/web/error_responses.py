"""Error responses: in the dialect of the client, with the status that this client shows."""

from __future__ import annotations

from aiohttp import web

from cursor_gateway.dialects import DIALECTS, Dialect, chat, messages, responses
from cursor_gateway.dialects.error_status import status_for
from cursor_gateway.errors import (
    BodyTooLarge,
    GatewayError,
    InvalidRequest,
    MethodNotAllowed,
    RouteNotFound,
    WebSocketRefused,
)
from cursor_gateway.web.delivery import RECORD, REQUEST_ID, json_response


def dialect_of(request: web.Request) -> Dialect:
    """The dialect in which this client gets errors, also before a route is found. OpenAI's dialects
    share one shape, which clients of no dialect get, too."""
    path = request.path.removeprefix("/v1")
    is_anthropic = path.startswith(messages.PATH) or "anthropic-version" in request.headers
    return messages if is_anthropic else chat


def error_response(request: web.Request, error: GatewayError) -> web.Response:
    request[RECORD].failed(error)
    dialect = dialect_of(request)
    user_agent = request.headers.get("User-Agent", "")
    answer = status_for(error, user_agent, is_anthropic=dialect is messages)
    body = dialect.render_error(error, request[REQUEST_ID], answer.status)
    response = json_response(body, answer.status)
    response.headers.update(answer.headers)
    return response


def gateway_error(request: web.Request, error: web.HTTPException) -> GatewayError:
    """aiohttp's own refusals as errors of the gateway, which have codes and hints."""
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return BodyTooLarge("The request body is too large.")
    if isinstance(error, web.HTTPMethodNotAllowed):
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return WebSocketRefused("There are no WebSockets here.")
        return MethodNotAllowed(f"{request.method} is not possible here.")
    if isinstance(error, web.HTTPNotFound):
        return RouteNotFound(f"There is nothing at this path. There is: {', '.join(_ROUTES)}.")
    return InvalidRequest(f"The request cannot be read: {error.reason}.")


_ROUTES = (
    *(f"POST /v1{dialect.PATH}" for dialect in DIALECTS),
    f"GET /v1{chat.PATH}/ws (a WebSocket)",
    f"POST /v1{messages.COUNT_PATH}",
    f"GET and DELETE /v1{responses.PATH}/{{id}}",
    "GET /v1/models",
    "GET /v1/tools",
    "GET /v1/requests",
    "GET /v1/events",
    "GET /v1/clients",
    "GET /health",
    "GET /metrics",
    "the page at /",
)
