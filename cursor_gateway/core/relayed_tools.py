"""The client's tools as an MCP server shows them to the agent."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cursor_gateway.core.conversation import ImageFile, ImageLink, Text, ToolResult, ToolSpec

# Short: the CLI counts server and tool name together, and drops what is longer than 60.
SERVER = "client"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
_WAIT_TOOL = "wait_for_result"


class RelayedTools:
    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._tools: dict[str, ToolSpec] = {}
        self._digests: dict[str, bytes] = {}
        self.wait_tool = _WAIT_TOOL
        self.add(tools)

    @property
    def aliases(self) -> dict[str, str]:
        """The tools that go by another name here."""
        return {tool.name: name for name, tool in self._tools.items() if tool.name != name}

    def get(self, name: str) -> ToolSpec | None:
        """The tool by its name here, or by its own, which a transcript may have told the model."""
        return self._tools.get(name) or self._tools.get(self.aliases.get(name, ""))

    def add(self, tools: Iterable[ToolSpec]) -> bool:
        """Take in the tools that are new; whether there were any."""
        fresh = [tool for tool in tools if tool.name not in self._digests]
        for tool in fresh:
            self._digests[tool.name] = tool.digest
            self._tools[_name_for(tool.name, self._tools)] = tool
        while self.wait_tool in self._tools:
            self.wait_tool += "_"
        return bool(fresh)

    def lacks(self, tools: Iterable[ToolSpec]) -> bool:
        """Whether there is one among `tools` that would have to be added."""
        return any(tool.name not in self._digests for tool in tools)

    def are_all_in(self, tools: Iterable[ToolSpec]) -> bool:
        """Whether every tool that the agent knows is still the same in `tools`."""
        now = {tool.name: tool.digest for tool in tools}
        return all(now.get(name) == digest for name, digest in self._digests.items())

    def listing(self) -> list[dict[str, Any]]:
        """The answer to `tools/list`."""
        listed = [
            _listed(name, tool.description, {**tool.schema, "type": "object"})
            for name, tool in self._tools.items()
        ]
        ticket = {"type": "string", "description": "The ticket that a call was answered by."}
        waits = "Waits for the result of a call that was answered by a ticket."
        schema = {"type": "object", "properties": {"ticket": ticket}, "required": ["ticket"]}
        return [*listed, _listed(self.wait_tool, waits, schema)]


def to_mcp(result: ToolResult) -> dict[str, Any]:
    return {"content": [_block(part) for part in result.content], "isError": result.is_error}


def _name_for(name: str, taken: Mapping[str, object]) -> str:
    """The tool's own name where the CLI takes it, else one made from it, always the same."""
    if _NAME.fullmatch(name) and name not in taken:
        return name
    alias = _NOT_IN_NAMES.sub("_", name)[:40]
    return f"{alias}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _listed(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    # In its `ask` mode the CLI runs no tools but those that change nothing. The relay changes
    # nothing; what the client does is the client's to allow.
    annotations = {"readOnlyHint": True}
    return {"name": name, "description": description, "inputSchema": schema} | {
        "annotations": annotations
    }


def _block(part: Text | ImageFile | ImageLink) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case ImageLink(url):
            return {"type": "text", "text": f"[image: {url}]"}
        case image:
            kind = "jpeg" if image.extension == "jpg" else image.extension
            encoded = base64.b64encode(image.data).decode()
            return {"type": "image", "data": encoded, "mimeType": f"image/{kind}"}
