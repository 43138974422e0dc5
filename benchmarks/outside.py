"""A gateway as a process of its own, observed by the means of the operating system."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.fakes import command

ROOT = Path(__file__).parent.parent
MEASUREMENTS = ROOT / "docs" / "measurements.md"
MODELS = "Available models\n\nauto - Auto (default)\n\nTip: use --model <id> to switch.\n"


@dataclass(slots=True)
class Home:
    """A user's home directory in which `cursor-agent` is a fake."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("bin", "agent", "tmp", "config"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("CURSOR_", "XDG_"))}
        self.env = inherited | {
            "HOME": str(self.path),
            "TMPDIR": str(self.path / "tmp"),
            "XDG_RUNTIME_DIR": str(self.path / "run"),
            "XDG_CONFIG_HOME": str(self.path / "config"),
            "PATH": f"{self.path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
        }

    @property
    def agent(self) -> Path:
        """Where the switches of the tests' agents are."""
        return self.path / "agent"

    def install(self, words: Sequence[str]) -> None:
        self._program(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')

    def _program(self, script: str, name: str = "cursor-agent") -> None:
        program = self.path / "bin" / name
        program.write_text(script)
        program.chmod(0o755)

    def install_fake_agent(self) -> None:
        """The tests' agent with all its vices."""
        self.env["FAKE_AGENT_DIR"] = str(self.agent)
        (self.agent / "account").write_text(command.ACCOUNT)
        (self.agent / "models.txt").write_text(MODELS)
        self._program(command.SCRIPT)

    def install_fake_bridge(self) -> None:
        """The tests' bridge, and a gateway that has it as its agent."""
        self.install_fake_agent()
        self._program(command.bridge(self.agent), "cursor-sdk-bridge")
        self.env |= {"CURSOR_GATEWAY_AGENT": "sdk", "CURSOR_API_KEY": "key"}
        self.env["CURSOR_SDK_BRIDGE_BIN"] = str(self.path / "bin" / "cursor-sdk-bridge")

    def processes(self) -> list[int]:
        """All live processes of this home, found by their environment or their command line."""
        ours = str(self.path).encode()
        return [pid for pid in all_processes() if pid != os.getpid() and _mentions(pid, ours)]

    def scratch(self) -> list[str]:
        return sorted(entry.name for entry in (self.path / "tmp").iterdir())


def all_processes() -> Iterable[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _mentions(pid: int, words: bytes) -> bool:
    with suppress(OSError):
        folder = Path(f"/proc/{pid}")
        is_dead = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
        read = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        return words in read and not is_dead
    return False


@dataclass(slots=True)
class GatewayProcess:
    process: asyncio.subprocess.Process
    url: str
    log: bytearray = field(default_factory=bytearray)

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    def resident_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def children(self) -> list[int]:
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in listing.read_text().split()]

    async def health(self, session: aiohttp.ClientSession) -> dict[str, Any]:
        async with session.get(self.url.removesuffix("/v1") + "/health") as response:
            return dict(orjson.loads(await response.read()))


@asynccontextmanager
async def gateway(
    home: Home, *flags: str, through: Sequence[str] = ()
) -> AsyncIterator[GatewayProcess]:
    """`through` is the command of a program that replaces itself by the one that it starts."""
    process = await asyncio.create_subprocess_exec(
        *(*through, sys.executable, "-m", "cursor_gateway", "serve", "--port", "0", *flags),
        env=home.env,
        cwd=home.path,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    started = GatewayProcess(process, "")
    while " on http://" not in (line := (await process.stderr.readline()).decode()):
        started.log += line.encode()
        if not line:
            raise RuntimeError(f"the gateway did not start: {started.log.decode()}")
    started.url = line.split(" on ")[1].strip()
    listening = asyncio.ensure_future(_collect(process.stderr, started.log))
    try:
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


async def _collect(stream: asyncio.StreamReader, log: bytearray) -> None:
    while data := await stream.read(65536):
        log += data


async def settled(check: Callable[[], Any], seconds: float = 20.0) -> bool:
    """Whether `check` becomes true in time. It polls, since nothing reports the change."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not check():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def write_section(title: str, lines: Sequence[str]) -> None:
    """Replace one section of docs/measurements.md, or add it. The other sections stay."""
    text = MEASUREMENTS.read_text() if MEASUREMENTS.exists() else "# Measurements\n"
    begin, end = f"<!-- {title} -->", f"<!-- end of {title} -->"
    section = "\n".join((begin, f"## {title}", "", machine(), "", *lines, end))
    if begin not in text:
        text = f"{text.rstrip()}\n\n{begin}{end}\n"
    before, _, rest = text.partition(begin)
    MEASUREMENTS.write_text(before + section + rest.partition(end)[2])


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), "
        f"{memory:.0f} GB, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, aiohttp {aiohttp.__version__}."
    )
