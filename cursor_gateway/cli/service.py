"""`cursor-gateway service` and `cursor-gateway completion`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cursor_gateway.cli.terminal import config_option, json_option, pass_on, print_json, say
from cursor_gateway.settings import CONFIG_VARIABLE


@contextmanager
def _told() -> Iterator[None]:
    from cursor_gateway.cli.supervisors import ServiceError

    try:
        yield
    except ServiceError as error:
        raise click.ClickException(str(error)) from None


@click.group(short_help="Run the gateway as a service of systemd or launchd.")
def service() -> None:
    """Run the gateway as a service: by systemd on Linux, by launchd on macOS."""


@service.command()
@click.option(
    "--print", "only_print", is_flag=True, help="Print the service file and install nothing."
)
@config_option
def install(only_print: bool, config_file: Path | None) -> None:
    """Start the gateway now and at every sign-in to the machine. The service restarts it on a
    crash.
    """
    from cursor_gateway.cli import supervisors as services
    from cursor_gateway.settings_sources import config_file as default_file
    from cursor_gateway.settings_sources import load

    load({}, os.environ, config_file)  # better refused here than by a service that never starts
    named = config_file or (default_file(os.environ) if os.environ.get(CONFIG_VARIABLE) else None)
    with _told():
        supervisor = services.supervisor()
        wanted = services.wanted(config_file or default_file(os.environ), named, os.environ)
        if only_print:
            pass_on(supervisor.text(wanted, os.environ), nl=False)
            return
        file = services.install(supervisor, wanted, os.environ)
    say(f"The gateway runs as a service ({file}).")


@service.command()
def uninstall() -> None:
    """Stop the gateway and remove the service. The settings stay."""
    from cursor_gateway.cli import supervisors as services

    with _told():
        file = services.uninstall(services.supervisor(), os.environ)
    say(f"The service is removed ({file}).")


@service.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the service is installed and running, and which gateways run. The exit code is
    1 if the service does not run.
    """
    from dataclasses import asdict

    from cursor_gateway.cli import supervisors as services
    from cursor_gateway.running_gateways import running

    with _told():
        supervisor = services.supervisor()
        file = supervisor.file(os.environ)
        active = file.exists() and services.is_active(supervisor, os.environ)
    gateways = [asdict(gateway) for gateway in running(os.environ)]
    if as_json:
        print_json(
            {"installed": file.exists(), "active": active, "file": str(file), "running": gateways}
        )
    else:
        state = "active" if active else "not active" if file.exists() else "not installed"
        say(f"service: {state} ({file})")
        for gateway in gateways:
            say(f"running: {gateway['base_url']} (pid {gateway['pid']})")
    sys.exit(0 if active else 1)


@service.command()
@click.option("--follow", "-f", is_flag=True, help="Go on and show new lines as they come.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="How many of the last lines to show.",
)
def logs(follow: bool, lines: int) -> None:
    """Show what the service wrote to the log of systemd or launchd."""
    from cursor_gateway.cli import supervisors as services

    with _told():
        command = services.supervisor().log_command(os.environ, lines, follow)
    try:
        sys.exit(subprocess.run(command, check=False).returncode)
    except FileNotFoundError:
        raise click.ClickException(f"There is no {command[0]} here.") from None


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell, which evaluates it."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = context.find_root().command
    script = found(root, {}, "cursor-gateway", "_CURSOR_GATEWAY_COMPLETE")
    pass_on(script.source())
