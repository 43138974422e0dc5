"""Everything goes wrong at once: `make chaos`.

A real gateway process is put under load by an agent with random vices and by clients that leave at
random moments, bring results for parked calls or never come back. Some rounds end in peace, some in
SIGTERM, some in SIGKILL. What must hold whatever happens is checked from outside:

- every request ends as a complete answer, as a typed error, or because its client left;
- a complete answer has exactly the agent's words, an incomplete one a beginning of them: none is
  lost, none comes twice;
- a client is handed out the calls that the agent makes, each of them once;
- nothing stays: no process, descriptor, scratch directory, slot or session;
- memory does not grow;
- the log holds no traceback and no forgotten task.

There is a chaos for each agent (`AGENT=sdk` plays that one only): the print CLI, of which each run
is a process that may die, and the SDK's bridge, which is killed with all that is under way in it.

`python -m benchmarks.chaos --seed N` repeats the choices of a run (not its timing).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks.chaos_agents import AGENTS, CLI, Agent, Script
from benchmarks.chaos_answers import BASH, DIALECTS, Ending, Reading, chat, function
from benchmarks.outside import GatewayProcess, Home, gateway, settled, write_section

FLAGS = (
    *("--slots", "8", "--queue", "200", "--idle-timeout", "2", "--first-event-timeout", "15"),
    *("--session-ttl", "2", "--relay-hold", "1", "--shutdown-grace", "1", "--keep-alive", "0.5"),
    # The fake agent repeats itself even after the loop guard's hint, as no model would.
    *("--tool-loop-max-repeat", "100"),
)
# The log of a healthy gateway never has these.
SUSPICIOUS = (b"Traceback", b"was destroyed but", b"never retrieved", b"never awaited")
GROWTH_KB = 20_000
# How long anything may outlive its gateway.
AFTERLIFE_SECONDS = 10.0
# aiohttp keeps a connection that nobody uses for so long, at most; there are some to the bridge.
IDLE_SECONDS = 40.0
# The sections of docs/measurements.md.
TITLES = {"cli": "Chaos", "sdk": "Chaos, the SDK's bridge"}


@dataclass(slots=True)
class Round:
    home: Home
    dice: random.Random
    served: GatewayProcess
    session: aiohttp.ClientSession
    agent: Agent = CLI
    endings: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    # Whether a signal was sent: then the gateway refuses new connections, and after SIGKILL answers
    # break off.
    signalled: bool = False
    killed: bool = False
    # Whether agents are killed at this time: then any request may fail.
    is_sabotaged: bool = False
    # The ids of all calls that were handed out.
    handed_out: set[str] = field(default_factory=set)

    def may_end(self, kind: str) -> bool:
        if kind == "cut":
            return self.killed
        return kind != "refused" or self.signalled

    async def close_connections(self) -> None:
        await self.session.close()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True)
        )

    async def guest(self, name: str) -> None:
        """One client, with one or two requests."""
        if self.dice.random() < 0.3:
            await self.caller(name)
            return
        plan = self.agent.script(self.dice, name)
        dialect = self.dice.choice(DIALECTS)
        ending = await self.request(*dialect(plan.steps, self.dice.random() < 0.7))
        self.judge(name, plan, ending)

    async def caller(self, name: str) -> None:
        """A client with tools: the agent calls one, and waits."""
        calls, commands = self.agent.call(self.dice, name)
        steps = f"[[text:{name} ]]{calls}"
        after = "[[say-result]][[then]][[text:read anew]]"
        body = chat(steps + after, False)[1] | {"tools": [function("bash", BASH)]}
        ending = await self.request("/chat/completions", body)
        if ending.kind != "complete":
            self.judge(name, Script(steps, f"{name} ", completes=False), ending)
            return
        due = self.are_due(ending, commands)
        self.count(name, "calls" if ending.calls else "no call", ok=due)
        if not ending.calls or self.dice.random() < 0.4:
            self.count(name, "abandoned")
            return
        await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.3, 1.5, 2.5)))
        await self.bring_results(name, body, ending)

    def are_due(self, ending: Ending, commands: list[str]) -> bool:
        """Whether the client was handed out what the agent calls, each call once."""
        calls = {call["id"]: call["function"]["arguments"] for call in ending.calls}
        asked = sorted(orjson.loads(arguments)["command"] for arguments in calls.values())
        is_new = len(calls) == len(ending.calls) and not self.handed_out & set(calls)
        self.handed_out |= set(calls)
        is_part = self.is_sabotaged and len(set(asked)) == len(asked) and set(asked) < set(commands)
        return is_new and (asked == commands or is_part)

    async def bring_results(self, name: str, body: dict[str, Any], asked: Ending) -> None:
        said = {"role": "assistant", "content": asked.words, "tool_calls": asked.calls}
        result = f"result of {name}"
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": result} for call in asked.calls
        ]
        body = body | {"messages": [*body["messages"], said, *results]}
        ending = await self.request("/chat/completions", body)
        # The parked run or a fresh one has answered, or the agent gave up waiting and says so.
        answers = ending.words.count(result) + ending.words.count("read anew")
        gave_up = not answers and ("timed out" in ending.words or "ticket " in ending.words)
        if ending.kind == "complete" and not (answers == 1 or gave_up):
            self.count(name, f"wrong words {ending.words!r}", ok=False)
        if ending.calls:
            self.count(name, f"wrong calls {ending.calls}", ok=False)
        self.count(name, ending.kind, ok=self.may_end(ending.kind))

    async def request(self, path: str, body: dict[str, Any]) -> Ending:
        """Send a request; sometimes leave after a random time or a random number of bytes."""
        seconds = self.dice.choice((None, None, None, self.dice.uniform(0, 1.5)))
        limit = self.dice.choice((None, None, None, self.dice.randint(0, 2000)))
        reading = Reading(path, bool(body.get("stream")))
        came_late = self.signalled
        try:
            async with (
                asyncio.timeout(seconds),
                self.session.post(self.served.url + path, json=body) as response,
            ):
                async for data in response.content.iter_any():
                    reading.body += data
                    if limit is not None and len(reading.body) > limit:
                        return Ending("left", reading.words())
                return reading.end(response.status)
        except TimeoutError:
            return Ending("left", reading.words())
        except aiohttp.ClientConnectorError:
            return Ending("refused")
        except aiohttp.ClientError:
            ending = reading.end(0)
            return Ending("refused") if ending.kind == "cut" and came_late else ending

    def judge(self, name: str, plan: Script, ending: Ending) -> None:
        if ending.kind == "complete":
            self.count(name, "complete", ok=plan.completes and ending.words == plan.words)
            if ending.words != plan.words:
                self.violations.append(f"{name}: {ending.words!r} instead of {plan.words!r}")
            return
        self.count(name, ending.kind, ok=self.may_end(ending.kind))
        # If the agent was not told to fail, something else must explain a failure.
        is_excused = self.signalled or self.is_sabotaged
        if plan.completes and ending.kind.startswith("error") and not is_excused:
            self.violations.append(f"{name}: {ending.kind} for {plan.steps}")
        if not plan.words.startswith(ending.words):
            self.violations.append(f"{name}: {ending.words!r} is no beginning of {plan.words!r}")

    def count(self, name: str, kind: str, *, ok: bool = True) -> None:
        self.endings[kind.split(" ")[0] if kind.startswith("wrong") else kind] += 1
        # Whatever befalls the agent, the gateway itself does not fail.
        if not ok or kind == "error server_error":
            self.violations.append(f"{name}: {kind}")


# Rounds


async def play(home: Home, agent: Agent, dice: random.Random, guests: int, ending: str) -> Round:
    """One gateway from its start to its `ending`: peace, SIGTERM or SIGKILL."""
    agent.install(home)
    async with gateway(home, *FLAGS, "--warm", str(dice.randint(0, 2))) as served:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        round_ = Round(home, dice, served, session, agent, is_sabotaged=agent.is_killed)
        async with unlucky(round_):
            load = asyncio.ensure_future(crowd(round_, guests))
            if ending != "peace":
                await asyncio.sleep(dice.uniform(1.0, 4.0))
                round_.signalled, round_.killed = True, ending == "SIGKILL"
                served.process.send_signal(getattr(signal, ending))
            await load
        if ending == "peace":
            await check_rest(round_)
        await round_.session.close()
        if ending == "SIGTERM":
            await served.process.wait()
    await check_end(round_, may_fail=ending == "SIGKILL")
    return round_


@asynccontextmanager
async def unlucky(round_: Round) -> AsyncIterator[None]:
    """Meanwhile the agent has its misfortunes."""
    misfortune = asyncio.ensure_future(round_.agent.misfortune(round_.home, round_.dice))
    try:
        yield
    finally:
        misfortune.cancel()
        await asyncio.wait({misfortune})


async def check_end(round_: Round, *, may_fail: bool) -> None:
    served, home = round_.served, round_.home
    if served.process.returncode and not may_fail:
        round_.violations.append(f"exit code {served.process.returncode}")
    round_.violations += [
        line.decode("utf-8", "replace")
        for line in bytes(served.log).splitlines()
        if any(mark in line for mark in SUSPICIOUS)
    ]
    if not await settled(lambda: not home.processes(), AFTERLIFE_SECONDS):
        round_.violations.append(f"processes remain: {home.processes()}")
    if not await settled(lambda: not home.scratch(), AFTERLIFE_SECONDS):
        round_.violations.append(f"directories remain: {home.scratch()}")


async def crowd(round_: Round, guests: int) -> None:
    """Let so many guests in, a dozen at a time."""
    door = asyncio.Semaphore(12)

    async def visit(number: int) -> None:
        async with door:
            await round_.guest(f"g{number}")

    await asyncio.gather(*(visit(number) for number in range(guests)))


async def check_rest(round_: Round) -> None:
    """Check that the gateway has no more after a second load than after the first."""
    first = await at_rest(round_)
    round_.is_sabotaged = False
    await crowd(round_, 40)
    second = await at_rest(round_)
    # A warm agent has pipes, and there may be two more of them than before.
    most = first["descriptors"] + 8
    if not await settled(lambda: round_.served.descriptors() <= most, IDLE_SECONDS):
        round_.violations.append(f"descriptors grew: {first} then {second}")
    if second["resident_kb"] > first["resident_kb"] + GROWTH_KB:
        round_.violations.append(f"memory grew: {first} then {second}")
    round_.served.process.send_signal(signal.SIGTERM)
    await round_.served.process.wait()


async def at_rest(round_: Round) -> dict[str, int]:
    """Wait until nothing is left of the load. Returns what the gateway has then."""
    served, health = round_.served, dict[str, Any]()
    deadline = time.monotonic() + 30

    async def is_quiet() -> bool:
        health.update(await served.health(round_.session))
        slots, sessions = health["slots"], health["sessions"]
        busy = slots["busy"] + slots["waiting"] + sessions["parked"] + sessions["chats"]
        # One of its children is the guardian. A warm agent may be a child, too, and orphans may
        # stay as long as it lives, since they may be its own.
        most = 1 + round_.agent.residents
        alone = health["warm"]["spares"] or len(served.children()) <= most
        return bool(alone and not busy) and not round_.agent.leftovers(round_.home)

    while not await is_quiet():
        if time.monotonic() > deadline:
            counts = {name: health[name] for name in ("slots", "sessions", "warm")}
            left = f"children {served.children()}, {round_.agent.leftovers(round_.home)}"
            round_.violations.append(f"never quiet: {counts}, {left}")
            break
        await asyncio.sleep(0.05)
    await round_.close_connections()
    return {"resident_kb": served.resident_kb(), "descriptors": served.descriptors()}


async def rounds(
    agent: Agent, seed: int, count: int, guests: int
) -> AsyncIterator[tuple[str, Round]]:
    dice = random.Random(seed)  # noqa: S311
    endings = ["peace", "SIGTERM", "SIGKILL"]
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        for number in range(count):
            home = Home(Path(folder) / str(number))
            ending = endings[number % len(endings)]
            yield ending, await play(home, agent, dice, guests, ending)


async def chaos(kind: str, seed: int, count: int, guests: int) -> int:
    """With one of the agents. Returns how much was violated."""
    endings: Counter[str] = Counter()
    violations: list[str] = []
    began = time.monotonic()
    async for ending, round_ in rounds(AGENTS[kind], seed, count, guests):
        print(f"{kind} {ending:8} {dict(round_.endings.most_common())}", flush=True)
        endings += round_.endings
        violations += [f"{ending}: {violation}" for violation in round_.violations]
    print(*violations, sep="\n")
    print(f"{sum(endings.values())} requests, {len(violations)} violations")
    table = [f"| {kind} | {number} |" for kind, number in endings.most_common()]
    summary = (
        f"`make chaos AGENT={kind} SEED={seed}`: {count} gateways, {sum(endings.values())} "
        f"requests, {time.monotonic() - began:.0f} s, {len(violations)} violations."
    )
    head = ["| requests that ended as | |", "|---|---|"]
    write_section(TITLES[kind], [summary, "", *head, *table])
    return len(violations)


async def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agent", choices=AGENTS, action="append")
    options.add_argument("--seed", type=int, default=random.randrange(10**6))  # noqa: S311
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--guests", type=int, default=150)
    chosen = options.parse_args()
    print(f"seed {chosen.seed}")
    violated = 0
    for kind in chosen.agent or AGENTS:
        violated += await chaos(kind, chosen.seed, chosen.rounds, chosen.guests)
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
