"""JSON-RPC on lines: what is a message, what is passed over, and whose answer it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursor_gateway.agents.acp.wire import (
    Answer,
    Asked,
    Message,
    RpcError,
    Told,
    Wire,
    answer,
    notification,
    request,
)
from cursor_gateway.errors import AgentFailed

LINES = [
    {"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "s"}},
    {"jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": {"x": "ä€👩"}},
    {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s"}},
]


def read(*messages: Any) -> list[Message]:
    return Wire().feed(b"".join(json.dumps(each).encode() + b"\n" for each in messages))


def test_an_answer_has_an_id_and_no_method_whatever_the_id() -> None:
    found, asked, told = read(*LINES)
    assert isinstance(found, Answer) and (found.id, found.result) == (1, {"sessionId": "s"})
    assert asked == Asked(0, "session/request_permission", {"x": "ä€👩"})
    assert told == Told("session/update", {"sessionId": "s"})


def test_lines_may_be_cut_anywhere() -> None:
    data = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in LINES)
    wire = Wire()
    pieces = [wire.feed(data[at : at + 1]) for at in range(len(data))]
    assert [message for piece in pieces for message in piece] == read(*LINES)


@pytest.mark.parametrize(
    "line",
    [
        b"Using worktree: /home/dev/somewhere",
        b"",
        b'{"jsonrpc":"2.0","id":',
        b"[1]",
        b"{}",
        b'{"id":[],"result":{}}',
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b'{"id":3,"params":' + b"[" * 100_000,
    ],
    ids=["banner", "empty", "cut", "array", "object", "id", "deep", "deeper"],
)
def test_what_is_no_message_is_passed_over(line: bytes) -> None:
    assert len(Wire().feed(line + b"\n" + json.dumps(LINES[2]).encode() + b"\n")) == 1


def test_half_an_emoji_is_no_garbage() -> None:
    (told,) = Wire().feed(b'{"method":"m","params":{"text":"\\ud83d"}}\n')
    assert told == Told("m", {"text": "\ud83d"})


def test_a_line_that_does_not_end_is_a_failure() -> None:
    with pytest.raises(AgentFailed):
        Wire(longest_line=100).feed(b"{" * 101)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ({"code": -32601, "message": "Method not found"}, -32601, "Method not found"),
        ({"code": -1, "message": "A", "data": {"message": "A. Run login."}}, -1, "A. Run login."),
        ({"code": -1, "message": "A", "data": {"details": "Invalid mode"}}, -1, "A: Invalid mode"),
        ({"code": -1, "message": "A", "data": "so"}, -1, "A: so"),
        ({"code": -1, "message": "A", "data": [{"path": "cwd"}]}, -1, 'A: [{"path":"cwd"}]'),
        ({"message": 5, "data": None}, 0, ""),
    ],
)
def test_an_error_says_all_that_it_says(error: Any, code: int, words: str) -> None:
    (found,) = read({"id": 1, "error": error})
    assert isinstance(found, Answer) and isinstance(found.error, RpcError)
    assert (found.error.code, found.error.words) == (code, words)


def test_what_we_write_is_one_line_each() -> None:
    lines = [request(1, "a", {"text": "1\n2"}), notification("b", {}), answer("x", {"y": 1})]
    assert [line.count(b"\n") for line in lines] == [1, 1, 1]
    assert [json.loads(line) for line in lines] == [
        {"jsonrpc": "2.0", "id": 1, "method": "a", "params": {"text": "1\n2"}},
        {"jsonrpc": "2.0", "method": "b", "params": {}},
        {"jsonrpc": "2.0", "id": "x", "result": {"y": 1}},
    ]


def test_a_request_that_nobody_knows_is_told_so() -> None:
    assert json.loads(answer(0, None))["error"]["code"] == -32601
