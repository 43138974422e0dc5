"""What the CLI is asked for over ACP, and what its own requests are answered."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from cursor_gateway.agents.acp.wire import Asked, Json, json_object, text_of
from cursor_gateway.core.prompt import Prompt, Reading
from cursor_gateway.core.relayed_tools import SERVER, RelayedTools

PROTOCOL_VERSION = 1


def initialize(version: str) -> Json:
    """Without `parameterizedModelPicker` the models have ids of another kind, and no options."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
            "_meta": {"parameterizedModelPicker": True},
        },
        "clientInfo": {"name": "cursor-gateway", "version": version},
    }


def new_session(directory: str, servers: Mapping[str, Any]) -> dict[str, Any]:
    """`servers` as `.cursor/mcp.json` has them."""
    return {"cwd": directory, "mcpServers": [_server(name, servers[name]) for name in servers]}


def _server(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    if "url" in entry:
        headers = _pairs(entry.get("headers", {}))
        return {"type": "http", "name": name, "url": entry["url"], "headers": headers}
    # The one kind that is known by having no `type`.
    words = {"command": entry.get("command", ""), "args": list(entry.get("args", ()))}
    return {"name": name, **words, "env": _pairs(entry.get("env", {}))}


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def reading(known: int, tools: RelayedTools | None) -> Reading:
    """How a conversation is written for it: images go beside the text."""
    if tools is None:
        return Reading(known=known, images_are_beside=True)
    return Reading("", known, SERVER, tools.wait_tool, tools.aliases, images_are_beside=True)


def prompt_blocks(prompt: Prompt) -> list[dict[str, Any]]:
    return [{"type": "text", "text": prompt.text}, *_images(prompt.files)]


def _images(files: Sequence[tuple[str, bytes]]) -> list[dict[str, Any]]:
    return [
        {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": _mime_type(name)}
        for name, data in files
    ]


def _mime_type(name: str) -> str:
    extension = name.rpartition(".")[2]
    return f"image/{'jpeg' if extension == 'jpg' else extension}"


# What it asks of us


def is_offered(name: str, tools: RelayedTools | None) -> bool:
    """Whether the relay has a tool of that name."""
    return tools is not None and (name == tools.wait_tool or tools.get(name) is not None)


def reply_to(asked: Asked, tools: RelayedTools | None) -> Json | None:
    """The answer to a request of the agent's; None for one that nobody here knows."""
    match asked.method:
        case "session/request_permission":
            return _permission(asked.params, tools)
        case "cursor/ask_question":
            return {"outcome": {"outcome": "skipped"}}
        case "cursor/create_plan":
            return {"outcome": {"outcome": "accepted"}}
        # Documented as notifications, and seen with ids (2026.08).
        case "cursor/task" | "cursor/update_todos" | "cursor/generate_image":
            return {}
    return None


def permitted_tool(params: Json, tools: RelayedTools | None) -> str | None:
    """The client's tool that leave is asked for; None for anything else, the agent's own tools and
    other servers among them."""
    call = json_object(params.get("toolCall"))
    # `SERVER-TOOL: TOOL`. A command is written between backticks, so it cannot look like that.
    whole, _, tool = text_of(call.get("title")).partition(":")
    name = whole.removeprefix(f"{SERVER}-")
    is_consistent = name != whole and tool.strip() in ("", name)
    is_ours = is_consistent and call.get("kind") != "execute" and is_offered(name, tools)
    return name if is_ours else None


def _permission(params: Json, tools: RelayedTools | None) -> Json:
    """Once, and never always: that would be written into the user's own permissions."""
    wanted = "reject_once" if permitted_tool(params, tools) is None else "allow_once"
    listed = params.get("options")
    options = map(json_object, listed if isinstance(listed, list) else [])
    # Where there is nothing to choose, this is what remains.
    chosen = next((o.get("optionId") for o in options if o.get("kind") == wanted), None)
    if chosen is None:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": chosen}}
