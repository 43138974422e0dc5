"""The shape of errors in both of OpenAI's dialects, and for whoever speaks none."""

from __future__ import annotations

from typing import Any

from cursor_gateway.errors import GatewayError


def render_error(error: GatewayError, request_id: str, status: int | None = None) -> dict[str, Any]:
    is_told_otherwise = status not in (None, error.status)
    return {
        "error": {
            "message": error.message,
            # OpenCode and oh-my-pi repeat what has “server_error” or “rate_limit” in its body.
            "type": "invalid_request_error" if is_told_otherwise else error.type,
            "code": error.code,
            "param": error.param,
            "status": status or error.status,
            "request_id": request_id,
        }
    }
