"""Peer: one `cursor-agent acp`, asked and read.

It is read when somebody reads, and at no other time: what nobody reads stays in its pipe, which
holds it back. So nothing here grows, and a run that waits for its client costs nothing. Whatever
the agent asks of us is answered as it is read.

It swallows what it cannot read without a word (2026.08.11), so every wait of ours has an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from cursor_gateway.agents.acp.texts import is_transient
from cursor_gateway.agents.acp.wire import (
    Answer,
    Asked,
    Json,
    Message,
    RpcError,
    Wire,
    answer,
    notification,
    request,
)
from cursor_gateway.agents.cursor.texts import classify_failure
from cursor_gateway.errors import AgentTimedOut, GatewayError
from cursor_gateway.processes.child import ENDED, WOKEN, Child, NoOutput

# A prompt may be large, and is in the pipe long before that.
WRITE_SECONDS = 30.0
# Between the end of its output and its exit code.
EXIT_CODE_GRACE = 2.0

Reply = Callable[[Asked], Json | None]


class Peer:
    def __init__(self, child: Child, reply: Reply) -> None:
        self.child = child
        self._reply = reply
        self._wire = Wire()
        self._last_id = 0
        # Whether a line of ours was cut off, after which it understands nothing.
        self._is_cut_off = False

    @property
    def is_alive(self) -> bool:
        return not self.child.exited.done() and not self._is_cut_off

    async def call(self, method: str, params: Json, seconds: float) -> Json:
        """The result of a request. What else is told meanwhile goes by. Raises RpcError or a
        GatewayError."""
        request_id = await self.begin(method, params)
        until = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                answers = [m for m in await self.read(until) if isinstance(m, Answer)]
            except TimeoutError:
                words = f"Cursor's agent did not answer `{method}` within {seconds:g} seconds."
                raise AgentTimedOut(words) from None
            for found in answers:
                if found.id == request_id:
                    return _result(found)

    async def insist(self, method: str, params: Json, seconds: float) -> Json:
        """As `call`; what may be a fault that passes is tried once more."""
        try:
            return await self.call(method, params, seconds)
        except RpcError as error:
            if not is_transient(error):
                raise
        return await self.call(method, params, seconds)

    async def begin(self, method: str, params: Json) -> int:
        """The id of a request whose answer is one of the messages that are read."""
        self._last_id += 1
        await self._write(request(self._last_id, method, params))
        return self._last_id

    async def tell(self, method: str, params: Json) -> None:
        await self._write(notification(method, params))

    async def read(self, until: float) -> Sequence[Message]:
        """What it says next; nothing when it was woken. Raises TimeoutError, and a GatewayError
        where it has ended."""
        data = await self.child.read(until)
        return [] if data is WOKEN else await self._messages(data)

    async def _messages(self, data: bytes | NoOutput) -> Sequence[Message]:
        if isinstance(data, NoOutput):
            assert data is ENDED
            raise await self._why_it_ended()
        messages = self._wire.feed(data)
        for message in messages:
            if isinstance(message, Asked):
                await self._write(answer(message.id, self._reply(message)))
        return messages

    async def _write(self, line: bytes) -> None:
        """Whole, or it is the last one."""
        was_whole, self._is_cut_off = not self._is_cut_off, True
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                took_all = await self.child.write(line)
        except TimeoutError:
            raise AgentTimedOut("Cursor's agent does not read what it is asked.") from None
        if not took_all:
            raise await self._why_it_ended()
        self._is_cut_off = not was_whole

    async def _why_it_ended(self) -> GatewayError:
        exit_code = await self.child.exit_code(EXIT_CODE_GRACE)
        return classify_failure(self.child.stderr, exit_code=exit_code)


def _result(found: Answer) -> Json:
    if found.error is not None:
        raise found.error
    return found.result
