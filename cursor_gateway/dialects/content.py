"""Messages and tools in all the forms that clients mix: those of OpenAI, of Anthropic, old ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from cursor_gateway.core.conversation import (
    ImageFile,
    ImageLink,
    Message,
    Part,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    shared,
)
from cursor_gateway.core.json_schema import MAX_NODES
from cursor_gateway.core.json_text import to_json
from cursor_gateway.core.structured import check_size
from cursor_gateway.dialects.fields import (
    expect_list,
    expect_object,
    expect_string,
    image,
    image_file,
)
from cursor_gateway.errors import (
    ContextTooLong,
    InvalidRequest,
    MissingMessages,
    UnsupportedParameter,
)

# Far beyond what a model can choose from, or read. To parse a million of them would block the event
# loop for seconds.
MAX_TOOLS = 5000
MAX_MESSAGES = 20_000
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
# Clients send a model's own thoughts back, and what a provider's own tools did. The next turn does
# not need them.
_IGNORED_PARTS = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "server_tool_use", "mcp_tool_use"}
)

# The types of tools that a client executes itself; a provider's own tools have other types.
_CLIENT_TOOLS = (None, "function", "custom")

T = TypeVar("T")


def parse_model(body: Mapping[str, Any]) -> str:
    model = expect_string(body.get("model"), "model").strip()
    if not model:
        raise InvalidRequest("`model` must not be empty.", param="model")
    return model


def parse_messages(
    body: Mapping[str, Any], parse_one: Callable[[Mapping[str, Any], str], Message]
) -> tuple[Message, ...]:
    messages = body.get("messages")
    if messages is None or messages == []:
        raise MissingMessages("`messages` must hold at least one message.", param="messages")
    return tuple(
        parse_one(expect_object(message, f"messages[{at}]"), f"messages[{at}]")
        for at, message in enumerate(not_too_long(expect_list(messages, "messages"), "messages"))
    )


def not_too_long(messages: list[T], name: str) -> list[T]:
    """Checked before they are parsed, since each message takes long for its few bytes."""
    if len(messages) > MAX_MESSAGES:
        raise ContextTooLong(f"`{name}` holds more than {MAX_MESSAGES} messages.", param=name)
    return messages


def parse_content(content: object, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = (
        _part(expect_object(part, f"{where}[{at}]"), f"{where}[{at}]")
        for at, part in enumerate(expect_list(content, where))
    )
    return tuple(part for part in parts if part is not None)


def _part(part: Mapping[str, Any], where: str) -> Part | None:
    kind = str(part.get("type"))
    if kind == "tool_use":
        call = {"id": part.get("id"), "function": {**part, "arguments": part.get("input")}}
        return parse_call(call, where)
    if kind == "tool_result":
        return _result(part, where)
    if kind in _TEXT_PARTS:
        field = "refusal" if kind == "refusal" else "text"
        return Text(expect_string(part.get(field), f"{where}.{field}"))
    if kind in ("image_url", "input_image"):
        source = part.get("image_url")
        url = source.get("url") if isinstance(source, dict) else source
        return image(url, f"{where}.image_url")
    if kind == "image":
        return _anthropic_image(part.get("source"), f"{where}.source")
    if kind == "tool_reference":
        # A result of Claude Code's tool search: the next requests have this tool.
        return Text(f"[the tool {part.get('tool_name')}]")
    source = part.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        return Text(expect_string(source.get("data"), f"{where}.source.data"))
    if kind in _IGNORED_PARTS or kind.endswith("_tool_result"):
        return None
    raise UnsupportedParameter(
        f"Content of type {kind[:40]!r} at `{where}` cannot be given to Cursor's agent.",
        param=where,
    )


def _result(part: Mapping[str, Any], where: str) -> ToolResult:
    content = parse_content(part.get("content"), f"{where}.content")
    call_id = part.get("tool_use_id")
    is_error = part.get("is_error") is True
    return ToolResult(call_id if isinstance(call_id, str) else "", result_parts(content), is_error)


def _anthropic_image(source: object, where: str) -> ImageFile | ImageLink:
    described = expect_object(source, where)
    if described.get("type") == "base64":
        return image_file(expect_string(described.get("data"), f"{where}.data"), where)
    return image(described.get("url"), where)


def result_parts(content: Iterable[Part]) -> tuple[Text | ImageFile | ImageLink, ...]:
    """The parts of `content` that a tool result may have."""
    return tuple(part for part in content if not isinstance(part, ToolCall | ToolResult))


def parse_call(call: Mapping[str, Any], where: str) -> ToolCall:
    function = expect_object(call.get("function"), f"{where}.function")
    name = expect_string(function.get("name"), f"{where}.function.name")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = to_json(arguments or {})
    call_id = call.get("id")
    return ToolCall(call_id if isinstance(call_id, str) else name, name, arguments)


def parse_tools(listed: list[Any]) -> tuple[ToolSpec, ...]:
    """The client's tools, in each of the forms that clients use. Tools of a provider (its own
    search, say) are left out, since the client cannot execute them."""
    specs = (_tool(tool) for tool in not_too_many(listed) if isinstance(tool, dict))
    return tuple({spec.name: spec for spec in specs if spec is not None}.values())


def expect_tools(body: Mapping[str, Any], name: str = "tools") -> list[Any]:
    """The listed tools, not parsed yet, but checked for their number and size."""
    listed = not_too_many(expect_list(body.get(name) or [], name))
    left = MAX_NODES
    for at, tool in enumerate(listed):
        left -= check_size(tool, f"{name}[{at}]", left)
    return listed


def not_too_many(tools: list[T]) -> list[T]:
    """Checked before they are parsed: a million would block the event loop for seconds."""
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"`tools` may hold {MAX_TOOLS} tools.", param="tools")
    return tools


def _tool(tool: Mapping[str, Any]) -> ToolSpec | None:
    """The tool is nested below `function`, or flat with `parameters` or `input_schema`."""
    if tool.get("type") not in _CLIENT_TOOLS:
        return None
    described = tool.get("function", tool)
    name = described.get("name") if isinstance(described, dict) else None
    if not isinstance(name, str) or not name:
        return None
    schema = described.get("parameters") or described.get("input_schema")
    description = described.get("description")
    return shared(
        ToolSpec(
            name,
            description if isinstance(description, str) else "",
            schema if isinstance(schema, dict) else {"type": "object", "properties": {}},
        )
    )


def parse_allowed_tools(
    choice: Mapping[str, Any], where: str, find: Callable[[str], str | None]
) -> ToolChoice:
    """A choice among the tools that it lists; `find` gives our name for the client's. A provider's
    own tools are left out, as in `parse_tools`."""
    kinds: dict[object, Literal["auto", "required"]] = {"auto": "auto", "required": "required"}
    kind = kinds.get(str(choice.get("mode")))
    if kind is None:
        param = f"{where}.mode"
        raise InvalidRequest(f"`{param}` must be auto or required.", param=param)
    listed = not_too_many(expect_list(choice.get("tools"), f"{where}.tools"))
    allowed: set[str] = set()
    for at, tool in enumerate(listed):
        param = f"{where}.tools[{at}]"
        described = expect_object(tool, param)
        if described.get("type") not in _CLIENT_TOOLS:
            continue
        named = expect_object(described.get("function", described), param).get("name")
        found = find(expect_string(named, f"{param}.name"))
        if found is None:
            raise InvalidRequest(f"`{param}` names no tool here.", param=param)
        allowed.add(found)
    return ToolChoice(kind, allowed=frozenset(allowed))
