"""Everything goes wrong at once: `make chaos`.

A real gateway process is put under load by an agent with random vices and by clients that leave at
random moments, bring results for parked calls or never come back. Some rounds end in peace, some in
SIGTERM, some in SIGKILL. What must hold whatever happens is checked from outside:

- every request ends as a complete answer, as a typed error, or because its client left;
- a complete answer has exactly the agent's words, an incomplete one a beginning of them;
- nothing stays: no process, descriptor, scratch directory, slot or session;
- memory does not grow;
- the log holds no traceback and no forgotten task.

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
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks.outside import GatewayProcess, Home, gateway, settled, write_section

FLAGS = (
    *("--slots", "8", "--queue", "200", "--idle-timeout", "2", "--first-event-timeout", "15"),
    *("--session-ttl", "2", "--relay-hold", "1", "--shutdown-grace", "1", "--keep-alive", "0.5"),
    # The fake agent repeats itself even after the loop guard's hint, as no model would.
    *("--tool-loop-max-repeat", "100"),
)
BASH = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
# The log of a healthy gateway never has these.
SUSPICIOUS = (b"Traceback", b"was destroyed but", b"never retrieved", b"never awaited")
GROWTH_KB = 20_000


@dataclass(slots=True)
class Script:
    """The agent's instructions, and the answer that they must lead to."""

    steps: str
    words: str
    completes: bool


def script(dice: random.Random, name: str) -> Script:
    """Words and harmless misbehaviour in any order, and one of the ends."""
    steps: list[str] = []
    words: list[str] = []
    steps += dice.choices(("[[deaf]]", "[[grandchild]]", "[[stranger]]", "[[no-usage]]"), k=2)
    for number in range(dice.randint(1, 6)):
        has_acted = steps[-1].startswith(OWN_TOOLS)
        word = f"{name}.{number} é👍 "
        kind = dice.choices(("text", "bytewise", "cut"), (8, 1, 1))[0]
        steps.append(f"[[{kind}:{word}]]")
        words.append(f"\n\n{word}" if has_acted else word)
        steps.append(dice.choices(OTHER_THINGS, OTHER_WEIGHTS)[0])
    end, completes = dice.choices(ENDS, END_WEIGHTS)[0]
    return Script("".join((*steps, end)), "".join(words), completes)


OTHER_THINGS = (
    *("", "[[think:hm]]", "[[tool:read]]", "[[query:webFetch]]", "[[retry:]]"),
    *("[[noise:T: something]]", "[[flood:300000]]", "[[line:16000000]]"),
)
# The gateway begins a new paragraph after these.
OWN_TOOLS = ("[[tool:", "[[line:")
OTHER_WEIGHTS = (40, 10, 10, 10, 10, 5, 5, 1)
ENDS = (
    *(("", True), ("[[linger]]", True), ("[[unended-result]]", True), ("[[exit:1]]", False)),
    *(("[[exit:0]]", False), ("[[half-line]]", False), ("[[hang]]", False)),
    *(("[[sh:kill -KILL $PPID]]", False), ("[[close-stdout]][[hang]]", False)),
    *(("[[stderr:Error: rate limit exceeded]][[exit:1]]", False),),
)
END_WEIGHTS = (50, 6, 6, 6, 4, 4, 4, 4, 2, 4)


@dataclass(slots=True)
class Ending:
    """How a request ended: `complete`, `error <code>`, `left`, or after a signal `refused` or
    `cut`."""

    kind: str
    words: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Round:
    dice: random.Random
    served: GatewayProcess
    session: aiohttp.ClientSession
    endings: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    # Whether a signal was sent: then the gateway refuses new connections, and after SIGKILL answers
    # break off.
    signalled: bool = False
    killed: bool = False
    # Whether the round kills agents: then any request may fail.
    is_sabotaged: bool = False

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
        plan = script(self.dice, name)
        dialect = self.dice.choice(DIALECTS)
        ending = await self.request(*dialect(plan.steps, self.dice.random() < 0.7))
        self.judge(name, plan, ending)

    async def caller(self, name: str) -> None:
        """A client with tools: the agent calls one, and waits."""
        vice = self.dice.choices(
            ("", "[[patience:0.5]]", "[[impatient]]", "[[grandchild]][[deaf]]"), (6, 1, 1, 1)
        )[0]
        steps = f'{vice}[[text:{name} ]][[relay:bash {{"command": "{name}"}}]]'
        after = "[[say-result]][[then]][[text:read anew]]"
        body = chat(steps + after, False)[1] | {"tools": [function("bash", BASH)]}
        ending = await self.request("/chat/completions", body)
        if ending.kind != "complete":
            self.judge(name, Script(steps, f"{name} ", completes=False), ending)
            return
        ok = bool(ending.calls) or self.is_sabotaged
        self.count(name, "calls" if ending.calls else "no call", ok=ok)
        if not ending.calls or self.dice.random() < 0.4:
            self.count(name, "abandoned")
            return
        await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.3, 1.5, 2.5)))
        await self.bring_results(name, body, ending)

    async def bring_results(self, name: str, body: dict[str, Any], asked: Ending) -> None:
        said = {"role": "assistant", "content": asked.words, "tool_calls": asked.calls}
        result = f"result of {name}"
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": result} for call in asked.calls
        ]
        body = body | {"messages": [*body["messages"], said, *results]}
        ending = await self.request("/chat/completions", body)
        # The parked run or a fresh one has answered, or the agent gave up waiting and says so.
        fitting = (result, "read anew", "timed out", "ticket ")
        if ending.kind == "complete" and not any(words in ending.words for words in fitting):
            self.count(name, f"wrong words {ending.words!r}", ok=False)
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
        if not ok:
            self.violations.append(f"{name}: {kind}")


def function(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def chat(prompt: str, stream: bool) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": prompt}]
    return "/chat/completions", {"model": "auto", "messages": messages, "stream": stream}


def messages(prompt: str, stream: bool) -> tuple[str, dict[str, Any]]:
    return "/messages", chat(prompt, stream)[1] | {"max_tokens": 100_000}


def responses(prompt: str, stream: bool) -> tuple[str, dict[str, Any]]:
    return "/responses", {"model": "auto", "input": prompt, "stream": stream}


DIALECTS: tuple[Callable[[str, bool], tuple[str, dict[str, Any]]], ...] = (
    chat,
    messages,
    responses,
)


@dataclass(slots=True)
class Reading:
    """The part of an answer that a client has received, in any dialect."""

    path: str
    stream: bool
    body: bytearray = field(default_factory=bytearray)

    def end(self, status: int) -> Ending:
        if not self.stream or status >= 400:
            return self._whole(status)
        frames = self.frames()
        failed = [frame for frame in frames if _error_of(frame)]
        done = b"[DONE]" in self.body or any(frame.get("type") in _LAST for frame in frames)
        if failed and done:
            return Ending("both an end and an error")
        if failed:
            return Ending(f"error {_error_of(failed[-1])}", self.words())
        return Ending("complete" if done else "cut", self.words())

    def _whole(self, status: int) -> Ending:
        try:
            answer = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return Ending("cut")
        if status >= 400:
            return Ending(f"error {_error_of(answer)}")
        message = (answer.get("choices") or [{}])[0].get("message", {})
        return Ending("complete", _whole_words(answer), message.get("tool_calls") or [])

    def frames(self) -> list[dict[str, Any]]:
        """The complete frames; the last one may be cut off."""
        whole = self.body[: self.body.rfind(b"\n\n") + 1]
        lines = (line for line in whole.split(b"\n") if line.startswith(b"data: {"))
        return [orjson.loads(line[6:]) for line in lines]

    def words(self) -> str:
        return "".join(map(_words_of_frame, self.frames())) if self.stream else ""


_LAST = ("message_stop", "response.completed", "response.incomplete")


def _error_of(frame: dict[str, Any]) -> str:
    error = frame.get("error") or (frame.get("response") or {}).get("error")
    return str(error.get("code") or error["type"]) if error else ""


def _words_of_frame(frame: dict[str, Any]) -> str:
    delta = frame.get("delta")
    if frame.get("type") == "response.output_text.delta":
        return str(delta)
    if isinstance(delta, dict):
        return str(delta.get("text") or "")
    choices = frame.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


def _whole_words(answer: dict[str, Any]) -> str:
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"] or "")
    blocks = answer.get("content") or [
        part for item in answer.get("output", ()) for part in item.get("content") or ()
    ]
    return "".join(block.get("text") or "" for block in blocks if "text" in block.get("type", ""))


# Rounds


async def play(home: Home, dice: random.Random, guests: int, ending: str) -> Round:
    """One gateway from its start to its `ending`: peace, SIGTERM or SIGKILL."""
    async with gateway(home, *FLAGS, "--warm", str(dice.randint(0, 2))) as served:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        round_ = Round(dice, served, session)
        load = asyncio.ensure_future(crowd(round_, guests))
        if ending == "peace":
            await load
            await check_rest(round_)
        else:
            await asyncio.sleep(dice.uniform(1.0, 4.0))
            round_.signalled, round_.killed = True, ending == "SIGKILL"
            served.process.send_signal(getattr(signal, ending))
            await load
        await round_.session.close()
        if ending == "SIGTERM":
            await served.process.wait()
    round_.violations += [f"exit code {served.process.returncode}"] * (
        ending != "SIGKILL" and served.process.returncode != 0
    )
    round_.violations += [
        line.decode("utf-8", "replace")
        for line in bytes(served.log).splitlines()
        if any(mark in line for mark in SUSPICIOUS)
    ]
    if not await settled(lambda: not home.processes()):
        round_.violations.append(f"processes remain: {home.processes()}")
    if not await settled(lambda: not home.scratch()):
        round_.violations.append(f"directories remain: {home.scratch()}")
    return round_


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
    await crowd(round_, 40)
    second = await at_rest(round_)
    # A warm agent has pipes, and there may be two more of them than before.
    if second["descriptors"] > first["descriptors"] + 8:
        round_.violations.append(f"descriptors grew: {first} then {second}")
    if second["resident_kb"] > first["resident_kb"] + GROWTH_KB:
        round_.violations.append(f"memory grew: {first} then {second}")
    round_.served.process.send_signal(signal.SIGTERM)
    await round_.served.process.wait()


async def at_rest(round_: Round) -> dict[str, int]:
    """Wait until nothing is left of the load. Returns what the gateway has then."""
    served, health = round_.served, dict[str, Any]()
    deadline = time.monotonic() + 30

    async def is_quiet() -> Any:
        health.update(await served.health(round_.session))
        slots, sessions = health["slots"], health["sessions"]
        busy = slots["busy"] + slots["waiting"] + sessions["parked"] + sessions["chats"]
        # One of its children is the guardian. A warm agent is a child, too, and orphans may stay as
        # long as it lives, since they may be its own.
        return not busy and (health["warm"]["spares"] or len(served.children()) == 1)

    while not await is_quiet():
        if time.monotonic() > deadline:
            counts = {name: health[name] for name in ("slots", "sessions", "warm")}
            round_.violations.append(f"never quiet: {counts}, children {served.children()}")
            break
        await asyncio.sleep(0.05)
    await round_.close_connections()
    return {"resident_kb": served.resident_kb(), "descriptors": served.descriptors()}


async def rounds(seed: int, count: int, guests: int) -> AsyncIterator[tuple[str, Round]]:
    dice = random.Random(seed)  # noqa: S311
    endings = ["peace", "SIGTERM", "SIGKILL"]
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        for number in range(count):
            home = Home(Path(folder) / str(number))
            home.install_fake_agent()
            ending = endings[number % len(endings)]
            yield ending, await play(home, dice, guests, ending)


async def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=random.randrange(10**6))  # noqa: S311
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--guests", type=int, default=150)
    chosen = options.parse_args()
    print(f"seed {chosen.seed}")
    endings: Counter[str] = Counter()
    violations: list[str] = []
    began = time.monotonic()
    async for ending, round_ in rounds(chosen.seed, chosen.rounds, chosen.guests):
        print(f"{ending:8} {dict(round_.endings.most_common())}")
        endings += round_.endings
        violations += [f"{ending}: {violation}" for violation in round_.violations]
    print(*violations, sep="\n")
    print(f"{sum(endings.values())} requests, {len(violations)} violations")
    table = [f"| {kind} | {number} |" for kind, number in endings.most_common()]
    summary = (
        f"`make chaos`, seed {chosen.seed}: {chosen.rounds} gateways, {sum(endings.values())} "
        f"requests, {time.monotonic() - began:.0f} s, {len(violations)} violations."
    )
    write_section("Chaos", [summary, "", "| requests that ended as | |", "|---|---|", *table])
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
