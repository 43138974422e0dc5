"""Conversations: what many of them hold is held once."""

from __future__ import annotations

import gc
import weakref

from cursor_gateway.core.conversation import ToolSpec, shared


def made(schema: dict[str, object]) -> ToolSpec:
    return shared(ToolSpec("bash", "Runs a command.", schema))


def test_a_tool_that_comes_again_is_the_same_object_and_another_is_not() -> None:
    first = made({"type": "object"})
    assert made({"type": "object"}) is first
    assert made({"type": "string"}) is not first


def test_a_tool_that_nobody_has_any_more_is_not_held() -> None:
    held = weakref.ref(made({"type": "object"}))
    gc.collect()
    assert held() is None
