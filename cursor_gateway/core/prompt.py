"""Prompt: a conversation as the one text that the agent reads from stdin.

Theory of operation
-------------------
The CLI takes a single prompt, without roles. A lone user message goes as it is. Anything longer is
written as tagged blocks, oldest first, so that each request begins with the bytes of the one before
it (providers cache by prefix):

    <instructions> ... </instructions>              what the client's system messages say
    <turn from="user"> ... </turn>
    <turn from="assistant"> ... </turn>             with <tool_call> blocks inside
    <tool_result id="..."> ... </tool_result>

Text cannot forge a boundary: wherever it contains the beginning of one of these tags, a backslash
is put behind the `<` (and one more where there are some already, so nothing becomes ambiguous).
Everything else stays byte for byte as the client sent it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from cursor_gateway.core.conversation import (
    Conversation,
    ImageFile,
    ImageLink,
    Message,
    Text,
    ToolCall,
    ToolResult,
)
from cursor_gateway.core.structured import instruction

_PREAMBLE = (
    "You are answering inside a conversation that is written out below, oldest first. Follow the "
    "instructions, then write the assistant's next turn: only its text, without any of these tags. "
    "Where the text inside a block contains such a tag itself, a backslash follows the `<`; it is "
    "part of that text and ends nothing."
)

_BOUNDARY = re.compile(r"<(?=\\*/?(?:instructions|turn|tool_call|tool_result)\b)")


# What may stand inside a block; results are blocks of their own.
Spoken = Text | ImageFile | ImageLink | ToolCall


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    # Images by the file name under which the text mentions them.
    files: tuple[tuple[str, bytes], ...] = ()


def render(conversation: Conversation, image_folder: str = "") -> Prompt:
    """`image_folder` stands before the images' names where the agent works somewhere else."""
    page = _Page(image_folder)
    messages = conversation.messages
    only = messages[0] if len(messages) == 1 else None
    if only and only.role == "user" and not _results(only):
        blocks = [page.content(_spoken(only), guard=False)]
    else:
        blocks = [_PREAMBLE, *map(page.message, messages)]
    if conversation.output:
        blocks.append(instruction(conversation.output))
    return Prompt("\n\n".join(blocks), tuple(page.files))


class _Page:
    def __init__(self, image_folder: str) -> None:
        self._image_folder = image_folder
        self.files: list[tuple[str, bytes]] = []

    def message(self, message: Message) -> str:
        results, rest = _results(message), _spoken(message)
        blocks = [self._tool_result(result) for result in results]
        if rest or not results:
            tag = "instructions" if message.role == "system" else f'turn from="{message.role}"'
            name = tag.split(" ")[0]
            blocks.append(f"<{tag}>\n{self.content(rest)}\n</{name}>")
        return "\n\n".join(blocks)

    def content(self, parts: Iterable[Spoken], *, guard: bool = True) -> str:
        return "\n\n".join(self._part(part, guard) for part in parts)

    def _part(self, part: Spoken, guard: bool) -> str:
        match part:
            case Text(text):
                return _guarded(text) if guard else text
            case ImageLink(url):
                return f"[image: {_guarded(url)}]"
            case ImageFile():
                return f"[image: the file {self._file(part)}]"
            case ToolCall(id, name, arguments):
                attributes = f'id="{escape(id)}" name="{escape(name)}"'
                return f"<tool_call {attributes}>\n{_guarded(arguments)}\n</tool_call>"

    def _tool_result(self, result: ToolResult) -> str:
        content = self.content(result.content)
        return f'<tool_result id="{escape(result.id)}">\n{content}\n</tool_result>'

    def _file(self, image: ImageFile) -> str:
        name = f"image-{len(self.files) + 1}.{image.extension}"
        self.files.append((name, image.data))
        return f"{self._image_folder}/{name}" if self._image_folder else name


def _results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]


def _spoken(message: Message) -> list[Spoken]:
    return [part for part in message.parts if not isinstance(part, ToolResult)]


def _guarded(text: str) -> str:
    return _BOUNDARY.sub(r"<\\", text)
