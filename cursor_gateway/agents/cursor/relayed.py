"""What the CLI's stream tells of calls of the client's tools, for the relay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cursor_gateway.core.events import AgentCall, AgentCallDone, AgentEvent, Aside
from cursor_gateway.core.relayed_tools import SERVER
from cursor_gateway.relay.session import RelaySession

# By these the model asks the CLI what the servers have, mostly before its first call. They do
# nothing, and nobody but the CLI could answer them.
LOOK_UPS = frozenset({"getMcpTools", "listMcpResources"})


def noticed(event: AgentEvent, session: RelaySession) -> AgentEvent | None:
    """What is left of an event for others: calls of the client's tools are counted by the relay's
    session, those of bridged tools are activity of the agent."""
    if not isinstance(event, AgentCall | AgentCallDone):
        return event
    if event.tool in LOOK_UPS:
        return Aside()
    name = called_tool(event.tool, event.arguments)
    if name is None:
        return event
    tool = session.tools.get(name)
    if tool is None:
        return None
    arguments = event.arguments.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    if tool.bridged:
        return replace(event, tool=tool.name, arguments=arguments)
    if isinstance(event, AgentCallDone):
        session.came_back(event.id)
        return Aside()
    # Some versions leave the arguments out where there are some.
    has_arguments = bool(arguments) or not tool.schema.get("properties")
    session.announce(event.id, tool.name, arguments if has_arguments else None)
    return None


def called_tool(tool: str, arguments: Mapping[str, Any]) -> str | None:
    """The name by which an MCP call of the agent's is for the relay; None if it is for another
    server."""
    if tool != "mcp":
        return None
    servers = (arguments.get("providerIdentifier"), arguments.get("serverIdentifier"))
    whole = str(arguments.get("name", ""))
    if SERVER in servers or (servers == (None, None) and whole.startswith(f"{SERVER}-")):
        return str(arguments.get("toolName") or whole.removeprefix(f"{SERVER}-"))
    return None
