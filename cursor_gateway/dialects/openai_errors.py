"""The shape of errors in OpenAI's dialects, and for clients of no dialect."""

from __future__ import annotations

from typing import Any

from cursor_gateway.errors import GatewayError


def render_error(error: GatewayError, request_id: str, status: int | None = None) -> dict[str, Any]:
    has_other_status = status not in (None, error.status)
    return {
        "error": {
            "message": error.message,
            # OpenCode and oh-my-pi repeat a request if its error has “server_error” or “rate_limit”
            # anywhere in its body.
            "type": "invalid_request_error" if has_other_status else error.type,
            "code": error.code,
            "param": error.param,
            "status": status or error.status,
            "request_id": request_id,
        }
    }
