"""What is taken of a server's answers, and what is left out."""

from __future__ import annotations

from typing import Any

from cursor_gateway.mcp_bridge import intake
from cursor_gateway.mcp_bridge.intake import RemoteTool, ToolList, usable


def tool(name: str, size: int = 0) -> RemoteTool:
    return RemoteTool(name, "x" * size, {"type": "object"})


def test_a_list_of_tools_loses_its_schemas_of_results_and_its_length() -> None:
    listed: dict[str, Any] = {"tools": [{"name": "a", "outputSchema": {"$ref": "#"}}, 7]}
    intake.trim_tools(listed)
    assert listed == {"tools": [{"name": "a"}, 7]}
    long = {"tools": [{"name": "a"}] * 10_000}
    intake.trim_tools(long)
    assert len(long["tools"]) == 2001


def test_other_answers_are_left_alone() -> None:
    result = {"content": [], "structuredContent": {"outputSchema": 1}}
    intake.trim_tools(result)
    assert result == {"content": [], "structuredContent": {"outputSchema": 1}}


def test_a_result_may_have_many_parts_but_not_any_number() -> None:
    assert not intake.has_too_many_parts({"content": [{}] * 10_000})
    assert intake.has_too_many_parts({"content": [{}] * 10_001})
    assert not intake.has_too_many_parts({"content": 5})


def test_all_tools_of_common_servers_are_usable() -> None:
    tools = [tool(f"t{n}", 4000) for n in range(500)]
    assert usable(tools) == ToolList(tuple(tools))


def test_what_is_left_out_is_named_as_far_as_it_fits() -> None:
    large = [tool(f"large {n}", 300_000) for n in range(5)]
    listed = usable([tool("a"), *large[:1]])
    assert listed.tools == (tool("a"),)
    assert listed.left_out == (
        "too large: 'large 0' (a tool may have 256 kB and a schema of 50,000 values, 128 deep; "
        "those of a server 8 MB)"
    )
    assert "'large 0', 'large 1', 'large 2' and 2 others (" in usable(large).left_out
    endless = usable([tool("x" * 300_000)] + [tool(f"t{n}") for n in range(2000)])
    assert endless.left_out.startswith(f"too large: {'x' * 60!r} (")
    assert endless.left_out.endswith("; all after the first 2,000")
    assert len(endless.tools) == 1999


def test_a_schema_that_would_be_refused_from_a_client_is_left_out() -> None:
    wide = RemoteTool("wide", "", {"enum": [0] * 60_000})
    assert usable([wide, tool("a")]).tools == (tool("a"),)


def test_a_list_that_is_not_read_to_its_end_says_so() -> None:
    assert usable([tool("a")] * 5, has_more=True).left_out == "all after the first 5"


def test_many_tools_that_are_long_together_fill_the_room_that_there_is() -> None:
    listed = usable([tool(f"t{n}", 200_000) for n in range(100)])
    assert len(listed.tools) == 41
    assert "'t41', 't42', 't43' and 56 others" in listed.left_out
