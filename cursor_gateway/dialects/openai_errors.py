"""The shape of errors in both of OpenAI's dialects, and for whoever speaks none."""

from __future__ import annotations

from typing import Any

from cursor_gateway.errors import GatewayError


def render_error(error: GatewayError, request_id: str, status: int | None = None) -> dict[str, Any]:
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "code": error.code,
            "param": error.param,
            "status": status or error.status,
            "request_id": request_id,
        }
    }
