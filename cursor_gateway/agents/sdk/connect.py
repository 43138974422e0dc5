"""Connect: requests and streams of one bridge, over loopback."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

from cursor_gateway.agents.sdk.frames import LARGEST_FRAME, Frames, frame, message_of
from cursor_gateway.agents.sdk.texts import BridgeFault, Refusal, refusal_of
from cursor_gateway.core.json_text import to_json

# What reaches Cursor's servers may take long; the bridge itself answers in milliseconds.
REMOTE_SECONDS = 60.0
LOCAL_SECONDS = 10.0
CONNECT_SECONDS = 5.0

# Whoever begins to read where a connection was closed a moment before gets a RuntimeError (aiohttp
# 3.14).
_BROKEN = (aiohttp.ClientError, OSError, RuntimeError)


class Connect:
    """Made and used inside one event loop."""

    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url}/sdk.v1."
        self._headers = {"Authorization": f"Bearer {token}", "Connect-Protocol-Version": "1"}
        # Each run holds a connection, however many there are. A proxy cannot reach loopback.
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False)

    async def close(self) -> None:
        await self._session.close()

    async def call(
        self, method: str, message: dict[str, Any], seconds: float = REMOTE_SECONDS
    ) -> dict[str, Any]:
        """The answer to one request. Raises Refusal, or BridgeFault where there is none."""
        limit = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS)
        try:
            async with self._post(method, to_json(message).encode(), "json", limit) as response:
                body = await _whole(response)
        except _BROKEN as error:
            raise _broken(error) from error
        except TimeoutError:
            raise BridgeFault(f"{method} took longer than {seconds:g} seconds") from None
        if response.status != 200:
            raise _refusal(response.status, body)
        return message_of(body)

    def stream(
        self, method: str, message: dict[str, Any]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The messages, as many at a time as have come. Raises Refusal, or BridgeFault where the
        stream breaks off. It may be silent for as long as it likes."""
        return self._messages(method, frame(message))

    async def _messages(
        self, method: str, body: bytes
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """A stream may be open for long: nothing that was sent or has come is kept here."""
        limit = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
        frames = Frames()
        request, body = self._post(method, body, "connect+json", limit), b""
        try:
            async with request as response:
                if response.status != 200:
                    raise _refusal(response.status, await _whole(response))
                while not (frames.ended or response.content.at_eof()):
                    yield frames.feed(await response.content.readany())
        except _BROKEN as error:
            raise _broken(error) from error
        if frames.refusal is not None:
            raise frames.refusal
        if not frames.ended:
            raise BridgeFault("it broke a stream off")

    def _post(
        self, method: str, body: bytes, kind: str, limit: aiohttp.ClientTimeout
    ) -> aiohttp.client._RequestContextManager:
        if self._session.closed:
            raise BridgeFault("it has ended")
        headers = {**self._headers, "Content-Type": f"application/{kind}"}
        url = f"{self._url}{method}"
        return self._session.post(
            url, data=io.BytesIO(body), headers=headers, timeout=limit, allow_redirects=False
        )


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > LARGEST_FRAME:
            raise BridgeFault("it sent an answer that is too large")
    return bytes(body)


def _refusal(status: int, body: bytes) -> Refusal:
    """Something between us and the bridge may answer otherwise than the bridge does."""
    try:
        return refusal_of(message_of(body))
    except BridgeFault:
        return Refusal("", "", f"HTTP status {status}")


def _broken(error: Exception) -> BridgeFault:
    is_unreachable = isinstance(error, aiohttp.ClientConnectorError)
    words = "it cannot be reached" if is_unreachable else "its connection broke off"
    return BridgeFault(f"{words} ({type(error).__name__})")
