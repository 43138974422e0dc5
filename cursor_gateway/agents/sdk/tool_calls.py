"""ToolCalls: the client's tools as one agent of the bridge has them, and its calls of them.

A call comes as a request of the bridge's, which is held until its result is there, for as long as
the run lives: nobody counts seconds here, and several calls are open at once. One that is asked for
twice is one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cursor_gateway.background import in_background
from cursor_gateway.core.conversation import Text, ToolCall, ToolResult, ToolSpec
from cursor_gateway.core.events import ClientCall
from cursor_gateway.core.json_text import to_json
from cursor_gateway.core.relayed_tools import RelayedTools
from cursor_gateway.relay.session import Execute


class ToolCalls:
    def __init__(
        self, tools: Sequence[ToolSpec], new_id: Callable[[], str], execute: Execute
    ) -> None:
        self.tools = RelayedTools(tools)
        self.digests = tuple(tool.digest for tool in tools)
        self._new_id = new_id
        self._execute = execute
        # By the bridge's ids, all calls of the run.
        self._results: dict[str, asyncio.Future[ToolResult]] = {}
        # By our ids: the calls that wait for the client, and those that it has not got yet.
        self._open: dict[str, asyncio.Future[ToolResult]] = {}
        self._new: list[ClientCall] = []
        self._executing: set[asyncio.Task[None]] = set()
        # How many calls for the client have come since the last message.
        self.count = 0
        self.one_at_a_time = False
        # Whether the bridge gave up a call. Then no result can reach the model any more.
        self.lost = False
        self.on_arrival: Callable[[], object] = lambda: None

    @property
    def are_open(self) -> int:
        """How many calls wait for the client."""
        return len(self._open)

    @property
    def are_new(self) -> bool:
        return bool(self._new)

    def begin(self) -> None:
        """The agent gets another message; the calls of the one before are over."""
        self.close()
        self.count, self.lost = 0, False

    def definitions(self) -> dict[str, Any]:
        """The tools as the bridge is told of them."""
        return {
            entry["name"]: {
                "description": entry["description"],
                "inputSchema": entry["inputSchema"],
            }
            for entry in self.tools.listing()
            if entry["name"] != self.tools.wait_tool
        }

    def arrive(
        self, call_id: str, name: str, arguments: Mapping[str, Any]
    ) -> asyncio.Future[ToolResult]:
        """What will have come of a call of the bridge's; cancelled when the run ends."""
        if call_id not in self._results:
            self._results[call_id] = self._begun(call_id, name, arguments)
        return self._results[call_id]

    def for_client(self) -> list[ClientCall]:
        """The calls that the client can be given now."""
        if not self.one_at_a_time:
            self._new, calls = [], self._new
            return calls
        is_free = len(self._open) == len(self._new)
        calls, self._new = (self._new[:1], self._new[1:]) if is_free else ([], self._new)
        return calls

    def deliver(self, results: Iterable[ToolResult]) -> None:
        for result in results:
            future = self._open.pop(result.id, None)
            if future is not None and not future.done():
                future.set_result(result)

    def close(self) -> None:
        """The run has ended."""
        for task in self._executing:
            task.cancel()
        for future in self._results.values():
            future.cancel()
        self._results.clear()
        self._open.clear()
        self._new.clear()

    def _begun(
        self, call_id: str, name: str, arguments: Mapping[str, Any]
    ) -> asyncio.Future[ToolResult]:
        future: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        tool, our_id = self.tools.get(name), self._new_id()
        if tool is None:
            words = f"There is no tool {name!r}."
            future.set_result(ToolResult(call_id, (Text(words),), is_error=True))
        elif tool.bridged:
            self._execute_here(ToolCall(our_id, tool.name, to_json(arguments)), future)
        else:
            self._open[our_id] = future
            self._new.append(ClientCall(our_id, tool.name, arguments))
            self.count += 1
            self.on_arrival()
        return future

    def _execute_here(self, call: ToolCall, future: asyncio.Future[ToolResult]) -> None:
        """A call that needs no client."""

        async def run() -> None:
            result = await self._execute(call)
            if not future.done():
                future.set_result(result)

        task = in_background(run(), "a call of an MCP tool")
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)
