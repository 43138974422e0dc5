"""What the commands share: options, output, logging. Everything heavy is imported when used.

All that a command prints leaves through here: without secrets, and without anything that would
steer the terminal. Names, errors and descriptions are the words of models, MCP servers and files.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cursor_gateway.core.visible import one_line, visible, visible_json
from cursor_gateway.redaction import OUTGOING
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

T = TypeVar("T")
# Words, and perhaps how they look.
Piece = str | tuple[str, str]


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


def say(line: str = "", *, err: bool = False) -> None:
    """One line."""
    click.echo(one_line(OUTGOING(line)), err=err)


def say_styled(*pieces: Piece, err: bool = False) -> None:
    """One line, which the terminal folds."""
    _console(err).print(_assembled(pieces), soft_wrap=True)


def say_cut(*pieces: Piece) -> None:
    """One line, of which the terminal shows what fits."""
    _console(err=False).print(_assembled(pieces), no_wrap=True, overflow="ellipsis", crop=True)


def show_error(error: click.ClickException) -> None:
    """As click writes it, in one line or several."""
    written = io.StringIO()
    error.show(written)
    click.echo(visible(OUTGOING(written.getvalue())), err=True, nl=False)


def pass_on(text: str, *, err: bool = False, nl: bool = True, dim: bool = False) -> None:
    """What was asked for: to a program byte for byte, to a terminal without what would steer it."""
    out = sys.stderr if err else sys.stdout
    if out.isatty():
        click.echo(click.style(visible(text), dim=True) if dim else visible(text), out, nl=nl)
        return
    # Click would take the colours out of it.
    out.write(f"{text}\n" if nl else text)
    out.flush()


def print_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(_assembled([cell]) for cell in row))
    _console(err=False).print(table)


def print_panel(title: str, *lines: str) -> None:
    from rich.panel import Panel
    from rich.text import Text

    text = Text("\n").join(_assembled([line]) for line in lines)
    _console(err=True).print(Panel(text, title=title, style="bold yellow"))


def print_json(body: object, *, is_answer: bool = False, indent: bool = True) -> None:
    """An answer of a model or of a tool is passed on as it is."""
    import orjson

    text = orjson.dumps(body, option=orjson.OPT_INDENT_2 if indent else None).decode()
    click.echo(visible_json(text if is_answer else OUTGOING(text)))


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Shows what is being done, on a terminal, for as long as it is."""
    with _console(err=True).status("") as status:
        yield lambda what: status.update(_assembled([what]))


@cache
def _console(err: bool) -> Console:
    from rich.console import Console

    # In a pipe no line may be folded: scripts read lines.
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    return Console(
        stderr=err, width=None if is_terminal or err else 1000, highlight=False, markup=False
    )


def _assembled(pieces: Sequence[Piece]) -> Text:
    from rich.text import Text

    styled = (piece if isinstance(piece, tuple) else (piece, "") for piece in pieces)
    return Text.assemble(*((one_line(OUTGOING(words)), style) for words, style in styled))
