"""Connect with JSON over HTTP/1.1, as far as a bridge speaks it: a server, and a client's one call.

Written on streams, since each test starts a process with it: an HTTP library would take longer to
import than most tests take.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
LAST = 0x02
# Each with the status that it has where there is no stream.
STATUS = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "out_of_range": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "aborted": 409,
    "resource_exhausted": 429,
    "canceled": 499,
    "unknown": 500,
    "internal": 500,
    "data_loss": 500,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
# By their numbers in the protocol, each with the Connect code that it comes with.
SDK_CODES = {
    "UNSPECIFIED": "internal",
    "UNAUTHORIZED": "unauthenticated",
    "API_KEY_NOT_FOUND": "unauthenticated",
    "PLAN_REQUIRED": "permission_denied",
    "ROLE_FORBIDDEN": "permission_denied",
    "FEATURE_UNAVAILABLE": "failed_precondition",
    "AGENT_NOT_FOUND": "not_found",
    "RUN_NOT_FOUND": "not_found",
    "VALIDATION_ERROR": "invalid_argument",
    "INVALID_MODEL": "invalid_argument",
    "INVALID_BRANCH_NAME": "invalid_argument",
    "REPOSITORY_REQUIRED": "invalid_argument",
    "REPOSITORY_ACCESS": "failed_precondition",
    "PR_RESOLUTION_FAILED": "failed_precondition",
    "USAGE_LIMIT_EXCEEDED": "resource_exhausted",
    "AGENT_BUSY": "failed_precondition",
    "AGENT_ARCHIVED": "failed_precondition",
    "RUN_NOT_CANCELLABLE": "failed_precondition",
    "RATE_LIMIT_EXCEEDED": "resource_exhausted",
    "UPSTREAM_ERROR": "unavailable",
    "INTERNAL_ERROR": "internal",
    "CLIENT_CANCELLED": "canceled",
}


class Failure(Exception):
    """An error as a client is told it. With `sdk` it has details, and with an empty one those that
    the bridge gives for what it has no code for."""

    def __init__(
        self, code: str, words: str, sdk: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(words)
        self.code, self.words, self.sdk, self.retry_after = code, words, sdk, retry_after

    @property
    def body(self) -> Json:
        error: Json = {"code": self.code, "message": self.words}
        if self.sdk is not None:
            detail = {"type": "sdk.v1.SdkErrorDetails", "debug": self._debug()}
            error["details"] = [detail | {"value": self._encoded()}]
        return error

    def _debug(self) -> Json:
        debug: Json = {"sdkErrorCode": f"SDK_ERROR_CODE_{self.sdk}"} if self.sdk else {}
        debug["message"] = self.words
        if self.retry_after is not None:
            debug["retryAfter"] = f"{self.retry_after}s"
        return debug

    def _encoded(self) -> str:
        """The same as a protobuf message."""
        number = list(SDK_CODES).index(self.sdk) if self.sdk else 0
        words = self.words.encode()
        encoded = (b"\x10" + _varint(number) if number else b"") + b"\x1a" + _sized(words)
        if self.retry_after is not None:
            encoded += b"\x32" + _sized(b"\x08" + _varint(self.retry_after))
        return base64.b64encode(encoded).decode().rstrip("=")


def failure(kind: str, words: str = "", retry_after: int | None = None) -> Failure:
    """By the name of an `SdkErrorCode`, or of a Connect code, which has no details."""
    words = words or f"The test wants {kind}"
    if kind in SDK_CODES:
        return Failure(SDK_CODES[kind], words, kind, retry_after)
    return Failure(kind, words)


def _varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


@dataclass(frozen=True, slots=True)
class Request:
    service: str
    method: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("application/connect+json")

    @property
    def message(self) -> Json:
        body = self.body[5:] if self.is_stream else self.body
        kind = f"sdk.v1.{self.method}Request"
        try:
            found = json.loads(body or b"{}")
        except ValueError as error:
            raise Failure("invalid_argument", f"cannot decode {kind} from JSON: {error}") from error
        if not isinstance(found, dict):
            words = f"cannot decode message {kind} from JSON: it is no object"
            raise Failure("invalid_argument", words)
        return found


class Reply:
    """The answer to one request: a body, or frames."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.begun = False
        # The most bytes that are written at once, if not all of a frame.
        self.piece = 0

    def whole(self, status: int, body: Json | None) -> None:
        self.begun = True
        content = b"" if body is None else dumped(body)
        head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not OK'}\r\n"
        head += f"content-length: {len(content)}\r\ncontent-type: application/json\r\n\r\n"
        self._writer.write(head.encode() + content)

    def begin(self) -> None:
        self.begun = True
        self._writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    async def frame(self, message: Json, flags: int = 0) -> None:
        content = dumped(message)
        await self.raw(struct.pack(">BI", flags, len(content)) + content)

    async def raw(self, content: bytes) -> None:
        if not self.begun:
            self.begin()
        size = self.piece or len(content)
        for at in range(0, len(content), size):
            piece = content[at : at + size]
            self._writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await self._writer.drain()

    def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")

    def abort(self) -> None:
        self._writer.transport.abort()


def dumped(message: Json) -> bytes:
    """A delta may end between the two halves of a character, and JavaScript writes escapes then."""
    try:
        return json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(message).encode()


Answer = Callable[[Request, Reply], Awaitable[None]]


class Server:
    """Its `answer` is asked for one request after the other of each connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._idle: set[asyncio.StreamWriter] = set()
        self._busy = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Take no more, and wait for what is under way, however long that takes."""
        assert self._server is not None
        self._server.close()
        while self._busy:
            self._drop_idle()
            await self._quiet.wait()
        self._drop_idle()

    def _drop_idle(self) -> None:
        for writer in self._idle:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                self._idle.add(writer)
                request = await _read(reader)
                self._idle.discard(writer)
                await self._take(request, Reply(writer))
                await writer.drain()
        self._idle.discard(writer)
        writer.close()

    async def _take(self, request: Request, reply: Reply) -> None:
        self._busy += 1
        self._quiet.clear()
        try:
            await self._answer(request, reply)
        finally:
            self._busy -= 1
            if not self._busy:
                self._quiet.set()


async def _read(reader: asyncio.StreamReader) -> Request:
    words, headers = await _head(reader)
    service, _, method = words[1].removeprefix("/sdk.v1.").partition("/")
    return Request(service, method, headers, await _body(reader, headers))


async def _head(reader: asyncio.StreamReader) -> tuple[list[str], dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    fields = (line.partition(":") for line in lines)
    return first.split(" ", 2), {name.lower(): value.strip() for name, _, value in fields}


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


async def call(url: str, path: str, token: str, message: Json) -> Json:
    """One call of somebody else's, with a body in chunks, as the bridge calls back. It waits for
    the answer without a limit."""
    address = urlsplit(url)
    assert address.hostname
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
    content = dumped(message)
    head = f"POST {address.path.rstrip('/')}/{path} HTTP/1.1\r\nhost: {address.netloc}\r\n"
    head += f"authorization: Bearer {token}\r\nconnect-protocol-version: 1\r\n"
    head += "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    half = len(content) // 2
    writer.write(head.encode())
    for piece in (content[:half], content[half:]):
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    writer.write(b"0\r\n\r\n")
    try:
        words, headers = await _head(reader)
        answer = json.loads(await _body(reader, headers))
    finally:
        writer.close()
    if words[1] != "200":
        raise Failure(str(answer.get("code", "unknown")), str(answer.get("message", "")))
    return dict(answer)
