"""Token counts, in the words of each dialect."""

from __future__ import annotations

from cursor_gateway.core.events import Usage
from cursor_gateway.dialects.openai_usage import render_usage


def test_reasoning_is_told_only_where_an_agent_tells_it() -> None:
    told = render_usage(Usage(10, 8, 4, reasoning=5)) or {}
    assert told["completion_tokens_details"] == {"reasoning_tokens": 5}
    assert "completion_tokens_details" not in (render_usage(Usage(10, 8, 4)) or {})
    assert render_usage(None) is None
