"""What an agent answers: a POST in each dialect, and chat over a WebSocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from cursor_gateway.dialects import DIALECTS, Dialect, Exchange, messages, responses
from cursor_gateway.gateway import Gateway
from cursor_gateway.journal.record import Record
from cursor_gateway.journal.ring import Journal
from cursor_gateway.web.active_requests import ActiveRequests
from cursor_gateway.web.admission import caller_of, check_content_type
from cursor_gateway.web.body import Bodies, Held, parse_body
from cursor_gateway.web.delivery import RECORD, Batches, Delivery, json_response
from cursor_gateway.web.response_store import ResponseStore


class Answers:
    def __init__(
        self,
        gateway: Gateway,
        journal: Journal,
        delivery: Delivery,
        bodies: Bodies,
        store: ResponseStore,
        active: ActiveRequests,
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._delivery = delivery
        self._bodies = bodies
        self._store = store
        self._active = active

    def routes(self, prefix: str) -> list[web.RouteDef]:
        return [
            *(web.post(prefix + dialect.PATH, self._answer_in(dialect)) for dialect in DIALECTS),
            web.post(prefix + messages.COUNT_PATH, self._count_tokens),
        ]

    @contextmanager
    def begin(self, request: web.Request, exchange: Exchange, record: Record) -> Iterator[Batches]:
        """The answer to `exchange`, for as long as it is being delivered."""
        directory = self._gateway.workspaces.choose(request.headers.get("X-Cursor-Workspace"))
        with self._active.one():
            yield self._gateway.answer(
                exchange.conversation,
                directory,
                caller=caller_of(request.headers),
                may_resume=_allows(request, "X-Cursor-Session"),
                may_bridge=_allows(request, "X-Cursor-MCP"),
                record=record,
            )

    def _answer_in(
        self, dialect: Dialect
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            check_content_type(request.headers.get("Content-Type", ""))
            with self._bodies.hold() as held:
                exchange = await self._exchange(dialect, request, held)
                with self.begin(request, exchange, request[RECORD]) as batches:
                    return await self._delivery.deliver(request, exchange, batches)

        return answer

    async def _exchange(self, dialect: Dialect, request: web.Request, held: Held) -> Exchange:
        """The parsed request. When this returns, nothing holds the bytes of the body any more."""
        body = await held.read(request)
        exchange = await self._bodies.in_turn(
            body, lambda body: self._parse(dialect, parse_body(body), request)
        )
        record = request[RECORD]
        record.model, record.stream = exchange.conversation.model, exchange.stream
        self._journal.note_request(record, body)
        return exchange

    def _parse(self, dialect: Dialect, body: Mapping[str, Any], request: web.Request) -> Exchange:
        """Responses is the one dialect whose requests may refer to earlier ones."""
        if dialect is responses:
            return responses.parse(body, self._store.of(caller_of(request.headers)))
        return dialect.parse(body)

    async def _count_tokens(self, request: web.Request) -> web.Response:
        check_content_type(request.headers.get("Content-Type", ""))
        bridged = self._gateway.bridge.tools if _allows(request, "X-Cursor-MCP") else ()
        with self._bodies.hold() as held:
            count = await self._bodies.in_turn(
                await held.read(request),
                lambda body: messages.count_tokens(parse_body(body), bridged),
            )
        return json_response(count)


def _allows(request: web.Request, header: str) -> bool:
    return request.headers.get(header, "").lower() != "off"
