"""CallBlock: what stands between the two tags of a call in text, and the calls that it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from cursor_gateway.core.json_text import MAX_DEPTH, is_too_deep

# Without the `>`, before which models write blanks.
CLOSING = "</tool_call"
FENCE = "```"
ENDLESS = "the call does not end."


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as the model wrote it. Whether the tool exists is checked elsewhere."""

    name: str
    arguments: dict[str, Any]
    raw: str


@dataclass(frozen=True, slots=True)
class Garbled:
    raw: str
    problem: str


class CallBlock:
    """What stands between two tags: one call, or several."""

    def __init__(self, tag: str, lead: str, problem: str) -> None:
        self._tag = tag
        # Why nothing in the block is a call; empty if it may hold calls.
        self.problem = problem
        self.is_fenced = FENCE in lead
        # The whole block, as the model wrote it.
        self.source = [lead]
        self.body: list[str] = []
        self.bodies: list[str] = []
        # Whether a line break has come since the last body.
        self.is_line_over = False

    def end_body(self, held: str) -> None:
        self.bodies.append("".join(self.body))
        self.source += [self.bodies[-1], held]
        self.body = []
        self.is_line_over = False

    def pass_by(self, blank: str) -> None:
        self.source.append(blank)
        self.is_line_over = self.is_line_over or "\n" in blank

    def calls(self, is_whole: bool) -> Iterator[Asked | Garbled]:
        """The calls of the block. If there are several, each gets tags of its own."""
        source = "".join(self.source).rstrip()
        *others, last = self.bodies
        for body in others:
            yield _call(body, f"{self._tag}\n{body}\n{CLOSING}>")
        if not is_whole:
            yield Garbled(f"{self._tag}\n{last}" if others else source, ENDLESS)
        else:
            yield _call(last, f"{self._tag}\n{last}\n{CLOSING}>" if others else source)


def _call(body: str, raw: str) -> Asked | Garbled:
    try:
        # `strict=False`: models write newlines into strings without escaping them.
        call = json.loads(body, strict=False, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return Garbled(raw, f"the text between the tags is not JSON ({error}).")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Garbled(raw, 'it is not one object with a "name".')
    # Arguments under another key would be lost, and the call would do something else without them.
    others = call.keys() - {"name", "arguments", "id"}
    if others:
        return Garbled(raw, f'it has {sorted(others)} beside "name" and "arguments".')
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _object_in(arguments)
    if not isinstance(arguments, dict):
        return Garbled(raw, '"arguments" must be an object.')
    if is_too_deep(arguments):
        return Garbled(raw, f"it is nested more than {MAX_DEPTH} levels deep.")
    return Asked(call["name"], arguments, raw)


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{number} is too large")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _object_in(text: str) -> object:
    try:
        return orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
