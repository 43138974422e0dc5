"""The agents of `make chaos`, and what they are told to do: the print CLI, and the SDK's bridge.

The fakes of the tests heed the same steps as far as they mean anything to both; each has vices of
its own. The bridge is killed as well, which takes all that is under way with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.outside import Home
from tests.conftest import command_line

T = TypeVar("T")


@dataclass(slots=True)
class Script:
    """The agent's instructions, and the answer that they must lead to."""

    steps: str
    words: str
    completes: bool


@dataclass(frozen=True)
class Agent:
    """Steps, each with how often it is taken; ends also say whether the answer is complete."""

    at_first: tuple[str, ...]
    texts: Mapping[str, int]
    other_things: Mapping[str, int]
    ends: Mapping[tuple[str, bool], int]
    vices_of_callers: Mapping[str, int]
    # Steps that call, and the commands that the client must be asked to run then.
    calls: tuple[tuple[str, tuple[str, ...]], ...]
    # How many processes a gateway keeps while nobody asks, beside the guardian.
    residents: int
    # Whether that is killed while it works.
    is_killed: bool = False

    def install(self, home: Home) -> None:
        home.install_fake_agent()

    def script(self, dice: random.Random, name: str) -> Script:
        """Words and harmless misbehaviour in any order, and one of the ends."""
        steps: list[str] = []
        words: list[str] = []
        steps += dice.choices(self.at_first, k=2)
        for number in range(dice.randint(1, 6)):
            has_acted = steps[-1].startswith(OWN_TOOLS)
            word = f"{name}.{number} é👍 "
            steps.append(f"[[{drawn(dice, self.texts)}:{word}]]")
            words.append(f"\n\n{word}" if has_acted else word)
            steps.append(drawn(dice, self.other_things))
        end, completes = drawn(dice, self.ends)
        return Script("".join((*steps, end)), "".join(words), completes)

    def call(self, dice: random.Random, name: str) -> tuple[str, list[str]]:
        """What makes it call, and with which commands."""
        vice = drawn(dice, self.vices_of_callers)
        steps, commands = dice.choice(self.calls)
        return vice + steps.replace("NAME", name), [each.replace("NAME", name) for each in commands]

    async def misfortune(self, home: Home, dice: random.Random) -> None:
        """What befalls it while it works, beside what it is told."""

    def leftovers(self, home: Home) -> list[str]:
        """What it still has, though nobody asks any more."""
        return []


def drawn(dice: random.Random, weights: Mapping[T, int]) -> T:
    return dice.choices(list(weights), list(weights.values()))[0]


# The gateway begins a new paragraph after these.
OWN_TOOLS = ("[[tool:", "[[line:")
CLI = Agent(
    at_first=("[[deaf]]", "[[grandchild]]", "[[stranger]]", "[[no-usage]]"),
    texts={"text": 8, "bytewise": 1, "cut": 1},
    other_things={
        "": 40,
        "[[think:hm]]": 10,
        "[[tool:read]]": 10,
        "[[query:webFetch]]": 10,
        "[[retry:]]": 10,
        "[[noise:T: something]]": 5,
        "[[flood:300000]]": 5,
        "[[line:16000000]]": 1,
    },
    ends={
        ("", True): 50,
        ("[[linger]]", True): 6,
        ("[[unended-result]]", True): 6,
        ("[[exit:1]]", False): 6,
        ("[[exit:0]]", False): 4,
        ("[[half-line]]", False): 4,
        ("[[hang]]", False): 4,
        ("[[sh:kill -KILL $PPID]]", False): 4,
        ("[[close-stdout]][[hang]]", False): 2,
        ("[[stderr:Error: rate limit exceeded]][[exit:1]]", False): 4,
    },
    vices_of_callers={
        "": 6,
        "[[patience:0.5]]": 1,
        "[[impatient]]": 1,
        "[[grandchild]][[deaf]]": 1,
    },
    calls=(('[[relay:bash {"command": "NAME"}]]', ("NAME",)),),
    residents=0,
)

# The bridge

# An agent, as the bridge writes it down in the directory that the gateway has given it.
STORED = "tmp/*/**/bridge-*/store/*/*.json"


class Bridge(Agent):
    """One process for all runs, which is killed now and then."""

    # More often, and back-off would be all that there is to see.
    KILLS = 4
    PEACE_SECONDS = 2.0
    # The RPCs in which it dies.
    PHASES = (
        *("GetVersion", "SetToolCallback", "CreateAgent", "Send"),
        *("CancelRun", "CloseAgent", "DeleteAgent"),
    )

    def install(self, home: Home) -> None:
        home.install_fake_bridge()

    async def misfortune(self, home: Home, dice: random.Random) -> None:
        # Frames come in pieces, and some only keep the connection alive.
        (home.agent / "split-frames").write_text(dice.choice(("0", "1000")))
        (home.agent / "keep-alive").write_text("0.1")
        phase = home.agent / "dies-in"
        try:
            for _ in range(self.KILLS):
                await asyncio.sleep(dice.uniform(0, self.PEACE_SECONDS))
                if dice.random() < 0.5:
                    phase.write_text(dice.choice(self.PHASES))
                else:
                    kill(dice.choice(bridges(home) or [0]))
        finally:
            phase.unlink(missing_ok=True)

    def leftovers(self, home: Home) -> list[str]:
        """Runs that have not ended, and agents that have and are still there."""
        alive = {str(pid) for pid in bridges(home)}
        runs = (home.agent / "at-work").glob("*")
        at_work = [run for run in runs if run.name.split(".")[0] in alive]
        kept = [agent for agent in home.path.glob(STORED) if has_ended(agent)]
        return [str(found.relative_to(home.path)) for found in (*at_work, *kept)]


def has_ended(agent: Path) -> bool:
    """Before its first run an agent cannot be deleted."""
    return not json.loads(agent.read_text())["active"]


def bridges(home: Home) -> list[int]:
    """The processes of the bridge: its launcher and, beyond that, its server."""
    return [pid for pid in home.processes() if b"--local-store" in command_line(pid)]


def kill(pid: int) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


SDK = Bridge(
    at_first=("[[grandchild]]", "[[no-usage]]", "[[unknown]]", "[[times:3]]"),
    texts={"text": 1},
    other_things={
        "": 40,
        "[[think:hm]]": 10,
        "[[tool:read]]": 10,
        "[[noise:something]]": 10,
        "[[unknown]]": 10,
        "[[gap:0.6]]": 10,
        "[[flood:300000]]": 5,
        "[[line:4000000]]": 1,
    },
    ends={
        ("", True): 50,
        ("[[linger]]", True): 6,
        ("[[no-last-frame]]", True): 6,
        ("[[no-done]]", True): 6,
        ("[[no-result]]", False): 4,
        ("[[cut-off]]", False): 4,
        ("[[half-line]]", False): 4,
        ("[[garbage]]", False): 4,
        ("[[huge]]", False): 4,
        ("[[hang]]", False): 4,
        ("[[error-event:Something broke]]", False): 4,
        ("[[error:RATE_LIMIT_EXCEEDED 1 Slow down]]", False): 4,
    },
    vices_of_callers={"": 6, "[[deaf]]": 1, "[[grandchild]]": 1, "[[unknown]]": 1},
    calls=(
        ('[[relay:bash {"command": "NAME"}]]', ("NAME",)),
        ('[[relay-twice:bash {"command": "NAME"}]]', ("NAME",)),
        ('[[relay-silently:bash {"command": "NAME"}]]', ("NAME",)),
        ('[[relay-without-id:bash {"command": "NAME"}]]', ("NAME",)),
        (
            '[[announce:bash {"command": "NAME.1"}]][[announce:bash {"command": "NAME.2"}]]'
            '[[relay:bash {"command": "NAME.3"}]]',
            ("NAME.1", "NAME.2", "NAME.3"),
        ),
    ),
    residents=1,
    is_killed=True,
)
AGENTS = {"cli": CLI, "sdk": SDK}
