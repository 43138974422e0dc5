"""Axis: how clients speak. Pure.

A dialect is one module with the shape of `Dialect`, and one line below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from cursor_gateway.core.conversation import Conversation
from cursor_gateway.core.events import AnswerEvent
from cursor_gateway.dialects import chat, completions, messages, responses
from cursor_gateway.errors import GatewayError


class StreamEncoder(Protocol):
    """Writes one streamed answer."""

    def feed(self, events: Iterable[AnswerEvent]) -> bytes: ...
    def fail(self, error: GatewayError, request_id: str) -> bytes: ...
    def keep_alive(self) -> bytes:
        """Bytes without meaning, for proxies and clients that close silent connections."""
        ...

    def heartbeat(self) -> bytes:
        """An event that changes nothing. Codex and Qwen Code ignore comments, and send the request
        again when no event comes for some minutes."""
        ...


class Fold(Protocol):
    """Collects the same events into one answer."""

    def feed(self, events: Iterable[AnswerEvent]) -> None: ...
    def body(self) -> dict[str, Any]: ...


class Exchange(Protocol):
    """One parsed request, and how to answer it."""

    @property
    def conversation(self) -> Conversation: ...
    @property
    def stream(self) -> bool: ...
    def encoder(self, answer_id: str, created: int) -> StreamEncoder: ...
    def fold(self, answer_id: str, created: int) -> Fold: ...


class Dialect(Protocol):
    PATH: str
    # The fields that a request must have, besides its model.
    EXAMPLE: Mapping[str, Any]

    def parse(self, body: Mapping[str, Any]) -> Exchange: ...
    def render_error(
        self, error: GatewayError, request_id: str, status: int | None = None
    ) -> dict[str, Any]:
        """`status` is that of the response, if it is not the error's own."""
        ...


DIALECTS: tuple[Dialect, ...] = (chat, messages, responses, completions)
# The dialects by their names in the journal.
BY_NAME: Mapping[str, Dialect] = {dialect.PATH.split("/")[1]: dialect for dialect in DIALECTS}
