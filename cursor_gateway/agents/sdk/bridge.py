"""Bridge: the one process of Cursor's in which all runs work.

It is started when the gateway starts, in the background, and again when it has died; where it dies
again and again, each start waits longer than the one before. It lives in a directory of ours with
all that it writes, which goes with it: its own home, and the store of its agents.

It outlives its parent and does not end on SIGTERM while a stream is open (1.1.0). So it has a tree
of its own, which is ended as a whole, by us or by the guardian.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cursor_gateway.agents.sdk.callbacks import Callbacks
from cursor_gateway.agents.sdk.connect import LOCAL_SECONDS, Connect
from cursor_gateway.agents.sdk.handshake import (
    Ready,
    ReadyLine,
    check_version,
    without_ready_line,
)
from cursor_gateway.agents.sdk.program import environment, find_bridge
from cursor_gateway.agents.sdk.sending import Sending
from cursor_gateway.agents.sdk.texts import BridgeFault, Refusal, error_for, fault
from cursor_gateway.background import in_background
from cursor_gateway.errors import GatewayError, ShuttingDown
from cursor_gateway.processes.child import Child, Command
from cursor_gateway.processes.children import Children

log = logging.getLogger(__name__)

READY_SECONDS = 30.0
SHUTDOWN_SECONDS = 1.0
# After its first death it starts at once. One that has lived for so long did start.
BACK_OFF = (0.0, 1.0, 2.0, 5.0, 15.0, 60.0)
HEALTHY_AFTER = 60.0
# Whoever would have to wait for longer is told to come back.
LONGEST_WAIT = 5.0

_MOST_TOKEN = 4096


class Connection:
    """A bridge that lives and is ready."""

    def __init__(self, child: Child, connect: Connect, version: str, home: Path) -> None:
        self.child = child
        self.connect = connect
        self.version = version
        self.home = home
        self.born = asyncio.get_running_loop().time()
        self.is_given_up = False

    def tell_end(self, sending: Sending) -> None:
        """Let who reads from the bridge know when it ends."""
        exited = self.child.exited

        def tell(_: object) -> None:
            sending.bridge_ended()

        exited.add_done_callback(tell)
        sending.over.add_done_callback(lambda _: exited.remove_done_callback(tell))

    @property
    def is_alive(self) -> bool:
        return not self.is_given_up and not self.child.exited.done()


class Bridge:
    """Made and used inside one event loop."""

    def __init__(self, env: Mapping[str, str], children: Children, callbacks: Callbacks) -> None:
        self._env = env
        self._children = children
        self._callbacks = callbacks
        self._starts = 0
        # How often in a row it died early, and when it may be started again.
        self._failures = 0
        self._not_before = 0.0
        self._starting: asyncio.Task[Connection | GatewayError] | None = None
        self._connection: Connection | None = None
        self._closed = False
        # Why the last start failed.
        self.problem: GatewayError | None = None

    @property
    def connection(self) -> Connection | None:
        """The bridge, if one is ready now."""
        found = self._connection
        return found if found is not None and found.is_alive else None

    @property
    def restarts(self) -> int:
        return max(0, self._starts - 1)

    async def ready(self) -> Connection:
        """The bridge, once it is ready. Raises a GatewayError."""
        if found := self.connection:
            return found
        if self._closed:
            raise ShuttingDown("The gateway is shutting down.")
        wait = self._not_before - asyncio.get_running_loop().time()
        if wait > LONGEST_WAIT and self.problem is not None:
            raise self.problem
        started = await asyncio.shield(self._start())
        if isinstance(started, GatewayError):
            raise started
        return started

    def begin(self) -> None:
        """Start it in the background, so that nobody waits."""
        if not self._closed and self.connection is None:
            self._start()

    async def still_answers(self, connection: Connection) -> bool:
        """Whether one that has failed to answer is there all the same; else it is given up. Its
        launcher, a shell, notices later than we do that it has died."""
        try:
            await connection.connect.call("SdkBridgeControlService/Ping", {}, LOCAL_SECONDS)
        except (BridgeFault, Refusal):
            self._died(connection)
        return connection.is_alive

    async def close(self) -> None:
        """End it, whatever it does. Its runs are cancelled before."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if (found := self._connection) is None:
            return
        if found.is_alive:
            # It answers at once, and then does not end while a stream is open.
            with suppress(BridgeFault, Refusal):
                method = "SdkBridgeControlService/Shutdown"
                await found.connect.call(method, {"graceSeconds": 0}, SHUTDOWN_SECONDS)
        await self._end(found.child, found.home, found.connect)

    def _start(self) -> asyncio.Task[Connection | GatewayError]:
        """The start that is on its way, or another one. Whoever waits for it may leave."""
        if self._starting is None or self._starting.done():
            self._starting = in_background(self._started(), "starting the SDK bridge")
        return self._starting

    async def _started(self) -> Connection | GatewayError:
        wait = self._not_before - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)
        try:
            program = find_bridge(self._env)
        except GatewayError as error:
            return error
        try:
            connection = await self._connected(program)
        except (BridgeFault, Refusal, OSError, GatewayError) as error:
            return self._failed(error)
        self.problem, self._connection = None, connection
        connection.child.exited.add_done_callback(lambda _: self._died(connection))
        return connection

    def _failed(self, error: Exception) -> GatewayError:
        if isinstance(error, Refusal):
            error = error_for(error)
        self.problem = error if isinstance(error, GatewayError) else fault(error)
        self._back_off()
        log.warning("%s", self.problem.message)
        return self.problem

    def _back_off(self) -> None:
        pause = BACK_OFF[min(self._failures, len(BACK_OFF) - 1)]
        self._failures += 1
        self._not_before = asyncio.get_running_loop().time() + pause

    def _died(self, connection: Connection) -> None:
        if self._closed or connection.is_given_up:
            return
        connection.is_given_up = True
        self.problem = fault("it has ended")
        if asyncio.get_running_loop().time() - connection.born > HEALTHY_AFTER:
            self._failures = 0
        self._back_off()
        log.warning("Cursor's SDK bridge has ended; it is started again")
        end = self._end(connection.child, connection.home, connection.connect)
        in_background(end, "clearing up after the SDK bridge")
        self.begin()

    # One start

    async def _connected(self, program: Path) -> Connection:
        self._starts += 1
        home = self._make_home()
        ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        try:
            child = self._spawn(program, home, ready)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
        connect: Connect | None = None
        try:
            told = await self._wait_for(child, ready)
            connect = Connect(told.url, await asyncio.to_thread(_token, told))
            return Connection(child, connect, await self._handshake(connect), home)
        except BaseException:
            ending = self._end(child, home, connect)
            in_background(ending, "ending an SDK bridge that did not start")
            raise

    def _make_home(self) -> Path:
        home = self._children.scratch / f"bridge-{self._starts}"
        with self._children.root.in_use():
            for name in ("home", "tmp", "store", "empty"):
                (home / name).mkdir(parents=True, mode=0o700)
        return home

    def _spawn(self, program: Path, home: Path, ready: asyncio.Future[Ready]) -> Child:
        line = ReadyLine()

        def hear(data: bytes) -> None:
            if ready.done():
                return
            try:
                if told := line.feed(data):
                    ready.set_result(told)
            except (BridgeFault, GatewayError) as error:
                ready.set_exception(error)

        # Its stdout says nothing, and would fill a pipe.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            env = environment(self._env, home / "home", home / "tmp")
            argv = [str(program), *_flags(home)]
            return self._children.spawn_resident(
                Command(argv, env, home / "empty", b"", nowhere), hear
            )
        finally:
            os.close(nowhere)

    async def _wait_for(self, child: Child, ready: asyncio.Future[Ready]) -> Ready:
        either: set[asyncio.Future[Any]] = {ready, child.exited}
        await asyncio.wait(either, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            return ready.result()
        said = " ".join(without_ready_line(child.stderr).split())[-400:]
        if child.exited.done():
            raise BridgeFault(f"it ended at once (exit code {child.exited.result()}): {said}")
        raise BridgeFault(f"it did not get ready within {READY_SECONDS:g} seconds")

    async def _handshake(self, connect: Connect) -> str:
        service = "SdkBridgeControlService"
        version = check_version(await connect.call(f"{service}/GetVersion", {}, LOCAL_SECONDS))
        # Not on its command line, which others on this machine can read.
        endpoint = await self._callbacks.endpoint()
        await connect.call(f"{service}/SetToolCallback", endpoint, LOCAL_SECONDS)
        return version

    async def _end(self, child: Child, home: Path, connect: Connect | None) -> None:
        if connect is not None:
            await connect.close()
        await asyncio.wait({self._children.retire(child)})
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)


def _flags(home: Path) -> list[str]:
    # Without a store of ours it keeps its agents in the user's home (1.1.0, whatever --state-root).
    store = {"type": "jsonl", "rootDir": str(home / "store")}
    return [
        *("--workspace", str(home / "empty"), "--state-root", str(home / "store")),
        *("--local-store", json.dumps(store), "--host", "127.0.0.1", "--port", "0"),
    ]


def _token(ready: Ready) -> str:
    try:
        with Path(ready.token_file).open("rb") as file:
            token = file.read(_MOST_TOKEN).decode().strip()
    except (OSError, ValueError):
        token = ""
    if not token.isprintable() or not token:
        raise BridgeFault("its token cannot be read")
    return token
