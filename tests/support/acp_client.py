"""A `cursor-agent acp` that was started, and what can be asked of it, without any kindness."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

WAIT_SECONDS = 40.0
NO_LIMIT = 2**30
Json = dict[str, Any]
WITH_OPTIONS = {"clientCapabilities": {"_meta": {"parameterizedModelPicker": True}}}
ALLOW = {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
REJECT = {"outcome": {"outcome": "selected", "optionId": "reject-once"}}


class Refused(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(str(error))
        self.code = error["code"]
        self.data: Any = error.get("data")


class AcpClient:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        # Everything that came, in order; what is no JSON as bytes.
        self.lines: list[Any] = []
        # How requests of the agent's are answered; None leaves them without.
        self.permits: Callable[[Json], Json | None] = lambda _: ALLOW
        self._ids = itertools.count(0)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                message = line
            self.lines.append(message)
            if isinstance(message, dict) and "id" in message:
                self._heard(message)
        for asked in self._asked.values():
            asked.cancel()

    def _heard(self, message: Json) -> None:
        if "method" not in message:
            asked = self._asked.get(message["id"])
            if asked and not asked.done():
                asked.set_result(message)
        elif (answer := self.permits(message)) is not None:
            self.send({"jsonrpc": "2.0", "id": message["id"], **wrapped(answer)})

    def send(self, message: Json | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.process.stdin
        self.process.stdin.write(line + b"\n")

    def begin(self, method: str, **params: Any) -> asyncio.Future[Json]:
        """The whole answer, in time. Cancelled when the process ends before."""
        number = next(self._ids)
        asked: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return asked

    async def ask(self, method: str, **params: Any) -> Json:
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await self.begin(method, **params)
        if "error" in answer:
            raise Refused(answer["error"])
        return dict(answer["result"])

    def tell(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def session(self, cwd: Path, *servers: Json) -> str:
        made = await self.ask("session/new", cwd=str(cwd), mcpServers=list(servers))
        return str(made["sessionId"])

    def begin_prompt(self, session: str, *texts: str) -> asyncio.Future[Json]:
        blocks = [{"type": "text", "text": text} for text in texts]
        return self.begin("session/prompt", sessionId=session, prompt=blocks)

    async def prompt(self, session: str, *texts: str) -> str:
        """The reason why it stopped."""
        blocks = [{"type": "text", "text": text} for text in texts]
        answer = await self.ask("session/prompt", sessionId=session, prompt=blocks)
        return str(answer["stopReason"])

    # What came

    @property
    def messages(self) -> list[Json]:
        return [line for line in self.lines if isinstance(line, dict)]

    def updates(self, *kinds: str, session: str = "") -> list[Json]:
        told = [each["params"] for each in self.messages if each.get("method") == "session/update"]
        ours = [each["update"] for each in told if session in ("", each["sessionId"])]
        return [each for each in ours if not kinds or each.get("sessionUpdate") in kinds]

    def requests(self, method: str = "session/request_permission") -> list[Json]:
        return [each for each in self.messages if each.get("method") == method and "id" in each]

    def text(self, session: str = "", kind: str = "agent_message_chunk") -> str:
        chunks = self.updates(kind, session=session)
        return "".join(each["content"].get("text", "") for each in chunks)

    async def end(self) -> int:
        """The exit code after its stdin has ended."""
        assert self.process.stdin
        self.process.stdin.close()
        async with asyncio.timeout(WAIT_SECONDS):
            await self._reading
            return await self.process.wait()

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading


def wrapped(answer: Json) -> Json:
    return answer if "error" in answer else {"result": answer}


@asynccontextmanager
async def started(
    env: Mapping[str, str], *flags: str, initialize: bool = True
) -> AsyncIterator[AcpClient]:
    process = await asyncio.create_subprocess_exec(
        *("cursor-agent", *flags, "acp"), env=env, stdin=-1, stdout=-1, stderr=-1, limit=NO_LIMIT
    )
    client = AcpClient(process)
    try:
        if initialize:
            await client.ask("initialize", protocolVersion=1, **WITH_OPTIONS)
        yield client
    finally:
        await client.stop()
