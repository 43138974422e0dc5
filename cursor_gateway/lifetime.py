"""The server as a process of its own: what it says of itself, and which signals it obeys."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping

from cursor_gateway.connections import pass_over_accepts
from cursor_gateway.running_gateways import RunningGateway, announced
from cursor_gateway.settings import Settings
from cursor_gateway.web.server import Server, serving

log = logging.getLogger(__name__)


async def serve_until_signal(
    settings: Settings,
    env: Mapping[str, str],
    announce: Callable[[Server], None],
    load_again: Callable[[], Settings],
) -> None:
    """Serve until Ctrl-C or SIGTERM; the second ends everything at once. SIGHUP reloads."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(pass_over_accepts)
    signals: asyncio.Queue[None] = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.put_nowait, None)
    terminals = [descriptor for descriptor in range(3) if os.isatty(descriptor)]
    async with serving(settings, env, owns_process=True) as server:

        def hang_up() -> None:
            # The same signal says that the terminal was closed, and then nobody is left to serve.
            if all(os.isatty(descriptor) for descriptor in terminals):
                server.reload(load_again)
            else:
                signals.put_nowait(None)

        loop.add_signal_handler(signal.SIGHUP, hang_up)
        with announced(
            RunningGateway(os.getpid(), settings.host, server.port, server.base_url), env
        ):
            announce(server)
            await signals.get()
        log.info("finishing what is running; once more to stop at once")
        second = asyncio.ensure_future(signals.get())
        drained = asyncio.ensure_future(server.drain())
        await asyncio.wait({second, drained}, return_when=asyncio.FIRST_COMPLETED)
        server.in_a_hurry = second.done()
        drained.cancel()
        second.cancel()
