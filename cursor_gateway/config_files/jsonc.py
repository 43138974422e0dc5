"""JSON with comments and trailing commas, as editors and coding agents write it.

`loads` is for those who only want its values; `Jsonc` knows where each of them stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cursor_gateway.config_files.edits import Node, Splice, SplicedText, Unreadable

_GAP = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"[^\s,:\[\]{}/\"]+")
# A comment that follows a value on its line, and belongs to it.
_REMARK = re.compile(r"[ \t]*(?://[^\n\r]*|/\*[^\n\r]*?\*/)")
_REST_OF_LINE = re.compile(r"[ \t]*(?:\r?\n|\Z)")
_INDENT = re.compile(r"[{\[][^\S\n]*\r?\n([ \t]+)")
# A string without its end runs to the end of the text; else the search for an end would begin again
# at each quotation mark, in quadratic time.
_STRING_OR_REST = r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)'
_COMMENT = re.compile(rf"({_STRING_OR_REST})|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_NO_NEWLINE = re.compile(r"[^\n]")
_TRAILING_COMMA = re.compile(rf"({_STRING_OR_REST})|,(?=\s*[}}\]])", re.DOTALL)


def loads(text: str) -> Any:
    """As `json.loads`, with its errors: each character is at its old place, so that they name the
    right line."""
    return json.loads(_TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text)))


def _blank(found: re.Match[str]) -> str:
    return found[1] or _NO_NEWLINE.sub(" ", found[0])


class Jsonc(SplicedText):
    def parse(self, text: str) -> Node:
        start = _after_gap(text, 0)
        if start == len(text):
            return Node(start, start, {}, members={})
        node = _value(text, start)
        if node.members is None or _after_gap(text, node.end) != len(text):
            raise Unreadable("it is not one JSON object")
        return node

    def replace(self, text: str, node: Node, value: Any) -> Iterator[Splice]:
        yield Splice(node.start, node.end, _rendered(text, value, _line_indent(text, node.begins)))

    def add(
        self, text: str, node: Node, members: Mapping[str, Any], items: list[Any]
    ) -> Iterator[Splice]:
        outer = _line_indent(text, node.begins)
        lines = _lines_of(text, node, outer, members, items)
        if not node.children:
            yield _filled(text, node, outer, lines)
            return
        last = node.children[-1]
        comma = _comma_after(text, last.end)
        if comma is None:
            yield Splice(last.end, last.end, ",")
        place = last.end if comma is None else comma + 1
        if "\n" in text[node.start : node.end]:
            remark = _REMARK.match(text, place)
            place = remark.end() if remark else place
            added = ",".join(_newline(text) + line for line in lines)
        else:
            added = " " + ", ".join(line.strip() for line in lines)
        yield Splice(place, place, added + ("," if comma is not None else ""))

    def remove(self, text: str, node: Node, gone: list[Node]) -> Iterator[Splice]:
        staying = [child for child in node.children if child not in gone]
        for child in gone:
            comma = _comma_after(text, child.end)
            end = child.end if comma is None else comma + 1
            before = text[: child.begins].rstrip(" \t")
            is_line = before.endswith("\n") and _REST_OF_LINE.match(text, end)
            start = len(before[:-1].removesuffix("\r")) if is_line else len(before)
            yield Splice(start, end, "")
        last = node.children[-1]
        if last in gone and staying and _comma_after(text, last.end) is None:
            comma = _comma_after(text, staying[-1].end)
            assert comma is not None
            yield Splice(comma, comma + 1, "")


def _filled(text: str, node: Node, outer: str, lines: list[str]) -> Splice:
    """Fill an object or a list that has only comments, or a text that is empty."""
    opening, closing = "[]" if node.items is not None else "{}"
    newline = _newline(text)
    comments = text[node.start + 1 : node.end - 1].rstrip()
    body = f",{newline}".join(lines)
    end = newline if node.start == node.end else ""
    made = f"{opening}{comments}{newline}{body}{newline}{outer}{closing}{end}"
    return Splice(node.start, node.end, made)


def _value(text: str, start: int) -> Node:
    if text[start : start + 1] == "{":
        return _object(text, start)
    if text[start : start + 1] == "[":
        return _list(text, start)
    found = _STRING.match(text, start) or _WORD.match(text, start)
    if found is None:
        raise Unreadable(f"there is no value in line {_line_number(text, start)}")
    return Node(start, found.end(), _scalar(text, found), begins=start)


def _scalar(text: str, found: re.Match[str]) -> Any:
    try:
        return json.loads(found[0], strict=False)
    except ValueError:
        raise Unreadable(f"line {_line_number(text, found.start())} is not JSON") from None


def _object(text: str, start: int) -> Node:
    members: dict[str, Node] = {}
    at = _after_gap(text, start + 1)
    while text[at : at + 1] != "}":
        name = _STRING.match(text, at)
        colon = _after_gap(text, name.end()) if name else at
        if name is None or text[colon : colon + 1] != ":":
            raise Unreadable(f"line {_line_number(text, at)} is not JSON")
        child = _value(text, _after_gap(text, colon + 1))
        child.begins = at
        members[_scalar(text, name)] = child
        at = _next(text, child.end, "}")
    value = {name: child.value for name, child in members.items()}
    return Node(start, at + 1, value, members=members, begins=start)


def _list(text: str, start: int) -> Node:
    items = []
    at = _after_gap(text, start + 1)
    while text[at : at + 1] != "]":
        items.append(_value(text, at))
        at = _next(text, items[-1].end, "]")
    return Node(start, at + 1, [item.value for item in items], items=items, begins=start)


def _next(text: str, end: int, bracket: str) -> int:
    comma = _comma_after(text, end)
    at = _after_gap(text, end) if comma is None else _after_gap(text, comma + 1)
    if comma is None and text[at : at + 1] != bracket:
        raise Unreadable(f"a comma or {bracket} is missing in line {_line_number(text, at)}")
    return at


def _after_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    assert gap is not None
    return gap.end()


def _comma_after(text: str, end: int) -> int | None:
    at = _after_gap(text, end)
    return at if text[at : at + 1] == "," else None


def _lines_of(
    text: str, node: Node, outer: str, members: Mapping[str, Any], items: list[Any]
) -> list[str]:
    children = node.children
    indent = _line_indent(text, children[0].begins) if children else outer + _unit(text)
    return [
        *(f"{indent}{json.dumps(name)}: {_rendered(text, value, indent)}"
          for name, value in members.items()),
        *(indent + _rendered(text, item, indent) for item in items),
    ]  # fmt: skip


def _rendered(text: str, value: Any, indent: str) -> str:
    """`value` on one line if the whole file is on one line, else indented like the file."""
    if "\n" not in text.strip() and text.strip():
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return f"{_newline(text)}{indent}".join(lines)


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
