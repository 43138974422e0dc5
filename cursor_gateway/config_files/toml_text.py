"""TOML, by tomlkit, which preserves comments and layout itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from cursor_gateway.config_files.edits import IfMissing, Unreadable, plain

_UNIX_LINE_END = re.compile(r"(?<!\r)\n")


class TomlText:
    def read(self, text: str) -> Any:
        return _parsed(text).unwrap()

    def merged(self, text: str, wanted: Mapping[str, Any]) -> str:
        document = _parsed(text)
        _merge(document, wanted)
        return _written(document, text)

    def restored(self, text: str, before: Any, written: Any) -> str:
        document = _parsed(text)
        _restore(document, before, written)
        return _written(document, text)


def _parsed(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise Unreadable(str(error)) from None


def _written(document: tomlkit.TOMLDocument, like: str) -> str:
    """The text with the line ends of `like`: tomlkit ends the lines that it adds with `\\n`."""
    text = tomlkit.dumps(document)
    all_crlf = 0 < like.count("\n") == like.count("\r\n")
    return _UNIX_LINE_END.sub("\r\n", text) if all_crlf else text


def _merge(table: MutableMapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if name not in table:
            table[name] = plain(value)
        elif isinstance(value, Mapping) and isinstance(table[name], Mapping):
            _merge(table[name], value)
        elif not isinstance(value, IfMissing) and table[name] != plain(value):
            table[name] = plain(value)


def _restore(
    table: MutableMapping[str, Any], before: Mapping[str, Any], written: Mapping[str, Any]
) -> None:
    for name, value in written.items():
        if name not in table or (name in before and before[name] == value):
            continue
        if all(isinstance(found, Mapping) for found in (value, table[name], before.get(name, {}))):
            _restore(table[name], before.get(name, {}), value)
            if name not in before and not table[name]:
                del table[name]
        elif table[name] == value:
            if name in before:
                table[name] = before[name]
            else:
                del table[name]
