"""What an MCP tool answered, as the model gets it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cursor_gateway.core.conversation import ImageFile, Text
from cursor_gateway.mcp_bridge.results import content_of, failure

PNG = b"\x89PNG\r\n\x1a\nrest"
ENCODED = base64.b64encode(PNG).decode()
ZIP = base64.b64encode(b"PK12").decode()


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "hi"}, Text("hi")),
        ({"type": "image", "data": ENCODED, "mimeType": "image/x"}, ImageFile(PNG, "png")),
        (
            {"type": "image", "data": "%", "mimeType": "image/png"},
            Text("[image that cannot be decoded]"),
        ),
        (
            {"type": "audio", "data": ZIP, "mimeType": "audio/wav"},
            Text("[audio, audio/wav, 4 bytes: not shown]"),
        ),
        ({"type": "resource", "resource": {"uri": "f:a", "text": "hi"}}, Text("hi")),
        (
            {"type": "resource", "resource": {"uri": "f:a", "blob": ENCODED}},
            ImageFile(PNG, "png"),
        ),
        (
            {"type": "resource", "resource": {"uri": "f:a", "blob": ZIP}},
            Text("[resource f:a, of unknown type, 4 bytes: not shown]"),
        ),
        (
            {"type": "resource_link", "uri": "f:a", "name": "A", "description": "the A"},
            Text("[resource f:a: the A]"),
        ),
        ({"type": "resource_link", "uri": "f:a", "name": "A"}, Text("[resource f:a: A]")),
    ],
)
def test_each_kind_of_content(block: dict[str, Any], part: Text | ImageFile) -> None:
    assert content_of({"content": [block]}) == (part,)


def test_structured_output_counts_where_no_text_says_it() -> None:
    structured = {"structuredContent": {"a": None}}
    assert content_of({"content": []} | structured) == (Text('{"a":null}'),)
    said = {"content": [{"type": "text", "text": "a is nothing"}]}
    assert content_of(said | structured) == (Text("a is nothing"),)


def test_nothing_is_said_to_be_nothing() -> None:
    assert content_of({"content": []}) == (Text("(no output)"),)


def test_a_failure_is_a_result() -> None:
    assert failure("no") == {"content": [{"type": "text", "text": "no"}], "isError": True}
    assert content_of(failure("no")) == (Text("no"),)
