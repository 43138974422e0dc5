"""What the relay says: the few messages of MCP over streamable HTTP that the CLI's client needs."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from cursor_gateway.core.json_text import to_json

_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

Json = dict[str, Any]


def welcome(wanted: object) -> Json:
    return {
        "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[0],
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "cursor-gateway", "version": "1"},
        "instructions": "The tools of the client. It executes them on the user's machine.",
    }


def success(rpc_id: object, content: Json) -> web.Response:
    return _json({"jsonrpc": "2.0", "id": rpc_id, "result": content})


def refusal(rpc_id: object, code: int, words: str, status: int = 200) -> web.Response:
    error = {"code": code, "message": words}
    return _json({"jsonrpc": "2.0", "id": rpc_id, "error": error}, status)


def _json(body: Json, status: int = 200) -> web.Response:
    return web.Response(text=to_json(body), status=status, content_type="application/json")


async def write(response: web.StreamResponse, message: Json) -> None:
    await response.write(f"event: message\ndata: {to_json(message)}\n\n".encode())
