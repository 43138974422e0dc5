"""`cursor-gateway setup`: point a client to the gateway, or start a client for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cursor_gateway.cli.terminal import (
    complete,
    config_option,
    json_option,
    print_json,
    print_table,
    say,
    say_styled,
)

if TYPE_CHECKING:
    from cursor_gateway.clients.client import Client, Target
    from cursor_gateway.clients.setup import Plan
    from cursor_gateway.core.models import Model
    from cursor_gateway.settings import Settings


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


def _base_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from urllib.parse import urlsplit

    if value is None:
        return None
    try:
        split = urlsplit(value)
        is_usable = split.scheme in ("http", "https") and split.hostname and split.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise click.BadParameter(f"{value!r} is not like http://127.0.0.1:32124/v1.")
    return value.rstrip("/") if split.path.strip("/") else f"{value.rstrip('/')}/v1"


@click.command()
@click.argument("client", required=False, type=_ClientName())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--write", is_flag=True, help="Change the client's configuration.")
@click.option("--undo", is_flag=True, help="Restore the client's configuration.")
@click.option(
    "--launch",
    is_flag=True,
    help="Start the client with the gateway and change no file; ARGS after `--` go to the client.",
)
@click.option(
    "--url",
    callback=_base_url,
    help="The gateway's base URL. Default: that of the gateway running on this machine.",
)
@click.option(
    "--model",
    "chosen",
    multiple=True,
    help="Set up only this model; may be repeated, and the first is the default.",
)
@json_option
@config_option
def setup(
    client: str | None,
    args: tuple[str, ...],
    url: str | None,
    chosen: tuple[str, ...],
    as_json: bool,
    config_file: Path | None,
    **actions: bool,
) -> None:
    """Point CLIENT to the gateway. Without an option, show what would change.

    Without CLIENT, show which clients are installed and offer to set one up.
    """
    from cursor_gateway import running_gateways
    from cursor_gateway.clients import CLIENTS
    from cursor_gateway.clients.setup import KeyRefused, SetupError
    from cursor_gateway.settings_sources import load

    action = _the_action(actions, client, args)
    settings = load({}, os.environ, config_file).settings
    base_url = url or running_gateways.base_url(settings, os.environ)
    try:
        if client is None:
            _overview(base_url, settings, as_json)
        elif action == "undo":
            _undo(CLIENTS[client], as_json)
        else:
            target = _target(CLIENTS[client], base_url, chosen, settings)
            _act(CLIENTS[client], target, action, args, as_json)
    except KeyRefused:
        raise click.ClickException(_wants_its_key(base_url, settings, config_file)) from None
    except SetupError as error:
        raise click.ClickException(str(error)) from None


def _the_action(actions: dict[str, bool], client: str | None, args: tuple[str, ...]) -> str | None:
    asked = [name for name, is_asked in actions.items() if is_asked]
    if len(asked) > 1:
        raise click.UsageError(f"--{asked[0]} and --{asked[1]} cannot be used together.")
    action = asked[0] if asked else None
    if client is None and action:
        raise click.UsageError(f"Name a client: cursor-gateway setup CLIENT --{action}")
    if args and action != "launch":
        raise click.UsageError(
            f"Unexpected argument {args[0]!r}. Only --launch takes arguments for the client."
        )
    return action


def _wants_its_key(base_url: str, settings: Settings, config_file: Path | None) -> str:
    from cursor_gateway import settings_sources
    from cursor_gateway.clients.client import KEY_VARIABLE

    here = "a different key is set here" if settings.api_key else "no key is set here"
    file = config_file or settings_sources.config_file(os.environ)
    return (
        f"The gateway at {base_url} wants its key, but {here}. Set {KEY_VARIABLE} to the key, or "
        f"set `api_key` in {file}. Nothing was written."
    )


def _act(
    client: Client, target: Target, action: str | None, args: tuple[str, ...], as_json: bool
) -> None:
    from cursor_gateway.clients.setup import launch, plans

    if action == "launch":
        sys.exit(launch(client, target, os.environ, args))
    changes = plans(client, target, os.environ)
    if action == "write":
        _write(client, changes, target, as_json)
    else:
        _show(client, changes, target, as_json)


def _target(client: Client, base_url: str, chosen: tuple[str, ...], settings: Settings) -> Target:
    from cursor_gateway.clients.client import NO_KEY, Target
    from cursor_gateway.clients.setup import models_for, models_of
    from cursor_gateway.core.models import Model

    key = settings.api_key or NO_KEY
    if chosen:
        _warn_of_unknown(chosen, base_url, key)
        return Target(base_url, tuple(Model(name, name) for name in chosen), key)
    # Asked in any case: it tells whether it takes the key.
    listed = models_of(base_url, key)
    if client.lists_models:
        listed = _without_stand_ins(listed or _listed_here(settings))
    return Target(base_url, models_for(client, listed), key)


def _warn_of_unknown(chosen: tuple[str, ...], base_url: str, key: str) -> None:
    from cursor_gateway.clients.setup import why_not

    for name in chosen:
        if why := why_not(name, base_url, key):
            say(f"Warning: {why}", err=True)


def _without_stand_ins(listed: tuple[Model, ...]) -> tuple[Model, ...]:
    """Its models are gone with it; `auto` stays."""
    from cursor_gateway.agents import are_stand_ins

    if not are_stand_ins({model.id for model in listed}):
        return listed
    words = "no account has those of the built-in agent. Run this again when another answers."
    say(f"Only the model auto is set: {words}", err=True)
    return ()


def _listed_here(settings: Settings) -> tuple[Model, ...]:
    """From the agent, else none: `auto` always works."""
    from cursor_gateway.errors import GatewayError

    try:
        return complete(_listed_by_agent(settings))
    except GatewayError as error:
        say(f"Only the model auto is set: {error.message}", err=True)
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
    from cursor_gateway.clients.setup import points

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
    columns = ("client", "program", "file", "points to")
    print_table(columns, [_overview_row(row) for row in rows])
    _offer([str(row["client"]) for row in rows if row["program"]], base_url, settings)


_POINTS = {
    "here": "this gateway",
    "elsewhere": "another address",
    "nowhere": "not set up",
    "unreadable": "file cannot be read",
}


def _overview_row(row: dict[str, str | None]) -> tuple[str, ...]:
    points = _POINTS[str(row["points"])]
    return (str(row["client"]), row["program"] or "-", str(row["file"]), points)


def _offer(installed: list[str], base_url: str, settings: Settings) -> None:
    from cursor_gateway.clients import CLIENTS

    if not (installed and sys.stdin.isatty() and sys.stdout.isatty()):
        say()
        say("`cursor-gateway setup CLIENT` shows what it would change in the client's file.")
        return
    name = click.prompt("\nSet up which", type=click.Choice([*installed, "none"]), default="none")
    if name == "none":
        return
    target = _target(CLIENTS[name], base_url, (), settings)
    while not _is_settled(CLIENTS[name], target):
        pass


def _is_settled(client: Client, target: Target) -> bool:
    """Show what would be written, and write it if it is wanted, unless that is another thing by
    then: a client that runs may write its file at any moment."""
    from cursor_gateway.clients.setup import FileChanged, plans

    changes = plans(client, target, os.environ)
    _show(client, changes, target, as_json=False)
    if _are_done(changes) or not click.confirm("Write it"):
        return True
    try:
        _write(client, changes, target, as_json=False)
    except FileChanged as error:
        say(str(error), err=True)
        return False
    return True


def _are_done(changes: Sequence[Plan]) -> bool:
    return all(change.is_done for change in changes)


def _show(client: Client, changes: Sequence[Plan], target: Target, as_json: bool) -> None:
    diff = [line for change in changes for line in _diff(change, target.key)]
    paths = [change.path for change in changes]
    if as_json:
        seen = {"done": _are_done(changes), "diff": "\n".join(diff)}
        print_json(_facts(client, paths) | seen)
    elif _are_done(changes):
        say(f"{client.title} already points to {target.base_url} ({_named(paths)}).")
    else:
        _print_diff(diff)
        command = f"cursor-gateway setup {client.name}"
        say(err=True)
        say(f"Nothing was written. `{command} --write` writes it.", err=True)


def _write(client: Client, changes: Sequence[Plan], target: Target, as_json: bool) -> None:
    from cursor_gateway.clients.setup import write

    if _are_done(changes) and not as_json:
        _show(client, changes, target, as_json=False)
        return
    written = {change: write(change, os.environ) for change in changes if not change.is_done}
    backups = [backup for change, backup in written.items() if change.original is not None]
    paths = [change.path for change in changes]
    if as_json:
        kept = str(backups[0]) if backups else None
        print_json(_facts(client, paths) | {"written": bool(written), "backup": kept})
        return
    say(f"{client.title} now uses {target.base_url} ({_named(paths)}).")
    say(f"Try: {client.example}")
    back = f"`cursor-gateway setup {client.name} --undo` restores"
    say(f"{back} {_named(backups)}." if backups else f"{back} what was there before.")


def _undo(client: Client, as_json: bool) -> None:
    from cursor_gateway.clients.setup import undo_all

    paths = undo_all(client, os.environ)
    if as_json:
        print_json(_facts(client, paths) | {"undone": True})
    else:
        say(f"{client.title} has its old configuration back ({_named(paths)}).")


def _named(paths: Sequence[Path]) -> str:
    return " and ".join(map(str, paths))


def _facts(client: Client, paths: Sequence[Path]) -> dict[str, Any]:
    """The first file is the one that names the gateway."""
    return {"client": client.name, "file": str(paths[0]), "files": [str(path) for path in paths]}


def _diff(change: Plan, key: str) -> list[str]:
    """Of what people may see: a key is not for the screen."""
    import difflib

    from cursor_gateway.clients.client import NO_KEY
    from cursor_gateway.redaction import masked

    secret = "" if key == NO_KEY else key
    old, new = (masked((text or b"").decode(), secret).splitlines()
                for text in (change.before, change.after))  # fmt: skip
    name = str(change.path)
    first = name if change.before is not None else "/dev/null"
    return list(difflib.unified_diff(old, new, first, name, lineterm=""))


def _print_diff(lines: list[str]) -> None:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        is_head = line.startswith(("+++", "---"))
        say_styled((line.expandtabs(), "bold" if is_head else styles.get(line[:1], "")))
