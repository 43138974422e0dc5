"""How the time to parse grows: `make bench-parsing`.

Prints nanoseconds per character at three sizes. Linear growth shows as figures that stay the same;
absolute figures depend on the machine and mean nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult
from cursor_gateway.core.loop_guard import LoopGuard
from cursor_gateway.core.prompt import render
from cursor_gateway.core.tool_text import ToolTextParser

SIZES = (10_000, 100_000, 1_000_000)
DELTA = 12


def parse_prose(size: int) -> None:
    feed("a < b and <tool for you. " * (size // 25))


def parse_call(size: int) -> None:
    body = {"name": "write", "arguments": {"content": 'x "\\{<' * (size // 7)}}
    feed(f"<tool_call>\n{json.dumps(body)}\n</tool_call>")


def parse_calls(size: int) -> None:
    feed('<tool_call>\n{"name": "ls", "arguments": {"path": "/a"}}\n</tool_call>\n' * (size // 70))


def feed(text: str) -> None:
    parser = ToolTextParser()
    for at in range(0, len(text), DELTA):
        parser.feed(text[at : at + DELTA])
    parser.close()


def render_history(size: int) -> None:
    render(Conversation("auto", _history(size)))


def guard_history(size: int) -> None:
    LoopGuard(2, _history(size)).judge("read", {"path": "/new"})


def _history(size: int) -> tuple[Message, ...]:
    messages = [Message("user", (Text("go"),))]
    for number in range(size // 1000):
        call = ToolCall(f"c{number}", "read", json.dumps({"path": f"/{number}"}))
        messages.append(Message("assistant", (call,)))
        messages.append(Message("user", (ToolResult(call.id, (Text("x" * 950),)),)))
    return tuple(messages)


def nanoseconds_per_character(work: Callable[[int], None], size: int) -> float:
    best = min(_seconds(work, size) for _ in range(3))
    return best / size * 1e9


def _seconds(work: Callable[[int], None], size: int) -> float:
    began = time.perf_counter()
    work(size)
    return time.perf_counter() - began


def main() -> None:
    print(f"{'ns per character':24}" + "".join(f"{size:>12,}" for size in SIZES))
    for work in (parse_prose, parse_call, parse_calls, render_history, guard_history):
        figures = [nanoseconds_per_character(work, size) for size in SIZES]
        print(f"{work.__name__:24}" + "".join(f"{figure:12.1f}" for figure in figures))


if __name__ == "__main__":
    main()
