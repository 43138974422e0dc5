"""What the commands share: options, output, logging. Everything heavy is imported when used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        help="Configuration file. [env: CURSOR_GATEWAY_CONFIG]",
    )(command)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. asyncio is half of what `--help` would have to load."""
    import asyncio

    return asyncio.run(work)


def log_to_stderr(settings: Settings) -> None:
    import logging

    from cursor_gateway.request_ids import LogLines

    logging.basicConfig()
    # What no line shows need not be found out for each; so says Python's own guide to logging.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    for output in logging.getLogger().handlers:
        output.setFormatter(LogLines())
    set_log_level(settings)
    # It would log every scheduled callback, prompts in their arguments included.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # They log what is said to MCP servers, and addresses with keys in them. What goes wrong there
    # the bridge tells in one line.
    for name in ("mcp", "client", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def set_log_level(settings: Settings) -> None:
    import logging

    logging.getLogger().setLevel(logging.DEBUG if settings.debug else logging.INFO)


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def print_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(Text, row))
    # In a pipe no line may be folded: scripts read lines.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)


def print_json(body: object) -> None:
    import orjson

    click.echo(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())
