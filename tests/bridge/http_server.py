"""An MCP server across HTTP, made with the official library.

    python http_server.py TRANSPORT PORT [TOKEN]

With a token it turns away who does not send it.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer

server = MCPServer("across")


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


def guarded(app: Any, token: bytes) -> Any:
    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (b"authorization", token) not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return guard


if __name__ == "__main__":
    transport, port = sys.argv[1], int(sys.argv[2])
    app: Any = server.sse_app() if transport == "sse" else server.streamable_http_app()
    if len(sys.argv) > 3:
        app = guarded(app, sys.argv[3].encode())
    uvicorn.run(app, port=port, log_level="warning", timeout_graceful_shutdown=1)
