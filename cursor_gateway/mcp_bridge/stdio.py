"""Local MCP servers: our child processes, which speak on their stdin and stdout.

The transport of `mcp` is not used. It takes the end of the pipe for the end of the server, so a
grandchild that holds the pipe keeps a dead server alive; it joins long lines in quadratic time; and
`Children`, which ends leftover processes, would not know its processes. `Child` has none of these
problems.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from cursor_gateway.core.line_buffer import LineBuffer
from cursor_gateway.mcp_bridge.bounded_stream import TransportState, meter
from cursor_gateway.mcp_bridge.config import LocalServer
from cursor_gateway.mcp_bridge.message_meter import LINES, MessageTooLarge
from cursor_gateway.processes.child import Child
from cursor_gateway.processes.children import Children

Arriving = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
Launch = Callable[[LocalServer], Child]

# How long the server may take to exit between the closing of its stdin and SIGTERM.
LEAVING_GRACE = 1.0
EXIT_SECONDS = 0.5


@asynccontextmanager
async def stdio(
    server: LocalServer, state: TransportState, launch: Launch, children: Children
) -> AsyncIterator[Streams]:
    child = launch(server)
    arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with arriving, incoming, outgoing, leaving, anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, child, arriving, state)
            tasks.start_soon(_send, child, leaving, state)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
    finally:
        children.retire(child, LEAVING_GRACE)


async def _receive(child: Child, arriving: Arriving, state: TransportState) -> None:
    buffer, size = LineBuffer(), meter(LINES)
    async with arriving:
        try:
            while isinstance(data := await child.read(), bytes):
                size.feed(data)
                await _pass_on(buffer.feed(data), arriving, state)
        except MessageTooLarge as error:
            state.lose(f"it sent {error}")
        except anyio.BrokenResourceError:
            return  # nobody listens any more
        state.lose(await _reason_of_end(child))


async def _pass_on(lines: bytes, arriving: Arriving, state: TransportState) -> None:
    for raw in lines.split(b"\n")[:-1]:
        try:
            message = types.jsonrpc_message_adapter.validate_json(raw, by_name=False)
        except ValueError:
            state.garbage = state.garbage or raw[:80].decode("utf-8", "replace").strip()
            await state.unsolicited.step()
        else:
            await arriving.send(SessionMessage(message))


async def _send(
    child: Child, leaving: MemoryObjectReceiveStream[SessionMessage], state: TransportState
) -> None:
    async with leaving:
        async for sent in leaving:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            if not await child.write(text.encode() + b"\n"):
                state.lose(await _reason_of_end(child))
                return


async def _reason_of_end(child: Child) -> str:
    code = await child.exit_code(EXIT_SECONDS)
    said = next((line for line in reversed(child.stderr.splitlines()) if line.strip()), "")
    if code is None:
        end = "it closed its pipe"
    else:
        end = f"it exited with code {code}" if code >= 0 else f"it was ended by signal {-code}"
    return f"{end}: {said.strip()}" if said else end
