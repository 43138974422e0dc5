"""The command line. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from cursor_gateway import __version__
from cursor_gateway.cli.doctor import doctor
from cursor_gateway.cli.logs import logs
from cursor_gateway.cli.mcp import mcp
from cursor_gateway.cli.service import completion, service
from cursor_gateway.cli.setup import setup
from cursor_gateway.cli.terminal import (
    complete,
    config_option,
    json_option,
    log_to_stderr,
    pass_on,
    print_json,
    print_panel,
    print_table,
    say,
    say_styled,
    set_log_level,
    show_error,
)
from cursor_gateway.errors import GatewayError
from cursor_gateway.settings import FIELDS, Settings, SettingsError, shown
from cursor_gateway.settings_row import Setting
from cursor_gateway.settings_sources import Loaded, load

if TYPE_CHECKING:
    from cursor_gateway.agents import Located, SignIn
    from cursor_gateway.web.server import Server


def main() -> NoReturn:
    _drop_inherited_signals()
    sys.exit(_run())


def _drop_inherited_signals() -> None:
    """Who started us may ignore the end of children, whose exit codes would be lost, or hold back
    the signals that are to end us. Both would be inherited, by the agents too."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _run() -> int:
    try:
        code = cli.main(prog_name="cursor-gateway", standalone_mode=False)
    except click.ClickException as error:
        show_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except SettingsError as error:
        say(f"Error: {error}", err=True)
        return 2
    except GatewayError as error:
        say(f"Error: {error.message}", err=True)
        return 1
    return code if isinstance(code, int) else 0


def _option(name: str) -> Callable[[Any], Any]:
    """The flag for a setting, all of it from the table. `load` converts and checks its value."""
    spec = FIELDS[name]
    text = f"{spec.help} [env: {spec.env}]"
    if name == "demo":
        return _demo_option
    if spec.kind == "bool":
        return click.option(f"{spec.flag}/--no-{spec.flag[2:]}", name, default=None, help=text)
    if spec.choices:
        return click.option(spec.flag, name, type=click.Choice(spec.choices), help=text)
    return click.option(spec.flag, name, metavar=_metavar(spec), help=text)


def _metavar(spec: Setting) -> str:
    if spec.limits:
        return spec.unit.upper() or "NUMBER"
    return {"tuple[str, ...]": "A,B,…", "Mapping[str, str]": "NAME=VALUE,…"}.get(spec.kind, "TEXT")


def _setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name in reversed(list(FIELDS)):
        command = _option(name)(command)
    return command


_demo_option = click.option(
    "--demo", flag_value="on", help="Answer from the built-in demo agent, without any model."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cursor-gateway")
def cli() -> None:
    """Use the models of your Cursor subscription from any client
    that speaks the API of OpenAI or Anthropic.

    Cursor's official CLI answers under your own sign-in, or its SDK bridge with your API key. Start
    with `cursor-gateway serve` and give your client the base URL that it prints.
    """


for _command in (doctor, logs, mcp, setup, service, completion):
    cli.add_command(_command)


@cli.command()
@_setting_options
@config_option
def serve(config_file: Path | None, **flags: Any) -> None:
    """Start the gateway and serve until Ctrl-C."""
    settings = load(flags, os.environ, config_file).settings
    log_to_stderr(settings)

    def reload() -> Settings:
        fresh = load(flags, os.environ, config_file).settings
        set_log_level(fresh)
        return fresh

    complete(_serve(settings, reload))


async def _serve(settings: Settings, reload: Callable[[], Settings]) -> None:
    from cursor_gateway.lifetime import serve_until_signal

    def announce(server: Server) -> None:
        _announce(server, settings)

    await serve_until_signal(settings, os.environ, announce, reload)


def _announce(server: Server, settings: Settings) -> None:
    name = f"cursor-gateway {__version__}"
    say_styled((name, "bold"), " on ", (server.base_url, "bold cyan"), err=True)
    say(f"page {_page_url(server)}", err=True)
    try:
        agent = _located(settings)
    except GatewayError as error:
        say_styled(("No agent:", "bold red"), f" {error.message}", err=True)
        return
    if agent.notice:
        _print_notice(agent)
    else:
        say(f"agent {agent.path}", err=True)
    if settings.workspace:
        say(f"workspace {settings.workspace}, mode {settings.agent_mode}", err=True)


def _page_url(server: Server) -> str:
    """One that opens on this machine: not each system leads from "any address" to itself."""
    url = server.base_url.removesuffix("v1")
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _print_notice(agent: Located) -> None:
    print_panel(
        agent.title,
        agent.notice,
        f"For real answers install cursor-agent and sign in with `{_own_name()} login`; "
        f"then start `{_own_name()} serve`.",
    )


def _own_name() -> str:
    """As it was called, where its name alone would not be found: `.venv/bin/cursor-gateway`."""
    import shutil

    is_script = Path(sys.argv[0]).name == "cursor-gateway"
    return sys.argv[0] if is_script and not shutil.which("cursor-gateway") else "cursor-gateway"


@cli.command()
@click.argument("prompt", required=False)
@click.option("--model", default="auto", show_default=True, help="Model to ask.")
@_demo_option
@_option("workspace")
@_option("agent_mode")
@json_option
@config_option
def ask(
    prompt: str | None, model: str, as_json: bool, config_file: Path | None, **flags: Any
) -> None:
    """Ask one question, without a server. PROMPT may also come from a pipe."""
    question = prompt if prompt is not None else _piped()
    if not question.strip():
        raise click.UsageError("There is nothing to ask: the question is empty.")
    loaded = load(flags, os.environ, config_file)
    complete(_ask(loaded.settings, question, model, as_json))


def _piped() -> str:
    if sys.stdin.isatty():
        raise click.UsageError("Add a question: cursor-gateway ask 'Why is the sky blue?'")
    return sys.stdin.read()


async def _ask(settings: Settings, question: str, model: str, as_json: bool) -> None:
    from cursor_gateway.core.conversation import Conversation, Message, Text
    from cursor_gateway.dialects.chat import ChatFold
    from cursor_gateway.gateway import Gateway

    gateway = Gateway(settings, os.environ)
    fold = ChatFold(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model, legacy=False)
    conversation = Conversation(model, (Message("user", (Text(question),)),))
    answer = gateway.answer(conversation, gateway.workspaces.choose(None))
    try:
        async with aclosing(answer) as batches:
            async for batch in batches:
                fold.feed(batch)
                if not as_json:
                    _print_events(batch)
    finally:
        await gateway.close()
    if as_json:
        print_json(fold.body(), is_answer=True)
    else:
        say()


def _print_events(events: list[Any]) -> None:
    from cursor_gateway.core.events import TextDelta, ThinkingDelta

    for event in events:
        if isinstance(event, TextDelta):
            pass_on(event.text, nl=False)
        elif isinstance(event, ThinkingDelta) and sys.stderr.isatty():
            pass_on(event.text, nl=False, dim=True, err=True)


@cli.command()
@_demo_option
@json_option
@config_option
def models(as_json: bool, config_file: Path | None, **flags: Any) -> None:
    """List the models of the signed-in account."""
    loaded = load(flags, os.environ, config_file)
    listed = complete(_with_account(loaded.settings, lambda account: account.models()))
    if as_json:
        print_json([{"id": model.id, "name": model.name} for model in listed])
        return
    print_table(("id", "name"), [(model.id, model.name) for model in listed])


@cli.command()
@_demo_option
@json_option
@config_option
def status(as_json: bool, config_file: Path | None, **flags: Any) -> None:
    """Show the agent, the sign-in and which of Cursor's files exist. The exit code is 1 if nobody
    is signed in.
    """
    from cursor_gateway.agents import chosen

    settings = load(flags, os.environ, config_file).settings
    paths = chosen(settings).files(settings, os.environ)
    files = [{"path": str(path), "exists": path.exists()} for path in paths]
    try:
        agent = _located(settings)
        sign_in = complete(_with_account(settings, lambda account: account.sign_in()))
    except GatewayError as error:
        if as_json:
            why = {"code": error.code, "message": error.message}
            print_json({"agent": None, "authenticated": False, "files": files, "error": why})
        raise
    if as_json:
        facts = {"authenticated": sign_in.authenticated, "account": sign_in.account}
        print_json({"agent": {"kind": agent.kind, "path": agent.path}, **facts, "files": files})
    else:
        _print_status(agent, sign_in, files)
    if not sign_in.authenticated:
        say("Run `cursor-gateway login` to sign in.", err=True)
        sys.exit(1)


def _print_status(agent: Located, sign_in: SignIn, files: list[dict[str, Any]]) -> None:
    state = f"signed in as {sign_in.account}" if sign_in.authenticated else "not signed in"
    say(f"{agent.kind} ({agent.path}): {state}")
    if files:
        rows = [(file["path"], "exists" if file["exists"] else "-") for file in files]
        print_table(("file", ""), rows)


@cli.command()
@config_option
def login(config_file: Path | None) -> None:
    """Sign in to Cursor in the browser, with the CLI's own `login`."""
    import subprocess

    from cursor_gateway.agents import chosen

    settings = load({}, os.environ, config_file).settings
    command = chosen(settings).login_command(settings, os.environ)
    sys.exit(subprocess.run(command, check=False).returncode)


@cli.command("config")
@json_option
@config_option
def show_config(as_json: bool, config_file: Path | None) -> None:
    """Show every setting, its value and where the value came from."""
    loaded = load({}, os.environ, config_file)
    rows = _config_rows(loaded)
    if as_json:
        print_json({name: {"value": value, "origin": origin} for name, value, origin in rows})
    else:
        print_table(("setting", "value", "from"), rows)


def _config_rows(loaded: Loaded) -> list[tuple[str, str, str]]:
    return [
        (name, shown(name, getattr(loaded.settings, name)), str(loaded.origins[name]))
        for name in FIELDS
    ]


async def _with_account(settings: Settings, question: Callable[[Any], Any]) -> Any:
    from cursor_gateway.gateway import Gateway

    gateway = Gateway(settings, os.environ)
    try:
        return await question(gateway.account)
    finally:
        await gateway.close()


def _located(settings: Settings) -> Located:
    from cursor_gateway.agents import chosen

    return chosen(settings).find(settings, os.environ)
