"""A cursor-sdk-bridge for the tests: a real process that speaks `sdk.v1`, steered by steps.

A prompt is a program of steps (agent.py, bridge_run.py, bridge_vices.py), the same ones as far as
they mean anything here: `[[relay:...]]` calls a custom tool back. Files in `$FAKE_AGENT_DIR` are
its switches. Those of the fake agent that it heeds: `account`, `key`, `models.txt`, `habits.json`,
`always`, `forgets`, `flaky`, `offline`, `no-resume`. Its own:

    dies-at-start     it fails before it is ready, with these words on stderr
    never-ready       it starts, and says nothing
    ready-takes       the seconds before it is ready; `noise`: what it writes to stderr before
    schema-version    another version of its ready line; `server-version` likewise
    token-in-line     the token stands in the line, as old bridges put it there
    dies-in           it dies as it receives this RPC, once
    takes-<RPC>       the seconds that an RPC takes
    fails-<RPC>       `CODE seconds times words`: it fails with an SdkErrorCode, or a Connect code
    busy              so many times `Send` finds a run that is active
    busy-typed        that error has its code, as older bridges did not have
    keep-alive        the seconds of silence after which it sends an empty frame
    split-frames      the bytes that it writes at once
    models.json       what it lists instead of models.txt

It leaves a note in `calls/` for each `Send`, a line in `rpcs` for each RPC, and an agent's id in
`model-steps` whenever its model is asked. `at-work/` has a file for each run that has not ended.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.bridge_service import Service
from tests.fakes.bridge_vices import piece_size
from tests.fakes.connect import LAST, STATUS, Failure, Reply, Request, Server, failure
from tests.fakes.steps import HOME, setting, switched_on

READY = "cursor-sdk-bridge ready "
VALUED = {
    "--host",
    "--port",
    "--workspace",
    "--state-root",
    "--local-store",
    "--tool-callback-url",
    "--tool-callback-auth-token",
    "--store-callback-url",
    "--store-callback-auth-token",
    "--max-concurrent-agents",
    "--max-message-bytes",
}


def parsed(argv: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = list(argv)
    while rest:
        flag = rest.pop(0)
        if flag == "--verbose":
            options[flag] = ""
        elif flag not in VALUED:
            raise ValueError(f"Unknown argument: {flag}")
        elif not rest:
            raise ValueError(f"Missing value for {flag}")
        else:
            options[flag] = rest.pop(0)
    return options


def check(options: dict[str, str]) -> None:
    """What the real one takes for a mistake."""
    for flag in ("--max-concurrent-agents", "--max-message-bytes"):
        if flag in options and not options[flag].isdigit():
            raise ValueError(f"Invalid {flag}: {options[flag]}")
    port = options.get("--port", "0")
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(f"Invalid port: {port}")
    for kind, name in (("store", "Store"), ("tool", "Tool")):
        url, token = f"--{kind}-callback-url", f"--{kind}-callback-auth-token"
        if (url in options) != (token in options):
            raise ValueError(f"{name} callbacks need a URL and a token")
    check_store(options.get("--local-store", "{}"))
    host = options.get("--host", "127.0.0.1")
    if host not in {"127.0.0.1", "localhost", "::1"}:
        raise ValueError(f"{host} is a non-loopback host")


def check_store(written: str) -> None:
    try:
        kind = json.loads(written).get("type")
    except ValueError as error:
        raise ValueError(f"Invalid --local-store JSON: {error}") from error
    if kind not in {None, "sqlite", "jsonl"}:
        raise ValueError(f"Unsupported local store: {kind}")


def failed(words: str) -> int:
    sys.stderr.write(f"cursor-sdk-bridge failed: {words}\n")
    return 1


def main(argv: Sequence[str]) -> int:
    try:
        options = parsed(argv)
        check(options)
    except ValueError as error:
        return failed(f"Error: {error}")
    if switched_on("noise"):
        sys.stderr.write((HOME / "noise").read_text())
        sys.stderr.flush()
    time.sleep(float(setting("ready-takes", "0")))
    if switched_on("dies-at-start"):
        return failed(setting("dies-at-start"))
    if switched_on("never-ready"):
        signal.pause()
    return asyncio.run(Bridge(options).serve())


class Bridge:
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._token = secrets.token_urlsafe(32)
        self._server = Server(self._answer)
        self._service = Service(options, self.shut_down)
        self._over: asyncio.Future[int] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        host = self._options.get("--host", "127.0.0.1")
        port = await self._server.listen(host, int(self._options.get("--port", "0")))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        self._say_ready(host, port)
        return await self._over

    def _say_ready(self, host: str, port: int) -> None:
        workspace = str(Path(self._options.get("--workspace", ".")).resolve())
        line = {
            "schemaVersion": int(setting("schema-version", "1")),
            "serverVersion": setting("server-version", "1.0.0"),
            "pid": os.getpid(),
            "transport": "tcp",
            "protocol": "connect",
            "host": host,
            "port": port,
            "url": f"http://{host}:{port}",
            "authTokenFile": self._token_file(),
            "workspaceRef": workspace,
            "stateRoot": self._service.state_root,
        }
        if switched_on("token-in-line"):
            line["authToken"] = self._token
        sys.stderr.write(f"{READY}{json.dumps(line, separators=(',', ':'))}\n")
        sys.stderr.flush()

    def _token_file(self) -> str:
        file = Path(tempfile.mkdtemp(prefix="cursor-sdk-bridge-"), "auth-token")
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as token:
            token.write(self._token)
        return str(file)

    def _signalled(self, number: signal.Signals) -> None:
        """The first asks it to end, the next one ends it."""
        asyncio.get_running_loop().remove_signal_handler(number)
        sys.stderr.write(f"cursor-sdk-bridge {number.name} received, shutting down\n")
        sys.stderr.flush()
        self.shut_down(0)

    def shut_down(self, seconds: float) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(seconds))

    async def _close(self, seconds: float) -> None:
        """It waits for streams that are open, and that is why it does not end while a run is on."""
        await asyncio.sleep(seconds)
        await self._server.close()
        assert self._over is not None
        self._over.set_result(0)

    # One request

    async def _answer(self, request: Request, reply: Reply) -> None:
        reply.piece = piece_size()
        try:
            self._admit(request)
            await vices_of(request.method)
            await self._service.answer(request, reply)
        except Failure as error:
            await refuse(request, reply, error)

    def _admit(self, request: Request) -> None:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(shown.encode(), self._token.encode()):
            raise Failure("unauthenticated", "Unauthorized")


async def refuse(request: Request, reply: Reply, error: Failure) -> None:
    """Where there is a stream an error is its last frame, whatever it is about."""
    if request.is_stream:
        await reply.frame({"error": error.body}, LAST)
        reply.end()
    else:
        reply.whole(STATUS[error.code], error.body)


async def vices_of(method: str) -> None:
    """What the test wants of this RPC before it does anything."""
    if setting("dies-in") == method:
        (HOME / "dies-in").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(float(setting(f"takes-{method}", "0")))
    wish = setting(f"fails-{method}")
    if not wish:
        return
    kind, seconds, times, words = (wish.split(" ", 3) + [""] * 4)[:4]
    if times and int(times) <= 1:
        (HOME / f"fails-{method}").unlink()
    elif times:
        rest = f"{kind} {seconds} {int(times) - 1} {words}"
        (HOME / f"fails-{method}").write_text(rest)
    raise failure(kind, words, int(seconds) if seconds and seconds != "0" else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
