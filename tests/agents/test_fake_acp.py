"""The test of the fake `cursor-agent acp`: what a driver is tried on has to be right itself."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FakeAgent, eventually
from tests.support.acp_client import WAIT_SECONDS, AcpClient, Json, Refused, started

FAKES = Path(__file__).parents[1] / "fakes"


@pytest.fixture
def agent_kind() -> str:
    return "acp"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
async def acp(fake: FakeAgent) -> AsyncIterator[AcpClient]:
    async with started(fake.env) as acp:
        yield acp


async def exited(*words: str, env: dict[str, str], stdin: bytes = b"") -> tuple[int | None, str]:
    """How a process ended, and what it wrote to stderr."""
    process = await asyncio.create_subprocess_exec(*words, env=env, stdin=-1, stdout=-1, stderr=-1)
    async with asyncio.timeout(WAIT_SECONDS):
        _, err = await process.communicate(stdin)
    return process.returncode, err.decode()


# The process


async def test_it_ends_with_its_stdin(acp: AcpClient) -> None:
    assert await acp.end() == 0


async def test_a_signal_ends_it_with_143(acp: AcpClient) -> None:
    acp.process.send_signal(signal.SIGTERM)
    assert await acp.process.wait() == 143


async def test_it_may_linger_when_its_stdin_has_ended(acp: AcpClient, here: Path) -> None:
    await acp.prompt(await acp.session(here), "[[linger]]")
    assert acp.process.stdin
    acp.process.stdin.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(acp.process.wait(), 0.2)


async def test_a_deaf_one_obeys_nobody(acp: AcpClient, here: Path) -> None:
    await acp.prompt(await acp.session(here), "[[deaf]]")
    acp.process.send_signal(signal.SIGTERM)
    assert acp.process.stdin
    acp.process.stdin.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(acp.process.wait(), 0.2)


@pytest.mark.parametrize("words", ["no memory", ""])
async def test_it_may_die_at_its_start_without_a_word(fake: FakeAgent, words: str) -> None:
    fake.put("dies-at-start", words)
    assert await exited("cursor-agent", "acp", env=fake.env) == (1, words)


async def test_options_stand_before_the_command(fake: FakeAgent) -> None:
    code, err = await exited("cursor-agent", "acp", "--model", "auto", env=fake.env)
    assert (code, err) == (1, "error: unknown option '--model'\n")


async def test_a_model_that_nobody_has_is_refused_at_the_start(fake: FakeAgent) -> None:
    code, err = await exited("cursor-agent", "--model", "gpt-1", "acp", env=fake.env)
    assert code == 1 and err.startswith("Cannot use this model: gpt-1.")


@pytest.mark.parametrize("flag", ["", "--worktree=here"])
async def test_a_banner_comes_before_the_first_frame(fake: FakeAgent, flag: str) -> None:
    if not flag:
        fake.put("banner", "Welcome")
    async with started(fake.env, *filter(None, [flag])) as acp:
        assert isinstance(acp.lines[0], bytes)


async def test_it_knows_the_steps_of_the_fake_agent() -> None:
    step = re.compile(r"^    (?:async )?def do_(\w+)", re.MULTILINE)
    steps = {path.stem: set(step.findall(path.read_text())) for path in FAKES.glob("*.py")}
    turn = (FAKES / "acp_turn.py").read_text()
    habits = re.search(r'OF_THE_CLI = set\("(.*?)"', turn)
    assert habits
    passed_over = {name.replace("-", "_") for name in habits[1].split()}
    own = {name for module, names in steps.items() for name in names if module.startswith("acp")}
    # A recording is of the CLI's own lines.
    assert steps["agent"] - own - steps["async_steps"] - passed_over == {"play"}


async def test_models_asked_for_beside_it_may_end_it(fake: FakeAgent, acp: AcpClient) -> None:
    assert (await exited("cursor-agent", "models", env=fake.env))[0] == 0
    assert (fake.home / "models-beside-acp").exists()
    assert await acp.ask("session/list")
    fake.put("models-kill-acp")
    await exited("cursor-agent", "--list-models", env=fake.env)
    assert await acp.process.wait() == 143


@pytest.mark.parametrize("phase", ["initialize", "session/new", "session/prompt", "session/load"])
async def test_it_may_die_in_any_phase_once(fake: FakeAgent, here: Path, phase: str) -> None:
    fake.put("dies-in", phase.replace("/", "-"))
    async with started(fake.env, initialize=False) as acp:
        with pytest.raises(asyncio.CancelledError):
            await acp.begin(phase)
        assert await acp.process.wait() == -signal.SIGKILL
    async with started(fake.env) as acp:
        await acp.session(here)


async def test_it_boots_before_the_first_answer_or_with_the_first_prompt(
    fake: FakeAgent, here: Path
) -> None:
    fake.put("boots-after-prompt", "0.05")
    async with started(fake.env) as acp:
        session = await acp.session(here)
        assert not (fake.home / "booted").exists()
        await acp.prompt(session, "hi")
        assert (fake.home / "booted").read_text() == f"{acp.process.pid}\n"
    fake.put("boots-before-prompt", "0.05")
    async with started(fake.env) as acp:
        assert (fake.home / "booted").read_text().endswith(f"{acp.process.pid}\n")


# Lines


async def test_initialize_says_what_it_can(fake: FakeAgent) -> None:
    fake.sign_out()
    async with started(fake.env, initialize=False) as acp:
        for version in (99, 1):
            answer = await acp.ask("initialize", protocolVersion=version)
            assert answer.keys() == {"protocolVersion", "agentCapabilities", "authMethods"}
            assert answer["protocolVersion"] == 1 and answer["agentCapabilities"]["loadSession"]


async def test_what_it_cannot_read_it_swallows(acp: AcpClient) -> None:
    for line in (b"hello", b"[1]", b'{"jsonrpc":"2.0","id":77,"method":"session', b"{}"):
        acp.send(line)
    assert await acp.ask("session/list") == {"sessions": []}
    assert len(acp.messages) == 2


@pytest.mark.parametrize("method", ["session/fork", "session/close", "session/cancel", "what"])
async def test_methods_that_nobody_knows_are_refused(acp: AcpClient, method: str) -> None:
    with pytest.raises(Refused) as refused:
        await acp.ask(method)
    assert refused.value.code == -32601


async def test_an_answer_may_come_twice_or_cut_or_not_at_all(
    fake: FakeAgent, acp: AcpClient, here: Path
) -> None:
    session = await acp.session(here)
    await acp.prompt(session, "[[answers-twice]]")
    fake.put("repeats", "session-list")
    await acp.ask("session/list")
    fake.put("cuts", "session-set_mode")
    cut = acp.begin("session/set_mode", sessionId=session, modeId="ask")
    fake.put("ignores", "session-load")
    ignored = acp.begin("session/load")
    await acp.ask("cursor/list_available_models")
    # Requests are worked on side by side; this one had its answer, or half of it, before.
    await eventually(lambda: any(isinstance(line, bytes) for line in acp.lines))
    numbers = [each["id"] for each in acp.messages if "method" not in each]
    assert len(numbers) - len(set(numbers)) == 2
    assert not cut.done() and not ignored.done()


async def test_its_lines_may_be_noise_or_torn(acp: AcpClient, here: Path) -> None:
    steps = "[[text:a]] [[noise:what]] [[cut-line:gone]] [[array]] [[bytewise:bü]] [[text:c]]"
    assert await acp.prompt(await acp.session(here), steps) == "end_turn"
    assert acp.text() == "abüc"
    assert len([line for line in acp.lines if not isinstance(line, dict)]) == 3


async def test_a_line_may_have_five_megabytes_or_a_thousand_levels(
    acp: AcpClient, here: Path
) -> None:
    await acp.prompt(await acp.session(here), "[[line:5000000]] [[deep:900]]")
    big, deep = acp.updates("tool_call_update")[-2:]
    assert len(big["rawOutput"]["content"]) == 5_000_000
    assert str(deep["rawOutput"]).count("{") == 900


@pytest.mark.parametrize("step", ["half-line", "half-echo", "exit:1", "die"])
async def test_it_may_die_in_the_middle_of_a_turn(acp: AcpClient, here: Path, step: str) -> None:
    with pytest.raises(asyncio.CancelledError):
        await acp.begin_prompt(await acp.session(here), f"[[text:so]] [[{step}]]")
    assert acp.text() == "so"


# The account


async def test_signed_out_there_are_no_sessions(fake: FakeAgent, here: Path) -> None:
    fake.sign_out()
    async with started(fake.env) as acp:
        for method in ("session/new", "session/load", "cursor/list_available_models"):
            with pytest.raises(Refused) as refused:
                await acp.ask(method)
            assert refused.value.code == -32000
            assert "agent login" in refused.value.data["message"]


async def test_authenticate_opens_a_browser_unless_it_is_told_not_to(fake: FakeAgent) -> None:
    fake.env.pop("BROWSER", None)
    async with started(fake.env) as acp:
        assert await acp.ask("authenticate", methodId="cursor_login") == {}
        fake.sign_out()
        acp.begin("authenticate", methodId="cursor_login")
        await eventually((fake.home / "browser-opened").exists)
    async with started(fake.env | {"NO_OPEN_BROWSER": "1"}) as acp:
        with pytest.raises(Refused) as refused:
            await acp.ask("authenticate", methodId="cursor_login")
        assert refused.value.code == -32602 and "https://" in refused.value.data["message"]


async def test_a_key_that_is_not_valid_shows_in_the_session(fake: FakeAgent, here: Path) -> None:
    fake.put("key", "good")
    async with started(fake.env | {"CURSOR_API_KEY": "bad"}) as acp:
        with pytest.raises(Refused) as refused:
            await acp.session(here)
        assert refused.value.code == -32603
        assert refused.value.data == {"message": "Failed to initialize session services"}
    async with started(fake.env | {"CURSOR_API_KEY": "good"}) as acp:
        await acp.session(here)


async def test_any_method_may_fail_for_a_while_or_take_its_time(
    fake: FakeAgent, acp: AcpClient, here: Path
) -> None:
    fake.put("fails-session-new", "-32603 2 Failed to initialize session services")
    fake.put("takes-session-new", "0.05")
    for _ in range(2):
        with pytest.raises(Refused):
            await acp.session(here)
    await acp.session(here)


# Sessions


async def test_a_session_needs_a_place_and_servers(acp: AcpClient, here: Path) -> None:
    with pytest.raises(Refused) as refused:
        await acp.ask("session/new", cwd=str(here))
    assert refused.value.code == -32603 and isinstance(refused.value.data, list)


async def test_a_new_session_says_what_it_is_and_later_its_commands(
    fake: FakeAgent, acp: AcpClient, here: Path
) -> None:
    fake.put("commands-take", "0.01")
    made = await acp.ask("session/new", cwd=str(here), mcpServers=[])
    assert made.keys() == {"sessionId", "modes", "models", "configOptions"}
    await eventually(lambda: acp.updates("available_commands_update"))


async def test_it_remembers_what_ended_well(fake: FakeAgent, acp: AcpClient, here: Path) -> None:
    session = await acp.session(here)
    script = "[[text:one]] [[then]] [[text:two]] [[then]] [[text:three]]"
    for text in (script, "go on", "and on"):
        await acp.prompt(session, text)
    assert acp.text() == "onetwothree"
    assert [run["prompt"] for run in fake.runs()] == [script, "go on", "and on"]
    assert {run["cwd"] for run in fake.runs()} == {str(here)}
    assert len(fake.rpcs("session/new")) == 1 and fake.model_steps() == 3


async def test_a_session_comes_back_with_everything_that_was_said(
    fake: FakeAgent, acp: AcpClient, here: Path
) -> None:
    session = await acp.session(here)
    await acp.prompt(
        session, "[[think:h]][[think:m]][[text:o]][[text:ne]][[own:read {}]][[text:!]]"
    )
    assert (fake.cursor / "acp-sessions" / session / "store.db").exists()
    async with started(fake.env) as again:
        params: Json = {"cwd": str(here.parent), "mcpServers": []}
        shown = await again.ask("session/load", sessionId=session, **params)
        assert "sessionId" not in shown and shown["models"]
        told = [(each["sessionUpdate"], each["content"]["text"]) for each in again.updates()]
        assert told[1:] == [
            ("agent_thought_chunk", "hm"),
            ("agent_message_chunk", "one"),
            ("agent_message_chunk", "!"),
        ]
        (listed,) = (await again.ask("session/list"))["sessions"]
        assert (listed["sessionId"], listed["cwd"]) == (session, str(here.parent))
        with pytest.raises(Refused) as refused:
            await again.ask("session/load", sessionId="gone", **params)
        assert refused.value.code == -32602


# Models


async def test_models_have_options_or_long_names(fake: FakeAgent, acp: AcpClient) -> None:
    listed = (await acp.ask("cursor/list_available_models"))["models"]
    models = {each["value"]: each["configOptions"] for each in listed}
    assert [each["id"] for each in models["gpt-5.6-sol"]] == ["context", "reasoning"]
    assert [each["id"] for each in models["claude-opus-4-8"]] == [
        *("thinking", "context", "effort", "fast")
    ]
    async with started(fake.env, initialize=False) as plain:
        await plain.ask("initialize", protocolVersion=1)
        made = await plain.ask("session/new", cwd="/", mcpServers=[])
    names = [each["modelId"] for each in made["models"]["availableModels"]]
    assert names[0] == "default[]" and "composer-2.5[fast=true]" in names
    assert not set(names) & models.keys()


async def test_options_are_chosen_one_by_one(acp: AcpClient, fake: FakeAgent, here: Path) -> None:
    session = await acp.session(here)

    async def choose(name: str, value: str) -> dict[str, Any]:
        about = {"sessionId": session, "configId": name, "value": value}
        shown = await acp.ask("session/set_config_option", **about)
        return {each["id"]: each["currentValue"] for each in shown["configOptions"]}

    await choose("model", "gpt-5.5")
    assert await choose("fast", "false") == {
        **{"mode": "agent", "model": "gpt-5.5", "reasoning": "extra-high", "fast": "false"}
    }
    for name, value in (("effort", "high"), ("model", "auto"), ("model", "gpt-5.5-high")):
        with pytest.raises(Refused) as refused:
            await choose(name, value)
        assert refused.value.code == -32602
    await acp.ask("session/set_mode", sessionId=session, modeId="ask")
    await acp.prompt(session, "hi")
    assert fake.runs()[0]["chosen"]["mode"] == "ask"


async def test_the_list_of_models_may_be_any(fake: FakeAgent, acp: AcpClient, here: Path) -> None:
    fake.put("acp-models.json", json.dumps({"availableModels": []}))
    assert await acp.ask("cursor/list_available_models") == {"availableModels": []}
    await acp.session(here)


async def test_a_session_begins_with_the_model_of_the_command_line(fake: FakeAgent) -> None:
    async with started(fake.env, "--model", "gpt-5.5-extra-high-fast") as acp:
        made = await acp.ask("session/new", cwd="/", mcpServers=[])
    assert made["models"]["currentModelId"] == "gpt-5.5"
