"""The fake bridge's own test: what a driver is tried on has to be right itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.conftest import FakeAgent, eventually
from tests.fakes.connect import SDK_CODES, STATUS
from tests.support.sdk_client import (
    LAST,
    READY,
    BridgeClient,
    Json,
    messages,
    result_in,
    started,
    text_in,
    updates,
)

MODEL = {"model": {"id": "composer-2.5"}}
TOOLS = {"bash": {"description": "Run", "inputSchema": {"type": "object"}}}
FAKES = Path(__file__).parents[1] / "fakes"
SEND = "SdkAgentService/Send"


@pytest.fixture
def agent_kind() -> str:
    """The rig as it is for the agent that has a bridge."""
    return "sdk"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
async def bridge(fake: FakeAgent, here: Path) -> AsyncIterator[BridgeClient]:
    async with started(fake.bridge, fake.env, "--workspace", str(here)) as bridge:
        yield bridge


class Host:
    """Who answers custom tools: at once, or when the test lets it."""

    def __init__(self) -> None:
        self.calls: list[Json] = []
        self.headers: list[Any] = []
        self.lets_go = asyncio.Event()
        self.lets_go.set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers)
        self.calls.append(await request.json())
        await self.lets_go.wait()
        text = f"{self.calls[-1]['toolName']} did"
        return web.json_response({"result": {"content": [{"type": "text", "text": text}]}})


@pytest.fixture
async def host(bridge: BridgeClient) -> AsyncIterator[Host]:
    host = Host()
    app = web.Application()
    app.router.add_post("/sdk.v1.SdkCustomToolCallbackService/CallCustomTool", host.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await bridge.control("SetToolCallback", url=host.url, authToken="-secret")
    yield host
    await runner.cleanup()


async def asked(bridge: BridgeClient, here: Path, prompt: str, **options: Any) -> list[Json]:
    """What a new agent does."""
    return await bridge.send(await bridge.create(here, **MODEL, **options), prompt)


# Words


async def test_it_does_what_its_prompt_says(bridge: BridgeClient, here: Path) -> None:
    frames = await asked(bridge, here, "[[think:hm]] [[text:Hello ]] [[text:world]]")
    assert text_in(frames) == "Hello world"
    assert [update["text"] for update in updates(frames, "thinking-delta")] == ["hm"]
    assert [message["status"] for message in messages(frames, "status")] == ["RUNNING", "FINISHED"]
    assert result_in(frames)["result"]["result"] == "Hello world"


async def test_without_steps_it_repeats_the_last_line(bridge: BridgeClient, here: Path) -> None:
    assert text_in(await asked(bridge, here, "Say\nthis")) == "this"


async def test_a_delta_may_end_inside_a_character(bridge: BridgeClient, here: Path) -> None:
    halves = updates(await asked(bridge, here, "[[cut:👩]]"), "text-delta")
    assert [half["text"] for half in halves] == ["\ud83d", "\udc69"]


async def test_deltas_are_for_those_who_want_them(bridge: BridgeClient, here: Path) -> None:
    agent = await bridge.create(here, **MODEL)
    frames = await bridge.send(agent, "[[text:hi]]", enableDeltas=False)
    assert not any("interactionUpdate" in frame for frame in frames)
    (said,) = messages(frames, "assistant")
    assert said["message"]["content"] == [{"type": "text", "text": "hi"}]


async def test_it_remembers_and_is_sent_the_new_message_only(
    bridge: BridgeClient, here: Path, fake: FakeAgent
) -> None:
    agent = await bridge.create(here, **MODEL)
    script = "[[text:one]] [[then]] [[text:two]] [[then]] [[text:three]]"
    answers = [text_in(await bridge.send(agent, text)) for text in (script, "go on", "and on")]
    assert answers == ["one", "two", "three"]
    assert [run["prompt"] for run in fake.runs()] == [script, "go on", "and on"]
    assert len(fake.rpcs("CreateAgent")) == 1


async def test_a_resumed_agent_remembers(bridge: BridgeClient, here: Path) -> None:
    agent = await bridge.create(here, **MODEL)
    await bridge.send(agent, "[[text:one]] [[then]] [[text:two]]")
    await bridge.agent("CloseAgent", agentId=agent)
    options = MODEL | {"local": {"cwd": [str(here)]}}
    status, _ = await bridge.agent("ResumeAgent", agentId=agent, options=options)
    assert (status, text_in(await bridge.send(agent, "go on"))) == (200, "two")


async def test_usage_has_what_was_recalled_and_what_was_thought(
    bridge: BridgeClient, here: Path
) -> None:
    agent = await bridge.create(here, **MODEL)
    await bridge.send(agent, "[[text:one]]")
    frames = await bridge.send(agent, "[[think:let me see]] [[text:two]]")
    (usage,) = [message["usage"] for message in messages(frames, "usage")]
    assert usage["cacheReadTokens"] > 0 and usage["reasoningTokens"] > 0
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"]
    in_result = result_in(frames)["result"]["usage"]
    assert in_result == {name: str(count) for name, count in usage.items() if count}


async def test_a_note_says_what_a_run_was_asked_for(
    bridge: BridgeClient, here: Path, fake: FakeAgent
) -> None:
    await asked(bridge, here, "hi", tools={"names": ["mcp"]})
    (note,) = fake.runs()
    assert (note["cwd"], note["tools"], note["model"]) == (str(here), ["mcp"], MODEL["model"])
    assert note["pid"] == bridge.line["pid"] and note["env"]["CURSOR_API_KEY"] == "key"


async def test_models_have_the_parameters_of_their_variants(bridge: BridgeClient) -> None:
    catalogue = {"options": {"apiKey": "key"}}
    _, answer = await bridge.ask("SdkCursorService/ListModels", catalogue)
    models = {model["id"]: model for model in answer["items"]}
    assert "parameters" not in models["auto"]
    opus = models["claude-opus-4-8"]
    assert [each["id"] for each in opus["parameters"]] == ["thinking", "effort", "fast"]
    chosen = {each["id"]: each["value"] for each in opus["variants"][0]["params"]}
    assert chosen == {"thinking": "true", "effort": "max", "fast": "true"}


async def test_a_model_that_is_not_listed_is_refused(bridge: BridgeClient, here: Path) -> None:
    options = {"model": {"id": "gpt-1"}, "local": {"cwd": [str(here)]}}
    status, error = await bridge.agent("CreateAgent", options=options)
    assert (status, code_of(error)) == (400, "INVALID_MODEL")


def code_of(error: Json) -> str:
    return str(error["details"][0]["debug"]["sdkErrorCode"]).removeprefix("SDK_ERROR_CODE_")


STEP = re.compile(r"^    (?:async )?def do_(\w+)", re.MULTILINE)
# A recording is of the CLI's own lines.
OF_NO_BRIDGE = {"play", "init"}


def test_it_knows_the_steps_of_the_fake_agent() -> None:
    steps = {path.stem: set(STEP.findall(path.read_text())) for path in FAKES.glob("*.py")}
    source = (FAKES / "bridge_run.py").read_text()
    habits = re.search(r"OF_THE_CLI = set\(\n(.*?)\.split", source, re.DOTALL)
    assert habits
    passed_over = {name.replace("-", "_") for name in re.findall(r"[\w-]+", habits[1])}
    own = steps["bridge_run"] | steps["bridge_vices"] | steps["async_steps"]
    known = own | passed_over | OF_NO_BRIDGE
    assert steps["agent"] - known == set()


async def test_what_the_cli_does_in_its_own_way_is_passed_over(
    bridge: BridgeClient, here: Path
) -> None:
    assert text_in(await asked(bridge, here, "[[late-mcp:1]] [[text:hi]]")) == "hi"


# Tools


async def test_a_call_goes_back_to_the_host(
    bridge: BridgeClient, here: Path, host: Host, fake: FakeAgent
) -> None:
    prompt = '[[relay:bash {"command": "ls"}]] [[say-result]]'
    frames = await asked(bridge, here, prompt, local={"customTools": TOOLS})
    assert text_in(frames) == "bash did"
    (call,), (headers,) = host.calls, host.headers
    assert (call["toolName"], call["args"]) == ("bash", {"command": "ls"})
    assert headers["Authorization"] == "Bearer -secret"
    assert headers["Transfer-Encoding"] == "chunked"
    (begun,) = updates(frames, "tool-call-started")
    (ended,) = updates(frames, "tool-call-completed")
    assert begun["callId"] == ended["callId"] == call["toolCallId"]
    assert ended["toolCall"]["result"]["value"]["content"] == [{"text": {"text": "bash did"}}]
    assert fake.model_steps() == 2


async def test_calls_are_in_flight_at_once(bridge: BridgeClient, here: Path, host: Host) -> None:
    host.lets_go.clear()
    prompt = "[[announce:bash {}]] [[announce:bash {}]] [[relay:bash {}]] [[say-results]]"
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(asked(bridge, here, prompt, local={"customTools": TOOLS}))
        await eventually(lambda: len(host.calls) == 3)
        host.lets_go.set()
    assert text_in(asking.result()) == "bash did bash did bash did"


async def test_a_call_may_come_twice(bridge: BridgeClient, here: Path, host: Host) -> None:
    prompt = "[[relay-twice:bash {}]] [[say-results]]"
    assert text_in(await asked(bridge, here, prompt, local={"customTools": TOOLS})) == "bash did"
    assert len({call["toolCallId"] for call in host.calls}) == 1
    assert len(host.calls) == 2


async def test_who_may_not_use_mcp_has_no_custom_tools(
    bridge: BridgeClient, here: Path, host: Host
) -> None:
    options = {"tools": {"names": []}, "local": {"customTools": TOOLS}}
    frames = await asked(bridge, here, "[[relay:bash {}]] [[say-tools]]", **options)
    assert text_in(frames) == "" and host.calls == []


async def test_its_own_tools_are_announced(bridge: BridgeClient, here: Path) -> None:
    frames = await asked(bridge, here, '[[native:shell {"command": "ls"}]] [[own:read {}]]')
    started = [update["toolCall"] for update in updates(frames, "tool-call-started")]
    assert started[0] == {"type": "shell", "args": {"command": "ls"}}
    assert len(started) == 2 and len(updates(frames, "tool-call-completed")) == 1


# Failures


@pytest.mark.parametrize("words", ["error-event", "fail-as-result", "flaky"])
async def test_a_failed_run_is_a_stream_that_ends_well(
    bridge: BridgeClient, here: Path, fake: FakeAgent, words: str
) -> None:
    fake.put("flaky", "1")
    frames = await asked(bridge, here, f"[[text:so]] [[{words}:It broke]]")
    result = result_in(frames)
    assert result["status"] == "RUN_LIFECYCLE_STATUS_ERROR"
    assert result["result"]["errorMessage"] == "It broke"


async def test_every_code_can_end_a_stream_and_an_rpc(
    bridge: BridgeClient, here: Path, fake: FakeAgent
) -> None:
    for code, connect in SDK_CODES.items():
        agent = await bridge.create(here, **MODEL)
        message = {"agentId": agent, "message": {"text": f"[[error:{code} 7 So it is]]"}}
        flags, frame = (await bridge.frames(SEND, message))[-1]
        assert (flags, frame["error"]["code"], code_of(frame["error"])) == (LAST, connect, code)
        fake.put("fails-Ping", f"{code} 7 1 So it is")
        status, error = await bridge.control("Ping")
        assert (status, error) == (STATUS[connect], frame["error"])
    assert await bridge.control("Ping") == (200, {"message": "pong"})


async def test_codes_of_connect_come_without_details(bridge: BridgeClient, fake: FakeAgent) -> None:
    fake.put("fails-Ping", "unavailable")
    status, error = await bridge.control("Ping")
    assert (status, error["code"], "details" in error) == (503, "unavailable", False)


@pytest.mark.parametrize("is_typed", [False, True])
async def test_a_busy_agent_has_two_ways_to_say_so(
    bridge: BridgeClient, here: Path, fake: FakeAgent, is_typed: bool
) -> None:
    fake.put("busy", "1")
    if is_typed:
        fake.put("busy-typed")
    agent = await bridge.create(here, **MODEL)
    ((_, frame),) = await bridge.frames(SEND, {"agentId": agent, "message": {"text": "hi"}})
    assert frame["error"]["message"].endswith("already has active run")
    assert frame["error"]["code"] == ("failed_precondition" if is_typed else "internal")
    assert text_in(await bridge.send(agent, "hi")) == "hi"


# Cancelling


async def test_a_cancelled_run_still_has_a_result(
    bridge: BridgeClient, here: Path, fake: FakeAgent
) -> None:
    frames = await cancelled(bridge, here, "[[text:so]] [[hang]]")
    assert result_in(frames)["status"] == "RUN_LIFECYCLE_STATUS_CANCELLED"
    assert "done" in frames[-1]
    await eventually(lambda: fake.at_work() == [])


async def test_a_deaf_run_goes_on_after_it_was_cancelled(bridge: BridgeClient, here: Path) -> None:
    frames = await cancelled(bridge, here, "[[deaf]] [[text:so]] [[gap:0.1]] [[text: what]]")
    assert result_in(frames)["result"]["result"] == "so what"


async def cancelled(bridge: BridgeClient, here: Path, prompt: str) -> list[Json]:
    agent = await bridge.create(here, **MODEL)
    options = {"enableDeltas": True}
    message = {"agentId": agent, "message": {"text": prompt}, "options": options}
    frames: list[Json] = []
    async with bridge.stream(SEND, message) as stream:
        async for flags, frame in stream:
            frames += [frame] if flags != LAST else []
            if text_in([frame]) == "so":
                run_id = messages(frames, "status")[0]["run_id"]
                assert await bridge.agent("CancelRun", runId=run_id) == (200, {})
    return frames


async def test_a_listener_that_leaves_does_not_end_the_run(
    bridge: BridgeClient, here: Path, fake: FakeAgent
) -> None:
    agent = await bridge.create(here, **MODEL)
    message = {"agentId": agent, "message": {"text": "[[await:go]] [[touch:went]]"}}
    async with bridge.stream(SEND, message) as stream:
        await anext(stream)
    assert len(fake.at_work()) == 1
    fake.put("go")
    await eventually((fake.home / "went").exists)


# Streams that are not as they should be


async def test_silence_is_filled_with_empty_frames(
    bridge: BridgeClient, here: Path, fake: FakeAgent
) -> None:
    fake.put("keep-alive", "0.01")
    assert {} in await asked(bridge, here, "[[gap:0.1]] [[text:hi]]")


async def test_frames_are_split_anywhere(bridge: BridgeClient, here: Path, fake: FakeAgent) -> None:
    fake.put("split-frames", "1")
    assert text_in(await asked(bridge, here, "[[text:bit by bit]]")) == "bit by bit"


async def test_a_frame_may_have_sixteen_megabytes(bridge: BridgeClient, here: Path) -> None:
    frames = await asked(bridge, here, "[[line:16000000]] [[text:done]]")
    assert max(len(json.dumps(frame)) for frame in frames) > 16_000_000
    assert text_in(frames) == "done"


async def test_unknown_messages_are_among_the_known(bridge: BridgeClient, here: Path) -> None:
    frames = await asked(bridge, here, "[[text:a]] [[unknown]] [[text:b]]")
    assert text_in(frames) == "ab" and messages(frames, "hologram")


@pytest.mark.parametrize("step", ["no-last-frame", "no-result", "no-done"])
async def test_the_end_may_be_missing(bridge: BridgeClient, here: Path, step: str) -> None:
    agent = await bridge.create(here, **MODEL)
    text = {"text": f"[[text:so]] [[{step}]]"}
    frames = await bridge.frames(SEND, {"agentId": agent, "message": text})
    names = {name for _, frame in frames for name in frame} | {str(frames[-1][0])}
    missing = {"no-last-frame": "2", "no-result": "result", "no-done": "done"}
    assert {"2", "result", "done"} - names == {missing[step]}


@pytest.mark.parametrize("step", ["cut-off", "half-line", "exit:1", "die"])
async def test_a_connection_may_break(bridge: BridgeClient, here: Path, step: str) -> None:
    agent = await bridge.create(here, **MODEL)
    text = {"text": f"[[text:so]] [[{step}]]"}
    with pytest.raises((aiohttp.ClientError, AssertionError)):
        await bridge.frames(SEND, {"agentId": agent, "message": text})


async def test_a_reader_that_falls_behind_is_given_up(bridge: BridgeClient, here: Path) -> None:
    agent = await bridge.create(here, **MODEL)
    options = {"enableDeltas": True}
    text = {"text": "[[burst:3000 5000]]"}
    message = {"agentId": agent, "message": text, "options": options}
    async with bridge.stream(SEND, message) as stream:
        _, first = await anext(stream)
        run_id = first["sdkMessage"]["message"]["run_id"]
        await bridge.agent("WaitLiveRun", runId=run_id)
        flags, frame = [each async for each in stream][-1]
    assert (flags, frame["error"]["code"]) == (LAST, "resource_exhausted")


# The process


async def test_it_may_fail_before_it_is_ready(fake: FakeAgent) -> None:
    fake.put("dies-at-start", "no memory")
    process = await asyncio.create_subprocess_exec(fake.bridge, env=fake.env, stderr=-1)
    _, err = await process.communicate()
    assert (process.returncode, b"no memory" in err) == (1, True)


async def test_it_may_never_be_ready(fake: FakeAgent) -> None:
    fake.put("noise", "starting\n")
    fake.put("never-ready")
    process = await asyncio.create_subprocess_exec(
        fake.bridge, env=fake.env, stderr=-1, start_new_session=True
    )
    assert process.stderr and await process.stderr.readline() == b"starting\n"
    os.killpg(process.pid, signal.SIGKILL)
    assert READY.encode() not in (await process.communicate())[1]


async def test_its_ready_line_may_be_of_another_version(fake: FakeAgent, here: Path) -> None:
    fake.put("schema-version", "2")
    fake.put("token-in-line")
    fake.put("noise", "warming up\n")
    async with started(fake.bridge, fake.env, "--workspace", str(here)) as bridge:
        assert (bridge.line["schemaVersion"], bridge.line["authToken"]) == (2, bridge.token)


async def test_it_may_die_in_any_rpc_once(fake: FakeAgent, here: Path) -> None:
    fake.put("dies-in", "CreateAgent")
    flags = ("--workspace", str(here))
    async with started(fake.bridge, fake.env, *flags) as bridge:
        with pytest.raises(aiohttp.ClientError):
            await bridge.create(here, **MODEL)
    async with started(fake.bridge, fake.env, *flags) as bridge:
        await bridge.create(here, **MODEL)


async def test_an_rpc_may_take_its_time(bridge: BridgeClient, here: Path, fake: FakeAgent) -> None:
    fake.put("takes-CreateAgent", "0.1")
    await bridge.create(here, **MODEL)


async def test_state_is_where_the_local_store_is(fake: FakeAgent, here: Path) -> None:
    root = here.with_name("store")
    store = json.dumps({"type": "jsonl", "rootDir": str(root)})
    async with started(fake.bridge, fake.env, "--local-store", store) as bridge:
        await bridge.create(here, **MODEL)
    assert [path for path in root.rglob("*") if path.is_file()]
    assert not (Path(fake.env["HOME"]) / ".cursor").exists()
