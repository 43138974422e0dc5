"""`cursor-gateway logs`: the journal of requests, for people and for scripts."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from cursor_gateway.cli.terminal import print_json, say, say_cut
from cursor_gateway.core.visible import one_line
from cursor_gateway.running_gateways import state_folder

_LOOK_AGAIN_SECONDS = 0.25
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d{1,6})([smhd])")
_NO_ERRORS = ("complete", "client_gone")

# Column, its width, and what stands in it.
_COLUMNS: tuple[tuple[str, int, Callable[[Mapping[str, Any]], str]], ...] = (
    ("time", 14, lambda entry: _local(entry["at"])),
    ("client", 24, lambda entry: entry["client"]),
    ("model", 24, lambda entry: entry["resolved"] or entry["model"]),
    ("dialect", 11, lambda entry: entry["dialect"]),
    ("tools", 6, lambda entry: entry["channel"] if entry["channel"] != "none" else ""),
    ("agent", 9, lambda entry: entry["agent"] if entry["agent"] != "none" else ""),
    ("first", 8, lambda entry: _seconds(entry["first_token_ms"])),
    ("total", 8, lambda entry: _seconds(entry["duration_ms"])),
    ("tokens", 15, lambda entry: _tokens(entry["tokens"])),
    ("outcome", 18, lambda entry: _outcome(entry)),
    ("id", 24, lambda entry: entry["id"]),
)


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        if found := _AGO.fullmatch(value):
            return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is neither like 30s, 10m, 2h or 3d nor a date."
        ) from None


@click.command(short_help="Show what happened to each request.")
@click.argument("which", metavar="[ID]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on and show new requests as they come.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="How many of the last requests to show.",
)
@click.option(
    "--outcome",
    help="Only this outcome: complete, client_gone, error (any), or the code of an error.",
)
@click.option("--client", help="Only clients whose name contains this.")
@click.option("--model", help="Only models whose name contains this.")
@click.option(
    "--since",
    callback=_moment,
    help="Only requests since then, such as 10m, 2h, 3d or 2026-10-01T12:00.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, for scripts."
)
def logs(which: str | None, follow: bool, lines: int, as_json: bool, **wanted: Any) -> None:
    """Show the requests that the gateway answered or failed to answer.

    With ID, show everything about one request. The beginning of the ID is enough if no other
    request begins with it. ID may also be the value of CURSOR_GATEWAY_RUN in the environment of
    an agent's process.
    """
    if which and not follow:
        which = _whole_id(which)
    found = _matching(follow, lines, wanted | {"which": which})
    if wanted["outcome"] and not follow:
        found = _or_known_outcomes(found, wanted["outcome"])
    if as_json:
        _print_json_lines(found)
    elif which:
        _print_details(found)
    else:
        _print_rows(found)


def _whole_id(which: str) -> str:
    from cursor_gateway.journal.file import entries

    found = {}
    for entry in filter(None, entries(state_folder(os.environ))):
        if _is_about(entry, which):
            return which
        if entry["id"].startswith(which):
            found[entry["id"]] = entry
    if len(found) > 1:
        some = ", ".join(list(found)[:3])
        raise click.ClickException(f"{len(found)} requests begin with {which!r}: {some}, …")
    if not found:
        raise click.ClickException(f"The journal has no request {which!r}.")
    return str(next(iter(found)))


def _or_known_outcomes(found: Iterator[dict[str, Any]], outcome: str) -> Iterator[dict[str, Any]]:
    """Where none has it, perhaps there is no such outcome."""
    from cursor_gateway.journal.file import entries

    is_empty = True
    for entry in found:
        is_empty = False
        yield entry
    if is_empty:
        outcomes = {entry["outcome"] for entry in entries(state_folder(os.environ)) if entry}
        if outcomes and outcome not in (*outcomes, *_NO_ERRORS, "error"):
            known = ", ".join(sorted(outcomes))
            say(f"No request has the outcome {outcome!r}. The journal has: {known}.", err=True)


def _matching(follow: bool, lines: int, wanted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The last `lines` that are wanted, then, while it follows, each that comes."""
    from cursor_gateway.journal.file import entries

    folder = state_folder(os.environ)
    if not folder.exists():
        say(f"There is no journal in {folder} yet.", err=True)
    last: deque[dict[str, Any]] = deque(maxlen=lines)
    is_new = False
    for entry in entries(folder, follow=follow):
        if entry is None:
            yield from last
            last.clear()
            is_new = True
            time.sleep(_LOOK_AGAIN_SECONDS)
        elif not _is_wanted(entry, **wanted):
            continue
        elif is_new:
            yield entry
        else:
            last.append(entry)
    yield from last


def _is_wanted(
    entry: Mapping[str, Any],
    *,
    which: str | None,
    outcome: str | None,
    client: str | None,
    model: str | None,
    since: datetime | None,
) -> bool:
    is_error = entry["outcome"] not in _NO_ERRORS
    names = f"{entry['model']}\n{entry['resolved']}".lower()
    return (
        (not which or _is_about(entry, which))
        and (not outcome or outcome == entry["outcome"] or (outcome == "error" and is_error))
        and (not client or client.lower() in entry["client"].lower())
        and (not model or model.lower() in names)
        and (not since or datetime.fromisoformat(entry["at"]) >= since)
    )


def _is_about(entry: Mapping[str, Any], which: str) -> bool:
    return which == entry["id"] or any(which == agent["run"] for agent in entry["agents"])


def _print_json_lines(found: Iterator[dict[str, Any]]) -> None:
    for entry in found:
        print_json(entry, is_answer=True, indent=False)


def _print_details(found: Iterator[dict[str, Any]]) -> None:
    for entry in found:
        print_json(entry, is_answer=True)


def _print_rows(found: Iterator[dict[str, Any]]) -> None:
    """Row by row, since there may be no last one; so the widths cannot depend on what comes."""
    say_cut(("  ".join(name.ljust(width) for name, width, _ in _COLUMNS).rstrip(), "bold"))
    for entry in found:
        say_cut(*(_cell(entry, *column) for column in _COLUMNS))


def _cell(
    entry: Mapping[str, Any], name: str, width: int, value: Callable[[Mapping[str, Any]], str]
) -> tuple[str, str]:
    is_last = name == _COLUMNS[-1][0]
    text = value(entry) if is_last else f"{_fitted(value(entry), width)}  "
    return text, _style(entry["outcome"]) if name == "outcome" else ""


def _fitted(text: str, width: int) -> str:
    text = one_line(text)
    return (text if len(text) <= width else f"{text[: width - 1]}…").ljust(width)


def _style(outcome: str) -> str:
    return {"complete": "green", "client_gone": "yellow"}.get(outcome, "bold red")


def _local(at: str) -> str:
    return datetime.fromisoformat(at).astimezone().strftime("%m-%d %H:%M:%S")


def _seconds(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds / 1000:.2f} s"


def _tokens(tokens: Mapping[str, Any] | None) -> str:
    if tokens is None:
        return ""
    return f"{'~' if tokens['estimated'] else ''}{tokens['input']} → {tokens['output']}"


def _outcome(entry: Mapping[str, Any]) -> str:
    if entry["loop"]:
        return "loop stopped"
    if entry["outcome"] == "complete" and entry["calls"]:
        return f"{len(entry['calls'])} calls" if len(entry["calls"]) > 1 else "1 call"
    return str(entry["outcome"])
