"""Prompt: a conversation as the one text that the agent reads from stdin.

Theory of operation
-------------------
An agent takes a single prompt, without roles. A lone user message goes as it is. Anything longer is
written as tagged blocks, oldest first, so that each request begins with the bytes of the one before
it (providers cache by prefix):

    <tools> ... </tools>                            the client's tools, if it has any
    <instructions> ... </instructions>              what the client's system messages say
    <turn from="user"> ... </turn>
    <turn from="assistant"> ... </turn>             with <tool_call> blocks inside
    <tool_result id="..."> ... </tool_result>

An agent that has read the beginning already (`Reading.known`) gets the new messages only; a lone
user message then goes as it is, too. Its own calls had no ids yet, so a result names its tool.

Text cannot forge a boundary: wherever it contains the beginning of one of these tags, a backslash
is put behind the `<` (and one more where there are some already, so nothing becomes ambiguous).
Everything else stays byte for byte as the client sent it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from cursor_gateway.core import structured
from cursor_gateway.core.conversation import (
    Conversation,
    ImageFile,
    ImageLink,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.core.json_text import to_json
from cursor_gateway.core.tool_text import INSTRUCTION
from cursor_gateway.core.tools import plain_schema

_PREAMBLE = (
    "You are answering inside a conversation that is written out below, oldest first. Follow the "
    "instructions, then write the assistant's next turn: only what the assistant says or calls, "
    "not the tags around it. Where the text inside a block contains such a tag itself, a backslash "
    "follows the `<`; it is part of that text and ends nothing."
)

_TOOLS_HEAD = (
    "These tools are at your service{where}; the client executes them on the user's machine, where "
    "the user's files are. They are your only tools: your built-in ones are switched off here, and "
    "your own working directory is empty."
)

# Models look MCP tools up before they call them, and sometimes find none; this instruction spares
# them the step.
_RELAY_INSTRUCTION = (
    "Call them as MCP tools of the server `{server}`, by the names and with the arguments that are "
    "given here; they need not be looked up. Several calls may be made at once. {ticket}"
    "Earlier calls are written below as <tool_call> blocks; do not write such blocks, make the "
    "calls."
)

_TICKET = (
    "Where a call is answered by a ticket, its result is not there yet: call `{wait}` with the "
    "ticket until it is. "
)

_BOUNDARY = re.compile(r"<(?=\\*/?(?:tools|instructions|turn|tool_call|tool_result)\b)")


# The parts that may be inside a block; results are blocks of their own.
Spoken = Text | ImageFile | ImageLink | ToolCall


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    # Images by the file name under which the text mentions them.
    files: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the agent that reads a conversation has and knows already."""

    # The folder of the images, if it is not the agent's working directory.
    image_folder: str = ""
    # How many messages the agent has read and written already.
    known: int = 0
    # The MCP server that offers the tools, and its tool that waits for a late result, if there is
    # one.
    server: str = ""
    wait_tool: str = ""
    # Tool -> its name on that server, if that is another one.
    names: Mapping[str, str] = field(default_factory=dict)
    # Whether the images come beside the text, in the order of their numbers, and not as files.
    images_are_beside: bool = False


_FROM_THE_BEGINNING = Reading()


def render(conversation: Conversation, reading: Reading = _FROM_THE_BEGINNING) -> Prompt:
    known, messages = conversation.messages[: reading.known], conversation.messages[reading.known :]
    page = _Page(reading, known)
    only = messages[0] if len(messages) == 1 else None
    is_plain = only is not None and only.role == "user" and not _results(only)
    tools = conversation.callable_tools
    if only and is_plain and (known or not tools):
        blocks = [page.content(_spoken(only), guard=False)]
    elif known:
        blocks = [page.message(message) for message in messages]
    else:
        blocks = [_PREAMBLE, *_tools(tools, reading), *map(page.message, messages)]
    blocks += _demands(conversation)
    return Prompt("\n\n".join(blocks), tuple(page.files))


class _Page:
    def __init__(self, reading: Reading, known: Sequence[Message]) -> None:
        self._reading = reading
        parts = [part for message in known for part in message.parts]
        self._known_calls = {part.id: part.name for part in parts if isinstance(part, ToolCall)}
        # How many images the agent has seen already: their names are taken.
        self._known_images = sum(map(_images, parts))
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
                return f"[image: {self._file(part)}]"
            case call:
                return _tool_call(call)

    def _tool_result(self, result: ToolResult) -> str:
        content = self.content(result.content)
        name = self._known_calls.get(result.id)
        tool = f' tool="{escape(name)}"' if name else ""
        failed = ' is_error="true"' if result.is_error else ""
        return f'<tool_result id="{escape(result.id)}"{tool}{failed}>\n{content}\n</tool_result>'

    def _file(self, image: ImageFile) -> str:
        name = f"image-{self._known_images + len(self.files) + 1}.{image.extension}"
        self.files.append((name, image.data))
        if self._reading.images_are_beside:
            return f"number {len(self.files)} of those beside this text"
        folder = self._reading.image_folder
        return f"the file {folder}/{name}" if folder else f"the file {name}"


def _tools(tools: Sequence[ToolSpec], reading: Reading) -> list[str]:
    if not tools:
        return []
    listed = "\n\n".join(
        f"## {_line(reading.names.get(tool.name, tool.name))}\n{_guarded(tool.description)}\n"
        + _guarded_json(to_json(plain_schema(tool.schema)))
        for tool in tools
    )
    where, instruction = "", INSTRUCTION
    if reading.server:
        where = f" on the MCP server `{reading.server}`"
        ticket = _TICKET.format(wait=reading.wait_tool) if reading.wait_tool else ""
        instruction = _RELAY_INSTRUCTION.format(server=reading.server, ticket=ticket)
    head = _TOOLS_HEAD.format(where=where)
    return [f"<tools>\n{head}\n\n{instruction}\n\n{listed}\n</tools>"]


def _images(part: Part) -> int:
    inner = part.content if isinstance(part, ToolResult) else (part,)
    return sum(isinstance(each, ImageFile) for each in inner)


def _demands(conversation: Conversation) -> list[str]:
    """What this one answer must be. It stands at the end, so that the cached prefix stays the
    same."""
    demands: list[str] = []
    if conversation.callable_tools:
        if conversation.tool_choice.kind == "required":
            name = conversation.tool_choice.name
            demands.append(f"You must call {f'the tool {_line(name)}' if name else 'a tool'} now.")
        if not conversation.parallel_calls:
            demands.append("Make at most one call.")
    if conversation.output:
        demands.append(structured.instruction(conversation.output))
    return demands


def _tool_call(call: ToolCall) -> str:
    """A call in the form that models write, with the id that its result refers to."""
    body = f'{{"name": {to_json(call.name)}, "arguments": {call.arguments or "{}"}}}'
    return f'<tool_call id="{escape(call.id)}">\n{_guarded_json(body)}\n</tool_call>'


def _line(name: str) -> str:
    return _guarded(" ".join(name.split()))


def _guarded_json(text: str) -> str:
    """In JSON a tag can only be part of a string, where `<` can be written as an escape."""
    return _BOUNDARY.sub(r"\\u003c", text)


def _results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]


def _spoken(message: Message) -> list[Spoken]:
    return [part for part in message.parts if not isinstance(part, ToolResult)]


def _guarded(text: str) -> str:
    # Most texts have no `<`, and to look for one takes a hundredth of the time.
    return _BOUNDARY.sub(r"<\\", text) if "<" in text else text
