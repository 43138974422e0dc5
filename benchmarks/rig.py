"""What is compared: the agent through a bare pipe, the copying floor, and the gateway.

The servers are processes of their own, up at the same time, and asked by the same client; so a
ratio between them says something even where the machine is busy.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

HERE = Path(__file__).parent
GATEWAY = str(Path(sys.executable).with_name("cursor-gateway"))
# The text of the first delta. The agent repeats the prompt before it, which does not contain this.
FIRST_TOKEN = b'"token0 '
SLOTS = 256


def build_agent(folder: Path) -> Path:
    """The native agent. It is linked statically if possible, so that it starts in half the time."""
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    agent = folder / "cursor-agent"
    command = [compiler, "-O2", "-o", str(agent), str(HERE / "agent.c")]
    if subprocess.run([*command, "-static"], capture_output=True, check=False).returncode:
        subprocess.run(command, check=True)
    return agent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One process that is measured from outside."""

    def __init__(self, argv: Sequence[str], port: int, env: dict[str, str]) -> None:
        self.port = port
        began = time.perf_counter()
        # A session of its own, like a service: on a busy machine it gets a share apart from the
        # client's.
        self._process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_until_it_listens()
        self.seconds_to_ready = time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu(self) -> float:
        """CPU seconds of its threads so far, without those of its children."""
        # Linux' CPU clock of another process, as clock_getcpuclockid(3) computes it. Python lacks
        # it.
        return time.clock_gettime((~self.pid << 3) | 2)

    def memory(self) -> int:
        """Its memory in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the server has ended")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _wait_until_it_listens(self) -> None:
        while self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.002)
        raise RuntimeError("the server does not start")


@dataclass(frozen=True, slots=True)
class Rig:
    folder: Path
    agent: Path
    floor: Server
    gateway: Server

    @property
    def servers(self) -> dict[str, Server]:
        return {"floor": self.floor, "gateway": self.gateway}


@contextmanager
def rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        agent = build_agent(folder)
        floor = start_floor(agent)
        gateway = start_gateway(agent)
        try:
            yield Rig(folder, agent, floor, gateway)
        finally:
            gateway.stop()
            floor.stop()


def start_floor(agent: Path) -> Server:
    port = free_port()
    argv = [sys.executable, str(HERE / "floor.py"), str(port), str(agent)]
    return Server(argv, port, clean_environment(agent))


def start_gateway(agent: Path, **env: str) -> Server:
    port = free_port()
    argv = [GATEWAY, "serve", "--port", str(port), "--slots", str(SLOTS)]
    return Server(argv, port, clean_environment(agent) | env)


def clean_environment(agent: Path) -> dict[str, str]:
    """An environment without the user's own settings, and with the fake agent only."""
    kept = {name: value for name, value in os.environ.items() if "CURSOR" not in name}
    home = str(agent.parent)
    return kept | {"HOME": home, "XDG_CONFIG_HOME": home, "CURSOR_AGENT_EXECUTABLE": str(agent)}


def request_body(directive: str, history: Sequence[str] = ()) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(history)]
    messages.append({"role": "user", "content": f"Go. [[bench {directive}]]"})
    return orjson.dumps({"model": "auto", "stream": True, "messages": messages})


def request_head(body: bytes) -> bytes:
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


@dataclass(slots=True)
class Answer:
    """The seconds from the request to the first token and to the end, and the bytes received."""

    first: float = 0.0
    total: float = 0.0
    size: int = 0


class Client(asyncio.Protocol):
    """A client with one open connection, which only looks for the first token and the end."""

    _END = b"0\r\n\r\n"

    @classmethod
    async def connect(cls, server: Server) -> Client:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(cls, "127.0.0.1", server.port)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._over: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def ask(self, body: bytes) -> Answer:
        self._answer, self._tail = Answer(), b""
        self._over = asyncio.get_running_loop().create_future()
        self._began = time.perf_counter()
        self._transport.write(request_head(body) + body)
        return await self._over

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if not answer.first:
            self._look_for_first_token(data)
        answer.size += len(data)
        self._tail = (self._tail + data[-5:])[-5:]
        if self._tail == self._END:
            answer.total = time.perf_counter() - self._began
            self._over.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._over.done():
            self._over.set_exception(error or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        self._over.cancel()
        self._transport.abort()

    def _look_for_first_token(self, data: bytes) -> None:
        if FIRST_TOKEN in data:
            self._answer.first = time.perf_counter() - self._began
        elif not self._answer.size and not data.startswith(b"HTTP/1.1 200"):
            self._over.set_exception(RuntimeError(data[:500].decode()))


def through_a_pipe(agent: Path, directive: str) -> Answer:
    """The agent without any server: no server can be faster."""
    answer = Answer()
    began = time.perf_counter()
    with subprocess.Popen(
        [str(agent), "--print"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"Go. [[bench {directive}]]".encode())
        process.stdin.close()
        while data := os.read(process.stdout.fileno(), 64 * 1024):
            answer.size += len(data)
            if not answer.first and FIRST_TOKEN in data:
                answer.first = time.perf_counter() - began
    answer.total = time.perf_counter() - began
    return answer
