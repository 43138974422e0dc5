"""`--isolate`: an agent that tries to read and write elsewhere finds nothing there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cursor_gateway.agents.cursor import isolation
from cursor_gateway.settings import SettingsError
from tests.conftest import FakeAgent, Start, eventually
from tests.http.dialogue import Dialogue

HERE = Path(__file__).resolve()
BY_AGENT = Path("/tmp/new-by-agent")
# An agent in the shell's language: nothing but the system is there to run another one.
AGENT = r"""#!/bin/sh
case "$1" in
  --version) echo 2026.09.18-isolated; exit ;;
  status) echo '{"isAuthenticated": true}'; exit ;;
  models) printf 'Available models\n\nauto - Auto\n\nTip: use --model <id>\n'; exit ;;
esac
script=$(cat | sed -n 's/.*RUN //p')
echo '{"type":"system","subtype":"init","session_id":"s","cwd":"/"}'
said=$(eval "$script" 2>&1 | tr -d '"\\' | tr '\n' ' ')
printf '{"type":"assistant","message":{"content":"%s"},"timestamp_ms":1}\n' "$said"
printf '{"type":"result","subtype":"success","is_error":false,"result":"%s"}\n' "$said"
"""
# The same over ACP. It says which sessions it sees.
ACP_AGENT = r"""#!/bin/sh
case "$1" in
  --version) echo 2026.09.18-isolated; exit ;;
  status) echo '{"isAuthenticated": true}'; exit ;;
esac
say() { echo "{\"jsonrpc\":\"2.0\",$1}"; }
while read -r line; do
  id=$(printf %s "$line" | sed 's/^.*"id":\([0-9]*\).*$/\1/')
  case "$line" in
    *'"initialize"'*) say "\"id\":$id,\"result\":{}" ;;
    *'"session/new"'*)
      mkdir -p "$HOME/.cursor/acp-sessions/s1"
      touch "$HOME/.cursor/acp-sessions/s1/store.db"
      say "\"id\":$id,\"result\":{\"sessionId\":\"s1\"}" ;;
    *'"session/set_mode"'*) say "\"id\":$id,\"result\":{}" ;;
    *'"session/prompt"'*)
      seen=$(ls "$HOME/.cursor/acp-sessions")
      update="{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"text\":\"$seen\"}}"
      say "\"method\":\"session/update\",\"params\":{\"sessionId\":\"s1\",\"update\":$update}"
      say "\"id\":$id,\"result\":{\"stopReason\":\"end_turn\"}" ;;
    *) say "\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}" ;;
  esac
done
"""


def reason_against() -> str:
    try:
        isolation.check(os.environ)
    except SettingsError as error:
        return str(error)
    return ""


needs_bwrap = pytest.mark.skipif(bool(reason_against()), reason=reason_against())


@pytest.fixture
def caged(fake: FakeAgent, tmp_path: Path) -> FakeAgent:
    """The CLI where its installer puts it, in a home with secrets beside it."""
    install = tmp_path / ".local" / "share" / "cursor-agent" / "versions" / "1"
    install.mkdir(parents=True)
    (install / "cursor-agent").write_text(AGENT)
    (install / "cursor-agent").chmod(0o755)
    (tmp_path / "bin" / "cursor-agent").unlink()
    (tmp_path / "bin" / "cursor-agent").symlink_to(install / "cursor-agent")
    for folder in (".cursor", "config/cursor", ".ssh", "project"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".ssh" / "id").write_text("private-key")
    (tmp_path / "project" / "code").write_text("private-code")
    (tmp_path / "config" / "cursor" / "auth.json").write_text("signed-in")
    return fake


def was_written(file: Path) -> bool:
    return file.exists()


@needs_bwrap
async def test_an_isolated_agent_reads_and_writes_nothing_elsewhere(
    start: Start, caged: FakeAgent, tmp_path: Path
) -> None:
    outside = [tmp_path / ".ssh" / "id", tmp_path / "project" / "code", HERE]
    async with start(isolate=True) as client:
        for file in outside:
            said = await client.content(f"RUN cat {file}; echo x >> {file}; echo done")
            assert "No such file" in said or "nonexistent" in said, said
            assert "private" not in said and said.strip().endswith("done")
        assert "Read-only" in await client.content("RUN echo x > /etc/evil; echo done")
        listed = await client.content(f"RUN ls -A {tmp_path} / /tmp; echo done")
        assert ".ssh" not in listed and "project" not in listed
        await client.content(f"RUN echo x > {tmp_path}/new; echo x > {BY_AGENT}")
    assert [file.read_text()[:7] for file in outside[:2]] == ["private", "private"]
    assert not was_written(tmp_path / "new") and not was_written(BY_AGENT)


@needs_bwrap
async def test_an_isolated_agent_has_its_workspace_cursors_files_and_the_network(
    start: Start, caged: FakeAgent, tmp_path: Path
) -> None:
    async with start(isolate=True) as client:
        script = (
            f"RUN pwd; echo mine > note; cat note {tmp_path}/config/cursor/auth.json; "
            f"echo kept > {tmp_path}/.cursor/kept; cat /proc/net/tcp"
        )
        said = await client.content(script)
        assert "cursor-gateway-" in said and "mine" in said and "signed-in" in said
        assert f":{client.server.port:04X} " in said
    assert (tmp_path / ".cursor" / "kept").read_text() == "kept\n"


@needs_bwrap
async def test_an_isolated_agent_sees_no_transcript_of_others_and_takes_its_own_up_again(
    start: Start, caged: FakeAgent, tmp_path: Path
) -> None:
    for kind in ("projects", "chats"):
        (tmp_path / ".cursor" / kind / "another").mkdir(parents=True)
        (tmp_path / ".cursor" / kind / "another" / "file").write_text("private-words")
    write = (
        'mine=$HOME/.cursor/chats/$(printf %s "$PWD" | md5sum | cut -c1-32)/s; '
        "mkdir -p $mine; echo again >> $mine/store.db; wc -l $mine/store.db; "
        "ls -R $HOME/.cursor; cat $HOME/.cursor/*/*/file; echo $*"
    )
    async with start(isolate=True) as client:
        talk = Dialogue(client, tools=[])
        first = (await talk.say(f"RUN {write}"))["content"]
        assert "1 " in first and "another" not in first and "private" not in first
        second = (await talk.say(f"RUN {write}"))["content"]
        assert "--resume s" in second and second.startswith("2 ")
    left = sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / ".cursor").glob("*/*"))
    assert left == [".cursor/chats/another", ".cursor/projects/another"]


@needs_bwrap
@pytest.mark.agents("acp")
async def test_an_isolated_one_sees_no_session_of_others(
    start: Start, fake: FakeAgent, tmp_path: Path
) -> None:
    (fake.cursor / "acp-sessions" / "another").mkdir(parents=True)
    program = tmp_path / "bin" / "cursor-agent"
    program.write_text(ACP_AGENT)
    async with start(isolate=True) as client:
        talk = Dialogue(client, [])
        assert (await talk.say("hi"))["content"] == "s1"
        assert (await talk.say("again"))["content"] == "s1"
        for pid in fake.processes():
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not fake.processes())
        # What it has kept is gone with it, so that another one reads everything.
        assert (await talk.say("and again"))["content"] == "s1"
    assert [store.name for store in (fake.cursor / "acp-sessions").iterdir()] == ["another"]


@needs_bwrap
async def test_an_isolated_agent_sees_no_other_process_and_leaves_none(
    start: Start, caged: FakeAgent
) -> None:
    async with start(isolate=True, session_reuse=False) as client:
        said = await client.content(
            "RUN echo pids; ls /proc | grep -c '^[0-9]'; sleep 999 >/dev/null 2>&1 &"
        )
        assert int(said.split()[1]) < 12
        await eventually(lambda: not caged.processes())


@needs_bwrap
@pytest.mark.parametrize(("mode", "changed"), [("ask", False), ("agent", True)])
async def test_a_workspace_that_the_user_named_can_be_read_and_edited_only_in_agent_mode(
    start: Start, caged: FakeAgent, tmp_path: Path, mode: str, changed: bool
) -> None:
    project = tmp_path / "project"
    async with start(isolate=True, workspace=str(project), agent_mode=mode) as client:
        assert "private-code" in await client.content("RUN cat code; echo x >> code")
        reads = (await client.get("/health"))[1]["agent_reads"]
        assert (reads["workspace"], reads["isolated"]) == ("the workspace", True)
    assert ((project / "code").read_text() != "private-code") is changed


@needs_bwrap
async def test_a_client_that_leaves_ends_an_isolated_agent(start: Start, caged: FakeAgent) -> None:
    async with start(isolate=True, keep_alive=0.1) as client:
        async with client.chat("RUN trap '' TERM; sleep 999", stream=True):
            await eventually(caged.processes)
        await eventually(lambda: not caged.processes())


def test_without_bubblewrap_the_gateway_says_what_to_install(
    fake: FakeAgent, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "cursor_gateway", "serve", "--isolate", "--port", "0"]
    env = fake.env | {"PATH": str(tmp_path / "bin")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Install bubblewrap" in done.stderr and "Traceback" not in done.stderr


def test_a_bubblewrap_that_does_not_work_is_told_plainly(fake: FakeAgent, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1")
    broken.chmod(0o755)
    with pytest.raises(SettingsError, match="does not work here: bwrap: No permissions"):
        isolation.check(fake.env)


def test_isolation_is_for_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(SettingsError, match="Linux only"):
        isolation.check({})
