"""Law: in files of other programs no byte changes but what was asked for. Pure.

Text in, text out. A program that loads such a file and writes it back loses the comments, the order
and the layout that its owner chose; so here the text is only ever cut and pasted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from cursor_gateway.config_files.edits import Unreadable

__all__ = ["ConfigFormat", "Unreadable", "format_of"]


class ConfigFormat(Protocol):
    """All methods raise `Unreadable` if the text is not in the format."""

    def read(self, text: str) -> Any:
        """The content of the text as plain values."""

    def merged(self, text: str, wanted: Mapping[str, Any]) -> str:
        """The text with `wanted` in it. Lists of objects are merged by their `id` or `name`."""

    def restored(self, text: str, before: Any, written: Any) -> str:
        """The text without what `written` has beyond `before`, and with what it had instead."""


def format_of(name: str) -> ConfigFormat:
    """The format of a file by the end of its name. Its parser is imported only here."""
    if name.endswith((".yml", ".yaml")):
        from cursor_gateway.config_files.yaml_text import YamlText

        return YamlText()
    if name.endswith(".toml"):
        from cursor_gateway.config_files.toml_text import TomlText

        return TomlText()
    from cursor_gateway.config_files.jsonc import Jsonc

    return Jsonc()
