"""JSON-RPC over stdin and stdout, as the agent's side of ACP speaks it.

One object per line, whatever its length. The agent's requests have numbers of their own, from 0.
What it cannot read it swallows without a word.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from tests.fakes.steps import HOME

Json = dict[str, Any]
NO_LIMIT = 2**30


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.body: Json = {"code": code, "message": message}
        if data is not None:
            self.body["data"] = data


def internal(words: str) -> RpcError:
    return RpcError(-32603, "Internal error", {"message": words})


def invalid(words: str) -> RpcError:
    return RpcError(-32602, "Invalid params", {"message": words})


class Peer:
    def __init__(self) -> None:
        self._ids = itertools.count()
        self._asked: dict[int, asyncio.Future[Json]] = {}
        # It does not end when its stdin does.
        self.lingers = False

    # Out

    def write(self, content: bytes) -> None:
        """All of it: the agent waits for whoever reads, as it does on a pipe."""
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(1, rest) :]

    def send(self, message: Json) -> None:
        self.write(line_of(message))

    def notify(self, method: str, params: Json) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: Json) -> Json:
        """The whole answer of the client's, an error or not. There is no limit to the waiting."""
        number = next(self._ids)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return await answer

    # In

    def heard(self, answer: Json) -> None:
        """The client's answer to a request; a test can read it in `answers`."""
        with (HOME / "answers").open("a") as answers:
            answers.write(json.dumps(answer) + "\n")
        asked = self._asked.pop(answer["id"], None)
        if asked and not asked.done():
            asked.set_result(answer)

    async def messages(self) -> AsyncIterator[Json]:
        """Until the client closes the pipe."""
        reader = asyncio.StreamReader(limit=NO_LIMIT)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            message = parsed(line)
            if message is not None:
                yield message


def parsed(line: bytes) -> Json | None:
    try:
        message: Any = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def line_of(message: Json) -> bytes:
    """UTF-8; half a character is an escape, since UTF-8 could not carry it."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"
