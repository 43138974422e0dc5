"""Parts: what answers are made with, wired in one place, for the gateway and for the doctor."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from cursor_gateway.account import Account
from cursor_gateway.agents import Agent, AgentContext, chosen
from cursor_gateway.core.conversation import ToolCall, ToolResult
from cursor_gateway.processes.child import TERM_GRACE
from cursor_gateway.processes.children import Children
from cursor_gateway.relay.server import Relay
from cursor_gateway.relay.session import Execute
from cursor_gateway.running_gateways import state_folder
from cursor_gateway.scratch import Scratch
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspaces


class Parts:
    """Made and used inside one event loop."""

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        new_call_id: Callable[[], str],
        execute: Execute,
        *,
        owns_process: bool = False,
    ) -> None:
        self.scratch = Scratch()
        self.children = Children(self.scratch, owns_process=owns_process)
        self.workspaces = Workspaces(self.scratch, settings.workspace, settings.workspace_roots)
        self.relay = Relay(settings.relay_hold, execute)
        self.agent: Agent = chosen(settings)(
            AgentContext(
                settings,
                env,
                state_folder(env),
                self.children,
                self.workspaces,
                self.relay,
                new_call_id,
                execute,
                another=lambda settings: another_agent(settings, env),
            )
        )
        self.children.guard(self.agent.last_will)
        self.account = Account(self.agent, settings)

    async def close(self, *, at_once: bool = False) -> None:
        """End everything. `at_once` gives no agent time to leave by itself."""
        await self.account.close()
        await self.agent.close()
        await self.relay.close()
        await self.children.close(0.0 if at_once else TERM_GRACE)


@asynccontextmanager
async def another_agent(settings: Settings, env: Mapping[str, str]) -> AsyncIterator[Agent]:
    """An agent whose runs no request asks for: it has no bridged tools."""
    ids = map("call_{}".format, itertools.count(1))
    parts = Parts(settings, env, ids.__next__, no_bridged_calls)
    try:
        await parts.relay.start()
        yield parts.agent
    finally:
        await parts.close()


async def no_bridged_calls(call: ToolCall) -> ToolResult:
    raise AssertionError(f"nobody was offered the tool {call.name}")
