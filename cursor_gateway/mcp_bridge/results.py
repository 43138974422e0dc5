"""The result of an MCP tool as parts of a conversation."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from cursor_gateway.core.conversation import ImageFile, Text, image_kind
from cursor_gateway.core.json_text import to_json


def failure(reason: str) -> dict[str, Any]:
    """A result in MCP's own shape, for a call that has none."""
    return {"content": [{"type": "text", "text": reason}], "isError": True}


def content_of(result: Mapping[str, Any]) -> tuple[Text | ImageFile, ...]:
    """The parts of a result. Structured output is used only if there is no text."""
    parts = tuple(part for block in result.get("content", ()) for part in _parts(block))
    structured = result.get("structuredContent")
    if structured is not None and not any(isinstance(part, Text) for part in parts):
        parts += (Text(to_json(structured)),)
    return parts or (Text("(no output)"),)


def _parts(block: Mapping[str, Any]) -> Iterator[Text | ImageFile]:
    kind = block.get("type")
    if kind == "text":
        yield Text(block["text"])
    elif kind == "resource":
        yield _resource(block["resource"])
    elif kind == "resource_link":
        yield Text(f"[resource {block['uri']}: {block.get('description') or block['name']}]")
    else:
        yield _binary(block["data"], block["mimeType"], str(kind))


def _resource(resource: Mapping[str, Any]) -> Text | ImageFile:
    if "text" in resource:
        return Text(resource["text"])
    return _binary(resource["blob"], resource.get("mimeType", ""), f"resource {resource['uri']}")


def _binary(payload: str, label: str, what: str) -> Text | ImageFile:
    try:
        data = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{what} that cannot be decoded]")
    if extension := image_kind(data):
        return ImageFile(data, extension)
    return Text(f"[{what}, {label or 'of unknown type'}, {len(data)} bytes: not shown]")
