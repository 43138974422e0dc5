"""Every command and every program of the README and the quick start is run.

`HOW` says how; a command that is not in it, or no longer on the pages, is a failure.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from cursor_gateway import errors, running_gateways
from cursor_gateway.agents.sdk import texts as sdk_texts
from cursor_gateway.clients import CLIENTS
from tests.conftest import FakeAgent, eventually
from tests.support.machine import OF_CLIENTS
from tests.support.programs import gateway_process, loaded_command

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs" / "quick-start.md"]
ADDRESS = "http://127.0.0.1:32124/v1"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """What stands in shell blocks, in indented blocks, and as `cursor-gateway …` in the text."""
    found: list[str] = []
    for page in PAGES:
        text = page.read_text()
        blocks = [block for kind, block in FENCED.findall(text) if kind == "sh"]
        prose = FENCED.sub("", text)
        blocks += re.findall(r"(?:^ {4}.+\n)+", prose, re.MULTILINE)
        for block in blocks:
            lines = block.replace("\\\n", " ").splitlines()
            found += [re.sub(r"\s+", " ", line.split(" #")[0]).strip() for line in lines]
        found += re.findall(r"`(cursor-gateway .+?)`", prose)
    return list(dict.fromkeys(filter(None, found)))


def programs() -> list[str]:
    return [
        block for page in PAGES for kind, block in FENCED.findall(page.read_text())
        if kind == "python"
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def machine(fake: FakeAgent) -> None:
    """A person's machine: the commands by their names, no client and no port of somebody else's."""
    # These tests are themselves run by make, which tells the makes below it so.
    for name in [name for name in fake.env if OF_CLIENTS.match(name) or name.startswith("MAKE")]:
        del fake.env[name]
    fake.env["PORT"] = "0"
    path = f"{fake.home.parent / 'bin'}:/usr/bin:/bin"
    fake.env["PATH"] = path
    put(fake, "cursor-gateway", f'exec {shlex.join(loaded_command())} "$@"')


def put(fake: FakeAgent, name: str, script: str) -> None:
    path = fake.home.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def typed(fake: FakeAgent, command: str, code: int = 0, cwd: Path | None = None) -> str:
    """The command in a shell, from its first line of output to its end."""
    process = await asyncio.create_subprocess_shell(
        command, env=fake.env, cwd=cwd or fake.home.parent,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == code, output.decode()
    return output.decode()


How = Callable[[FakeAgent, str], Awaitable[None]]


def prints(words: str, code: int = 0) -> How:
    async def run(fake: FakeAgent, command: str) -> None:
        assert words in await typed(fake, command, code)

    return run


async def answered(url: str) -> bool:
    body = {"model": "auto", "messages": [{"role": "user", "content": "Hello"}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/chat/completions", json=body) as response,
    ):
        return response.status == 200


async def serves(fake: FakeAgent, command: str) -> None:
    """It answers until it is stopped."""
    process = await asyncio.create_subprocess_shell(
        f"exec {command}", env=fake.env, cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        (gateway,) = await eventually(lambda: running_gateways.running(fake.env))
        assert await answered(gateway.base_url)
    finally:
        process.terminate()
        await process.wait()


async def makes_and_serves(fake: FakeAgent, command: str) -> None:
    await serves(fake, f"{command} VENV={venv(fake)}")


async def would_run_these_tests(fake: FakeAgent, command: str) -> None:
    """This is how they are run."""
    folder = venv(fake)
    shown = await typed(fake, f"{command} --dry-run VENV={folder}", cwd=ROOT)
    assert shown.startswith(f"{folder}/bin/python -m pytest -n ")
    # All of them: no path follows the flags.
    assert shown.count("\n") == 1 and "tests" not in shown.removeprefix(str(folder))


def venv(fake: FakeAgent) -> Path:
    """One that make finds made and installed, so that nothing is fetched."""
    folder = fake.home.parent / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    shutil.copy(fake.home.parent / "bin" / "cursor-gateway", folder / "bin")
    for stamp in (".installed", ".installed-dev"):
        (folder / stamp).touch()
    return folder


async def installs_the_cli(fake: FakeAgent, command: str) -> None:
    """Cursor's installer is Cursor's: a stand-in for `curl` gives one of ours to the same pipe."""
    assert command in errors.AgentNotFound.hint
    (fake.home.parent / "bin" / "cursor-agent").rename(fake.home / "download")
    put(
        fake,
        "curl",
        f'test "$1" = https://cursor.com/install && echo "mkdir -p ~/.local/bin; '
        f'mv {fake.home}/download ~/.local/bin/cursor-agent"',
    )
    await typed(fake, command)
    assert "signed in as" in await typed(fake, "cursor-gateway status")


async def installs_the_command(fake: FakeAgent, command: str) -> None:
    """Everything but the index: what the package needs is here, and it is built from a copy."""
    source = fake.home.parent / "source"
    shutil.copytree(ROOT / "cursor_gateway", source / "cursor_gateway")
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # The last one reads wrongly, but so it is: pip takes it for the value of the option it names.
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "false"}
    packages = sysconfig.get_paths()["purelib"]
    fake.env.update(pip, PYTHONPATH=packages)
    (fake.home.parent / "bin" / "cursor-gateway").unlink()
    said = await typed(fake, f"{command} PYTHON={shlex.quote(sys.executable)}", cwd=source)
    assert f"add {fake.home.parent}/.local/bin to your PATH" in said
    shown = await typed(fake, "~/.local/bin/cursor-gateway --version")
    assert shown.startswith("cursor-gateway, version ")


async def installs_the_bridge(fake: FakeAgent, command: str) -> None:
    """Cursor's package is Cursor's, and the index is far: a stand-in for `pip` puts ours there."""
    assert command == sdk_texts.INSTALL
    fake.env.update(CURSOR_GATEWAY_AGENT="sdk", CURSOR_API_KEY="key")
    fake.bridge.rename(fake.home / "download")
    put(
        fake,
        "pip",
        f'test "$*" = "install cursor-gateway[sdk]" && mv {fake.home}/download {fake.bridge}',
    )
    assert command in await typed(fake, "cursor-gateway status", code=1)
    await typed(fake, command)
    assert "signed in as" in await typed(fake, "cursor-gateway status")


async def gives_the_key(fake: FakeAgent, command: str) -> None:
    fake.env["CURSOR_GATEWAY_AGENT"] = "sdk"
    assert "Set CURSOR_API_KEY" in await typed(fake, "cursor-gateway status", code=1)
    assert "signed in as" in await typed(fake, f"{command}; cursor-gateway status")


async def chooses_the_bridge(fake: FakeAgent, command: str) -> None:
    fake.env["CURSOR_API_KEY"] = "key"
    assert (await typed(fake, f"{command}; cursor-gateway status")).startswith("sdk (")


async def serves_by_the_bridge(fake: FakeAgent, command: str) -> None:
    fake.env["CURSOR_API_KEY"] = "key"
    await serves(fake, command)
    assert fake.rpcs("Send")


async def asks_the_gateway(fake: FakeAgent, command: str) -> None:
    if shutil.which("curl", path=fake.env["PATH"]) is None:
        pytest.skip("there is no curl here")
    async with gateway_process(fake) as (_, url):
        assert ADDRESS in command
        shown = await typed(fake, command.replace(ADDRESS, url))
    assert "Hello" in shown and '"finish_reason":"stop"' in shown


async def signs_in(fake: FakeAgent, command: str) -> None:
    fake.sign_out()
    assert "Signed in." in await typed(fake, command)


async def follows(fake: FakeAgent, command: str) -> None:
    async with gateway_process(fake) as (_, url):
        process = await asyncio.create_subprocess_shell(
            f"exec {command}", env=fake.env, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            assert await answered(url)
            while b"complete" not in await process.stdout.readline():
                pass
        finally:
            process.terminate()
            await process.communicate()


async def installs_a_service(fake: FakeAgent, command: str) -> None:
    """systemd is the machine's, so a stand-in takes the orders."""
    put(fake, "systemctl", 'echo "$@" >> "$HOME/orders"')
    await typed(fake, command)
    assert "enable" in (fake.home.parent / "orders").read_text()


async def writes_and_undoes(fake: FakeAgent, command: str) -> None:
    await typed(fake, "cursor-gateway setup opencode --write")
    assert "Nothing" not in await typed(fake, command)
    path = CLIENTS["opencode"].config(fake.env)
    assert path.exists() is command.endswith("--write")


HOW: dict[str, How] = {
    "make serve": makes_and_serves,
    "make test": would_run_these_tests,
    "curl https://cursor.com/install -fsS | bash": installs_the_cli,
    "make install": installs_the_command,
    "cursor-gateway login": signs_in,
    "cursor-gateway serve": serves,
    "cursor-gateway serve --demo": serves,
    "pip install 'cursor-gateway[sdk]'": installs_the_bridge,
    "export CURSOR_API_KEY=YOUR-KEY": gives_the_key,
    "export CURSOR_GATEWAY_AGENT=sdk": chooses_the_bridge,
    "cursor-gateway serve --agent sdk": serves_by_the_bridge,
    "cursor-gateway setup": prints("cursor-gateway setup CLIENT"),
    "cursor-gateway setup opencode": prints("--write` writes it"),
    "cursor-gateway setup opencode --write": writes_and_undoes,
    "cursor-gateway setup opencode --undo": writes_and_undoes,
    'cursor-gateway ask "…"': prints("…"),
    'cursor-gateway ask "Say hello in three languages."': prints("Say hello in three languages."),
    "cursor-gateway models": prints("composer-2.5"),
    "cursor-gateway status": prints("signed in as dev@example.com"),
    "cursor-gateway doctor": prints("ok      sign-in"),
    # Groups: what can follow is shown.
    "cursor-gateway mcp": prints("list", code=2),
    "cursor-gateway service": prints("uninstall", code=2),
    "cursor-gateway completion": prints("{bash|zsh|fish}", code=2),
    "cursor-gateway logs": prints("no journal"),
    "cursor-gateway logs --follow": follows,
    "cursor-gateway config": prints("tool_loop_max_repeat"),
    "cursor-gateway service install": installs_a_service,
}
CURL = re.compile(rf"curl {ADDRESS}/chat/completions .*")


def how(command: str) -> How | None:
    return asks_the_gateway if CURL.fullmatch(command) else HOW.get(command)


def test_every_command_of_the_pages_has_a_way_to_be_run() -> None:
    assert [command for command in commands() if how(command) is None] == []
    assert HOW.keys() - set(commands()) == set()


@pytest.mark.parametrize("command", commands())
async def test_the_command_does_what_the_page_says(fake: FakeAgent, command: str) -> None:
    run = how(command)
    assert run is not None, "say in HOW how to run it"
    await run(fake, command)


@pytest.mark.parametrize("program", programs())
async def test_the_python_on_the_pages_runs(fake: FakeAgent, program: str) -> None:
    async with gateway_process(fake) as (_, url):
        source = program.replace(ADDRESS, url)
        if "async with" in source:
            body = "".join(f"    {line}\n" for line in source.splitlines())
            source = f"import asyncio\nasync def main():\n{body}asyncio.run(main())"
        shown = await typed(fake, shlex.join([sys.executable, "-c", source]))
    assert shown.startswith("http://127.0.0.1:" if "base_url)" in program else "Hello")
