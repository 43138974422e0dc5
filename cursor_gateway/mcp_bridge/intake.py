"""The part of a server's answers that is used: no schemas of results, and a bounded list of
tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cursor_gateway.core.json_schema import MAX_DEPTH, MAX_NODES, NotJudged, nodes_within
from cursor_gateway.core.json_text import to_json

# The parts of one result; `mcp` needs long for each.
MAX_PARTS = 10_000
# The tools of one server. A list may have no end, and each request holds all of them.
MAX_TOOLS = 2000
MAX_TOOLS_BYTES = 8 * 1024 * 1024
# The name, description and schema of one tool, which the model has to read. The longest known ones
# have a few dozen kilobytes.
MAX_TOOL_BYTES = 256 * 1024
# How many tools a warning names that are left out.
_NAMED = 3
_NAME_CHARS = 60


@dataclass(frozen=True, slots=True)
class RemoteTool:
    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolList:
    tools: tuple[RemoteTool, ...] = ()
    # Which tools were left out, and why; empty if none were.
    left_out: str = ""


def has_too_many_parts(result: Mapping[str, Any]) -> bool:
    content = result.get("content")
    return isinstance(content, list) and len(content) > MAX_PARTS


def trim_tools(result: Mapping[str, Any]) -> None:
    """Remove from a list of tools what is not used. If `mcp` knew the schemas of results, it would
    check each result with regular expressions that the server wrote."""
    tools = result.get("tools")
    if isinstance(tools, list):
        del tools[MAX_TOOLS + 1 :]
        for tool in tools:
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)


def usable(listed: Sequence[RemoteTool], has_more: bool = False) -> ToolList:
    """The tools of `listed` that are within the limits; `has_more` if the server has still more."""
    tools: list[RemoteTool] = []
    large: list[str] = []
    room = MAX_TOOLS_BYTES
    for tool in listed[:MAX_TOOLS]:
        size = _size(tool)
        if size > min(room, MAX_TOOL_BYTES) or not _can_be_read(tool):
            large.append(tool.name)
        else:
            room -= size
            tools.append(tool)
    return ToolList(tuple(tools), "; ".join(_complaints(large, listed, has_more)))


def _size(tool: RemoteTool) -> int:
    return sum(len(text.encode()) for text in (tool.name, tool.description, to_json(tool.schema)))


def _can_be_read(tool: RemoteTool) -> bool:
    """Whether the schema is within the limits that hold for the schemas of clients, too."""
    try:
        nodes_within(tool.schema)
    except NotJudged:
        return False
    return True


def _complaints(
    large: Sequence[str], listed: Sequence[RemoteTool], has_more: bool
) -> Iterable[str]:
    if large:
        named = ", ".join(repr(name[:_NAME_CHARS]) for name in large[:_NAMED])
        more = f" and {len(large) - _NAMED} others" if len(large) > _NAMED else ""
        yield (
            f"too large: {named}{more} (a tool may have {MAX_TOOL_BYTES // 1024} kB and a schema "
            f"of {MAX_NODES:,} values, {MAX_DEPTH} deep; those of a server "
            f"{MAX_TOOLS_BYTES // 1024 // 1024} MB)"
        )
    if has_more or len(listed) > MAX_TOOLS:
        yield f"all after the first {min(len(listed), MAX_TOOLS):,}"
