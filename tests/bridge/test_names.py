"""`mcp__server__tool`: clean, unique, short, and always the same."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.mcp_bridge.names import server_parts, tool_names

names = st.lists(st.text(min_size=1, max_size=90), unique=True, max_size=8)


def test_plain_names_stay_as_they_are() -> None:
    assert server_parts(["hybrid-memory"]) == {"hybrid-memory": "hybrid-memory"}
    assert tool_names("hybrid-memory", ["memory_stats"]) == {
        "memory_stats": "mcp__hybrid-memory__memory_stats"
    }


def test_strange_names_are_cleaned() -> None:
    assert server_parts(["My Server!", "a__b", "日本"]) == {
        "My Server!": "My_Server",
        "a__b": "a_b",
        "日本": "server",
    }
    assert tool_names("s", ["files/read.it"]) == {"files/read.it": "mcp__s__files_read_it"}


def test_who_has_the_name_keeps_it_and_others_get_a_suffix() -> None:
    assert tool_names("s", ["a.b", "a b", "a_b"]) == {
        "a_b": "mcp__s__a_b",
        "a b": "mcp__s__a_b_2",
        "a.b": "mcp__s__a_b_3",
    }
    assert server_parts(["a b", "a_b"]) == {"a_b": "a_b", "a b": "a_b_2"}


def test_long_names_are_cut_the_same_way_every_time() -> None:
    one, two = "x" * 100 + "1", "x" * 100 + "2"
    both = tool_names("s", [one, two])
    assert both == tool_names("s", [two, one])
    assert both[one] == tool_names("s", [one])[one]
    assert both[one] != both[two]
    assert all(len(name) == 64 for name in both.values())
    (part,) = server_parts(["x" * 14 + "_" + "y" * 20]).values()
    assert len(part) <= 24 and "__" not in part


def test_thousands_that_want_the_same_name_get_short_ones_soon() -> None:
    tools = ["x" * 60 + chr(0x4E00 + n) for n in range(5000)]
    given_out = tool_names("s", tools).values()
    assert len(set(given_out)) == 5000
    assert max(map(len, given_out)) == 64


@given(names, names)
def test_names_are_clean_and_unique_whatever_they_were(
    servers: list[str], tools: list[str]
) -> None:
    parts = server_parts(servers)
    given_out = [name for part in parts.values() for name in tool_names(part, tools).values()]
    assert len(set(given_out)) == len(servers) * len(tools)
    assert all(re.fullmatch(r"mcp__[A-Za-z0-9_-]{1,59}", name) for name in given_out)
