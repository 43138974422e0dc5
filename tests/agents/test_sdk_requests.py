"""What the bridge is asked for."""

from __future__ import annotations

import base64
from typing import Any

from cursor_gateway.agents.sdk.requests import May, agent_options, reading, user_message
from cursor_gateway.core.prompt import Prompt


def options(may: May, tools: dict[str, Any]) -> dict[str, Any]:
    return agent_options(
        agent_id="id", key="K", model={"id": "auto"}, directory="/run-1", may=may, tools=tools
    )


def test_an_agent_may_do_what_it_is_for() -> None:
    assert options("nothing", {})["tools"] == {"names": []}
    assert options("nothing", {"bash": {}})["tools"] == {"names": ["mcp"]}
    assert options("read", {})["tools"] == {"names": ["read", "grep", "glob", "ls"]}
    assert "tools" not in options("act", {})


def test_it_works_in_its_directory_alone() -> None:
    local = options("nothing", {"bash": {"description": "x"}})["local"]
    assert local == {
        "cwd": ["/run-1"],
        "settingSources": [],
        "sandboxOptions": {"enabled": True},
        "customTools": {"bash": {"description": "x"}},
    }
    assert "sandboxOptions" not in options("act", {})["local"]


def test_images_are_sent_with_their_kind() -> None:
    files = (("image-1.jpg", b"j"), ("image-2.png", b"p"))
    message = user_message(Prompt("look", files))
    assert message["text"] == "look"
    assert [image["data"]["mimeType"] for image in message["images"]] == ["image/jpeg", "image/png"]
    assert base64.b64decode(message["images"][0]["data"]["data"]) == b"j"
    assert user_message(Prompt("look")) == {"text": "look"}


def test_tools_are_told_of_by_the_name_of_their_server() -> None:
    assert reading(2, {}, calls_back=True).server == "custom-user-tools"
    assert reading(0, {}, calls_back=False).server == ""
