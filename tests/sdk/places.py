"""Two bridges that are asked the same, and what their answers may differ in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sdk_client import BridgeClient, started

# What no two answers have in common.
DIFFERS = (
    (re.compile(r"run-[0-9a-f-]{36}"), "run-ID"),
    (re.compile(r"agent-[0-9a-f-]{36}"), "agent-ID"),
    (re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z$"), "TIME"),
    (re.compile(r"(/cursor-sdk-bridge-)\w+"), r"\1DIR"),
    (re.compile(r"^(http://127\.0\.0\.1:)\d+$"), r"\1PORT"),
)
# What a driver may have to look for in words. How else they are put is Cursor's own business.
TELLING = re.compile(
    r"already has active run|already exists|not found|not terminal|unauthorized|unknown agent|"
    r"unknown run|API key (?:is required|exchange)|network request failed|callback server|"
    r"sdk\.v1\.\w+Request|`model`|unknown argument|missing value|invalid (?:--\S+|port)|"
    r"unsupported|non-loopback",
    re.IGNORECASE,
)
NUMBERS = {"pid", "port", "durationMs"}
WORDS = {"message", "errorMessage"}


def telling(words: str) -> list[str]:
    return sorted({found.lower() for found in TELLING.findall(words)})


@dataclass(frozen=True, slots=True)
class Place:
    """One of the two programs, and where it may write."""

    program: Path
    env: dict[str, str]
    here: Path
    elsewhere: Path

    @asynccontextmanager
    async def started(self, *flags: str) -> AsyncIterator[BridgeClient]:
        flags = ("--workspace", str(self.here), *flags)
        async with started(self.program, self.env, *flags) as bridge:
            yield bridge

    def kept_at_home(self) -> list[bool]:
        """Whether it keeps anything there of what works `here`, and `elsewhere`."""
        projects = Path(self.env["HOME"], ".cursor", "projects")
        return [any(projects.glob(f"*-{name}")) for name in ("here", "elsewhere")]

    def _plain_field(self, name: str, value: Any) -> Any:
        if name in NUMBERS:
            return "NUMBER"
        return telling(value) if name in WORDS and isinstance(value, str) else self.plain(value)

    def plain(self, value: Any) -> Any:
        """Without what must differ."""
        if isinstance(value, dict):
            return {
                key: self._plain_field(key, entry)
                for key, entry in value.items()
                # The same as `debug`, as bytes, among them the lengths of ids.
                if not (key == "value" and "debug" in value)
            }
        if isinstance(value, list | tuple):
            return [self.plain(entry) for entry in value]
        if not isinstance(value, str):
            return value
        value = value.replace(str(self.here.parent), "PLACE")
        for pattern, instead in DIFFERS:
            value = pattern.sub(instead, value)
        return value


def place(program: Path, env: dict[str, str], home: Path) -> Place:
    for name in ("here", "elsewhere", "home", "tmp"):
        (home / name).mkdir(parents=True)
    own = {"HOME": str(home / "home"), "TMPDIR": str(home / "tmp")}
    return Place(program, env | own, home / "here", home / "elsewhere")


Places = tuple[Place, Place]
Question = Callable[[Place], Awaitable[Any]]


async def answers(places: Places, question: Question) -> tuple[Any, Any]:
    real, fake = await asyncio.gather(*(question(each) for each in places))
    return places[0].plain(real), places[1].plain(fake)
