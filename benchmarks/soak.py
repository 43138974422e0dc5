"""A long day in short: `make soak`.

Many short requests, then many slow streams at once, through one real gateway process. Memory,
descriptors and children must be at the end what they were after the warm-up. The added latency is
that of a request less that of the same agent started without a gateway.

`make soak REQUESTS=20000 STREAMS=200` are the defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.outside import ROOT, GatewayProcess, Home, gateway, settled, write_section
from cursor_gateway.workspaces import UNUSED_LAST

AT_ONCE = 8
FLAGS = ("--slots", "256", "--queue", "100000", "--session-ttl", "1", "--warm", "0")
SHORT = "[[bench deltas=3]]"
# Twenty words in ten seconds.
SLOW = "[[bench deltas=20 pace_us=500000]]"
# A shell version of the compiled agent, for machines without a compiler: the number of deltas, and
# the seconds between them.
SHELL_AGENT = r"""
case "$1" in
  --version) echo 2026.09.18-soak; exit ;;
  status) echo '{"isAuthenticated": true}'; exit ;;
  models) printf 'Available models\n\nauto - Auto\n\nTip: use --model <id>\n'; exit ;;
esac
pace=0 deltas=3
IFS= read -r prompt
case "$prompt" in *pace_us=*) pace=0.5 deltas=20 ;; esac
say() {
  printf '{"type":"assistant","message":{"content":[{"type":"text","text":"%s"}]}%s}\n' "$1" "$2"
}
echo '{"type":"system","subtype":"init","session_id":"'$$'","cwd":"/"}'
while [ $deltas -gt 0 ]; do
  say 'word ' ',"timestamp_ms":1'
  [ $pace = 0 ] || sleep $pace
  deltas=$((deltas - 1))
done
echo '{"type":"result","subtype":"success","is_error":false}'
"""
# A page more or less is noise; a leak of a thousand bytes in each request is above this.
MAX_SLOPE_KB = 250.0


@dataclass(slots=True)
class Watch:
    """The gateway's memory, descriptors and children once a second, with the answers so far."""

    served: GatewayProcess
    answered: int = 0
    samples: list[tuple[int, int, int]] = field(default_factory=list)

    async def look(self) -> None:
        while True:
            self.samples.append(
                (self.answered, self.served.resident_kb(), self.served.descriptors())
            )
            await asyncio.sleep(1)

    def slope(self) -> float:
        """Growth in kilobytes per thousand requests. The first third, in which caches fill, is left
        out."""
        late = self.samples[len(self.samples) // 3 :]
        fitted = statistics.linear_regression([s[0] for s in late], [s[1] for s in late])
        return fitted.slope * 1000


def install_agent(home: Home) -> str:
    """The compiled agent if there is a compiler, else the one in shell."""
    source, compiler = ROOT / "benchmarks" / "agent.c", shutil.which("cc")
    program = home.path / "bin" / "cursor-agent"
    if source.exists() and compiler:
        subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
        return "a compiled agent"
    program.write_text(f"#!/bin/sh\n{SHELL_AGENT}")
    program.chmod(0o755)
    return "an agent in the shell's language"


def bare_seconds(home: Home) -> float:
    """Run the agent without a gateway: start it, write its prompt, read to its end."""
    argv = [str(home.path / "bin" / "cursor-agent"), "--print", "--output-format", "stream-json"]
    taken = []
    for _ in range(100):
        began = time.perf_counter()
        subprocess.run(argv, input=SHORT.encode() + b"\n", stdout=subprocess.PIPE, check=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def ask(session: aiohttp.ClientSession, url: str, prompt: str, *, stream: bool) -> float:
    messages = [{"role": "user", "content": f"{prompt}\n"}]
    body = {"model": "auto", "messages": messages, "stream": stream}
    began = time.perf_counter()
    async with session.post(f"{url}/chat/completions", json=body) as response:
        answer = await response.read()
        assert response.status == 200, answer
        assert not stream or b"[DONE]" in answer, answer
    return time.perf_counter() - began


async def short_requests(
    watch: Watch, session: aiohttp.ClientSession, count: int, at_once: int
) -> list[float]:
    left, taken = iter(range(count)), list[float]()

    async def work() -> None:
        for _ in left:
            taken.append(await ask(session, watch.served.url, SHORT, stream=watch.answered % 2 > 0))
            watch.answered += 1

    await asyncio.gather(*(work() for _ in range(at_once)))
    return taken


async def soak(requests: int, streams: int) -> tuple[list[str], list[str]]:
    """The figures, and the problems that were found."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        home = Home(Path(folder))
        kind = install_agent(home)
        bare = bare_seconds(home)
        async with (
            gateway(home, *FLAGS) as served,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            watch = Watch(served)
            await short_requests(watch, session, requests // 20, AT_ONCE)
            await quiet(served, home)
            before = served.descriptors()
            # One request at a time, so that none waits for another.
            alone = sorted(await short_requests(watch, session, max(200, requests // 20), 1))
            watching = asyncio.ensure_future(watch.look())
            began = time.perf_counter()
            taken = await short_requests(watch, session, requests, AT_ONCE)
            rate = len(taken) / (time.perf_counter() - began)
            watching.cancel()
            await quiet(served, home)
            idle = served.resident_kb()
            slow = [
                asyncio.ensure_future(ask(session, served.url, SLOW, stream=True))
                for _ in range(streams)
            ]
            await asyncio.sleep(5)
            during = served.resident_kb()
            await asyncio.gather(*slow)
            problems = await quiet(served, home)
            await session.close()
            await settled(lambda: served.descriptors() <= before, 5)
            after = served.descriptors()
    p50, p99 = (alone[int(len(alone) * share)] - bare for share in (0.5, 0.99))
    slope = watch.slope()
    measured = [
        f"{len(taken)} short requests, {AT_ONCE} at a time, {kind}: {rate:.0f} requests/s",
        f"added latency, one at a time: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms "
        f"(the agent alone takes {bare * 1000:.1f} ms)",
        f"memory: {slope:+.0f} kB in 1000 requests, {idle / 1024:.0f} MB at the end",
        f"{streams} slow streams at once: {(during - idle) / max(1, streams):.0f} kB each",
        f"descriptors: {before} after the warm-up, {after} at the end",
    ]
    if slope > MAX_SLOPE_KB:
        problems.append(f"memory grows by {slope:.0f} kB in 1000 requests")
    if after > before:
        problems.append(f"descriptors: {before}, then {after}")
    return measured, problems


async def quiet(served: GatewayProcess, home: Home) -> list[str]:
    """Wait until only the guardian is left, and no scratch directory but the gateway's own."""
    problems = []
    if not await settled(lambda: len(served.children()) == 1):
        problems.append(f"children remain: {served.children()}")
    (root,) = (home.path / "tmp").iterdir()
    # An empty directory waits for the next request for a while.
    if not await settled(lambda: not list(root.iterdir()), UNUSED_LAST + 30):
        problems.append(f"directories remain: {list(root.iterdir())[:5]}")
    return problems


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--streams", type=int, default=200)
    chosen = options.parse_args()
    measured, problems = asyncio.run(soak(chosen.requests, chosen.streams))
    print(*measured, *problems, sep="\n")
    write_section("Soak", [f"- {line}" for line in (*measured, *problems)])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
