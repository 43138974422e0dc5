"""The rig: a fake agent on PATH, and a real gateway on a real socket in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import hypothesis
import psutil
import pytest

from cursor_gateway.agents import AGENTS
from cursor_gateway.processes import guardian, linux, tree
from cursor_gateway.settings_sources import load
from cursor_gateway.web.server import Server, serving
from tests.fakes import command

TESTS = Path(__file__).parent
RECORDINGS = TESTS / "recordings"
WAIT_SECONDS = 40.0
# The program of a guardian, in its command line.
GUARDIAN = os.fsencode(guardian.PROGRAM)

# macOS has nothing to find some processes by: `make test-portable` leaves these out as well.
needs_shortcuts = pytest.mark.skipif(
    not linux.SHORTCUTS, reason="only Linux shows whose an orphan is that dropped its environment"
)

# A shell lets whatever it runs in the background ignore Ctrl-C, and so would all that is started
# here, also what is to be ended by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes are started here; compiling each anew would take half of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A slow machine is no failure.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


async def eventually(check: Callable[[], Any], why: str = "") -> Any:
    """The first true value of `check`, or of what it has to wait for. For what only the operating
    system or another program can tell. A look at all processes takes its time: the later, the
    less often."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    pause = 0.01
    while not (value := await said if inspect.isawaitable(said := check()) else said):
        assert asyncio.get_running_loop().time() < deadline, why or "it never happened"
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return value


@contextmanager
def stalls() -> Iterator[list[float]]:
    """The seconds of work between two moments in which others get their turn. The gateway shares
    the test's event loop, so whoever asks for `/health` waits as long. What other processes of a
    busy machine do is not counted."""
    seconds = [0.0]

    async def watch() -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(0.001)
            seconds.append(time.process_time() - began)

    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield seconds
    finally:
        watching.cancel()


def command_line(pid: int | str) -> bytes:
    """Its words, with a null byte after each; nothing when it has ended since it was listed."""
    with contextlib.suppress(psutil.Error):
        return b"".join(os.fsencode(word) + b"\0" for word in psutil.Process(int(pid)).cmdline())
    return b""


def children_of(pid: int) -> list[int]:
    """Zombies among them."""
    return [child.pid for child in psutil.Process(pid).children()]


def environment_of(pid: int) -> dict[str, str]:
    """Nothing when it has ended since it was listed."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).environ()
    return {}


@dataclass(frozen=True, slots=True)
class FakeAgent:
    home: Path
    env: dict[str, str]
    # The fake bridge, whether or not the gateway has it.
    bridge: Path
    kind: str = "cli"

    @property
    def cursor(self) -> Path:
        """Where the CLI keeps its chats and transcripts."""
        return Path(self.env["HOME"]) / ".cursor"

    def sign_out(self) -> None:
        (self.home / "account").unlink()

    def sign_in(self) -> None:
        (self.home / "account").write_text(command.ACCOUNT)

    def put(self, name: str, content: str = "") -> None:
        (self.home / name).write_text(content)

    def calls(self) -> list[dict[str, Any]]:
        """Every start so far, in order."""
        notes = sorted((self.home / "calls").glob("*.json"))
        return [json.loads(note.read_text()) for note in notes]

    def runs(self) -> list[dict[str, Any]]:
        """The starts that were given a prompt. A spare that is sent away reads an empty one."""
        return [call for call in self.calls() if call["prompt"]]

    def rpcs(self, method: str) -> list[dict[str, Any]]:
        """What the bridge, or `cursor-agent acp`, was sent under this name."""
        file = self.home / "rpcs"
        lines = file.read_text().splitlines() if file.exists() else []
        asked = (json.loads(line) for line in lines)
        return [each["body"] for each in asked if each["method"] == method]

    def model_steps(self, agent_id: str = "") -> int:
        """How often the model was asked, for this agent or for all; the print CLI does not tell."""
        file = self.home / "model-steps"
        agents = file.read_text().split() if file.exists() else []
        return agents.count(agent_id) if agent_id else len(agents)

    def at_work(self) -> list[Any]:
        """The runs that have not ended: a process for each, or files of those whose one process
        does many."""
        if self.kind == "cli":
            return self.processes()
        files = sorted((self.home / "at-work").glob("*"))
        return [file for file in files if psutil.pid_exists(int(file.name.split(".")[0]))]

    def processes(self) -> list[int]:
        """The agents that answer, and their children, as far as they live."""
        return [pid for pid in tree.marked("") if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        words = command_line(pid).split(b"\0")
        asked = {b"status", b"models", b"--version"} & set(words)
        return environment_of(pid).get("FAKE_AGENT_DIR") == str(self.home) and not asked


# For what each must do alike.
EITHER_AGENT = pytest.mark.agents("cli", "sdk", "acp")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.agents("cli", "sdk", "acp")`: a test is asked of each of these agents, as far
    as there are such."""
    marker = metafunc.definition.get_closest_marker("agents")
    if marker and "agent_kind" in metafunc.fixturenames:
        kinds = [kind for kind in marker.args if kind in AGENTS]
        metafunc.parametrize("agent_kind", kinds, indirect=True)


@pytest.fixture
def agent_kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "cli"))


@pytest.fixture
def fake(tmp_path: Path, agent_kind: str) -> FakeAgent:
    home, bin_dir = tmp_path / "agent-home", tmp_path / "bin"
    home.mkdir()
    bin_dir.mkdir()
    program = bin_dir / "cursor-agent"
    program.write_text(command.SCRIPT)
    program.chmod(0o755)
    bridge = bin_dir / "cursor-sdk-bridge"
    bridge.write_text(command.bridge(home))
    bridge.chmod(0o755)
    (home / "models.txt").write_text((RECORDINGS / "models.txt").read_text())
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CURSOR_")},
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
        "FAKE_AGENT_DIR": str(home),
        # Spares would be counted among the processes; their tests ask for them.
        "CURSOR_GATEWAY_WARM": "0",
        "PYTHONPATH": str(TESTS.parent),
    }
    if agent_kind == "sdk":
        env |= {"CURSOR_SDK_BRIDGE_BIN": str(bridge), "CURSOR_API_KEY": "key"}
    if agent_kind != "cli":
        env["CURSOR_GATEWAY_AGENT"] = agent_kind
    agent = FakeAgent(home, env, bridge, agent_kind)
    agent.sign_in()
    return agent


@dataclass(slots=True)
class Client:
    """Plain HTTP to one gateway, without any SDK's kindness."""

    session: aiohttp.ClientSession
    server: Server
    headers: dict[str, str] = field(default_factory=dict)

    def url(self, path: str) -> str:
        return self.server.base_url.removesuffix("/v1") + path

    def chat(self, prompt: str | list[Any], **body: Any) -> Any:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        headers = body.pop("headers", {})
        return self.session.post(
            self.url("/v1/chat/completions"),
            data=io.BytesIO(json.dumps({"model": "auto", "messages": messages} | body).encode()),
            headers={"Content-Type": "application/json"} | self.headers | headers,
        )

    async def answer(self, prompt: str | list[Any], **body: Any) -> dict[str, Any]:
        async with self.chat(prompt, **body) as response:
            return dict(await response.json())

    async def content(self, prompt: str | list[Any], **body: Any) -> str:
        answer = await self.answer(prompt, **body)
        assert "choices" in answer, answer
        return str(answer["choices"][0]["message"]["content"])

    async def frames(self, prompt: str | list[Any], **body: Any) -> list[Any]:
        """The data of every SSE frame; `[DONE]` as a string."""
        async with self.chat(prompt, stream=True, **body) as response:
            assert response.status == 200, await response.text()
            return [frame async for frame in frames_of(response)]

    async def text(self, prompt: str | list[Any], **body: Any) -> str:
        return text_of(await self.frames(prompt, **body))

    async def error(self, prompt: str | list[Any], **body: Any) -> tuple[int, dict[str, Any]]:
        async with self.chat(prompt, **body) as response:
            return response.status, (await response.json())["error"]

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(self.url(path), headers=self.headers | headers) as response:
            return response.status, await response.json()


async def frames_of(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """Frames until the end, clean or not: how it ends is the business of a test of its own."""
    try:
        async for line in response.content:
            if line.startswith(b"data: "):
                data = line[6:].strip()
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)
    except aiohttp.ClientPayloadError:
        return


def text_of(frames: list[Any], field: str = "content") -> str:
    deltas = [f["choices"][0]["delta"] for f in frames if f != "[DONE]" and f.get("choices")]
    return "".join(delta.get(field) or "" for delta in deltas)


Start = Callable[..., Any]


@pytest.fixture
def start(fake: FakeAgent) -> Start:
    """`async with start(slots=1) as client`: a gateway with these settings."""

    @asynccontextmanager
    async def started(**flags: Any) -> AsyncIterator[Client]:
        chosen = {} if fake.kind == "cli" else {"agent": fake.kind}
        settings = load({"port": 0} | chosen | flags, fake.env).settings
        async with (
            serving(settings, fake.env) as server,
            aiohttp.ClientSession() as session,
        ):
            yield Client(session, server)
        assert fake.processes() == []

    return started


@pytest.fixture
async def client(start: Start) -> AsyncIterator[Client]:
    async with start() as client:
        yield client
