"""Where in a document or a schema something stands."""

from __future__ import annotations

from typing import Any

# The path before, and one name or position; None for the whole.
Path = tuple[Any, str | int] | None


def keys_of(path: Path) -> list[str | int]:
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    return keys[::-1]


def json_path(path: Path) -> str:
    """The path as people write it: `people[0].name`."""
    shown = "".join(
        f"[{key}]"
        if isinstance(key, int)
        else f".{key}"
        if key.lstrip("$").isidentifier()
        else f"[{key!r}]"
        for key in keys_of(path)
    )
    return shown.removeprefix(".")
