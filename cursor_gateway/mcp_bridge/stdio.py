"""Local MCP servers: processes of ours that speak on their stdin and stdout.

The transport of `mcp` is not used. It takes the end of the pipe for the end of the server, so a
grandchild that holds the pipe keeps a dead server alive; it joins long lines in quadratic time; and
its processes would be unknown to `Children`, which ends strangers. `Child` has none of that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from cursor_gateway.core.line_buffer import LineBuffer
from cursor_gateway.mcp_bridge.bounded_stream import Line, meter
from cursor_gateway.mcp_bridge.config import LocalServer
from cursor_gateway.mcp_bridge.message_meter import LINES, MessageTooLarge
from cursor_gateway.processes.child import Child
from cursor_gateway.processes.children import Children

Arriving = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
Launch = Callable[[LocalServer], Child]

# Between the closing of its stdin and SIGTERM.
LEAVING_GRACE = 1.0
LAST_WORDS = 0.5


@asynccontextmanager
async def stdio(
    server: LocalServer, line: Line, launch: Launch, children: Children
) -> AsyncIterator[Streams]:
    child = launch(server)
    arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with arriving, incoming, outgoing, leaving, anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, child, arriving, line)
            tasks.start_soon(_send, child, leaving, line)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
    finally:
        children.retire(child, LEAVING_GRACE)


async def _receive(child: Child, arriving: Arriving, line: Line) -> None:
    buffer, size = LineBuffer(), meter(LINES)
    async with arriving:
        try:
            while data := await child.read():
                size.feed(data)
                await _pass_on(buffer.feed(data), arriving, line)
        except MessageTooLarge as error:
            line.lose(f"it sent {error}")
        except anyio.BrokenResourceError:
            return  # nobody listens any more
        line.lose(await _last_words(child))


async def _pass_on(lines: bytes, arriving: Arriving, line: Line) -> None:
    for raw in lines.split(b"\n")[:-1]:
        try:
            message = types.jsonrpc_message_adapter.validate_json(raw, by_name=False)
        except ValueError:
            line.garbage = line.garbage or raw[:80].decode("utf-8", "replace").strip()
            await line.unasked.step()
        else:
            await arriving.send(SessionMessage(message))


async def _send(
    child: Child, leaving: MemoryObjectReceiveStream[SessionMessage], line: Line
) -> None:
    async with leaving:
        async for sent in leaving:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            if not await child.write(text.encode() + b"\n"):
                line.lose(await _last_words(child))
                return


async def _last_words(child: Child) -> str:
    code = await child.exit_code(LAST_WORDS)
    said = next((line for line in reversed(child.stderr.splitlines()) if line.strip()), "")
    if code is None:
        end = "it closed its pipe"
    else:
        end = f"it exited with code {code}" if code >= 0 else f"it was ended by signal {-code}"
    return f"{end}: {said.strip()}" if said else end
