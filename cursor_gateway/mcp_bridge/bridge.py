"""The MCP bridge: the tools of all MCP servers of the user, under the names that models see."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cursor_gateway.background import in_background
from cursor_gateway.core.conversation import ToolCall, ToolResult, ToolSpec
from cursor_gateway.mcp_bridge.config import ConfigWarning, Selection
from cursor_gateway.mcp_bridge.files import read_configuration
from cursor_gateway.mcp_bridge.names import server_parts, tool_names
from cursor_gateway.mcp_bridge.results import content_of, failure
from cursor_gateway.mcp_bridge.server import McpServer
from cursor_gateway.processes.children import Children
from cursor_gateway.redaction import OUTGOING
from cursor_gateway.settings import Settings

log = logging.getLogger(__name__)

CLOSE_ROUNDS = 3
CLOSE_ROUND = 1.0


@dataclass(frozen=True, slots=True)
class BridgedTool:
    spec: ToolSpec
    server: McpServer
    # The tool's name on its server.
    name: str

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.spec.name,
            "name": self.name,
            "server": self.server.config.name,
            "description": self.spec.description,
            "inputSchema": self.spec.schema,
        }


class Bridge:
    """Made and used inside one event loop."""

    def __init__(self, settings: Settings, env: Mapping[str, str], children: Children) -> None:
        self._settings = settings
        self._env = env
        self._children = children
        self._selection = Selection(settings.mcp_allow, settings.mcp_deny)
        self._starting: asyncio.Task[None] | None = None
        # The server's part of its tools' names -> the server.
        self._servers: dict[str, McpServer] = {}
        self._tools: dict[str, BridgedTool] = {}
        self.warnings: tuple[ConfigWarning, ...] = ()
        # (server, `done` or `failed`) -> how many.
        self.calls: Counter[tuple[str, ...]] = Counter()

    def start(self, only: str | None = None) -> None:
        """Connect the servers, or `only` the one of that name, in the background."""
        if self._settings.mcp:
            self._starting = in_background(self._start(only), "the start of the MCP servers")

    async def settled(self) -> None:
        """Wait until each server is connected or has failed once."""
        if self._starting is not None:
            await self._starting
        await asyncio.gather(*(server.tried.wait() for server in self._servers.values()))

    async def close(self) -> None:
        tasks = {server.task for server in self._servers.values() if server.task is not None}
        tasks |= {self._starting} if self._starting is not None else set()
        # A task may still wait for a network that is gone; the next round cancels that wait, too.
        for _ in range(CLOSE_ROUNDS):
            for task in tasks:
                task.cancel()
            if tasks:
                _, tasks = await asyncio.wait(tasks, timeout=CLOSE_ROUND)
        if tasks:
            log.warning("%d connections to MCP servers did not close in time", len(tasks))

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def owns(self, name: str) -> bool:
        return name in self._tools

    def knows(self, name: str) -> bool:
        """Whether `name` is a tool, or may be one of a server that is not connected now."""
        absent = (part for part, server in self._servers.items() if not server.is_connected)
        return self.owns(name) or any(name.startswith(f"mcp__{part}__") for part in absent)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result in MCP's own shape. A failure is a result, too."""
        tool = self._tools.get(name)
        if tool is None:
            return failure(f"There is no tool {name!r}, or its MCP server is not connected.")
        result = await tool.server.call(tool.name, arguments)
        outcome = "failed" if result.get("isError") is True else "done"
        self.calls[tool.server.config.name, outcome] += 1
        return result

    async def answer(self, call: ToolCall) -> ToolResult:
        """The result that the model gets for its call."""
        try:
            arguments = orjson.loads(call.arguments or "{}")
        except orjson.JSONDecodeError:
            arguments = None
        if isinstance(arguments, dict):
            result = await self.call(call.name, arguments)
        else:
            result = failure("The arguments are not a JSON object.")
        return ToolResult(call.id, content_of(result), result.get("isError") is True)

    def summary(self) -> dict[str, Any]:
        connected = sum(server.is_connected for server in self._servers.values())
        return {
            "enabled": bool(self._servers),
            "servers": connected,
            "tools": len(self._tools),
        }

    def state(self) -> list[dict[str, Any]]:
        """Each server, with the reason of its last failure."""
        return [server.as_json() for server in self._servers.values()]

    def listing(self) -> list[dict[str, Any]]:
        return [tool.as_json() for tool in self._tools.values()]

    def find(self, server: str, tool: str) -> str | None:
        """The name under which the model knows `tool` of `server`."""
        return next(
            (
                known
                for known, bridged in self._tools.items()
                if (bridged.server.config.name, bridged.name) == (server, tool)
            ),
            None,
        )

    async def _start(self, only: str | None) -> None:
        configured = await asyncio.to_thread(read_configuration, self._settings, self._env)
        self.warnings = configured.warnings
        for warning in configured.warnings:
            log.warning("MCP: %s", warning)
        for config in configured.servers:
            OUTGOING.learn(config.named_secrets)
        wanted = [each for each in configured.servers if self._selection.wants(each.name)]
        parts = server_parts(config.name for config in wanted)
        self._servers = {
            parts[config.name]: McpServer(
                config, self._settings, self._env, self._children, self._list_tools
            )
            for config in wanted
            if only in (None, config.name)
        }
        if self._servers:
            # The import takes a second, in which the event loop would serve no client.
            await asyncio.to_thread(importlib.import_module, "cursor_gateway.mcp_bridge.connection")
        for server in self._servers.values():
            server.start()

    def _list_tools(self) -> None:
        self._tools = {
            bridged.spec.name: bridged
            for part, server in self._servers.items()
            for bridged in self._bridged(part, server)
        }

    def _bridged(self, part: str, server: McpServer) -> Iterator[BridgedTool]:
        names = tool_names(part, (tool.name for tool in server.tools))
        for tool in server.tools:
            if self._selection.allows(server.config.name, tool.name):
                spec = ToolSpec(names[tool.name], tool.description, tool.schema, True)
                yield BridgedTool(spec, server, tool.name)
