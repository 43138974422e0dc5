"""Names for the tools of MCP servers: `mcp__server__tool`, within what every model accepts.

The configuration gives each server its part of the name, so the part does not depend on which
servers are connected. It holds no `__`, so the tools of two servers never get the same name. Names
that had to be changed are given out in the order of the originals, so that the same tools always
get the same names.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

# OpenAI allows 64 characters, fewer than any other provider.
MAX_NAME = 64
MAX_SERVER = 24
_HASH = 8
_SUFFIX = 4
_NOT_IN_TOOLS = re.compile(r"[^A-Za-z0-9_-]")
_NOT_IN_SERVERS = re.compile(r"[^A-Za-z0-9-]+|_+")


def server_parts(names: Iterable[str]) -> Mapping[str, str]:
    """The part of the name that stands for each server."""
    return _unique({name: _server_part(name) for name in names}, MAX_SERVER)


def tool_names(server_part: str, tools: Iterable[str]) -> Mapping[str, str]:
    """The name that the model sees for each tool of one server."""
    prefix = f"mcp__{server_part}__"
    clean = {tool: prefix + _NOT_IN_TOOLS.sub("_", tool) for tool in tools}
    return _unique(clean, MAX_NAME, prefix)


def _server_part(name: str) -> str:
    return _NOT_IN_SERVERS.sub("_", name).strip("_") or "server"


def _unique(wanted: Mapping[str, str], limit: int, prefix: str = "") -> Mapping[str, str]:
    given: dict[str, str] = {}
    taken: set[str] = set()
    # The last suffix of each name, since thousands of tools may want the same name.
    numbers: Counter[str] = Counter()
    for original in sorted(wanted, key=lambda name: (prefix + name != wanted[name], name)):
        name = _shortened(wanted[original], original, limit)
        while name in taken:
            numbers[wanted[original]] += 1
            suffix = f"_{numbers[wanted[original]] + 1}"
            room = limit - max(len(suffix), _SUFFIX)
            name = _shortened(wanted[original], original, room) + suffix
        taken.add(name)
        given[original] = name
    return given


def _shortened(name: str, original: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: limit - _HASH - 1].rstrip('_')}_{digest}"
