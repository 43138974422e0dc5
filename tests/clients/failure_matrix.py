"""What the users of real coding agents see of each failure: `make failure-matrix`.

Each cell runs one client once, against a gateway whose agent fails the same way whatever it is
asked, and watches it from the first request on. What was measured goes to a file of its own in
`MATRIX_DIR`; tests/clients/failure_table.py makes the table of them. `MATRIX_CLIENTS` and
`MATRIX_FAILURES` choose some, by names with commas between them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.clients.programs import PROGRAMS, Desk, Program, desk
from tests.conftest import Client, FakeAgent

pytest_plugins = ["tests.clients.outside"]

CELLS = Path(os.environ.get("MATRIX_DIR") or Path(os.environ["CLIENTS_DIR"], "failure-matrix"))
# For how long a client is watched after its first request, and how long it may take until then.
WATCHED_SECONDS = 45.0
STARTED_WITHIN = 150.0
# What is promised of each failure that stays.
SHOWN_WITHIN = 30.0
AGENTS_AT_MOST = 3

PROMPT = "Say hello"
_NOT_SPELLED = re.compile(r"[\W_]+")
_CONTROLS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True, slots=True)
class Failure:
    name: str
    # What the agent does with every prompt; empty where it is signed out.
    steps: str
    # Words of the gateway's message, any of which tells the user what is wrong.
    words: tuple[str, ...]


FAILURES = (
    Failure("sign-in", "", ("cursor-gateway login", "not signed in")),
    Failure(
        "plan",
        "[[init]][[stderr:ActionRequiredError: Named models unavailable Free plans can only use "
        "Auto. Switch to Auto or upgrade plans to continue.]][[exit:1]]",
        ("Free plans can only use Auto", "change the plan"),
    ),
    Failure("usage-limit", "[[play:fail_usage_limit]]", ("hit your usage limit", "your usage")),
    Failure(
        "rate-limit",
        "[[init]][[stderr:Error: [resource_exhausted] Too many requests]][[exit:1]]",
        ("resource_exhausted", "limits how often"),
    ),
    Failure("unknown-model", "[[play:fail_unknown_model]]", ("Cannot use this model",)),
    Failure(
        "network",
        "[[stderr:Error: getaddrinfo ENOTFOUND api2.cursor.sh]][[exit:1]]",
        ("ENOTFOUND", "status.cursor.com"),
    ),
    Failure("dies-at-once", "[[stderr:Segmentation fault]][[exit:139]]", ("Segmentation fault",)),
    # A second of words, so that they are on their way to the client before the end.
    Failure(
        "dies-in-mid-answer",
        "[[slowly:50]][[stderr:Segmentation fault]][[exit:139]]",
        ("Segmentation fault",),
    ),
)

# Droid's text mode says no more than "Exec failed"; its events carry the message.
DROID_EVENTS = ("-o", "stream-json")


def rows() -> list[Program]:
    at, droid = next(each for each in enumerate(PROGRAMS) if each[1].name == "droid")
    mode = f"`{' '.join(DROID_EVENTS)}`"
    argv = (*droid.argv, *DROID_EVENTS)
    events = replace(droid, row="droid-events", mode=mode, hides="", argv=argv)
    return [*PROGRAMS[: at + 1], events, *PROGRAMS[at + 1 :]]


@dataclass(slots=True)
class Cell:
    """What one client showed of one failure. Seconds count from its first request."""

    client: str
    failure: str
    # The line that told the user; empty where none did.
    shown: str = ""
    shown_after: float | None = None
    # None where it was still at work when it was ended.
    ended_after: float | None = None
    exit: int | None = None
    requests: int = 0
    agents: int = 0
    # The HTTP status of each request, the oldest first.
    statuses: tuple[int | None, ...] = ()
    # The last of what it printed, for whoever wonders.
    tail: str = ""


def chosen(variable: str, name: str) -> bool:
    wanted = os.environ.get(variable, "")
    return not wanted or name in re.split(r"[\s,]+", wanted)


def clean(output: bytes) -> str:
    return _CONTROLS.sub("", output.decode(errors="replace")).replace("\r", "\n")


def spelled(text: str) -> str:
    """As clients may wrap, frame or quote it."""
    return _NOT_SPELLED.sub("", text).lower()


def line_with(words: tuple[str, ...], text: str) -> str:
    """The line of `text` that has any of `words`, with the next ones where it is wrapped."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for size in range(1, 6):
        for at in range(len(lines) - size + 1):
            block = " ".join(lines[at : at + size])
            if any(spelled(word) in spelled(block) for word in words):
                return block
    return ""


class Watch:
    """A client at work, and when it showed what."""

    def __init__(self, user: Desk, client: Client, failure: Failure) -> None:
        self.user, self.client, self.failure = user, client, failure
        self.output = b""
        self.shown_at: float | None = None
        self.ended_at: float | None = None

    async def go(self) -> int | None:
        process = await self.user.start(*self.user.program.argv, PROMPT)
        assert process.stdout
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            async with asyncio.timeout(STARTED_WITHIN) as bound:
                extending = asyncio.create_task(self._extend(bound))
                await process.wait()
                self.ended_at = time.time()
            exit_code = process.returncode
        except TimeoutError:
            exit_code = None
        extending.cancel()
        await self.user.end(process)
        await asyncio.wait([reading], timeout=5)
        reading.cancel()
        return exit_code

    async def _extend(self, bound: asyncio.Timeout) -> None:
        while not (first := await self.first_request()):
            await asyncio.sleep(0.5)
        loop = asyncio.get_running_loop()
        bound.reschedule(loop.time() + WATCHED_SECONDS - (time.time() - first))

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while chunk := await stdout.read(65536):
            self.output += chunk
            if self.shown_at is None and line_with(self.failure.words, clean(self.output)):
                self.shown_at = time.time()

    async def requests(self) -> list[dict[str, object]]:
        _, journal = await self.client.get("/v1/requests?limit=500")
        return list(reversed(journal["data"]))

    async def first_request(self) -> float | None:
        times = [datetime.fromisoformat(str(each["at"])) for each in await self.requests()]
        return min(times).timestamp() if times else None


async def measure(user: Desk, client: Client, fake: FakeAgent, failure: Failure) -> Cell:
    watch = Watch(user, client, failure)
    exit_code = await watch.go()
    first = await watch.first_request() or time.time()

    def after(moment: float | None) -> float | None:
        return None if moment is None else round(max(moment - first, 0.0), 1)

    requests = await watch.requests()
    text = readable(clean(watch.output), user)
    return Cell(
        client=user.program.row or user.program.name,
        failure=failure.name,
        shown=line_with(failure.words, text),
        shown_after=after(watch.shown_at),
        ended_after=after(watch.ended_at),
        exit=exit_code,
        requests=len(requests),
        agents=len(fake.runs()),
        statuses=tuple(each["status"] for each in requests),  # type: ignore[misc]
        tail=text[-2000:],
    )


def readable(text: str, user: Desk) -> str:
    """With the names that a reader has."""
    names = {user.url: "http://127.0.0.1:32124/v1", str(user.project): "~/project"}
    for name, other in (names | {str(user.home): "~"}).items():
        text = text.replace(name, other)
    return text


def arrange(failure: Failure, fake: FakeAgent) -> None:
    if failure.steps:
        fake.put("always", failure.steps)
    else:
        fake.sign_out()


def keep(cell: Cell) -> None:
    CELLS.mkdir(parents=True, exist_ok=True)
    (CELLS / f"{cell.client}.{cell.failure}.json").write_text(json.dumps(asdict(cell), indent=1))


def cases() -> list[object]:
    return [
        pytest.param(
            *(program, failure),
            id=f"{program.row or program.name}-{failure.name}",
            # One client after the other: some want a port of their own.
            marks=pytest.mark.xdist_group(program.name),
        )
        for program in rows()
        for failure in FAILURES
        if chosen("MATRIX_CLIENTS", program.row or program.name)
        and chosen("MATRIX_FAILURES", failure.name)
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("program", "failure"), cases())
async def test_the_failure_is_shown_soon_and_starts_no_storm(
    program: Program,
    failure: Failure,
    client: Client,
    fake: FakeAgent,
    tmp_path: Path,
) -> None:
    user = await desk(program, client, tmp_path)
    arrange(failure, fake)
    cell = await measure(user, client, fake, failure)
    keep(cell)
    assert cell.requests, f"it asked for nothing: {cell.tail}"
    assert cell.agents <= AGENTS_AT_MOST, cell
    assert program.hides or cell.shown_after is not None, cell
    assert (cell.shown_after or 0.0) <= SHOWN_WITHIN, cell
