"""Real coding agents from npm, against the gateway with the fake agent: `make clients`.

Not part of `make test`: it downloads half a gigabyte. `CLIENTS_DIR` names the folder whose
`node_modules` holds the programs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cursor_gateway.clients import CLIENTS
from cursor_gateway.clients.client import PROVIDER
from tests.clients.programs import PROGRAMS, ROOT, Desk, Program, desk
from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start

pytest_plugins = ["tests.clients.outside"]


def every(wanted: Callable[[Program], object]) -> pytest.MarkDecorator:
    programs = [program for program in PROGRAMS if wanted(program)]
    return pytest.mark.parametrize("program", programs, ids=lambda program: program.name)


EVERY_PROGRAM = every(lambda program: True)
EVERY_ONE_WITH_TOOLS = every(lambda program: program.shell)
# The SDK's failures differ from the CLI's in their words only: some clients are enough.
SOME_PROGRAMS = every(
    lambda program: program.name in {"codex", "claude-code", "opencode", "oh-my-pi", "droid"}
)


def call(program: Program, command: str) -> str:
    return f"[[shell-call:{program.shell} {program.argument} {command}]]"


@EVERY_PROGRAM
@EITHER_AGENT
@pytest.mark.timeout(600)
async def test_a_plain_answer_is_shown(program: Program, client: Client, tmp_path: Path) -> None:
    user = await desk(program, client, tmp_path)
    output = await user.run("[[text:The answer is ]][[text:forty-two.]]")
    assert "The answer is forty-two." in output


@every(lambda program: program.name in CLIENTS and CLIENTS[program.name].launch)
@pytest.mark.timeout(600)
async def test_a_launched_client_answers_without_any_file_of_ours(
    program: Program, client: Client, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    await user.setup("--undo")
    prompt = "[[text:The answer is ]][[text:forty-two.]]"
    output = await user.setup("--launch", "--", *program.argv[1:], prompt)
    assert "forty-two." in output


@EVERY_ONE_WITH_TOOLS
@pytest.mark.timeout(600)
async def test_a_tool_round_trip_changes_a_file(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    made = user.project / "made.txt"
    prompt = call(program, f"echo hello > {made}; echo RESULT")
    output = await user.run(f"{prompt}[[then]][[text:Done.]]")
    assert made.read_text() == "hello\n"
    assert "Done." in output
    assert any("RESULT" in run["prompt"].split("<tool_result")[-1] for run in fake.runs()[1:])


@every(lambda program: program.shell and not program.takes_one_call)
@pytest.mark.timeout(600)
async def test_parallel_calls_are_all_executed(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    calls = "".join(call(program, f"echo {n} > {user.project}/file{n}") for n in range(3))
    output = await user.run(f"{calls}[[then]][[text:All done.]]")
    assert sorted(path.read_text() for path in user.project.glob("file*")) == ["0\n", "1\n", "2\n"]
    assert "All done." in output
    # Some ask for a summary afterwards.
    assert any(run["prompt"].count("<tool_result id=") == 3 for run in fake.runs())


@EVERY_ONE_WITH_TOOLS
@pytest.mark.timeout(600)
async def test_a_task_of_several_steps_takes_one_agent(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    await does_a_task_of_several_steps(await desk(program, client, tmp_path))
    assert sum("--approve-mcps" in run["argv"] for run in fake.runs()) == 1


@EVERY_ONE_WITH_TOOLS
@pytest.mark.agents("sdk")
@pytest.mark.timeout(600)
async def test_a_task_of_several_steps_is_one_message_to_the_bridge(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    rounds = await does_a_task_of_several_steps(user)
    created = [each["options"] for each in fake.rpcs("CreateAgent")]
    # Some ask for a title beside it, without any tools.
    (worker,) = [each for each in created if "customTools" in each["local"]]
    sent = [each["agentId"] for each in fake.rpcs("Send")]
    assert sent.count(worker["agentId"]) == 1
    # The model was asked once for the message, and once for the results of each round.
    assert fake.model_steps(worker["agentId"]) == 1 + rounds


async def does_a_task_of_several_steps(user: Desk) -> int:
    """Four calls, the last two at once where the client can; in how many rounds."""
    program = user.program
    second_last = "shell-relay" if program.takes_one_call else "shell-announce"
    kinds = ("shell-relay", "shell-relay", second_last, "shell-relay")
    steps = [
        f"{kind}:{program.shell} {program.argument} echo {n} >> {user.project}/file{n}"
        for n, kind in enumerate(kinds)
    ]
    script = "".join(f"[[{step}]]" for step in steps)
    output = await user.run(
        f"{script}[[text:All four.]]{program.farewell}[[then]][[text:Replayed.]]"
    )
    files = sorted(path.read_text() for path in user.project.glob("file*"))
    assert files == ["0\n", "1\n", "2\n", "3\n"]
    assert "All four." in output
    return kinds.count("shell-relay")


@every(lambda program: program.shell and program.is_native_shell)
@pytest.mark.timeout(600)
async def test_the_agents_own_shell_is_the_clients_shell(
    program: Program, client: Client, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    made = user.project / "native.txt"
    native = f"[[native-shell:echo native > {made}]][[hang]]"
    output = await user.run(f"{native}[[then]][[text:Done.]]")
    assert made.read_text() == "native\n"
    assert "Done." in output


@every(lambda program: program.resume)
@pytest.mark.timeout(600)
async def test_a_second_turn_knows_the_first(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    assert program.resume
    user = await desk(program, client, tmp_path)
    await user.run("[[text:I am the first answer.]]")
    output = await user.run("[[text:And I am the second.]]", *program.resume)
    assert "And I am the second." in output
    last = fake.runs()[-1]
    assert "--resume" in last["argv"] or "I am the first answer." in last["prompt"]


@EVERY_PROGRAM
@pytest.mark.timeout(600)
async def test_a_refusal_says_what_to_do(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    """Signed out of Cursor: the user must read how to sign in, not watch a spinner."""
    user = await desk(program, client, tmp_path)
    fake.sign_out()
    assert "cursor-gateway login" in await shown(user)


@SOME_PROGRAMS
@pytest.mark.agents("sdk")
@pytest.mark.timeout(600)
async def test_a_key_that_cursor_does_not_know_is_shown(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    fake.put("key", "another")
    assert "CURSOR_API_KEY" in await shown(user)


@SOME_PROGRAMS
@pytest.mark.agents("sdk")
@pytest.mark.timeout(600)
async def test_a_usage_limit_is_shown(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    fake.put("always", "[[fail-as-result:usage_limit_exceeded: You have hit a limit]]")
    output = await shown(user)
    assert "You have hit a limit" in output
    # The code alone tells what kind of failure it is.
    assert "cursor.com/dashboard" in output


@SOME_PROGRAMS
@pytest.mark.agents("sdk")
@pytest.mark.timeout(600)
async def test_a_bridge_that_dies_in_the_middle_is_shown(
    program: Program, client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    user = await desk(program, client, tmp_path)
    # Half a second of words, so that they are on their way to the client before the end.
    fake.put("always", "[[slowly:25]][[die]]")
    assert "Cursor's SDK bridge failed" in await shown(user)


async def shown(user: Desk) -> str:
    """What a client that cannot succeed has said in the end."""
    options = ("-o", "stream-json") if user.program.name == "droid" else ()
    return await user.run("Say hello", *options, may_fail=True)


@pytest.mark.timeout(600)
def test_no_client_has_a_provider_by_our_name() -> None:
    """oh-my-pi has one that is called `cursor`, and sends its prompts to Cursor's own servers."""
    assert files_with(PROVIDER) == []
    assert any("oh-my-pi" in name for name in files_with("lm-studio"))


def files_with(word: str) -> list[str]:
    folders = [ROOT / name for name in ("node_modules", "aider/lib", "gptme/lib")]
    # A link that is named on the command line is followed, others are not.
    search = ["grep", "-rlaF", "-e", word, *(f"{folder}/" for folder in folders)]
    return subprocess.run(search, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.mark.timeout(600)
async def test_codex_that_tries_a_websocket_goes_on_over_http_at_once(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (program,) = (program for program in PROGRAMS if program.name == "codex")
    user = await desk(program, client, tmp_path)
    with (user.home / ".codex" / "config.toml").open("a") as config:
        config.write("supports_websockets = true\n")
    with caplog.at_level("INFO", "cursor_gateway.web.middleware"):
        output = await user.run("[[text:The answer is ]][[text:forty-two.]]")
    assert "The answer is forty-two." in output
    assert sum("GET /v1/responses 426" in record.message for record in caplog.records) == 1


@pytest.mark.timeout(600)
async def test_claude_code_shows_a_wrong_key_at_once(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (program,) = (program for program in PROGRAMS if program.name == "claude-code")
    # The gateway got a key after the client was set up; `setup` itself refuses to go without it.
    async with start() as client:
        user = await desk(program, client, tmp_path)
    with caplog.at_level("INFO", "cursor_gateway.web.middleware"):
        async with start(api_key="another", port=client.server.port):
            output = await user.run("Hello", may_fail=True)
    assert "Invalid API key" in output or "Not logged in" in output
    assert sum("POST /v1/messages 403" in record.message for record in caplog.records) == 1
