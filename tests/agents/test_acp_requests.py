"""What is asked of the CLI over ACP, and what its own requests are answered."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cursor_gateway.agents.acp.requests import (
    initialize,
    is_offered,
    new_session,
    prompt_blocks,
    reading,
    reply_to,
)
from cursor_gateway.agents.acp.wire import Asked
from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.prompt import Prompt
from cursor_gateway.core.relayed_tools import RelayedTools

TOOLS = RelayedTools([ToolSpec("bash", "", {}), ToolSpec("a tool", "", {})])
OPTIONS = [
    {"optionId": "allow-once", "kind": "allow_once"},
    {"optionId": "allow-always", "kind": "allow_always"},
    {"optionId": "reject-once", "kind": "reject_once"},
]


def permission(title: str, kind: str = "other", options: Any = OPTIONS) -> Asked:
    call = {"toolCallId": "1", "title": title, "kind": kind}
    return Asked(0, "session/request_permission", {"toolCall": call, "options": options})


def answered(asked: Asked, tools: RelayedTools | None = TOOLS) -> Any:
    reply = reply_to(asked, tools)
    assert reply is not None
    return reply["outcome"].get("optionId", reply["outcome"]["outcome"])


@pytest.mark.parametrize(
    "title", ["client-bash: bash", "client-bash", "client-wait_for_result: wait_for_result"]
)
def test_a_tool_of_the_clients_is_allowed_once(title: str) -> None:
    assert answered(permission(title)) == "allow-once"


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("`touch a`", "execute"),
        ("client-bash: bash", "execute"),
        ("notes-bash: bash", "other"),
        ("bash", "other"),
        ("client-bash: notes", "other"),
        ("client-rm: rm", "other"),
        ("Web Search", "search"),
        ("Unknown operation", "other"),
        ("", "other"),
    ],
)
def test_everything_else_is_rejected(title: str, kind: str) -> None:
    assert answered(permission(title, kind)) == "reject-once"


def test_without_tools_nothing_is_allowed() -> None:
    assert answered(permission("client-bash: bash"), None) == "reject-once"
    assert not is_offered("bash", None)


@pytest.mark.parametrize("options", [[], None, OPTIONS[1:2], ["allow-once"]])
def test_what_has_no_answer_of_ours_is_cancelled(options: Any) -> None:
    assert answered(permission("client-bash: bash", options=options)) == "cancelled"


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("cursor/ask_question", {"outcome": {"outcome": "skipped"}}),
        ("cursor/create_plan", {"outcome": {"outcome": "accepted"}}),
        ("cursor/task", {}),
        ("cursor/update_todos", {}),
        ("cursor/generate_image", {}),
        ("fs/read_text_file", None),
    ],
)
def test_its_other_requests_are_answered(method: str, reply: Any) -> None:
    assert reply_to(Asked(0, method, {}), TOOLS) == reply


def test_models_are_asked_for_with_their_options() -> None:
    asked = initialize("1.2.3")
    assert asked["clientCapabilities"]["_meta"] == {"parameterizedModelPicker": True}
    assert asked["clientInfo"]["version"] == "1.2.3"


def test_servers_are_named_as_the_protocol_has_them() -> None:
    relay = {"url": "http://127.0.0.1:1/mcp/x", "headers": {"Authorization": "Bearer t"}}
    local = {"command": "notes", "args": ["-v"], "env": {"A": "1"}}
    asked = new_session("/here", {"client": relay, "notes": local, "bare": {}})
    assert asked["cwd"] == "/here"
    assert asked["mcpServers"] == [
        {
            "type": "http",
            "name": "client",
            "url": "http://127.0.0.1:1/mcp/x",
            "headers": [{"name": "Authorization", "value": "Bearer t"}],
        },
        {
            "name": "notes",
            "command": "notes",
            "args": ["-v"],
            "env": [{"name": "A", "value": "1"}],
        },
        {"name": "bare", "command": "", "args": [], "env": []},
    ]


def test_a_prompt_is_its_text_and_its_images() -> None:
    prompt = Prompt("Look.", (("image-1.jpg", b"1"), ("image-2.png", b"2")))
    assert prompt_blocks(prompt) == [
        {"type": "text", "text": "Look."},
        {"type": "image", "data": base64.b64encode(b"1").decode(), "mimeType": "image/jpeg"},
        {"type": "image", "data": base64.b64encode(b"2").decode(), "mimeType": "image/png"},
    ]


def test_a_conversation_is_written_for_the_tools_that_there_are() -> None:
    alias = TOOLS.aliases["a tool"]
    read = reading(2, TOOLS)
    assert (read.known, read.server, read.wait_tool) == (2, "client", "wait_for_result")
    assert read.names == {"a tool": alias} and read.images_are_beside
    assert reading(0, None).server == ""
