"""An agent behind `ssh`: a stand-in that does to a command what the real one does, and the real one
where there is an `sshd`, on a port and with keys of its own."""

from __future__ import annotations

import asyncio
import base64
import getpass
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.settings import SettingsError
from tests.conftest import TESTS, Client, FakeAgent, Start, eventually, frames_of
from tests.http.dialogue import BASH, Dialogue

pytestmark = pytest.mark.processes

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
REAL = pytest.param(
    "sshd",
    marks=pytest.mark.skipif(
        not SSHD or not shutil.which("ssh"), reason="no sshd here (apt install openssh-server)"
    ),
)


class OtherSide:
    """Another directory, another environment, and the agent in a folder with a space."""

    def __init__(self, fake: FakeAgent, root: Path) -> None:
        self.fake = fake
        self.root = root
        self.cache = root / "cache"
        # The stand-in's processes are the gateway's own, so it can kill what the real ssh can only
        # leave, and with it the script that clears up.
        self.clears_up = True
        self.program = root / "my programs" / "cursor-agent"
        self.program.parent.mkdir(parents=True)
        self.program.write_text(
            "#!/bin/sh\n"
            f"FAKE_AGENT_DIR={shlex.quote(str(fake.home))} PYTHONPATH={TESTS.parent} "
            f'exec {sys.executable} -P -m tests.fakes.agent "$@"\n'
        )
        self.program.chmod(0o755)
        # Not here, where it could be found by mistake.
        Path(str(shutil.which("cursor-agent", path=fake.env["PATH"]))).unlink()

    def processes(self) -> list[int]:
        wanted = f"FAKE_AGENT_DIR={self.fake.home}".encode()
        here = {os.getpid()}
        return [pid for pid in _pids() if pid not in here and _has(pid, wanted)]

    def places(self) -> list[str]:
        folder = self.cache / "cursor-gateway"
        exists = self.clears_up and folder.exists()
        return sorted(place.name for place in folder.iterdir()) if exists else []


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _has(pid: int, setting: bytes) -> bool:
    """Whether it is an agent that answers over there, alive."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return setting in environment and b"--print" in words


@asynccontextmanager
async def stand_in(there: OtherSide) -> AsyncIterator[str]:
    program = Path(there.fake.env["PATH"].split(os.pathsep)[0]) / "ssh"
    program.write_text(
        f'#!/bin/sh\nshift; cd / && exec env -i HOME={there.root} PATH=/usr/bin:/bin sh -c "$*"\n'
    )
    program.chmod(0o755)
    there.cache, there.clears_up = there.root / ".cache", False
    yield "ssh devbox"


def _prepare(keys: Path) -> None:
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(command, check=True)
    if os.getuid() == 0:
        # Where sshd wants to be locked up when it is root's.
        Path("/run/sshd").mkdir(exist_ok=True)


@asynccontextmanager
async def real_ssh(there: OtherSide) -> AsyncIterator[str]:
    keys = there.root / "keys"
    keys.mkdir()
    _prepare(keys)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (keys / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys}/host\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nAuthorizedKeysFile {keys}/user.pub\n"
        f"SetEnv XDG_CACHE_HOME={there.cache}\n"
    )
    server = await asyncio.create_subprocess_exec(
        *(str(SSHD), "-D", "-e", "-f", str(keys / "config")), stderr=subprocess.PIPE
    )
    assert server.stderr is not None
    while b"listening" not in (line := await server.stderr.readline()):
        assert line, "sshd did not start"
    told = asyncio.ensure_future(server.stderr.read())
    options = f"-F none -T -p {port} -i {keys}/user -o IdentitiesOnly=yes -o BatchMode=yes"
    options += " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    try:
        yield f"ssh {options} {getpass.getuser()}@127.0.0.1"
    finally:
        server.terminate()
        await server.wait()
        await told


@pytest.fixture(params=["stand-in", REAL])
async def reach(request: pytest.FixtureRequest, there: OtherSide) -> AsyncIterator[str]:
    way = stand_in if request.param == "stand-in" else real_ssh
    async with way(there) as command:
        yield f"{command} {shlex.quote(str(there.program))}"


@pytest.fixture
def there(fake: FakeAgent, tmp_path: Path) -> OtherSide:
    return OtherSide(fake, tmp_path / "there")


@pytest.fixture
async def far(start: Start, reach: str, there: OtherSide) -> AsyncIterator[Client]:
    there.fake.env["CURSOR_GATEWAY_API_KEY"] = ""
    async with start(agent_command=reach, auth_check_timeout_ms=60000) as client:
        yield client
    await eventually(lambda: not there.processes())
    await eventually(lambda: not there.places())


async def test_answers_and_streams_come_across(far: Client, there: OtherSide) -> None:
    assert await far.content("[[text:Hello]]") == "Hello"
    assert await far.text("[[text:a]][[text:b]]") == "ab"
    run = there.fake.runs()[0]
    flags = run["argv"]
    assert flags[flags.index("--workspace") + 1] == run["cwd"]
    assert Path(run["cwd"]).parent == there.cache / "cursor-gateway"
    # Nothing of the gateway's environment goes along.
    assert not [name for name in run["env"] if name.startswith("CURSOR_GATEWAY")]


async def test_sign_in_and_models_are_those_of_the_other_side(
    far: Client, there: OtherSide
) -> None:
    status, listed = await far.get("/v1/models")
    assert status == 200 and len(listed["data"]) > 5
    assert await far.content("[[text:hi]]") == "hi"
    _, health = await far.get("/health")
    assert health["auth"] == "authenticated"
    assert str(there.program) in health["agent"]["path"]
    assert health["tools"]["channel"] == "text" and "remote" in health["tools"]["reason"]


async def test_the_clients_tools_go_by_text_and_the_agents_own_are_denied(
    far: Client, there: OtherSide
) -> None:
    talk = Dialogue(far, [BASH])
    await talk.say('[[call:bash {"command": "ls"}]][[then]][[text:ok]]')
    assert talk.asked == [("bash", {"command": "ls"})]
    assert (await talk.bring("notes.txt"))["content"].endswith("ok")
    for run in there.fake.runs():
        assert run["files"] == [".cursor"]
        assert "--approve-mcps" not in run["argv"] and "ask" not in run["argv"]
    assert "notes.txt" in there.fake.runs()[-1]["prompt"]


@pytest.mark.parametrize("tools", [[BASH], []])
async def test_the_deny_list_is_obeyed_over_there(
    far: Client, there: OtherSide, tools: list[Any]
) -> None:
    marker = there.root / "acted"
    await far.answer(f"[[act:touch {shlex.quote(str(marker))}]][[text:done]]", tools=tools)
    assert there.fake.runs() and not marker.exists()


async def test_a_plain_chat_reads_no_file_over_there(far: Client, there: OtherSide) -> None:
    (there.root / "diary").write_text("dear diary")
    words = json.dumps({"path": str(there.root / "diary")})
    assert "Permission denied" in await far.content(f"[[try:read {words}]][[say-result]]")


async def test_a_chat_that_cannot_be_seen_is_not_taken_up(far: Client, there: OtherSide) -> None:
    first = [{"role": "user", "content": "[[text:one]]"}]
    said = {"role": "assistant", "content": await far.content(first)}
    second = {"role": "user", "content": "[[text:two]]"}
    assert await far.content([*first, said, second]) == "two"
    _, two = there.fake.runs()
    assert "--resume" not in two["argv"]
    assert "[[text:one]]" in two["prompt"]
    _, health = await far.get("/health")
    assert health["sessions"]["resume"] is False and "remote" in health["sessions"]["reason"]


@pytest.mark.parametrize("vice", ["", "[[deaf]]"])
async def test_a_client_that_leaves_stops_the_agent_over_there(
    far: Client, there: OtherSide, vice: str
) -> None:
    async with far.chat(f"{vice}[[text:one]][[hang]]", stream=True) as response:
        await anext(frames_of(response))
        assert there.processes()
    await eventually(lambda: not there.processes(), "it lives on")
    await eventually(lambda: not there.places(), "its directory stays")


async def test_a_failure_over_there_is_told_as_one_here(far: Client, there: OtherSide) -> None:
    status, error = await far.error("[[text:half]][[exit:1]]")
    assert (status, error["code"]) == (502, "agent_failed")
    there.fake.sign_out()
    status, error = await far.error("[[text:hi]]")
    assert (status, error["code"]) == (401, "not_authenticated")


async def test_images_do_not_go_along(far: Client, there: OtherSide) -> None:
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}}
    status, error = await far.error([{"role": "user", "content": [image]}])
    assert (status, error["code"]) == (400, "unsupported_parameter")
    assert there.fake.runs() == []


async def test_a_way_that_leads_nowhere_is_told_in_its_own_words(
    start: Start, fake: FakeAgent
) -> None:
    async with start(
        agent_command="sh -c 'echo no route to devbox >&2; exit 255' cursor-agent"
    ) as c:
        status, error = await c.error("hi")
    assert status == 502 and "no route to devbox" in error["message"]
    async with start(agent_command="no-such-program devbox cursor-agent") as c:
        status, error = await c.error("hi")
    assert (status, error["code"]) == (503, "no_way_to_agent")


@pytest.mark.parametrize(
    "flags",
    [
        {"agent_command": "cursor-agent"},
        {"agent_command": "ssh 'devbox cursor-agent"},
        {"isolate": True},
        {"workspace": "/"},
        {"workspace_roots": "/"},
        {"agent_executable": "/bin/true"},
        {"tool_channel": "relay"},
    ],
    ids=json.dumps,
)
async def test_what_is_local_does_not_go_with_it(start: Start, flags: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="agent_command"):
        async with start(**({"agent_command": "ssh devbox cursor-agent"} | flags)):
            pass
