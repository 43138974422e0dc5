"""Writes the pages of docs/ that the program knows better than we do: `make docs`.

tests/test_docs.py fails when a page and the program disagree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from cursor_gateway import errors
from cursor_gateway.agents.cursor.cli import CursorCli
from cursor_gateway.agents.cursor.native_tools import TABLE
from cursor_gateway.cli.main import cli
from cursor_gateway.clients import CLIENTS
from cursor_gateway.dialects.error_status import HABITS, SDKS, SHOWN, Habit
from cursor_gateway.doctor.checks import in_order
from cursor_gateway.journal.metrics import FAMILIES, PREFIX
from cursor_gateway.settings import FIELDS, shown
from cursor_gateway.settings_row import Setting
from docs.symptoms import GROUPS, Symptom

DOCS = Path(__file__).parent
NOTICE = "<!-- Written by `make docs` from the program itself; edit docs/generate.py instead. -->"


def configuration() -> str:
    return "\n\n".join([_CONFIGURATION_HEAD, *map(_setting_section, FIELDS.values())]) + "\n"


def _setting_section(spec: Setting) -> str:
    value = shown(spec.name, spec.default)
    facts = [
        f"- flag of `serve`: `{spec.flag}`",
        f"- environment: `{spec.env}`",
        f"- default: `{value}`" if value else "- default: not set",
    ]
    if spec.limits:
        facts.append(f"- {spec.limits} {spec.unit}".rstrip())
    if spec.choices:
        facts.append(f"- one of: {', '.join(f'`{choice}`' for choice in spec.choices)}")
    if spec.reloads:
        facts.append("- taken over on SIGHUP")
    return f"## {spec.name}\n\n{spec.help}\n\n" + "\n".join(facts)


_CONFIGURATION_HEAD = f"""\
{NOTICE}

# Configuration

A value comes from a flag of `serve`, else from the environment, else from the file, else it is
the default. `cursor-gateway config` shows every value and where it came from.

The file is `~/.config/cursor-gateway/config.toml` (below `$XDG_CONFIG_HOME` where that is set), or
the one that `--config` or `CURSOR_GATEWAY_CONFIG` names:

```toml
port = 32124
slots = 4
workspace_roots = ["~/projects"]

[aliases]
fast = "composer-2.5-fast"
```

A name that does not exist is an error, with a suggestion; so is a variable that begins with
`CURSOR_GATEWAY_` and is none of these. In the environment, lists are separated
by commas and pairs are written `name=value`.

On SIGHUP (`systemctl --user reload cursor-gateway`) a running gateway reads the file again and
takes over the settings that say so below; the log names those that changed and need a restart. A
file that cannot be used changes nothing.

Besides these, the gateway passes on what Cursor's CLI reads itself: `CURSOR_API_KEY` (an API key
instead of the browser sign-in; it never appears on a command line), `CURSOR_CONFIG_DIR`,
`CURSOR_API_ENDPOINT`."""


def error_page() -> str:
    rows = []
    for kind in error_classes():
        retry = f"after {kind.retry_after} s" if kind.retry_after is not None else ""
        hint = kind.hint.replace("|", r"\|")
        rows.append(f"| {kind.status} | `{kind.code}` | `{kind.type}` | {retry} | {hint} |")
    habits = [
        f"| {habit.clients} | {_told_with(habit)} | {habit.why} |" for habit in (SDKS, *HABITS)
    ]
    return "\n".join([_ERRORS_HEAD, *rows, _HABITS_HEAD, *habits]) + "\n"


def _told_with(habit: Habit) -> str:
    """What a usage limit and a second 502 come with, as an example."""
    shown = "429, 502" if 429 in habit.shows else str(SHOWN)
    return ", ".join([shown, *(f"`{name}: {value}`" for name, value in habit.headers.items())])


_ERRORS_HEAD = f"""\
{NOTICE}

# Errors

Every failure has this body, in OpenAI's shape:

```json
{{"error": {{"message": "...", "type": "...", "code": "...", "param": null, "status": 400,
           "request_id": "..."}}}}
```

`message` ends with what to do. What would fail again is a 4xx with `x-should-retry: false`; what
may pass later carries `Retry-After`; 500 means a fault of the gateway, with the traceback in its
log under the request id. In a stream that has begun, the same object comes as the last `data:`
frame, without `finish_reason` and without `[DONE]`; in the Messages dialect as `event: error`, in
Responses as `response.failed`.

A conversation that fails twice in the same way within two minutes has failed for good: the second
answer is final, too, and says how often it failed. For some seconds after it, and after a refusal
of Cursor's, the same is answered from memory, without an agent; the message says for how long.

| status | code | type | worth another try | what to do |
|---|---|---|---|---|"""


_HABITS_HEAD = """
## Who is told otherwise

Most coding agents repeat a 429 or a 5xx for minutes without showing it, also when it is final.
Those that are known by their `User-Agent` get it with a status that they show, and the same code;
everybody else gets the 400 after the third time (422 in the Messages dialect).
[Measured](decisions/0015-failures-that-stay.md).

| client | a usage limit, an agent that died twice | why |
|---|---|---|"""


def error_classes() -> list[type[errors.GatewayError]]:
    """All errors that are raised, in the order of errors.py; branches of the tree are not."""
    branches = {errors.AccessDenied, errors.AgentRefused, errors.Unavailable}
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    known = [kind for kind in found if issubclass(kind, errors.GatewayError)]
    known.sort(key=lambda kind: inspect.getsourcelines(kind)[1])
    return [kind for kind in known if kind not in branches]


def tools_page() -> str:
    """docs/tools.md with its table of equivalents written anew; the rest is ours."""
    by_equivalents: dict[str, list[str]] = {}
    for name, natives in TABLE.items():
        names = "; else ".join(", ".join(native.names.split()) for native in natives)
        by_equivalents.setdefault(names, []).append(f"`{name}`")
    rows = [f"| {', '.join(ours)} | {theirs} |" for theirs, ours in by_equivalents.items()]
    table = [_TOOLS_HEAD, *rows, "| `mcp` | the tool's own name |"]
    return _with_table("tools.md", "agents/cursor/native_tools.py", table)


def observability_page() -> str:
    """docs/observability.md with its table of metrics written anew."""
    rows = [
        f"| `{PREFIX}{name}` | {family.kind} | {', '.join(family.labels)} | {family.help} |"
        for name, family in FAMILIES.items()
    ]
    return _with_table("observability.md", "journal/metrics.py", [_METRICS_HEAD, *rows])


def _with_table(page: str, source: str, table: Sequence[str]) -> str:
    begins = f"<!-- the table of {source}, written by `make docs` -->"
    head, _, rest = (DOCS / page).read_text().partition(begins)
    _, _, tail = rest.partition(_TABLE_ENDS)
    written = "\n".join(table)
    return f"{head}{begins}\n\n{written}\n\n{_TABLE_ENDS}{tail}"


_TABLE_ENDS = "<!-- end of the table -->"
_TOOLS_HEAD = "| the agent's tool | the client's, by any of these names |\n|---|---|"
_METRICS_HEAD = "| metric | kind | labels | what |\n|---|---|---|---|"


def clients_page() -> str:
    rows = [
        f"| {client.title} | `cursor-gateway setup {client.name}` | "
        f"[{client.page}]({client.page}) | {client.tried_with} |"
        for client in CLIENTS.values()
    ]
    return "\n".join([_CLIENTS_HEAD, *rows, _CLIENTS_TAIL])


_CLIENTS_HEAD = f"""\
{NOTICE}

# Clients

Start the gateway (`cursor-gateway serve`), then let the client be set up:

```sh
cursor-gateway setup                     # what is installed here, and where it points
cursor-gateway setup opencode            # what would be changed in its file, and nothing more
cursor-gateway setup opencode --write    # change it
cursor-gateway setup opencode --undo     # give it back, byte for byte
cursor-gateway setup opencode --launch   # or change nothing, and only start it for the gateway
```

`--write` keeps comments, order and layout of the file, and a copy of it as it was. What you or the
client change in it later, `--undo` leaves. The file keeps its owner and its mode, also where root
runs this, and a link stays a link. A client that writes its file between the plan and the change
loses nothing: the file is left alone, and the question comes again with what would be changed now.
The models are those of the running gateway, else those
of `cursor-agent`; `--model ID`, several times if you like, chooses some, the first as default. With
`--launch`, what stands after `--` goes to the client:
`cursor-gateway setup codex --launch -- exec "Rename the function"`.

| client | set up by | guide | tried with |
|---|---|---|---|"""

_CLIENTS_TAIL = """\
| OpenAI SDKs and everything else | | [openai-sdk.md](openai-sdk.md) | openai 3.49 (Python) |

If you set an `api_key` for the gateway, `setup` gives it to the client; by hand, put it where the
pages have `-`. Whatever the client, its tools are executed by the client, on its own files; see
[tools.md](../tools.md). In all of them our provider is called `cursor-gateway`, a name that none of
them has built in.

`make clients` sets the real programs up and runs them against the gateway: a plain answer, a tool
that changes a file, three calls at once, the agent's own shell handed to the client, a second turn.
No other machine exists for them there, and whoever tries to reach one with a prompt fails. What
they show when something is wrong is in [failures.md](failures.md), which `make failure-matrix`
writes. `make captures` writes into each page what its program prints; there the client, the gateway
and the tools are real, and a script says what a model would.
"""


def doctor_page() -> str:
    """docs/doctor.md with its table of checks written anew; the rest is ours."""
    page = (DOCS / "doctor.md").read_text()
    head, _, rest = page.partition(_CHECKS_BEGIN)
    _, _, tail = rest.partition(_TABLE_ENDS)
    rows = [
        f"| `{check.name}` | {check.title} | {check.why} |"
        for check in (*in_order(CursorCli), *CursorCli.probes("auto", (45, 70)))
    ]
    table = "\n".join(["| check | looks at | why |", "|---|---|---|", *rows])
    return f"{head}{_CHECKS_BEGIN}\n\n{table}\n\n{_TABLE_ENDS}{tail}"


_CHECKS_BEGIN = "<!-- the tables of the doctor's checks and probes, written by `make docs` -->"


def cli_page() -> str:
    sections = [_command_section(path, command) for path, command in commands()]
    return "\n\n".join([_CLI_HEAD, *sections]) + "\n"


_CLI_HEAD = f"""\
{NOTICE}

# Commands

`cursor-gateway COMMAND --help` says the same. All take their settings from the environment and the
[configuration file](configuration.md), too. The exit code is 0 when all went well, 1 when something
failed, 2 when a word or a setting cannot be used, 130 after Ctrl-C.

What models, MCP servers, clients and files are called, and what they complain of, is printed
without control characters: they are written as `\\x1b` or `\\u202e`, so that no name steers the
terminal. The answer of `ask` and the result of `mcp call` are shown so in a terminal; in a pipe or
a file they are exact, byte for byte. JSON has the same characters escaped."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words it is called by."""
    waiting: list[tuple[str, click.Command]] = [("cursor-gateway", cli)]
    while waiting:
        path, command = waiting.pop(0)
        if isinstance(command, click.Group):
            below = sorted(command.commands.items())
            waiting[:0] = [(f"{path} {name}", each) for name, each in below]
        else:
            yield path, command


def _command_section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}", f"```text\n{usage}\n```", _paragraphs(command.help or "")]
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        rows = [f"| {_spelling(each, context)} | {_meaning(each)} |" for each in options]
        parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n"))


def _spelling(option: click.Option, context: click.Context) -> str:
    flags = ", ".join((*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    return f"`{flags}{value}`".replace("|", r"\|")


def _meaning(option: click.Option) -> str:
    """Settings are explained on their own page."""
    if option.name in FIELDS and option.name != "demo":
        return f"[{option.name}](configuration.md#{option.name})"
    default = option.default
    shown_default = f" [default: {default}]" if option.show_default and default else ""
    return f"{option.help}{shown_default}".replace("|", r"\|")


def troubleshooting_page() -> str:
    parts = [_TROUBLESHOOTING_HEAD]
    for title, group in GROUPS.items():
        parts += [f"## {title}", *map(_symptom_section, group)]
    return "\n\n".join(parts) + "\n"


_PLACES = "\n".join(f"- [{title}](#{title.lower().replace(' ', '-')})" for title in GROUPS)
_TROUBLESHOOTING_HEAD = f"""\
{NOTICE}

# Troubleshooting

[`cursor-gateway doctor`](doctor.md) finds most of this by itself and prints the command that mends
it. Else look here for what you see:

{_PLACES}

What a request met is in [`cursor-gateway logs`](observability.md); every error has its row in
[errors.md](errors.md). Where a command ends in a setting of `serve`, put that in the
[configuration file](configuration.md) to keep it."""


def _symptom_section(symptom: Symptom) -> str:
    text = [symptom.why, *dict.fromkeys(kind.hint for kind in symptom.kinds if kind.hint)]
    if symptom.kinds:
        named = ", ".join(f"`{kind.code}` ({kind.status})" for kind in symptom.kinds)
        text.append(f"Code: {named}.")
    if symptom.check:
        text.append(f"The doctor looks at it as `{symptom.check}`.")
    parts = [f"### {symptom.seen}", " ".join(text)]
    if symptom.command:
        parts.append(f"```sh\n{symptom.command}\n```")
    return "\n\n".join(parts)


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "clients/README.md": clients_page,
    "configuration.md": configuration,
    "doctor.md": doctor_page,
    "errors.md": error_page,
    "observability.md": observability_page,
    "tools.md": tools_page,
    "troubleshooting.md": troubleshooting_page,
}


if __name__ == "__main__":
    for name, write in PAGES.items():
        (DOCS / name).write_text(write())
