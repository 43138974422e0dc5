"""`cursor-gateway setup`: point a client to the gateway, or start it so."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cursor_gateway.terminal import complete, config_option, json_option, print_json, print_table

if TYPE_CHECKING:
    from cursor_gateway.client import Client, Target
    from cursor_gateway.core.models import Model
    from cursor_gateway.settings import Settings
    from cursor_gateway.setup import Plan


class _ClientName(click.ParamType[str]):
    """One of the table's names; the table is loaded only when one is to be looked up."""

    name = "client"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from cursor_gateway.clients import CLIENTS

        return str(click.Choice(list(CLIENTS)).convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from cursor_gateway.clients import CLIENTS

        return click.Choice(list(CLIENTS)).shell_complete(ctx, param, incomplete)


@click.command()
@click.argument("client", required=False, type=_ClientName())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--write", "action", flag_value="write", help="Change its configuration.")
@click.option("--undo", "action", flag_value="undo", help="Give its configuration back.")
@click.option(
    "--launch",
    "action",
    flag_value="launch",
    help="Start it for the gateway without any change; ARGS, after `--`, are its own.",
)
@click.option("--url", help="The gateway's base URL; else that of the one which runs here.")
@click.option("--model", "chosen", multiple=True, help="Only these models, the first as default.")
@json_option
@config_option
def setup(
    client: str | None,
    args: tuple[str, ...],
    action: str | None,
    url: str | None,
    chosen: tuple[str, ...],
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Point CLIENT to the gateway. Without an option, show what would be changed.

    Without CLIENT, show which are installed here and offer to set one up.
    """
    from cursor_gateway import presence
    from cursor_gateway.clients import CLIENTS
    from cursor_gateway.settings_sources import load
    from cursor_gateway.setup import SetupError

    settings = load({}, os.environ, config_file).settings
    base_url = url.rstrip("/") if url else presence.base_url(settings, os.environ)
    if client is None and action:
        raise click.UsageError(f"Say which client: cursor-gateway setup CLIENT --{action}")
    try:
        if client is None:
            _overview(base_url, settings, as_json)
        elif action == "undo":
            _undo(CLIENTS[client], as_json)
        else:
            target = _target(CLIENTS[client], base_url, chosen, settings)
            _act(CLIENTS[client], target, action, args, as_json)
    except SetupError as error:
        raise click.ClickException(str(error)) from None


def _act(
    client: Client, target: Target, action: str | None, args: tuple[str, ...], as_json: bool
) -> None:
    from cursor_gateway.setup import launch, plan

    if action == "launch":
        sys.exit(launch(client, target, os.environ, args))
    change = plan(client, target, os.environ)
    if action == "write":
        _write(change, target, as_json)
    else:
        _show(change, target, as_json)


def _target(client: Client, base_url: str, chosen: tuple[str, ...], settings: Settings) -> Target:
    from cursor_gateway.client import NO_KEY, Target
    from cursor_gateway.core.models import Model
    from cursor_gateway.setup import models_for

    key = settings.api_key or NO_KEY
    if chosen:
        return Target(base_url, tuple(Model(name, name) for name in chosen), key)
    listed = _listed(base_url, key, settings) if client.lists_models else ()
    return Target(base_url, models_for(client, listed), key)


def _listed(base_url: str, key: str, settings: Settings) -> tuple[Model, ...]:
    """From the gateway, else from the agent, else none: `auto` always works."""
    from cursor_gateway.errors import GatewayError
    from cursor_gateway.setup import models_of

    try:
        return models_of(base_url, key) or complete(_listed_by_agent(settings))
    except GatewayError as error:
        click.echo(f"Only the model auto is set: {error.message}", err=True)
        return ()


async def _listed_by_agent(settings: Settings) -> tuple[Model, ...]:
    from cursor_gateway.gateway import Gateway

    gateway = Gateway(settings, os.environ)
    try:
        return await gateway.account.models()
    finally:
        await gateway.close()


def _overview(base_url: str, settings: Settings, as_json: bool) -> None:
    from cursor_gateway.clients import CLIENTS
    from cursor_gateway.setup import points

    rows = [
        {
            "client": client.name,
            "program": client.installed(os.environ),
            "file": str(client.config(os.environ)),
            "points": points(client, base_url, os.environ),
        }
        for client in CLIENTS.values()
    ]
    if as_json:
        print_json({"base_url": base_url, "clients": rows})
        return
    columns = ("client", "program", "file", "points")
    print_table(columns, [tuple(str(row[name] or "-") for name in columns) for row in rows])
    _offer([str(row["client"]) for row in rows if row["program"]], base_url, settings)


def _offer(installed: list[str], base_url: str, settings: Settings) -> None:
    from cursor_gateway.clients import CLIENTS
    from cursor_gateway.setup import plan

    if not (installed and sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo("\ncursor-gateway setup CLIENT shows what it would set in its file.")
        return
    name = click.prompt("\nSet up which", type=click.Choice([*installed, "none"]), default="none")
    if name == "none":
        return
    target = _target(CLIENTS[name], base_url, (), settings)
    change = plan(CLIENTS[name], target, os.environ)
    _show(change, target, as_json=False)
    if not change.is_done and click.confirm("Write it"):
        _write(change, target, as_json=False)


def _show(change: Plan, target: Target, as_json: bool) -> None:
    diff = _diff(change, target.key)
    if as_json:
        print_json(_facts(change) | {"done": change.is_done, "diff": "\n".join(diff)})
    elif change.is_done:
        click.echo(f"{change.client.title} points to {target.base_url} already ({change.path}).")
    else:
        _print_diff(diff)
        command = f"cursor-gateway setup {change.client.name}"
        click.echo(f"\nNothing was written. `{command} --write` does it.", err=True)


def _write(change: Plan, target: Target, as_json: bool) -> None:
    from cursor_gateway.setup import write

    backup = None if change.is_done else write(change, os.environ)
    kept = str(backup) if backup and change.original is not None else None
    if as_json:
        print_json(_facts(change) | {"written": backup is not None, "backup": kept})
        return
    if backup is None:
        _show(change, target, as_json=False)
        return
    click.echo(f"{change.client.title} now uses {target.base_url} ({change.path}).")
    click.echo(f"Try: {change.client.example}")
    back = f"`cursor-gateway setup {change.client.name} --undo` goes back"
    click.echo(f"{back} to {kept}." if kept else f"{back}.")


def _undo(client: Client, as_json: bool) -> None:
    from cursor_gateway.setup import undo

    path = undo(client, os.environ)
    if as_json:
        print_json({"client": client.name, "file": str(path), "undone": True})
    else:
        click.echo(f"{client.title} is as it was ({path}).")


def _facts(change: Plan) -> dict[str, Any]:
    return {"client": change.client.name, "file": str(change.path)}


def _diff(change: Plan, key: str) -> list[str]:
    """Of what people may see: a key is not for the screen."""
    import difflib

    from cursor_gateway.setup import masked

    old, new = (masked((text or b"").decode(), key).splitlines()
                for text in (change.before, change.after))  # fmt: skip
    name = str(change.path)
    first = name if change.before is not None else "/dev/null"
    return list(difflib.unified_diff(old, new, first, name, lineterm=""))


def _print_diff(lines: list[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    out = Console(soft_wrap=True, highlight=False)
    for line in lines:
        is_head = line.startswith(("+++", "---"))
        out.print(Text(line, "bold" if is_head else styles.get(line[:1], "")))
