"""The fake bridge against Cursor's own: everything that needs no account is asked of both.

`make sdk-bridge` runs it, in a network without other machines. A difference is a failure: either
the fake was wrong, or Cursor has changed something, and the driver has to know.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import WAIT_SECONDS, FakeAgent, eventually
from tests.sdk.places import Place, Places, Question, answers, place, telling
from tests.support.sdk_client import BridgeClient, Json

AGENT = "11111111-1111-4111-8111-111111111111"
TOOLS = {"note": {"description": "Notes", "inputSchema": {"type": "object"}}}
KEY = {"options": {"apiKey": "key"}}
MODEL = {"id": "composer-2.5", "params": [{"id": "fast", "value": "false"}]}
RUN = {"agentId": AGENT, "message": {"text": "Hello"}, "options": {"enableDeltas": True}}
FORCED = RUN | {"options": {"enableDeltas": True, "local": {"force": True}}}
FAILED = "cursor-sdk-bridge failed: "


@pytest.fixture
def places(fake: FakeAgent, tmp_path: Path) -> Places:
    """The real one and the fake. There is no network, and the fake is told so."""
    package = find_spec("cursor_sdk")
    assert package and package.origin, "run this with `make sdk-bridge`"
    real = Path(package.origin).parent / "_vendor" / "bridge" / "bin" / "cursor-sdk-bridge"
    fake.put("offline")
    env = {name: value for name, value in fake.env.items() if name != "CURSOR_API_KEY"}
    return place(real, env, tmp_path / "real"), place(fake.bridge, env, tmp_path / "fake")


async def test_ready_lines_have_the_same_fields(places: Places) -> None:
    async def ask(place: Place) -> Any:
        async with place.started("--state-root", f"{place.here}/state") as bridge:
            token = Path(bridge.line["authTokenFile"])
            modes = [oct(path.stat().st_mode) for path in (token, token.parent)]
            return bridge.line, list(bridge.line), modes, bridge.line["pid"] != bridge.process.pid

    real, fake = await answers(places, ask)
    assert fake == real


@pytest.mark.parametrize(
    "flags",
    [
        ["--strange"],
        ["word"],
        ["--port"],
        ["--port", "99999"],
        ["--host", "192.0.2.1"],
        ["--tool-callback-url", "http://127.0.0.1:9/"],
        ["--max-message-bytes", "none"],
        ["--local-store", "{"],
        ["--local-store", '{"type": "file"}'],
    ],
    ids=lambda flags: " ".join(flags),
)
async def test_bad_flags_are_errors_of_the_start(places: Places, flags: list[str]) -> None:
    async def ask(place: Place) -> Any:
        process = await asyncio.create_subprocess_exec(
            place.program, *flags, env=place.env, stdout=-1, stderr=-1, start_new_session=True
        )
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                out, err = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said = err.decode().splitlines()[0]
        return process.returncode, out, said.startswith(FAILED), telling(said)

    real, fake = await answers(places, ask)
    assert fake == real


def asked_at_once(place: Place) -> dict[str, tuple[str, Json | bytes, str | None]]:
    """Questions that leave nothing behind: the RPC, its message, and a token that is wrong."""
    create, resume = "SdkAgentService/CreateAgent", "SdkAgentService/ResumeAgent"
    local = {"cwd": [str(place.here)]}
    with_tools = local | {"customTools": TOOLS}
    control, catalogue = "SdkBridgeControlService", "SdkCursorService"
    delete = {"agentId": AGENT, "options": {"cwd": str(place.here)}}
    return {
        "ping": (f"{control}/Ping", {}, None),
        "ping with a wrong token": (f"{control}/Ping", {}, "wrong"),
        "ping with a token that is no text": (f"{control}/Ping", {}, ""),
        "version": (f"{control}/GetVersion", {}, None),
        "no such method": (f"{control}/Nothing", {}, None),
        "no such service": ("Nothing/Ping", {}, None),
        "a half host": (f"{control}/SetToolCallback", {"url": "http://127.0.0.1:9/"}, None),
        "no host": (f"{control}/SetToolCallback", {}, None),
        "no JSON": (create, b"nope", None),
        "no object": (create, b"[1]", None),
        "me without a key": (f"{catalogue}/Me", {}, None),
        "models without a key": (f"{catalogue}/ListModels", {"options": {}}, None),
        "me without a network": (f"{catalogue}/Me", KEY, None),
        "models without a network": (f"{catalogue}/ListModels", KEY, None),
        "create without a network": (create, {"options": {"apiKey": "key", "model": MODEL}}, None),
        "create without a key": (create, {"options": {"model": MODEL, "local": local}}, None),
        "create with nothing": (create, {}, None),
        "an unknown field": (create, {"strange": 1, "options": {"odd": [1]}}, None),
        "tools without a host": (create, {"options": {"local": with_tools}}, None),
        "an unknown tool": (create, {"options": {"tools": {"names": ["nonsense"]}}}, None),
        "no tools": (create, {"options": {"tools": {"names": []}}}, None),
        "resume of nobody": (resume, {"agentId": AGENT, "options": {"local": local}}, None),
        "resume with tools": (resume, {"agentId": AGENT, "options": {"local": with_tools}}, None),
        "close of nobody": ("SdkAgentService/CloseAgent", {"agentId": AGENT}, None),
        "delete of nobody": ("SdkAgentService/DeleteAgent", delete, None),
        "cancel of nothing": ("SdkAgentService/CancelRun", {"runId": "run-none"}, None),
        "wait for nothing": ("SdkAgentService/WaitLiveRun", {"runId": "run-none"}, None),
    }


async def test_answers_are_the_same(places: Places) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge:
            return {name: await bridge.ask(*how) for name, how in asked_at_once(place).items()}

    real, fake = await answers(places, ask)
    assert fake == real


async def test_a_key_in_its_environment_is_enough_for_agents_but_not_for_the_catalogue(
    places: Places,
) -> None:
    async def ask(place: Place) -> Any:
        place.env["CURSOR_API_KEY"] = "key"
        async with place.started() as bridge:
            created = await bridge.agent("CreateAgent", options=about(place))
            return created, await bridge.ask("SdkCursorService/Me")

    real, fake = await answers(places, ask)
    assert fake == real


async def test_the_local_store_is_where_state_is_and_the_state_root_is_only_named(
    places: Places,
) -> None:
    async def ask(place: Place) -> Any:
        root, store = place.here / "state", place.here / "store"
        flag = json.dumps({"type": "jsonl", "rootDir": str(store)})
        async with place.started("--state-root", str(root)) as bridge:
            await bridge.create(place.here)
        async with place.started("--state-root", str(root), "--local-store", flag) as bridge:
            await bridge.create(place.elsewhere)
        return root.exists(), store.is_dir(), place.kept_at_home()

    real, fake = await answers(places, ask)
    assert fake == real


async def test_errors_of_streams_are_the_same(places: Places) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge:
            await bridge.create(place.here, agentId=AGENT)
            image = {"url": {"url": "https://example.com/cat.png"}}
            looks = RUN | {"message": {"text": "Look", "images": [image]}}
            return {
                "wrong token": await bridge.frames("SdkAgentService/Send", RUN, "wrong"),
                "nobody": await bridge.frames("SdkAgentService/Send", RUN | {"agentId": "x"}),
                "no model": await bridge.frames("SdkAgentService/Send", RUN),
                "a link": await bridge.frames("SdkAgentService/Send", looks),
                "nothing": await bridge.frames("SdkAgentService/ObserveRun", {"runId": "run-x"}),
            }

    real, fake = await answers(places, ask)
    assert fake == real


async def test_a_run_without_a_key_fails_in_a_stream_that_ends_well(places: Places) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge:
            created = await bridge.agent("CreateAgent", options={"agentId": AGENT, "model": MODEL})
            # Where the machine is slow there is a keep-alive among them.
            sent = await bridge.frames("SdkAgentService/Send", RUN)
            frames = [frame for frame in sent if frame != (0, {})]
            run_id = frames[-2][1]["done"]["runId"]
            again = await bridge.agent("WaitLiveRun", runId=run_id)
            watched = await bridge.frames("SdkAgentService/ObserveRun", {"runId": run_id})
            cancelled = await bridge.agent("CancelRun", runId=run_id)
            return created, frames, again, watched, cancelled

    real, fake = await answers(places, ask)
    assert fake == real


@asynccontextmanager
async def running(bridge: BridgeClient, place: Place, message: Json = RUN) -> AsyncIterator[str]:
    """A run that is at work, as long as it is held open; its id. Its agent is made if need be."""
    await bridge.agent("CreateAgent", options=about(place))
    async with bridge.stream("SdkAgentService/Send", message) as frames:
        _, first = await anext(frames)
        yield str(first["sdkMessage"]["message"]["run_id"])


async def test_an_agent_has_one_run_at_a_time_until_it_is_cancelled(places: Places) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge, running(bridge, place) as run_id:
            second = await bridge.frames("SdkAgentService/Send", RUN)
            cancelled = await bridge.agent("CancelRun", runId=run_id)
            return second, cancelled, await bridge.agent("WaitLiveRun", runId=run_id)

    real, fake = await answers(places, hanging(places, ask))
    assert fake == real


def hanging(places: Places, ask: Question) -> Question:
    """The real bridge tries for some seconds to reach anybody; the fake waits for a file."""
    Path(places[1].env["FAKE_AGENT_DIR"], "offline-takes").write_text("600")
    return ask


async def test_agents_are_deleted_and_resumed_from_their_own_directory_only(
    places: Places,
) -> None:
    async def ask(place: Place) -> Any:
        found: dict[str, Any] = {}
        async with place.started() as bridge:
            found["created"] = await bridge.agent("CreateAgent", options=about(place))
            found["created again"] = await bridge.agent("CreateAgent", options=about(place))
            found["deleted before it ran"] = await delete(bridge, place.here)
            found["resumed before it ran"] = await resume(bridge, place.here)
            found["asked after that"] = await bridge.frames("SdkAgentService/Send", RUN)
            async with running(bridge, place, FORCED) as run_id:
                found["deleted while it ran"] = await delete(bridge, place.here)
                found["cancelled"] = await bridge.agent("CancelRun", runId=run_id)
                found["ended"] = await bridge.agent("WaitLiveRun", runId=run_id)
            found["cancelled again"] = await bridge.agent("CancelRun", runId=run_id)
            found["closed"] = await bridge.agent("CloseAgent", agentId=AGENT)
            found["closed again"] = await bridge.agent("CloseAgent", agentId=AGENT)
            for name, where in (("elsewhere", place.elsewhere), ("here", place.here)):
                found[f"resumed {name}"] = await resume(bridge, where)
                found[f"deleted {name}"] = await delete(bridge, where)
            found["deleted again"] = await delete(bridge, place.here)
            return found

    real, fake = await answers(places, hanging(places, ask))
    assert fake == real


async def test_a_run_outlives_the_agent_that_was_closed_under_it(places: Places) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge, running(bridge, place) as run_id:
            closed = await bridge.agent("CloseAgent", agentId=AGENT)
            cancelled = await bridge.agent("CancelRun", runId=run_id)
            return closed, cancelled, await delete(bridge, place.here)

    real, fake = await answers(places, hanging(places, ask))
    assert fake == real


async def test_what_was_deleted_under_an_agent_is_gone(places: Places) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge:
            async with running(bridge, place) as run_id:
                await bridge.agent("CancelRun", runId=run_id)
                await bridge.agent("WaitLiveRun", runId=run_id)
            deleted = await delete(bridge, place.here)
            sent = await bridge.frames("SdkAgentService/Send", RUN)
            return deleted, sent, await bridge.agent("CloseAgent", agentId=AGENT)

    real, fake = await answers(places, hanging(places, ask))
    assert fake == real


def about(place: Place) -> Json:
    local = {"cwd": [str(place.here)], "settingSources": []}
    return {"agentId": AGENT, "model": MODEL, "local": local}


async def delete(bridge: BridgeClient, where: Path) -> Any:
    return await bridge.agent("DeleteAgent", agentId=AGENT, options={"cwd": str(where)})


async def resume(bridge: BridgeClient, where: Path) -> Any:
    local = {"cwd": [str(where)], "settingSources": []}
    options = {"local": local, "model": MODEL}
    return await bridge.agent("ResumeAgent", agentId=AGENT, options=options)


async def test_a_run_that_a_crash_cut_off_blocks_its_agent_until_it_is_forced(
    places: Places,
) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge:
            with contextlib.suppress(Exception):
                async with running(bridge, place):
                    bridge.server.kill()
        async with place.started() as bridge:
            resumed = await resume(bridge, place.here)
            blocked = await bridge.frames("SdkAgentService/Send", RUN)
            async with bridge.stream("SdkAgentService/Send", FORCED) as frames:
                return resumed, blocked, await anext(frames)

    real, fake = await answers(places, hanging(places, ask))
    assert fake == real


# How it ends


async def ends(bridge: BridgeClient, seconds: float = WAIT_SECONDS) -> Any:
    """Whether it does, and what its launcher returns."""
    try:
        async with asyncio.timeout(seconds):
            return await bridge.process.wait(), alive(bridge.line["pid"])
    except TimeoutError:
        return "goes on"


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def shut_down(bridge: BridgeClient) -> Any:
    return await bridge.control("Shutdown", graceSeconds=0)


async def terminate(bridge: BridgeClient) -> Any:
    bridge.server.send_signal(signal.SIGTERM)


async def interrupt(bridge: BridgeClient) -> Any:
    bridge.server.send_signal(signal.SIGINT)


async def terminate_twice(bridge: BridgeClient) -> Any:
    await terminate(bridge)
    assert bridge.process.stderr
    async for line in bridge.process.stderr:
        if b"SIGTERM received" in line:
            break
    await terminate(bridge)


ENDS = pytest.mark.parametrize(
    "end", [shut_down, terminate, interrupt], ids=lambda end: end.__name__
)


@ENDS
async def test_it_ends_when_it_is_idle(places: Places, end: Any) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge:
            await bridge.control("Ping")
            return await end(bridge), await ends(bridge)

    real, fake = await answers(places, ask)
    assert fake == real


@pytest.mark.parametrize(
    "end", [shut_down, terminate, terminate_twice], ids=lambda end: end.__name__
)
async def test_an_open_stream_keeps_it(places: Places, end: Any) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge, AsyncExitStack() as stack:
            await stack.enter_async_context(running(bridge, place))
            return await end(bridge), await ends(bridge, 2)

    real, fake = await answers(places, hanging(places, ask))
    assert fake == real


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
async def test_the_launchers_end_leaves_the_server_alone(
    places: Places, number: signal.Signals
) -> None:
    async def ask(place: Place) -> Any:
        async with place.started() as bridge:
            bridge.process.send_signal(number)
            # Its pipes stay open, so nobody waits for more than its end.
            await eventually(lambda: bridge.process.returncode is not None)
            return bridge.process.returncode, await bridge.control("Ping")

    real, fake = await answers(places, ask)
    assert fake == real
