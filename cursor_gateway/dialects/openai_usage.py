"""Token counts as OpenAI's older dialects write them."""

from __future__ import annotations

from typing import Any

from cursor_gateway.core.events import Usage


def render_usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
    if usage.reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return counts | {"estimated": True} if usage.estimated else counts
