"""Conversation: what a client asks. Every dialect parses its requests into these types."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal
from weakref import WeakValueDictionary

from cursor_gateway.core.json_text import to_json

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image that came with the request. `extension` is read from its bytes, not its label."""

    data: bytes
    extension: str


_IMAGE_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
)


def image_kind(data: bytes) -> str:
    """The extension for an image that a model can look at; empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _IMAGE_SIGNATURES if data.startswith(magic)), "")


@dataclass(frozen=True, slots=True)
class ImageLink:
    url: str


@dataclass(frozen=True)
class ToolSpec:
    """A tool, with the schema as its owner wrote it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    # Whether the gateway executes it, on an MCP server of the user's; else the client does.
    bridged: bool = False

    @cached_property
    def digest(self) -> bytes:
        """Two tools that look different to the model have different digests."""
        seen = "\0".join((self.name, self.description, to_json(self.schema)))
        return hashlib.blake2b(seen.encode(), digest_size=16).digest()


_SHARED: WeakValueDictionary[bytes, ToolSpec] = WeakValueDictionary()


def shared(tool: ToolSpec) -> ToolSpec:
    """The same tool as it came before, for as long as anybody has that. A client sends its tools
    with each request, and each run that waits for results keeps them."""
    return _SHARED.setdefault(tool.digest, tool)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`auto`, `none`, or `required`: a call must be made, of the tool `name` if one is named."""

    kind: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    # The tools that may be called, if the client allows only some of its tools.
    allowed: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a client's tool. `arguments` is JSON text. Results refer to it by `id` only."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    id: str
    content: tuple[Text | ImageFile | ImageLink, ...]
    is_error: bool = False


Part = Text | ImageFile | ImageLink | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """The answer must be one JSON document; with a schema, one that fits it."""

    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Conversation:
    model: str
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    output: JsonOutput | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_calls: bool = True
    # Whether the client gets the ids of calls, and so can name the call that a result belongs to.
    calls_have_ids: bool = True

    @cached_property
    def callable_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that this answer may call."""
        if self.tool_choice.kind == "none":
            return ()
        named, allowed = self.tool_choice.name, self.tool_choice.allowed
        if named is not None:
            allowed = frozenset({named})
        if allowed is None:
            return self.tools
        return tuple(tool for tool in self.tools if tool.name in allowed)

    @cached_property
    def has_images(self) -> bool:
        parts = (part for message in self.messages for part in message.parts)
        inner = (part.content if isinstance(part, ToolResult) else (part,) for part in parts)
        return any(isinstance(each, ImageFile) for content in inner for each in content)

    def texts(self) -> Iterator[str]:
        """All texts of the conversation."""
        for message in self.messages:
            for part in message.parts:
                match part:
                    case Text(text):
                        yield text
                    case ToolCall(arguments=arguments):
                        yield arguments
                    case ToolResult(content=content):
                        yield from (inner.text for inner in content if isinstance(inner, Text))
