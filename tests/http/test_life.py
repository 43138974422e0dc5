"""Silence, leaving, lingering, shutdown: what the operating system says is what counts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cursor_gateway import workspaces
from cursor_gateway.processes import guardian, tree
from cursor_gateway.settings_sources import load
from tests.conftest import (
    EITHER_AGENT,
    Client,
    FakeAgent,
    Start,
    children_of,
    command_line,
    eventually,
    frames_of,
)
from tests.support.machine import is_blocked_on_its_pipe, resident_mb
from tests.support.programs import gateway_process, streaming
from tests.support.views import until_the_agent_has_left

AGENTS = {"obedient": "", "deaf": "[[deaf]]", "grandchild": "[[grandchild]][[deaf]]"}
MOMENTS = {
    "before the first byte": "[[hang]]",
    "mid-text": "[[text:Hello]][[slowly:100000]]",
    "silent": "[[text:Hello]][[hang]]",
}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("moment", [*MOMENTS, "not streaming"])
async def test_a_client_that_leaves_stops_its_agent(
    client: Client, fake: FakeAgent, agent: str, moment: str
) -> None:
    await client.content("[[text:warm up]]")
    await eventually(lambda: not fake.processes())
    before = descriptors()
    prompt = AGENTS[agent] + MOMENTS.get(moment, "[[text:Hello]][[hang]]")
    stream = moment != "not streaming"
    heard = asyncio.Event()
    request = asyncio.ensure_future(_hold(client, prompt, stream, heard))
    wanted = 2 if agent == "grandchild" else 1
    await eventually(lambda: len(fake.processes()) == wanted and len(fake.runs()) == 2)
    if moment in ("mid-text", "silent"):
        await heard.wait()
    request.cancel()
    await asyncio.wait({request})
    await eventually(lambda: not fake.processes(), "a process survived")
    await eventually(lambda: descriptors() <= before, "a descriptor is left open")


async def _hold(client: Client, prompt: str, stream: bool, heard: asyncio.Event) -> None:
    async with client.chat(prompt, stream=stream) as response:
        async for frame in frames_of(response):
            if frame["choices"][0]["delta"].get("content"):
                heard.set()


async def test_result_ends_the_answer_though_the_agent_lingers(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.cursor.run.LINGER_GRACE", 60.0)
    assert await client.content("[[text:done]][[linger]]") == "done"
    assert len(fake.processes()) == 1


@pytest.mark.parametrize("vice", ["[[linger]]", "[[deaf]][[linger]]", "[[grandchild]]"])
async def test_after_a_normal_end_nothing_stays(client: Client, fake: FakeAgent, vice: str) -> None:
    assert await client.content(f"{vice}[[text:done]]") == "done"
    await eventually(lambda: not fake.processes())


async def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_answer(client: Client) -> None:
    status, error = await client.error("[[grandchild]][[text:half]][[exit:1]]")
    assert (status, error["code"]) == (502, "agent_failed")


@EITHER_AGENT
async def test_a_silent_stream_is_kept_alive_by_comments_and_events(start: Start) -> None:
    lines: list[bytes] = []
    async with (
        start(keep_alive=0.05, heartbeat=0.5) as client,
        client.chat("[[init]][[hang]]", stream=True) as response,
    ):
        async for line in response.content:
            lines.append(line)
            if sum(b'"delta":{}' in seen for seen in lines) == 2:
                break
    assert lines.count(b": keep-alive\n") >= 6
    first_frame = next(line for line in lines if line.startswith(b"data: "))
    assert b'"role":"assistant"' in first_frame


@EITHER_AGENT
async def test_each_of_many_silent_streams_is_kept_alive(start: Start) -> None:
    async def signs(client: Client, wanted: int) -> None:
        async with client.chat("[[init]][[hang]]", stream=True) as response:
            async for line in response.content:
                wanted -= line == b": keep-alive\n"
                if not wanted:
                    return

    async with start(keep_alive=0.05) as client:
        await asyncio.gather(*(signs(client, wanted) for wanted in (1, 3, 5)))
        await signs(client, 2)


@EITHER_AGENT
async def test_a_shorter_interval_holds_at_once_for_new_streams(
    start: Start, fake: FakeAgent
) -> None:
    async with start(keep_alive=600) as client, client.chat("[[text:x]]", stream=True) as response:
        await response.read()  # it has set the clock to ten minutes
        client.server.reload(lambda: load({"port": 0, "keep_alive": 0.05}, fake.env).settings)
        async with client.chat("[[init]][[hang]]", stream=True) as silent:
            assert await silent.content.readline() == b": keep-alive\n"


async def test_a_failure_after_keep_alives_is_an_error_frame(start: Start) -> None:
    async with (
        start(keep_alive=0.05, idle_timeout=0.5) as client,
        client.chat("[[init]][[hang]]", stream=True) as response,
    ):
        assert response.status == 200
        frames = [frame async for frame in frames_of(response)]
    assert frames[-1]["error"]["code"] == "agent_timed_out"


async def test_a_slow_client_makes_the_agent_wait(client: Client, fake: FakeAgent) -> None:
    """100 MB of answer, of which the client reads nothing: memory must stay where it is."""
    resident = resident_mb()
    async with client.chat("[[many:3000000]]", stream=True) as response:
        await response.content.readline()
        (agent,) = await eventually(fake.processes)
        await eventually(lambda: is_blocked_on_its_pipe(agent))
        assert resident_mb() - resident < 60


async def test_scratch_directories_are_empty_of_their_own_and_removed(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "UNUSED_LAST", 0.1)
    async with start(session_reuse=False) as client:
        await client.content("[[text:one]]")
        directory = Path(fake.runs()[0]["cwd"])
        await eventually(lambda: not directory.exists())
        assert directory.parent.name.startswith("cursor-gateway-")


async def test_a_scratch_directory_that_was_left_as_it_was_serves_the_next_run(
    start: Start, fake: FakeAgent
) -> None:
    async with start(session_reuse=False, transcripts="keep") as client:
        for _ in range(3):
            await client.content("[[text:one]]")
            await until_the_agent_has_left(client)
    assert len({(run["cwd"], run["inode"]) for run in fake.runs()}) == 1
    assert all(run["files"] == [".cursor"] for run in fake.runs())


@pytest.mark.parametrize("vice", ["litter", "replace", "open-up"])
async def test_a_scratch_directory_that_was_changed_serves_nobody(
    start: Start, fake: FakeAgent, vice: str
) -> None:
    async with start(session_reuse=False) as client:
        await client.content(f"[[{vice}]][[text:one]]")
        await eventually(lambda: not Path(fake.runs()[0]["cwd"]).exists())
        await client.content("[[text:two]]")
    assert fake.runs()[1]["files"] == [".cursor"]
    assert fake.runs()[1]["mode"] == 0o40700


async def test_many_answers_leave_no_descriptor(client: Client, fake: FakeAgent) -> None:
    await client.content("[[text:warm up]]")
    await eventually(lambda: not fake.processes())
    before = descriptors()
    await asyncio.gather(*(client.content("[[text:one]]") for _ in range(20)))
    await eventually(lambda: not fake.processes())
    await client.session.connector.close()  # type: ignore[union-attr]
    await eventually(lambda: descriptors() <= before + 2)


# A gateway as a process of its own


@EITHER_AGENT
async def test_sigterm_lets_answers_finish_and_leaves_nothing(fake: FakeAgent) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[slowly:50]][[text:end]]") as response,
    ):
        frames = frames_of(response)
        await anext(frames)
        process.send_signal(signal.SIGTERM)
        rest = [frame async for frame in frames]
        assert rest[-1] == "[DONE]"
        assert await process.wait() == 0
    assert fake.processes() == []
    assert list((fake.home / "tmp").iterdir()) == []


@EITHER_AGENT
async def test_before_it_stops_it_says_so_and_still_serves(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_SHUTDOWN_DELAY"] = "600"
    async with (
        gateway_process(fake) as (process, url),
        aiohttp.ClientSession() as session,
        streaming(url, "[[text:one]][[await:go]][[text:two]]") as running,
    ):
        frames = frames_of(running)
        await anext(frames)
        process.send_signal(signal.SIGTERM)
        health: dict[str, Any] = {}
        while health.get("status") != "draining":
            async with session.get(url.removesuffix("/v1") + "/health") as response:
                status, health = response.status, await response.json()
        assert status == 503
        async with streaming(url, "[[text:new]]") as response:
            assert [frame async for frame in frames_of(response)][-1] == "[DONE]"
        fake.put("go")
        assert [frame async for frame in frames][-1] == "[DONE]"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_an_answer_that_does_not_finish_in_time_is_told_why(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_SHUTDOWN_GRACE"] = "0.2"
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[text:one]][[deaf]][[grandchild]][[hang]]") as response,
    ):
        frames = frames_of(response)
        await anext(frames)
        await eventually(lambda: len(fake.processes()) == 2)
        process.send_signal(signal.SIGTERM)
        rest = [frame async for frame in frames]
        assert rest[-1]["error"]["code"] == "shutting_down"
        assert await process.wait() == 0
    assert fake.processes() == []
    assert list((fake.home / "tmp").iterdir()) == []


@EITHER_AGENT
async def test_a_second_ctrl_c_ends_it_at_once(fake: FakeAgent) -> None:
    fake.env["CURSOR_GATEWAY_SHUTDOWN_GRACE"] = "600"
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[deaf]][[text:one]][[hang]]") as response,
    ):
        frames = frames_of(response)
        await anext(frames)
        process.send_signal(signal.SIGINT)
        while await _accepts(url):
            pass
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert fake.processes() == []


async def _accepts(url: str) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
    except OSError:
        return False
    writer.close()
    return True


async def test_after_sigkill_of_the_gateway_nothing_lives_on(fake: FakeAgent) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[deaf]][[grandchild]][[text:one]][[hang]]") as response,
    ):
        await anext(frames_of(response))
        await eventually(lambda: len(fake.processes()) == 2)
        process.kill()
        await process.wait()
        await eventually(lambda: not tree.marked("") or not fake.processes())
        await eventually(lambda: not list((fake.home / "tmp").iterdir()))


def _is_alive(fake: FakeAgent) -> bool:
    return tree.is_alive(int((fake.home / "stranger").read_text()))


async def test_a_grandchild_without_any_mark_dies_when_the_client_leaves(
    client: Client, fake: FakeAgent
) -> None:
    async with client.chat("[[stranger]][[text:one]][[hang]]", stream=True) as response:
        await anext(frames_of(response))
        assert _is_alive(fake)
    await eventually(lambda: not _is_alive(fake))


@pytest.mark.parametrize("prompt", ["[[stranger]][[text:one]]", "[[stranger]][[exit:1]]"])
async def test_a_grandchild_without_any_mark_dies_after_the_end(
    fake: FakeAgent, prompt: str
) -> None:
    async with gateway_process(fake) as (_, url), streaming(url, prompt) as response:
        await response.read()
        await eventually(lambda: not _is_alive(fake))


# A machine that does not let the number of a run be written among the limits of an agent.
NO_NUMBERS = (
    sys.executable,
    "-c",
    "import os, resource, sys; resource.setrlimit(10, (0, 0)); os.execv(sys.argv[1], sys.argv[1:])",
)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are no numbers")
async def test_where_no_numbers_can_be_written_an_orphan_dies_when_all_agents_are_gone(
    fake: FakeAgent,
) -> None:
    async with gateway_process(fake, launcher=NO_NUMBERS) as (_, url):
        async with streaming(url, "[[text:one]][[hang]]") as running:
            await anext(frames_of(running))
            async with streaming(url, "[[stranger]][[exit:1]]") as other:
                await other.read()
            await eventually(lambda: len(fake.processes()) == 1)
            assert _is_alive(fake), "nobody could say whose it is"
        await eventually(lambda: not _is_alive(fake))


async def test_an_orphan_is_left_alone_while_its_agent_may_live(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (_, url):
        async with streaming(url, "[[stranger]][[text:one]][[hang]]") as running:
            await anext(frames_of(running))
            async with streaming(url, "[[text:two]]") as other:
                await other.read()
            await eventually(lambda: len(fake.processes()) == 1)
            assert _is_alive(fake)
        await eventually(lambda: not _is_alive(fake))


async def test_a_grandchild_without_any_mark_dies_with_a_killed_gateway(fake: FakeAgent) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[stranger]][[text:one]][[hang]]") as response,
    ):
        await anext(frames_of(response))
        process.kill()
        await process.wait()
        await eventually(lambda: not _is_alive(fake))


async def test_an_orphan_of_which_a_killed_gateway_never_knew_dies_with_it(
    fake: FakeAgent,
) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[stranger]][[text:one]][[hang]]") as response,
    ):
        await anext(frames_of(response))
        process.send_signal(signal.SIGSTOP)
        os.kill(fake.runs()[0]["pid"], signal.SIGKILL)
        process.kill()
        await process.wait()
        await eventually(lambda: not _is_alive(fake))


# Deeper than Python's stack.
DEEP = 1050


async def test_a_tree_of_any_depth_is_ended_when_the_client_leaves(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url), aiohttp.ClientSession() as session:
        async with streaming(url, f"[[tree:deep {DEEP}]][[text:one]][[hang]]") as response:
            await anext(frames_of(response))
            await eventually((fake.home / "grown").exists)
            (agent,) = (run["pid"] for run in fake.runs())
        while tree.is_alive(agent) or fake.processes():
            async with session.get(url.removesuffix("/v1") + "/health") as health:
                assert health.status == 200
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        await eventually(lambda: len(children.read_text().split()) == 1, "only the guardian")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_a_tree_of_any_depth_ends_with_the_gateway(
    fake: FakeAgent, end: signal.Signals
) -> None:
    fake.env["CURSOR_GATEWAY_SHUTDOWN_GRACE"] = "0"
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, f"[[tree:deep {DEEP}]][[text:one]][[hang]]") as response,
    ):
        await anext(frames_of(response))
        await eventually((fake.home / "grown").exists)
        process.send_signal(end)
        assert await process.wait() == (0 if end is signal.SIGTERM else -end)
        await eventually(lambda: not list((fake.home / "tmp").iterdir()))
        assert fake.processes() == []


async def test_a_daemon_that_dropped_all_it_was_given_dies_with_a_killed_gateway(
    fake: FakeAgent,
) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[tree:daemon]][[text:one]][[hang]]") as response,
    ):
        await anext(frames_of(response))
        daemon = await eventually(lambda: _adopted_daemon(fake, process.pid))
        process.kill()
        await process.wait()
        await eventually(lambda: not tree.is_alive(daemon))


async def test_a_daemon_that_dropped_all_it_was_given_dies_with_its_own_request(
    fake: FakeAgent,
) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[text:one]][[hang]]") as other,
    ):
        await anext(frames_of(other))
        async with streaming(url, "[[tree:daemon]][[text:one]][[hang]]") as response:
            await anext(frames_of(response))
            daemon = await eventually(lambda: _adopted_daemon(fake, process.pid))
        await eventually(lambda: not tree.is_alive(daemon))


def _adopted_daemon(fake: FakeAgent, parent: int) -> int | None:
    """Its number, once the gateway is its parent."""
    note = fake.home / "daemon"
    pid = int(note.read_text()) if note.exists() else 0
    return pid if pid in children_of(parent) else None


async def test_a_guardian_that_dies_is_replaced(fake: FakeAgent) -> None:
    async with (
        gateway_process(fake) as (process, url),
        streaming(url, "[[deaf]][[grandchild]][[text:one]][[hang]]") as response,
    ):
        await anext(frames_of(response))
        first = await eventually(lambda: _guardian_of(process.pid))
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: _guardian_of(process.pid) not in (None, first))
        process.kill()
        await process.wait()
        await eventually(lambda: not fake.processes())
        await eventually(lambda: not list((fake.home / "tmp").iterdir()))


async def test_a_gateway_whose_guardian_is_dead_ends_as_any(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        guardian = await eventually(lambda: _guardian_of(process.pid))
        os.kill(guardian, signal.SIGKILL)
        async with streaming(url, "[[stranger]][[exit:1]]") as response:
            await response.read()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert list((fake.home / "tmp").iterdir()) == []


def _guardian_of(pid: int) -> int | None:
    children = children_of(pid)
    return next(
        (child for child in children if os.fsencode(guardian.PROGRAM) in command_line(child)), None
    )


async def test_an_orphan_that_was_ended_does_not_stay_as_a_zombie(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (process, url):
        listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        await eventually(lambda: len(listing.read_text().split()) == 1, "only the guardian")
        async with streaming(url, "[[stranger]][[exit:1]]") as response:
            await response.read()
        await eventually(lambda: len(listing.read_text().split()) == 1, "a zombie is left")


async def test_result_ends_the_answer_even_without_its_newline(
    client: Client, fake: FakeAgent
) -> None:
    assert await client.content("[[text:done]][[unended-result]]") == "done"
    assert await client.text("[[text:done]][[unended-result]]") == "done"


async def test_a_port_in_use_is_told_plainly(fake: FakeAgent) -> None:
    async with gateway_process(fake) as (_, url):
        port = url.split(":")[2].split("/")[0]
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cursor_gateway", "serve", "--port", port),
            env=fake.env,
            stderr=subprocess.PIPE,
        )
        _, words = await second.communicate()
    assert second.returncode == 2
    assert b"is in use" in words and b"--port" in words
    assert b"Traceback" not in words


CARELESS = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.execv(sys.argv[1], sys.argv[1:])
"""


async def test_what_its_parent_did_to_signals_does_not_matter(fake: FakeAgent) -> None:
    launcher = (sys.executable, "-c", CARELESS)
    async with (
        gateway_process(fake, launcher=launcher) as (process, url),
        aiohttp.ClientSession() as session,
    ):
        async with streaming(url, "[[exit:3]]") as response:
            assert (await response.json())["error"]["code"] == "agent_failed"
        async with session.get(f"{url}/requests") as journal:
            (record,) = (await journal.json())["data"]
        assert [agent["exit"] for agent in record["agents"]] == [3]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
