"""YAML: PyYAML says where each value is, and this module changes the text.

A round trip through a parser that preserves comments (ruamel.yaml) was rejected: it indents lists
anew, changes quotes and folds long lines in parts that nobody asked it to touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from cursor_gateway.config_files.edits import Node, Splice, SplicedText, Unreadable


class YamlText(SplicedText):
    def parse(self, text: str) -> Node:
        try:
            loader = yaml.SafeLoader(text)
            root = loader.get_single_node()
            node = _node(loader, text, root) if root is not None else _empty(text)
        except (yaml.YAMLError, ValueError) as error:
            mark = getattr(error, "problem_mark", None)
            where = f"line {mark.line + 1}" if mark else "it"
            raise Unreadable(f"{where} is not YAML") from None
        if node.value is None:
            return _empty(text)
        if node.members is None:
            raise Unreadable("it is not a YAML mapping")
        return node

    def replace(self, text: str, node: Node, value: Any) -> Iterator[Splice]:
        is_block = isinstance(value, dict | list) and value and not node.children
        if not is_block or node.in_brackets:
            # Only a block list may be indented no deeper than its name; what replaces it must be.
            deeper = "" if node.flow else "  "
            yield Splice(node.start, _end(node), deeper + _flow(value))
            return
        # A comment after the name stays on the line of the name.
        end = node.end if node.value is not None else _line_end(text, node.end)
        indent = " " * (_column(text, node.begins) + 2)
        yield Splice(node.start if node.value is not None else end, end,
                     _newline(text) + _block(text, value, indent).rstrip("\r\n"))  # fmt: skip

    def add(
        self, text: str, node: Node, members: Mapping[str, Any], items: list[Any]
    ) -> Iterator[Splice]:
        children = node.children
        if node.flow and (children or node.start < node.end):
            yield from _add_in_brackets(node, members, items)
            return
        indent = " " * (_column(text, children[0].begins) if children else 0)
        added = _block(text, dict(members) if members else items, indent)
        place = _end(node)
        if place and text[place - 1] != "\n":
            place = _line_end(text, place)
            if place == len(text) or text[place] in "\r\n":
                added = _newline(text) + added.rstrip("\r\n")
        yield Splice(place, place, added if place < len(text) else added.rstrip("\r\n") + "\n")

    def remove(self, text: str, node: Node, gone: list[Node]) -> Iterator[Splice]:
        if node.flow:
            yield from _remove_in_brackets(node, gone)
            return
        for child in gone:
            start = text.rfind("\n", 0, child.begins) + 1
            if text[start : child.begins].strip():
                raise Unreadable(f"line {text.count(chr(10), 0, start) + 1} is not as expected")
            end = _end(child)
            if text[end - 1] != "\n":
                end = _line_end(text, end) + len(_newline(text))
            yield Splice(start, end, "")


def _node(loader: yaml.SafeLoader, text: str, node: yaml.Node) -> Node:
    start, end = node.start_mark.index, node.end_mark.index
    value = loader.construct_document(node)
    made = Node(start, end, value, begins=start, flow=bool(getattr(node, "flow_style", True)))
    if isinstance(node, yaml.MappingNode):
        made.members = {}
        for key, child in node.value:
            made.members[str(key.value)] = member = _node(loader, text, child)
            member.begins = key.start_mark.index
    elif isinstance(node, yaml.SequenceNode):
        made.items = [_node(loader, text, child) for child in node.value]
        for item in made.items:
            item.begins = item.start if made.flow else text.rfind("-", 0, item.start)
    for inner in made.children:
        inner.in_brackets = made.flow
    return made


def _empty(text: str) -> Node:
    """A file without a value. What is added goes below its comments."""
    return Node(len(text), len(text), {}, members={}, flow=False)


def _end(node: Node) -> int:
    """The end of a value's text. PyYAML takes comments after a block for a part of it."""
    return node.end if node.flow or not node.children else _end(node.children[-1])


def _add_in_brackets(node: Node, members: Mapping[str, Any], items: list[Any]) -> Iterator[Splice]:
    inside = _flow(dict(members) if members else items)[1:-1]
    if node.children:
        end = node.children[-1].end
        yield Splice(end, end, f", {inside}")
    else:
        yield Splice(node.end - 1, node.end - 1, inside)


def _remove_in_brackets(node: Node, gone: list[Node]) -> Iterator[Splice]:
    """Remove children with the comma before them, or with the one after them if no child before
    them stays."""
    children = node.children
    stays_before = False
    for index, child in enumerate(children):
        if child not in gone:
            stays_before = True
        elif stays_before:
            yield Splice(children[index - 1].end, child.end, "")
        else:
            following = children[index + 1].begins if child is not children[-1] else child.end
            yield Splice(child.begins, following, "")


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists deeper than their name, as most people write them."""
        super().increase_indent(flow, False)


def _block(text: str, value: Any, indent: str) -> str:
    dumped = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6,
        default_flow_style=False,
    )  # fmt: skip
    return "".join(f"{indent}{line}{_newline(text)}" for line in dumped.splitlines())


def _flow(value: Any) -> str:
    """`value` in flow style. It is dumped within a list, so that it is quoted as it must be inside
    brackets."""
    dumped = yaml.safe_dump(
        [value], sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=True
    )
    return str(dumped).strip()[1:-1]


def _column(text: str, at: int) -> int:
    return at - text.rfind("\n", 0, at) - 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end] == "\r" else end


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
