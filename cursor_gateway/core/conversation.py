"""What is asked: the one vocabulary that every dialect parses into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image that came with the request. `extension` is read from its bytes, not its label."""

    data: bytes
    extension: str


@dataclass(frozen=True, slots=True)
class ImageLink:
    url: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made in an earlier turn. `arguments` is JSON text, as the client sent it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    id: str
    content: tuple[Text | ImageFile | ImageLink, ...]


Part = Text | ImageFile | ImageLink | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """The answer must be one JSON document; with a schema, one that fits it."""

    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    model: str
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    output: JsonOutput | None = None
