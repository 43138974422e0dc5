"""The fake agent's MCP client: as much as the CLI's own, with the standard library only.

One call at a time, given up after the CLI's 60 seconds (or `patience`), and the server is told.
Each request has a connection of its own and speaks HTTP/1.0, whose answers end with it: importing
`http.client` would take longer than all the rest of a run.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit


class McpClient:
    def __init__(self, server: dict[str, Any]) -> None:
        url = urlsplit(server["url"])
        assert url.hostname is not None
        self._host, self._port, self._path = url.hostname, url.port, url.path
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **server.get("headers", {}),
        }
        self._ids = itertools.count(1)
        self.patience = 60.0
        self.tools: list[dict[str, Any]] = []
        # The notifications that came with answers.
        self.heard: list[str] = []
        self.heeds_changes = True
        # The requests that are on their way.
        self._unanswered: set[int] = set()

    def connect(self, *, lists: bool = True) -> None:
        client = {"name": "fake-agent", "version": "1"}
        self.ask(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}} | {"clientInfo": client},
        )
        self.tell("notifications/initialized", {})
        if lists:
            self.list_tools()

    def list_tools(self) -> None:
        self.tools = self.ask("tools/list", {})["result"]["tools"]

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        if self.heeds_changes and "notifications/tools/list_changed" in self.heard:
            self.heard.clear()
            self.list_tools()
        if "error" in answer:
            return {"error": {"error": answer["error"]["message"]}}
        content = [
            {"text": {"text": block.get("text", "")}} for block in answer["result"]["content"]
        ]
        return {"success": {"content": content, "isError": answer["result"].get("isError", False)}}

    def listen(self) -> None:
        """The back channel: whatever the server has to say besides its answers, for as long as it
        keeps the connection. Many have none."""
        with contextlib.suppress(OSError, ValueError), self._requested("GET", b"", None) as lines:
            for line in lines:
                if line.startswith(b"data: "):
                    self.heard.append(json.loads(line[6:]).get("method", ""))

    def tell(self, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        with self._posted(message, 10.0) as lines:
            lines.read()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        rpc_id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params}
        self._unanswered.add(rpc_id)
        with self._posted(message, self.patience) as lines:
            try:
                return self._answer(lines, rpc_id, time.monotonic() + self.patience)
            except TimeoutError:
                # Its connection is still open, as the CLI's is.
                self._give_up(rpc_id, "timed out")
                raise
            finally:
                self._unanswered.discard(rpc_id)

    def give_up(self) -> None:
        """Nobody waits for the answers any more that are still to come, and the server is told."""
        for rpc_id in tuple(self._unanswered):
            self._give_up(rpc_id, "cancelled")

    def _give_up(self, rpc_id: int, reason: str) -> None:
        self.tell("notifications/cancelled", {"requestId": rpc_id, "reason": reason})

    def _answer(self, lines: IO[bytes], rpc_id: int, deadline: float) -> dict[str, Any]:
        headers = b"".join(iter(lambda: lines.readline().strip(), b""))
        if b"event-stream" not in headers:
            return dict(json.loads(lines.read()))
        for line in lines:
            if time.monotonic() > deadline:
                raise TimeoutError
            if line.startswith(b"data: "):
                data = json.loads(line[6:])
                if data.get("id") == rpc_id:
                    return dict(data)
                self.heard.append(data["method"])
        raise ConnectionError("the stream ended without an answer")

    def _posted(
        self, message: dict[str, Any], seconds: float
    ) -> contextlib.AbstractContextManager[IO[bytes]]:
        return self._requested("POST", json.dumps(message).encode(), seconds)

    @contextmanager
    def _requested(self, verb: str, body: bytes, seconds: float | None) -> Iterator[IO[bytes]]:
        """The lines of the answer, its headers first."""
        headers = {"Host": f"{self._host}:{self._port}", "Content-Length": str(len(body))}
        head = [f"{verb} {self._path} HTTP/1.0"]
        head += [f"{name}: {value}" for name, value in (headers | self._headers).items()]
        with socket.create_connection((self._host, self._port), timeout=seconds) as connection:
            connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
            with connection.makefile("rb") as lines:
                yield lines


def configured(name: str = "client") -> McpClient | None:
    """The client of the server that the workspace names so, if it does."""
    file = Path(".cursor/mcp.json")
    if not file.exists():
        return None
    server = json.loads(file.read_text())["mcpServers"].get(name)
    return McpClient(server) if server else None
