"""JSON of any depth."""

from __future__ import annotations

from typing import Any

import pytest

from cursor_gateway.core.json_text import MAX_DEPTH, is_too_deep


def nested(levels: int, *, in_objects: bool) -> Any:
    value: Any = "inside"
    for _ in range(levels):
        value = {"before": 1, "a": value, "after": ""} if in_objects else [1, value, ""]
    return value


@pytest.mark.parametrize("in_objects", [True, False])
def test_depth_is_counted_in_arrays_and_objects(in_objects: bool) -> None:
    assert not is_too_deep(nested(0, in_objects=in_objects))
    assert not is_too_deep(nested(MAX_DEPTH, in_objects=in_objects))
    assert is_too_deep(nested(MAX_DEPTH + 1, in_objects=in_objects))
    assert is_too_deep(nested(5000, in_objects=in_objects))
