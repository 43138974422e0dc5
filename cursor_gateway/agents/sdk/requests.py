"""What the bridge is asked for: an agent with its tools, and a message to it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cursor_gateway.agents.sdk.stream import SERVER
from cursor_gateway.core.prompt import Prompt, Reading

# Its own tools, by the bridge's names: those of others, and those that change nothing.
_CALLS_BACK = ("mcp",)
_READS = ("read", "grep", "glob", "ls")

# What the agent may do in its directory: nothing, read, or whatever it likes.
May = Literal["nothing", "read", "act"]


def agent_options(
    *,
    agent_id: str,
    key: str,
    model: Mapping[str, Any],
    directory: str,
    may: May,
    tools: Mapping[str, Any],
) -> dict[str, Any]:
    local: dict[str, Any] = {
        "cwd": [directory],
        "settingSources": [],
        # What it may not do is not there to be done; this is for what a server might still allow.
        "sandboxOptions": {"enabled": True},
    }
    options: dict[str, Any] = {
        "agentId": agent_id,
        "apiKey": key,
        "model": dict(model),
        "mode": "AGENT_MODE_OPTION_AGENT",
        "local": local,
    }
    if tools:
        local["customTools"] = dict(tools)
    if may == "act":
        del local["sandboxOptions"]
    else:
        # A list without names is a list: no tools at all.
        own = _READS if may == "read" else ()
        options["tools"] = {"names": [*own, *(_CALLS_BACK if tools else ())]}
    return options


def reading(known: int, names: Mapping[str, str], *, calls_back: bool) -> Reading:
    """How a conversation is written for an agent of the bridge: images go beside the text."""
    server = SERVER if calls_back else ""
    return Reading(known=known, server=server, names=names, images_are_beside=True)


def user_message(prompt: Prompt) -> dict[str, Any]:
    message: dict[str, Any] = {"text": prompt.text}
    if prompt.files:
        message["images"] = _images(prompt.files)
    return message


def _images(files: Sequence[tuple[str, bytes]]) -> list[dict[str, Any]]:
    return [
        {"data": {"data": base64.b64encode(data).decode(), "mimeType": _mime_type(name)}}
        for name, data in files
    ]


def _mime_type(name: str) -> str:
    extension = name.rpartition(".")[2]
    return f"image/{'jpeg' if extension == 'jpg' else extension}"
