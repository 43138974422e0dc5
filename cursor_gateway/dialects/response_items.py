"""The parts of a Responses request: items instead of messages, and more kinds of tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from cursor_gateway.core.conversation import (
    Message,
    Role,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from cursor_gateway.dialects.content import (
    not_too_long,
    not_too_many,
    parse_allowed_tools,
    parse_content,
    parse_tools,
    result_parts,
)
from cursor_gateway.dialects.fields import expect_list, expect_object, expect_string
from cursor_gateway.errors import InvalidRequest

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# A custom tool takes any text; for the agent it is a tool with this one parameter.
_FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


@dataclass(frozen=True, slots=True)
class Origin:
    """A tool as the request has it: its own name, namespace and kind."""

    name: str
    namespace: str | None
    is_custom: bool


def parse_instructions(instructions: object) -> tuple[Message, ...]:
    if instructions is None or instructions == "":
        return ()
    return (Message("system", (Text(expect_string(instructions, "instructions")),)),)


def input_items(given: object) -> list[Any]:
    """`input` as items. The request may have one text instead."""
    if isinstance(given, str) and given:
        return [{"type": "message", "role": "user", "content": given}]
    return expect_list(given or [], "input")


def parse_items(items: list[Any], name: str) -> tuple[Message, ...]:
    numbered = ((item, f"{name}[{at}]") for at, item in enumerate(not_too_long(items, name)))
    parsed = (_item(expect_object(item, where), where) for item, where in numbered)
    return tuple(_joined(message for message in parsed if message is not None))


def _item(item: Mapping[str, Any], where: str) -> Message | None:
    kind = str(item.get("type", "message"))
    if kind == "message":
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise InvalidRequest(f"`{where}.role` is unknown.", param=f"{where}.role")
        return Message(role, parse_content(item.get("content"), f"{where}.content"))
    if kind in ("function_call", "custom_tool_call"):
        return Message("assistant", (_called(item, where),))
    if kind.endswith("_call_output"):
        output = item.get("output")
        content = result_parts(parse_content(output, f"{where}.output"))
        return Message("user", (ToolResult(str(item.get("call_id")), content),))
    # The next turn does not need reasoning, or what a provider's own tools did.
    return None


def _called(item: Mapping[str, Any], where: str) -> ToolCall:
    name = expect_string(item.get("name"), f"{where}.name")
    namespace = item.get("namespace")
    full = f"{namespace}__{name}" if isinstance(namespace, str) else name
    if item.get("type") == "custom_tool_call":
        arguments = orjson.dumps({"input": str(item.get("input"))}).decode()
    else:
        arguments = expect_string(item.get("arguments") or "{}", f"{where}.arguments")
    return ToolCall(str(item.get("call_id")), full, arguments)


def _joined(messages: Iterable[Message]) -> Iterator[Message]:
    """One message for the items of one turn: what the model said belongs to what it called."""
    for is_assistant, turn in groupby(messages, key=lambda message: message.role == "assistant"):
        if is_assistant:
            yield Message("assistant", tuple(part for message in turn for part in message.parts))
        else:
            yield from turn


def parse_response_tools(listed: list[Any]) -> tuple[tuple[ToolSpec, ...], dict[str, Origin]]:
    """Function and custom tools. A tool of a namespace gets the namespace into its name."""
    specs: list[ToolSpec] = []
    origins: dict[str, Origin] = {}
    for tool, namespace in not_too_many(list(_flattened(listed))):
        is_custom = tool.get("type") == "custom"
        for spec in parse_tools([tool]):
            name = f"{namespace}__{spec.name}" if namespace else spec.name
            described = spec.description + _grammar(tool.get("format"))
            specs.append(ToolSpec(name, described, _FREE_TEXT if is_custom else spec.schema))
            origins[name] = Origin(spec.name, namespace, is_custom)
    return tuple(specs), origins


def _grammar(form: object) -> str:
    """The grammar of a custom tool's text. The gateway cannot enforce it, so the model reads it."""
    if not isinstance(form, dict) or form.get("type") != "grammar":
        return ""
    return f"\n\nThe input must fit this {form.get('syntax')} grammar:\n{form.get('definition')}"


def _flattened(listed: list[Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    for tool in listed:
        if not isinstance(tool, dict):
            continue
        inner = tool.get("tools")
        if tool.get("type") != "namespace":
            yield tool, None
        elif isinstance(inner, list):
            yield from ((t, str(tool.get("name"))) for t in inner if isinstance(t, dict))


def parse_tool_choice(choice: object, origins: Mapping[str, Origin]) -> ToolChoice:
    if choice == "none":
        return ToolChoice("none")
    if choice == "required":
        return ToolChoice("required")
    if not isinstance(choice, dict):
        return ToolChoice()
    # A tool of a namespace may be named without it, if no other tool has that name.
    names = {origin.name: name for name, origin in reversed(tuple(origins.items()))}
    names |= {name: name for name in origins}
    if choice.get("type") == "allowed_tools":
        return parse_allowed_tools(choice, "tool_choice", names.get)
    if choice.get("type") in ("function", "custom"):
        found = names.get(str(choice.get("name")))
        if found is None:
            raise InvalidRequest("`tool_choice` names no tool here.", param="tool_choice")
        return ToolChoice("required", found)
    return ToolChoice()
