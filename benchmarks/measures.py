"""The measures of `make bench`, each with its target.

On a shared machine, absolute figures mean little. So two servers are measured in turn, in short
bursts and many rounds, and the ratio between their totals counts, or the median of the ratios
inside each round.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import orjson

from benchmarks.rig import (
    GATEWAY,
    Client,
    Rig,
    Server,
    request_body,
    request_head,
    start_floor,
    start_gateway,
    through_a_pipe,
)

T = TypeVar("T")

ROUNDS = 15
BURSTS = 41
CONCURRENCY = (1, 8, 32, 64)
ANSWER = "deltas=200"
LONG_STREAM = 200_000
# Work after an answer belongs to it: the agent exits, and its directory is removed.
AFTERWORK = 0.2


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: what the gateway needs, and the reference that it is compared with."""

    measure: str
    unit: str
    gateway: float
    reference: float | None
    reference_is: str
    # The figure that has the target: a ratio, or the gateway's own figure if `absolute`.
    figure: float
    at_most: float | None = None
    at_least: float | None = None
    pipe: float | None = None

    @property
    def met(self) -> bool:
        above = self.at_least is None or self.figure >= self.at_least
        return above and (self.at_most is None or self.figure <= self.at_most)


@dataclass(frozen=True, slots=True)
class Growth:
    """Cost per unit at three sizes. Linear growth shows as figures that stay the same."""

    what: str
    unit: str
    sizes: tuple[int, ...]
    costs: tuple[float, ...]


async def rows(rig: Rig) -> AsyncIterator[Row]:
    await _warm_up(rig)
    yield _idle_memory(rig)
    yield await _time_to_first_token(rig)
    for concurrency in CONCURRENCY:
        for row in await _throughput(rig, concurrency):
            yield row
    yield await _cpu_per_delta(rig)
    yield await _second_after_slow_boot(rig)
    for row in await _memory_per_stream(rig):
        yield row
    yield await _memory_of_a_huge_answer(rig)
    yield _help()
    yield _ready(rig)


async def growth(rig: Rig) -> AsyncIterator[Growth]:
    yield await _growth_in_deltas(rig)
    yield await _growth_in_history(rig)
    yield await _growth_in_streams(rig)


async def _warm_up(rig: Rig) -> None:
    for server in rig.servers.values():
        await _burst(server, 20, 4, request_body(ANSWER))
    await asyncio.sleep(1)


def _idle_memory(rig: Rig) -> Row:
    used, floor = rig.gateway.memory() / 1e6, rig.floor.memory() / 1e6
    return Row("idle RSS", "MB", used, floor, "floor", used, at_most=60)


async def _time_to_first_token(rig: Rig) -> Row:
    body = request_body("deltas=20")
    first: dict[str, list[float]] = {"pipe": [], "floor": [], "gateway": []}
    ratios = []
    async with _connected(rig.floor, 1) as [floor], _connected(rig.gateway, 1) as [gateway]:
        for number in range(ROUNDS):
            seen: dict[str, list[float]] = {"floor": [], "gateway": []}
            for _ in range(30):
                first["pipe"].append(through_a_pipe(rig.agent, "deltas=20").first)
                for name, client in _in_turn({"floor": floor, "gateway": gateway}, number):
                    seen[name].append((await client.ask(body)).first)
            ratios.append(_median(seen["gateway"]) / _median(seen["floor"]))
            for name, values in seen.items():
                first[name] += values
    return Row(
        "time to first token, p50",
        "ms",
        _median(first["gateway"]) * 1e3,
        _median(first["floor"]) * 1e3,
        "floor",
        _median(ratios),
        at_most=1.5,
        pipe=_median(first["pipe"]) * 1e3,
    )


@dataclass(frozen=True, slots=True)
class _Burst:
    """A number of answers, the seconds that they took, and the CPU seconds of the server."""

    requests: int
    seconds: float
    cpu: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_each(self) -> float:
        return self.cpu / self.requests


def _total(bursts: Sequence[_Burst]) -> _Burst:
    return _Burst(
        sum(burst.requests for burst in bursts),
        sum(burst.seconds for burst in bursts),
        sum(burst.cpu for burst in bursts),
    )


async def _burst(server: Server, requests: int, concurrency: int, body: bytes) -> _Burst:
    """`requests` answers, `concurrency` of them at a time."""
    cpu = server.cpu()
    async with _connected(server, concurrency) as clients:
        left = iter(range(requests))
        began = time.perf_counter()
        await asyncio.gather(*(_ask_while(client, left, body) for client in clients))
        seconds = time.perf_counter() - began
    await asyncio.sleep(AFTERWORK)
    return _Burst(requests, seconds, server.cpu() - cpu)


async def _ask_while(client: Client, left: Iterator[int], body: bytes) -> None:
    for _ in left:
        await client.ask(body)


@asynccontextmanager
async def _connected(server: Server, count: int) -> AsyncIterator[list[Client]]:
    clients = [await Client.connect(server) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


async def _throughput(rig: Rig, concurrency: int) -> tuple[Row, Row]:
    """Compare the totals of many short bursts: a median of their ratios varies twice as much."""
    requests = max(64, 2 * concurrency)
    body = request_body(ANSWER)
    bursts: dict[str, list[_Burst]] = {"floor": [], "gateway": []}
    for number in range(BURSTS):
        for name, server in _in_turn(rig.servers, number):
            bursts[name].append(await _burst(server, requests, concurrency, body))
    floor, gateway = _total(bursts["floor"]), _total(bursts["gateway"])
    pipe = _pipe_per_second(rig, requests, concurrency)
    speed = (gateway.per_second, floor.per_second)
    cpu = (gateway.cpu_each * 1e3, floor.cpu_each * 1e3)
    at_once = f"{concurrency} at once"
    return (
        _compared(f"answers/s, {at_once}", "1/s", *speed, at_least=0.7, pipe=pipe),
        _compared(f"CPU per answer, {at_once}", "ms", *cpu, at_most=1.6),
    )


def _compared(
    measure: str,
    unit: str,
    gateway: float,
    floor: float,
    at_most: float | None = None,
    at_least: float | None = None,
    pipe: float | None = None,
) -> Row:
    return Row(measure, unit, gateway, floor, "floor", gateway / floor, at_most, at_least, pipe)


def _pipe_per_second(rig: Rig, requests: int, concurrency: int) -> float:
    with ThreadPoolExecutor(concurrency) as threads:
        began = time.perf_counter()
        list(threads.map(lambda _: through_a_pipe(rig.agent, ANSWER), range(requests)))
        return requests / (time.perf_counter() - began)


async def _cpu_per_delta(rig: Rig) -> Row:
    lines = _lines_of_the_agent(rig)
    ours, bare = [], []
    for _ in range(ROUNDS):
        bare.append(_bare_loop(lines) / LONG_STREAM * 1e6)
        ours.append(await _cpu_of_stream(rig.gateway, LONG_STREAM) / LONG_STREAM * 1e6)
    ratios = [mine / loop for mine, loop in zip(ours, bare, strict=True)]
    name = f"CPU per delta, one stream of {LONG_STREAM:,}"
    return Row(name, "µs", _median(ours), _median(bare), "orjson loop", _median(ratios), at_most=3)


def _lines_of_the_agent(rig: Rig) -> list[bytes]:
    done = subprocess.run(
        [str(rig.agent)],
        input=f"[[bench deltas={LONG_STREAM}]]".encode(),
        capture_output=True,
        check=True,
    )
    return [line for line in done.stdout.split(b"\n") if b'"timestamp_ms"' in line]


def _bare_loop(lines: Sequence[bytes]) -> float:
    began = time.process_time()
    for line in lines:
        orjson.dumps(orjson.loads(line))
    return time.process_time() - began


async def _cpu_of_stream(server: Server, deltas: int) -> float:
    return (await _burst(server, 1, 1, request_body(f"deltas={deltas}"))).cpu_each


async def _second_after_slow_boot(rig: Rig) -> Row:
    body = request_body("deltas=20 boot_ms=500")
    async with _connected(rig.gateway, 1) as [gateway], _connected(rig.floor, 1) as [floor]:
        await gateway.ask(body)
        await asyncio.sleep(1)
        ours = (await gateway.ask(body)).first * 1e3
        theirs = (await floor.ask(body)).first * 1e3
    return Row("first token, 500 ms boot, second", "ms", ours, theirs, "floor", ours, at_most=60)


async def _memory_per_stream(rig: Rig) -> tuple[Row, Row]:
    """Memory per stream of fresh servers: memory that was freed before would hide what streams
    take."""
    early, late = {}, {}
    for name, start in (("floor", start_floor), ("gateway", start_gateway)):
        server = start(rig.agent)
        async with _slow_streams(server, 16):
            few = server.memory()
        async with _slow_streams(server, 144):
            early[name] = (server.memory() - few) / 128 / 1e3
            await asyncio.sleep(5)
            late[name] = (server.memory() - few) / 128 / 1e3
        server.stop()
    return _kilobytes("per slow stream", early), _kilobytes("per slow stream, 5 s later", late)


def _kilobytes(what: str, used: dict[str, float]) -> Row:
    ours = used["gateway"]
    return Row(f"memory {what}", "KB", ours, used["floor"], "floor", ours, at_most=100)


@asynccontextmanager
async def _slow_streams(server: Server, count: int) -> AsyncIterator[None]:
    """`count` streams at once, each of a few deltas a second."""
    body = request_body("deltas=100000 pace_us=200000")
    async with _connected(server, count) as clients:
        asking = [asyncio.ensure_future(client.ask(body)) for client in clients]
        await asyncio.sleep(1 + count / 100)
        yield
    await asyncio.gather(*asking, return_exceptions=True)
    await asyncio.sleep(1)


async def _memory_of_a_huge_answer(rig: Rig) -> Row:
    """Growth of the gateway's memory in ten seconds, while a client reads 500 MB with 1 KB/s."""
    grown = {}
    for name, start in (("floor", start_floor), ("gateway", start_gateway)):
        server = start(rig.agent)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(request_head(body := request_body("deltas=500000 bytes=1000")) + body)
        await reader.readexactly(1024)
        await asyncio.sleep(2)
        before = server.memory()
        for _ in range(10):
            await reader.readexactly(1024)
            await asyncio.sleep(1)
        grown[name] = (server.memory() - before) / 1e6
        writer.transport.abort()
        server.stop()
    ours = grown["gateway"]
    name = "growth, 500 MB at 1 KB/s, 10 s"
    return Row(name, "MB", ours, grown["floor"], "floor", ours, at_most=1)


def _help() -> Row:
    return _starts("cursor-gateway --help", [GATEWAY, "--help"], "import click", 3)


def _ready(rig: Rig) -> Row:
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(_seconds_to_run([sys.executable, "-c", "import aiohttp.web"]))
        server = start_gateway(rig.agent)
        ours.append(server.seconds_to_ready)
        server.stop()
    return _best("serve until ready", ours, theirs, "import aiohttp.web", 2)


def _starts(measure: str, argv: Sequence[str], reference: str, at_most: float) -> Row:
    ours, theirs = [], []
    for _ in range(3 * ROUNDS):
        theirs.append(_seconds_to_run([sys.executable, "-c", reference]))
        ours.append(_seconds_to_run(argv))
    return _best(measure, ours, theirs, reference, at_most)


def _best(
    measure: str, ours: list[float], theirs: list[float], reference: str, at_most: float
) -> Row:
    """The fastest start counts, since anything else on the machine only makes it slower."""
    mine, other = min(ours) * 1e3, min(theirs) * 1e3
    return Row(measure, "ms", mine, other, reference, mine / other, at_most=at_most)


def _seconds_to_run(argv: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


async def _growth_in_deltas(rig: Rig) -> Growth:
    sizes = (2_000, 20_000, 200_000)
    costs = [await _least(rig.gateway, request_body(f"deltas={size}")) / size for size in sizes]
    return Growth("CPU per delta", "µs", sizes, tuple(cost * 1e6 for cost in costs))


async def _growth_in_history(rig: Rig) -> Growth:
    """A message has 1,000 characters, so a size is about as many kilobytes."""
    sizes = (100, 1_000, 10_000)
    costs = []
    for size in sizes:
        history = ["All work and no play. " * 45] * size
        costs.append(await _least(rig.gateway, request_body("deltas=1", history)) / size)
    return Growth("CPU per message of history", "µs", sizes, tuple(cost * 1e6 for cost in costs))


async def _growth_in_streams(rig: Rig) -> Growth:
    """Streams at the same time, each of 50 deltas, 20 ms apart."""
    sizes = (8, 32, 128)
    body = request_body("deltas=50 pace_us=20000")
    costs = [(await _burst(rig.gateway, size, size, body)).cpu_each for size in sizes]
    return Growth("CPU per stream, all at once", "ms", sizes, tuple(cost * 1e3 for cost in costs))


async def _least(server: Server, body: bytes) -> float:
    """CPU seconds of one answer: the least of three, since disturbances only add to it."""
    return min([(await _burst(server, 1, 1, body)).cpu_each for _ in range(3)])


def _in_turn(named: dict[str, T], round_: int) -> list[tuple[str, T]]:
    order = list(named.items())
    return order if round_ % 2 else order[::-1]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
