"""CallBlock: what stands between the two tags of a call in text, and the calls that it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from cursor_gateway.core.json_text import MAX_DEPTH, is_too_deep

# Without its last sign, before which models write blanks.
CLOSING = "</tool_call"
FENCE = "```"
ENDLESS = "the call does not end."


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as the model wrote it: whether there is such a tool is not known here."""

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
        # Why nothing in it is a call.
        self.problem = problem
        self.is_fenced = FENCE in lead
        # All of it, as it was written.
        self.source = [lead]
        self.body: list[str] = []
        self.bodies: list[str] = []
        # Whether a line has ended behind what was read last.
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
        """The calls; where there are several, each as if it had tags of its own."""
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
        # `strict=False`: models write newlines into strings as they are.
        call = json.loads(body, strict=False, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return Garbled(raw, f"the text between the tags is not JSON ({error}).")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Garbled(raw, 'it is not one object with a "name".')
    # Arguments in another place would be lost, and a call without them may do something else.
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
