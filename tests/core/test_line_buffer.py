from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.line_buffer import LineBuffer
from cursor_gateway.errors import AgentFailed


@given(st.lists(st.binary(max_size=8)))
def test_any_cuts_give_the_lines_of_the_whole(chunks: list[bytes]) -> None:
    buffer = LineBuffer()
    given = [lines for chunk in chunks if (lines := buffer.feed(chunk))]
    assert all(lines.endswith(b"\n") for lines in given)
    last = buffer.close()
    assert b"\n" not in last
    assert b"".join((*given, last)) == b"".join(chunks)


def test_only_the_newline_byte_ends_a_line() -> None:
    line = "a\u2028b\u0085c\rd\x0be".encode()
    assert LineBuffer().feed(line + b"\n" + line) == line + b"\n"


def test_a_line_beyond_the_limit_is_a_failure() -> None:
    buffer = LineBuffer(limit=10)
    assert buffer.feed(b"12345678\n1234567") == b"12345678\n"
    with pytest.raises(AgentFailed):
        buffer.feed(b"89ab")


def test_closing_forgets_what_it_gave() -> None:
    buffer = LineBuffer()
    buffer.feed(b"rest")
    assert buffer.close() == b"rest"
    assert buffer.close() == b""
