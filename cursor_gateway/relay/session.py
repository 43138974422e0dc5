"""RelaySession: the client's tools as one run of an agent has them, and the calls it makes of them.

What the CLI does otherwise than its protocol or its own stream would have it is learnt from the
first run that shows it, for all later ones (`Habits`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cursor_gateway.background import in_background
from cursor_gateway.core.conversation import ToolCall, ToolResult, ToolSpec
from cursor_gateway.core.events import ClientCall
from cursor_gateway.core.json_text import to_json
from cursor_gateway.core.relayed_calls import RelayedCalls
from cursor_gateway.core.relayed_tools import RelayedTools

log = logging.getLogger(__name__)

# Who executes the tools that are not the client's.
Execute = Callable[[ToolCall], Awaitable[ToolResult]]


@dataclass(slots=True)
class Habits:
    """What was seen of the agent's CLI, in any run."""

    # Calls arrive with other arguments than they were announced with: the user's hooks rewrite.
    rewrites_calls: bool = False
    # The list of tools is not fetched again when it has changed.
    ignores_new_tools: bool = False
    # Of calls made at once, each comes only when the one before it has its result.
    calls_one_by_one: bool = False


class RelaySession:
    """The client's tools, as one run of an agent has them."""

    def __init__(
        self,
        tools: Iterable[ToolSpec],
        new_id: Callable[[], str],
        execute: Execute,
        habits: Habits,
    ) -> None:
        self._execute = execute
        self._habits = habits
        self._new_id = new_id
        self._bridged: set[asyncio.Task[None]] = set()
        self.token = secrets.token_urlsafe(24)
        self.bearer = secrets.token_urlsafe(24)
        self.tools = RelayedTools(tools)
        self._calls = RelayedCalls(new_id)
        self._results: dict[str, asyncio.Future[ToolResult]] = {}
        # The requests that are waited for: their task, and since when.
        self._held: dict[str | int, tuple[asyncio.Task[Any] | None, float]] = {}
        # Whether the agent was ever here, and whether it has fetched the list of tools.
        self._has_contact = self.is_listed = False
        # Whether tools were added since it fetched the list, and whether it was told so.
        self._has_new_tools = self._told_of_new_tools = False
        # Whether the agent gave up waiting for a call. Then no result can reach it any more.
        self.lost = False
        self.one_at_a_time = False
        # Called when the agent was here: a call arrived, or it is known now to have the tools.
        self.on_arrival: Callable[[], None] = lambda: None

    @property
    def is_one_by_one(self) -> bool:
        return self._habits.calls_one_by_one

    def may_offer(self, tools: Iterable[ToolSpec]) -> bool:
        """Whether the agent would have these tools, or else only one that is started anew."""
        return not self._habits.ignores_new_tools or not self.tools.lacks(tools)

    def offer(self, tools: Iterable[ToolSpec]) -> None:
        """Add the tools that are new; the agent is told with its next result."""
        if self.tools.add(tools):
            self._has_new_tools, self._told_of_new_tools = True, False

    @property
    def missing(self) -> Literal["relay", "tools", ""]:
        """What the agent has not got yet: any contact with the relay, or the tools that were
        added. One that has connected fetches the list in its own time."""
        if not self._has_contact:
            return "relay"
        return "tools" if self._has_new_tools else ""

    def give_up_new_tools(self) -> None:
        """The agent has spoken, and has not fetched the list."""
        if self._told_of_new_tools and not self._habits.ignores_new_tools:
            self._habits.ignores_new_tools = True
            log.warning("the agent ignores that there are new tools; a fresh one gets them now")

    def announce(self, stream_id: str, name: str, arguments: Mapping[str, Any] | None) -> None:
        """The agent tells of a call before it arrives; without arguments where it tells none."""
        self._calls.announce(stream_id, name, arguments)
        self._look_for_rewriting()

    def came_back(self, stream_id: str) -> None:
        """The agent tells that a call which it announced has come back to it."""
        self._calls.came_back(stream_id)

    # Calls and results

    def calls_for_client(self) -> list[ClientCall]:
        return self._calls.for_client(
            one_at_a_time=self.one_at_a_time, as_announced=not self._habits.rewrites_calls
        )

    def deliver(self, results: Iterable[ToolResult]) -> None:
        for result in results:
            self._calls.answered(result.id)
            future = self._result(result.id)
            if not future.done():
                future.set_result(result)

    def close(self) -> None:
        for task, _ in self._held.values():
            if task is not None:
                task.cancel()
        for running in self._bridged:
            running.cancel()
        for future in self._results.values():
            future.cancel()

    def _result(self, call_id: str) -> asyncio.Future[ToolResult]:
        if call_id not in self._results:
            self._results[call_id] = asyncio.get_running_loop().create_future()
        return self._results[call_id]

    # What the agent's MCP client asks

    def contact(self) -> None:
        if not self._has_contact:
            self._has_contact = True
            self.on_arrival()

    def list_tools(self) -> dict[str, Any]:
        self._has_new_tools, self.is_listed = False, True
        self.on_arrival()
        return {"tools": self.tools.listing()}

    def arrive(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """The id of the call whose result is asked for; None where there is none."""
        tool = self.tools.get(name)
        if tool is None:
            ticket = str(arguments.get("ticket", "")).removeprefix("ticket").strip()
            return ticket if ticket in self._results else None
        if tool.bridged:
            return self._run_bridged(ToolCall(self._new_id(), tool.name, to_json(arguments)))
        call_id = self._calls.arrive(tool.name, arguments)
        self._look_for_rewriting()
        self._result(call_id)
        self.on_arrival()
        return call_id

    def _look_for_rewriting(self) -> None:
        if self._calls.were_rewritten and not self._habits.rewrites_calls:
            self._habits.rewrites_calls = True
            log.warning(
                "a call was rewritten after it was announced (by a hook of the user's?); from now "
                "on calls that are made at once go to the client one by one"
            )

    def _run_bridged(self, call: ToolCall) -> str:
        """A call that needs no client."""

        async def run() -> None:
            self.deliver([await self._execute(call)])

        self._result(call.id)
        running = in_background(run(), "a call of an MCP tool")
        self._bridged.add(running)
        running.add_done_callback(self._bridged.discard)
        return call.id

    async def result(self, call_id: str, within: float) -> ToolResult | None:
        done, _ = await asyncio.wait({self._result(call_id)}, timeout=within)
        return next(iter(done)).result() if done else None

    def owes_notice(self) -> bool:
        """Whether the agent must be told that there are new tools."""
        owes = self._has_new_tools and not self._told_of_new_tools
        self._told_of_new_tools |= owes
        return owes

    def gives_ticket(self, call_id: str) -> None:
        self._calls.replied(call_id)

    def forget(self, call_id: str) -> None:
        """Its result has reached the agent."""
        self._results.pop(call_id, None)

    def hold(self, rpc_id: str | int) -> None:
        self._held[rpc_id] = (asyncio.current_task(), asyncio.get_running_loop().time())

    def let_go(self, rpc_id: str | int) -> None:
        self._held.pop(rpc_id, None)

    def give_up(self, rpc_id: str | int) -> float | None:
        """The agent waits no longer for this request; how long it did, if at all."""
        task, since = self._held.pop(rpc_id, (None, 0.0))
        if task is None:
            return None
        self.lost = True
        task.cancel()
        return asyncio.get_running_loop().time() - since
