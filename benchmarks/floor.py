"""The floor of the stack: the least that an aiohttp handler does to pass an agent's bytes on.

It parses nothing, checks nothing, and does not wait for an agent that stays. `python floor.py PORT
AGENT`.

It takes asyncio as it comes: Python 3.11 watches each child by a thread, later versions by a pidfd,
which makes this floor 10 to 25 % cheaper and every ratio to it that much harder.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

READ_BYTES = 64 * 1024


async def copy(request: web.Request) -> web.StreamResponse:
    prompt = await request.read()
    agent = await asyncio.create_subprocess_exec(
        sys.argv[2], "--print", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert agent.stdin is not None and agent.stdout is not None
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    agent.stdin.write(prompt)
    agent.stdin.close()
    while data := await agent.stdout.read(READ_BYTES):
        await response.write(data)
    await agent.wait()
    return response


async def serve(port: int) -> None:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", copy)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
