"""A bridge that was started, and what can be asked of it: bytes and JSON, without any kindness."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

READY = "cursor-sdk-bridge ready "
LAST = 0x02
WAIT_SECONDS = 40.0
Json = dict[str, Any]


class BridgeClient:
    def __init__(self, process: asyncio.subprocess.Process, line: Json) -> None:
        self.process, self.line = process, line
        self.token = Path(line["authTokenFile"]).read_text()
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(WAIT_SECONDS))

    @property
    def server(self) -> psutil.Process:
        """Not the launcher, which only waits for it."""
        return psutil.Process(self.line["pid"])

    def _post(self, method: str, body: bytes, kind: str, token: str | None) -> Any:
        headers = {"Connect-Protocol-Version": "1", "Content-Type": kind}
        headers["Authorization"] = f"Bearer {self.token if token is None else token}"
        url = f"{self.line['url']}/sdk.v1.{method}"
        return self.session.post(url, data=body, headers=headers)

    async def ask(
        self, method: str, message: Json | bytes | None = None, token: str | None = None
    ) -> tuple[int, Any]:
        body = message if isinstance(message, bytes) else json.dumps(message or {}).encode()
        async with self._post(method, body, "application/json", token) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def agent(self, method: str, **message: Any) -> tuple[int, Any]:
        return await self.ask(f"SdkAgentService/{method}", message)

    async def control(self, method: str, **message: Any) -> tuple[int, Any]:
        return await self.ask(f"SdkBridgeControlService/{method}", message)

    async def create(self, cwd: Path, **options: Any) -> str:
        """An agent that works in `cwd`."""
        local = {"cwd": [str(cwd)], "settingSources": []} | options.pop("local", {})
        status, answer = await self.agent("CreateAgent", options={"local": local} | options)
        assert status == 200, answer
        return str(answer["agentId"])

    @asynccontextmanager
    async def stream(
        self, method: str, message: Json, token: str | None = None
    ) -> AsyncIterator[AsyncIterator[tuple[int, Json]]]:
        body = json.dumps(message).encode()
        enveloped = struct.pack(">BI", 0, len(body)) + body
        async with self._post(method, enveloped, "application/connect+json", token) as response:
            assert response.status == 200
            yield frames_in(response.content)

    async def frames(
        self, method: str, message: Json, token: str | None = None
    ) -> list[tuple[int, Json]]:
        async with self.stream(method, message, token) as frames:
            return [frame async for frame in frames]

    async def send(self, agent: str, text: str, **options: Any) -> list[Json]:
        """What a run says, without its last frame, which must be a good one."""
        message = {"agentId": agent, "message": {"text": text}}
        options = {"enableDeltas": True} | options
        found = await self.frames("SdkAgentService/Send", message | {"options": options})
        assert found[-1] == (LAST, {}), found[-1]
        return [frame for _, frame in found[:-1]]

    async def close(self) -> None:
        await self.session.close()


async def frames_in(content: aiohttp.StreamReader) -> AsyncIterator[tuple[int, Json]]:
    """Until the stream ends; what is left over is a frame that broke off."""
    while True:
        try:
            flags, size = struct.unpack(">BI", await content.readexactly(5))
        except asyncio.IncompleteReadError as error:
            assert not error.partial, "a frame broke off"
            return
        yield flags, json.loads(await content.readexactly(size))


def updates(frames: list[Json], kind: str) -> list[Json]:
    found = (frame["interactionUpdate"] for frame in frames if "interactionUpdate" in frame)
    return [each["update"] for each in found if each["type"] == kind]


def messages(frames: list[Json], kind: str) -> list[Json]:
    found = (frame["sdkMessage"] for frame in frames if "sdkMessage" in frame)
    return [each["message"] for each in found if each["type"] == kind]


def text_in(frames: list[Json]) -> str:
    return "".join(update["text"] for update in updates(frames, "text-delta"))


def result_in(frames: list[Json]) -> Json:
    (result,) = [frame["result"] for frame in frames if "result" in frame]
    return dict(result)


@asynccontextmanager
async def started(
    program: Path | str, env: Mapping[str, str], *flags: str
) -> AsyncIterator[BridgeClient]:
    """It, in a session of its own, which ends with the test. What it leaves in the folder for
    temporary files when it is killed goes with the test, too."""
    env = {"TMPDIR": env["HOME"], **env}
    process = await asyncio.create_subprocess_exec(
        str(program), *flags, env=env, stderr=asyncio.subprocess.PIPE, start_new_session=True
    )
    client: BridgeClient | None = None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            client = BridgeClient(process, await ready_line(process))
        yield client
    finally:
        if client is not None:
            await client.close()
        # Its launcher may be gone, and then nothing else leads to it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def ready_line(process: asyncio.subprocess.Process) -> Json:
    assert process.stderr
    async for line in process.stderr:
        if line.decode().startswith(READY):
            return dict(json.loads(line.decode().removeprefix(READY)))
    raise AssertionError("it ended before it was ready")
