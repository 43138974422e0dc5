"""`cursor-gateway mcp`: look at the MCP servers, and try them, without a gateway running."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cursor_gateway.cli.terminal import (
    complete,
    config_option,
    json_option,
    log_to_stderr,
    pass_on,
    print_json,
    print_table,
    say,
)
from cursor_gateway.core.visible import one_line
from cursor_gateway.settings import Settings
from cursor_gateway.settings_sources import load

if TYPE_CHECKING:
    from cursor_gateway.mcp_bridge.bridge import Bridge

T = TypeVar("T")


@click.group(short_help="Show, test and call your MCP servers.")
def mcp() -> None:
    """Show, test and call the MCP servers whose tools the gateway offers to models."""


@mcp.command("list")
@json_option
@config_option
def list_servers(as_json: bool, config_file: Path | None) -> None:
    """Connect every server and list its tools."""

    async def look(bridge: Bridge) -> tuple[list[Any], list[Any], list[str]]:
        return bridge.state(), bridge.listing(), list(map(str, bridge.warnings))

    servers, tools, warnings = _with_bridge(config_file, None, look)
    if as_json:
        print_json({"servers": servers, "tools": tools, "warnings": warnings})
        return
    for warning in warnings:
        say(f"Warning: {warning}", err=True)
    if not servers:
        say("No MCP servers are configured. docs/mcp.md says how to configure them.")
        return
    print_table(("server", "type", "state", "tools", "file"), [_row(each) for each in servers])
    for server in servers:
        if server["state"] != "connected":
            say(f"{server['name']}: {server['error']}", err=True)
        _say_what_is_left_out(server)
    if tools:
        say()
        print_table(("tool", "what it does"), [_tool_row(tool) for tool in tools])


@mcp.command()
@click.argument("server")
@json_option
@config_option
def test(server: str, as_json: bool, config_file: Path | None) -> None:
    """Connect SERVER and show the result. The exit code is 1 if it cannot be connected."""
    began = time.monotonic()

    async def look(bridge: Bridge) -> tuple[dict[str, Any], list[Any], float]:
        return _only(bridge, server), bridge.listing(), time.monotonic() - began

    state, tools, seconds = _with_bridge(config_file, server, look)
    is_connected = state["state"] == "connected"
    if as_json:
        print_json(state | {"seconds": round(seconds, 3), "tools": tools})
    elif is_connected:
        who = f"{state['server'] or 'it'}, protocol {state['protocol']}"
        say(f"{server}: connected in {seconds:.1f} s; {who}, {len(tools)} tools")
        _say_what_is_left_out(state)
        print_table(("tool", "what it does"), [_tool_row(tool) for tool in tools])
    else:
        say(f"{server}: {state['error']}", err=True)
    if not is_connected:
        sys.exit(1)


@mcp.command()
@click.argument("server")
@click.argument("tool")
@click.argument("arguments", metavar="JSON", default="{}")
@json_option
@config_option
def call(server: str, tool: str, arguments: str, as_json: bool, config_file: Path | None) -> None:
    """Call TOOL of SERVER with the arguments JSON. The exit code is 1 if the tool fails."""
    parsed = _arguments(arguments)

    async def look(bridge: Bridge) -> dict[str, Any]:
        state = _only(bridge, server)
        name = bridge.find(server, tool)
        if name is None and state["state"] == "connected":
            raise click.UsageError(f"{server} has no tool {tool!r}: see `cursor-gateway mcp list`.")
        if name is None:
            raise click.ClickException(one_line(f"{server}: {state['error']}"))
        return await bridge.call(name, parsed)

    result = _with_bridge(config_file, server, look)
    if as_json:
        print_json(result, is_answer=True)
    else:
        _print_result(result)
    if result["isError"]:
        sys.exit(1)


def _with_bridge(
    config_file: Path | None, only: str | None, look: Callable[[Bridge], Awaitable[T]]
) -> T:
    import logging

    settings = load({"mcp": True}, os.environ, config_file).settings
    if settings.debug:
        log_to_stderr(settings)
    else:
        # The commands print the errors themselves; without a handler Python would print them again.
        logging.getLogger().addHandler(logging.NullHandler())
    return complete(_look(settings, only, look))


async def _look(settings: Settings, only: str | None, look: Callable[[Bridge], Awaitable[T]]) -> T:
    from cursor_gateway.gateway import Gateway

    gateway = Gateway(settings, os.environ)
    try:
        gateway.bridge.start(only)
        await gateway.bridge.settled()
        return await look(gateway.bridge)
    finally:
        await gateway.close()


def _only(bridge: Bridge, name: str) -> dict[str, Any]:
    for state in bridge.state():
        return state
    warned = "".join(f"\n{one_line(str(warning))}" for warning in bridge.warnings)
    raise click.UsageError(f"There is no MCP server {name!r} that is enabled.{warned}")


def _arguments(text: str) -> dict[str, Any]:
    import orjson

    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise click.UsageError(f"The arguments are not valid JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise click.UsageError("The arguments must be a JSON object.")
    return parsed


def _print_result(result: dict[str, Any]) -> None:
    from cursor_gateway.core.conversation import Text
    from cursor_gateway.mcp_bridge.results import content_of

    for part in content_of(result):
        if isinstance(part, Text):
            pass_on(part.text, err=result["isError"])
        else:
            say(f"[image, {part.extension}, {len(part.data)} bytes]")


def _say_what_is_left_out(server: dict[str, Any]) -> None:
    if server["left_out"]:
        say(f"{server['name']}: tools are left out: {server['left_out']}", err=True)


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    return (
        server["name"], server["type"], server["state"], str(server["tools"]), server["file"]
    )  # fmt: skip


def _tool_row(tool: dict[str, Any]) -> tuple[str, str]:
    return tool["id"], " ".join(tool["description"].split())[:100]
