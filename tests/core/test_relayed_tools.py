"""The client's tools as the agent's MCP client sees them."""

from __future__ import annotations

from cursor_gateway.agents.cursor.relayed import called_tool
from cursor_gateway.core.conversation import ImageFile, ImageLink, Text, ToolResult, ToolSpec
from cursor_gateway.core.relayed_tools import RelayedTools, to_mcp

BASH = ToolSpec("bash", "Runs a command.", {"properties": {"command": {"type": "string"}}})
READ = ToolSpec("read", "Reads a file.", {})


def test_tools_are_listed_as_they_are_and_change_nothing() -> None:
    bash, wait = RelayedTools([BASH]).listing()
    assert bash == {
        "name": "bash",
        "description": "Runs a command.",
        "inputSchema": {"type": "object", "properties": {"command": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }
    assert "wait" in wait["name"] and wait["inputSchema"]["required"] == ["ticket"]


def test_names_that_the_cli_would_drop_get_others() -> None:
    names = ["a.b", "a b", "x" * 51, "é", "y" * 50]
    tools = RelayedTools(ToolSpec(name, "", {}) for name in names)
    listed = [entry["name"] for entry in tools.listing()]
    assert len(set(listed)) == 6 and all(len(name) <= 50 for name in listed)
    assert tools.aliases.keys() == set(names) - {"y" * 50}
    again = RelayedTools([ToolSpec("a.b", "", {})])
    assert again.aliases["a.b"] == tools.aliases["a.b"]
    tool = tools.get(tools.aliases["a.b"])
    assert tool is not None and tool.name == "a.b" and tools.get("a.b") == tool


def test_a_tool_that_is_called_like_ours_makes_ours_step_aside() -> None:
    tools = RelayedTools([ToolSpec("wait_for_result", "", {})])
    assert tools.wait_tool == "wait_for_result_"


def test_tools_may_be_added_but_not_changed() -> None:
    tools = RelayedTools([BASH])
    assert tools.are_all_in([READ, BASH])
    assert not tools.are_all_in([READ])
    assert not tools.are_all_in([ToolSpec("bash", "Other.", BASH.schema)])
    assert not tools.lacks([BASH]) and tools.lacks([BASH, READ])
    assert not tools.add([BASH])
    assert tools.add([BASH, READ]) and tools.get("read") == READ


def test_calls_for_this_server_are_told_from_others() -> None:
    ours = {"name": "client-bash", "providerIdentifier": "client", "toolName": "bash"}
    assert called_tool("mcp", ours) == "bash"
    assert called_tool("mcp", {"name": "client-bash", "args": {}}) == "bash"
    assert called_tool("mcp", {"serverIdentifier": "client", "name": "client-x"}) == "x"
    assert called_tool("mcp", {"name": "client-bash", "providerIdentifier": "github"}) is None
    assert called_tool("mcp", {"name": "github-bash"}) is None
    assert called_tool("shell", ours) is None


def test_results_keep_text_images_and_whether_they_failed() -> None:
    content = (Text("a"), ImageLink("http://x/y.png"), ImageFile(b"\xff\xd8", "jpg"))
    assert to_mcp(ToolResult("1", content, is_error=True)) == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "text", "text": "[image: http://x/y.png]"},
            {"type": "image", "data": "/9g=", "mimeType": "image/jpeg"},
        ],
        "isError": True,
    }
