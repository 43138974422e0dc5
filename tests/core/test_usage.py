"""Tokens of an answer, which may be those of several runs."""

from __future__ import annotations

from cursor_gateway.core.events import Usage


def test_reasoning_is_told_only_where_an_agent_tells_it() -> None:
    assert (Usage(1, 2) + Usage(3, 4)).reasoning is None
    assert (Usage(1, 2, reasoning=1) + Usage(3, 4)).reasoning == 1
    assert (Usage(1, 2) + Usage(3, 4, reasoning=2)).reasoning == 2


def test_what_was_reported_is_not_told_again() -> None:
    whole = Usage(10, 8, 4, reasoning=5)
    assert whole.beyond(Usage(4, 2, 1, reasoning=2)) == Usage(6, 6, 3, reasoning=3)
    assert whole.beyond(Usage(4, 2, 5)) == Usage(6, 6, 0, reasoning=5)
    assert whole.beyond(Usage(4, 2, 0, reasoning=9)) == Usage(6, 6, 4, reasoning=0)
    assert whole.beyond(Usage(11, 2)) is None
