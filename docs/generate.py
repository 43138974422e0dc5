"""Writes the pages of docs/ that come from the program itself: `make docs`.

tests/test_docs.py fails when a page and the program disagree.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from cursor_gateway import errors
from cursor_gateway.agents import AGENTS, Capabilities, chosen
from cursor_gateway.agents.cursor.cli import CursorCli
from cursor_gateway.agents.cursor.native_tools import TABLE
from cursor_gateway.agents.sdk import texts as sdk_texts
from cursor_gateway.agents.sdk.agent import SdkAgent
from cursor_gateway.cli.main import cli
from cursor_gateway.clients import CLIENTS
from cursor_gateway.dialects.error_status import HABITS, SDKS, SHOWN, Habit
from cursor_gateway.doctor.checks import in_order
from cursor_gateway.findings import Row
from cursor_gateway.journal.metrics import FAMILIES, PREFIX
from cursor_gateway.settings import FIELDS, Settings, shown
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
        facts.append("- reloaded on SIGHUP")
    return f"## {spec.name}\n\n{spec.help}\n\n" + "\n".join(facts)


_CONFIGURATION_HEAD = f"""\
{NOTICE}

# Configuration

A value comes from a flag of `serve`. If there is none it comes from the environment, then from the
file, then from the default. `cursor-gateway config` shows every value and where it came from.

The file is `~/.config/cursor-gateway/config.toml` (below `$XDG_CONFIG_HOME` where that is set), or
the file that `--config` or `CURSOR_GATEWAY_CONFIG` names:

```toml
port = 32124
slots = 4
workspace_roots = ["~/projects"]

[aliases]
fast = "composer-2.5-fast"
```

An unknown name is an error, and the message suggests the nearest one. So is an unknown variable
that begins with `CURSOR_GATEWAY_`. In the environment, commas separate the items of a list, and
pairs are written `name=value`.

On SIGHUP (`systemctl --user reload cursor-gateway`) a running gateway reads the file again and
reloads the settings that are marked below. The log names changed settings that need a restart. A
file with an error changes nothing.

The gateway also passes on the variables that Cursor's CLI itself reads: `CURSOR_API_KEY` (an API
key instead of the browser sign-in; it never appears on a command line), `CURSOR_CONFIG_DIR`,
`CURSOR_API_ENDPOINT`. With `agent = "sdk"` the gateway reads `CURSOR_API_KEY` itself, and
`CURSOR_SDK_BRIDGE_BIN`, which names the SDK bridge if it is in none of
[the usual places](agents.md#what-each-needs)."""


def error_page() -> str:
    rows = []
    for kind in error_classes():
        retry = f"after {kind.retry_after} s" if kind.retry_after is not None else ""
        hint = kind.hint.replace("|", r"\|")
        rows.append(f"| {kind.status} | `{kind.code}` | `{kind.type}` | {retry} | {hint} |")
    habits = [
        f"| {habit.clients} | {_sent_with(habit)} | {habit.why} |" for habit in (SDKS, *HABITS)
    ]
    of_sdk = [f"| {kind.status} | `{kind.code}` | {kind.hint} |" for kind in errors_of(sdk_texts)]
    return "\n".join([_ERRORS_HEAD, *rows, _SDK_ERRORS_HEAD, *of_sdk, _HABITS_HEAD, *habits]) + "\n"


def _sent_with(habit: Habit) -> str:
    """The statuses and headers of a usage limit and of a second 502, as an example."""
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

`message` ends with what to do. A request that would fail again gets a 4xx with
`x-should-retry: false`. A request that may pass later gets `Retry-After`. 500 means a bug in the
gateway; its log has the traceback under the request id. In a stream that has begun, the same object
comes as the last `data:` frame, without `finish_reason` and without `[DONE]`. In the Messages
dialect it comes as `event: error`, in Responses as `response.failed`.

If a conversation fails twice in the same way within two minutes, the gateway makes the second error
final, too, and says how often it failed. For some seconds after that, and after Cursor refused a
request, the gateway answers the same request from memory, without an agent. The message says for
how long.

| status | code | type | retry | what to do |
|---|---|---|---|---|"""


_SDK_ERRORS_HEAD = """
With the [SDK bridge](agents.md) the same codes have other hints:

| status | code | what to do |
|---|---|---|"""


_HABITS_HEAD = """
## Clients that get another status

Most coding agents retry a 429 or a 5xx for minutes without showing it, even when it is final. The
gateway knows some of them by their `User-Agent` and sends them a status that they show, with the
same code. Every other client gets the 400 after the third time (422 in the Messages dialect).
[Measured](decisions/0015-failures-that-stay.md).

| client | status for a usage limit, for an agent that crashed twice | why |
|---|---|---|"""


def error_classes() -> list[type[errors.GatewayError]]:
    """All errors that are raised, in the order of errors.py; branches of the tree are not."""
    branches = {errors.AccessDenied, errors.AgentRefused, errors.Unavailable}
    return [kind for kind in errors_of(errors) if kind not in branches]


def errors_of(module: ModuleType) -> list[type[errors.GatewayError]]:
    """Those that the module defines, in its order."""
    found = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
    own = [kind for kind in found if kind.__module__ == module.__name__]
    known = [kind for kind in own if issubclass(kind, errors.GatewayError)]
    return sorted(known, key=lambda kind: inspect.getsourcelines(kind)[1])


def tools_page() -> str:
    """docs/tools.md with a new table of equivalents; the rest is written by hand."""
    by_equivalents: dict[str, list[str]] = {}
    for name, natives in TABLE.items():
        names = "; else ".join(", ".join(native.names.split()) for native in natives)
        by_equivalents.setdefault(names, []).append(f"`{name}`")
    rows = [f"| {', '.join(ours)} | {theirs} |" for theirs, ours in by_equivalents.items()]
    table = [_TOOLS_HEAD, *rows, "| `mcp` | the tool's own name |"]
    return _with_table("tools.md", "agents/cursor/native_tools.py", table)


def agents_page() -> str:
    """docs/agents.md with a new table of what each agent can do; the rest is written by hand."""
    by_default = [dataclasses.asdict(chosen(Settings(agent=kind)).by_default) for kind in AGENTS]
    rows = [
        " | ".join(
            [
                f"| {each.metadata['sentence']}",
                *("yes" if can[each.name] else "no" for can in by_default),
                f"`{each.name}` |",
            ]
        )
        for each in dataclasses.fields(Capabilities)
    ]
    kinds = " | ".join(f"`{kind}`" for kind in AGENTS)
    head = [f"| | {kinds} | in the code |", "|---|" + "---|" * len(AGENTS) + "---|"]
    return _with_table("agents.md", "Capabilities in agents/__init__.py", [*head, *rows])


def observability_page() -> str:
    """docs/observability.md with a new table of metrics; the rest is written by hand."""
    rows = [
        f"| `{PREFIX}{name}` | {family.kind} | {', '.join(family.labels)} | {family.help} |"
        for name, family in FAMILIES.items()
    ]
    return _with_table("observability.md", "journal/metrics.py", [_METRICS_HEAD, *rows])


def _with_table(page: str, source: str, table: Sequence[str], text: str = "") -> str:
    """The page, or the `text` that it shall have, with another table."""
    begins = f"<!-- the table of {source}, written by `make docs` -->"
    head, found, rest = (text or (DOCS / page).read_text()).partition(begins)
    assert found, f"{page} has no {begins}"
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

Start the gateway (`cursor-gateway serve`), then set up your client:

```sh
cursor-gateway setup                     # which clients are installed, and where they point
cursor-gateway setup opencode            # show what would change in its file
cursor-gateway setup opencode --write    # change the file
cursor-gateway setup opencode --undo     # restore the file, byte for byte
cursor-gateway setup opencode --launch   # or change no file, and start the client with the gateway
```

`--write` preserves the comments, order and layout of the file, and stores a copy of the old one.
`--undo` leaves alone what you or the client changed later. The file keeps its owner and its mode,
even if root runs this, and a link stays a link. If the client writes its file after `setup` showed
the plan, `setup` changes nothing and asks again with a new plan. The models come from the running
gateway, or else from the agent. `--model ID` chooses models; it may be repeated, and the first
is the default. With `--launch`, the arguments after `--` go to the client:
`cursor-gateway setup codex --launch -- exec "Rename the function"`.

| client | set up by | guide | tried with |
|---|---|---|---|"""

_CLIENTS_TAIL = """\
| OpenAI SDKs and everything else | | [openai-sdk.md](openai-sdk.md) | openai 3.49 (Python) |

If you set an `api_key` for the gateway, `setup` gives it to the client. If you set up a client by
hand, put the key where the pages have `-`. Every client executes its own tools on its own files;
see [tools.md](../tools.md). In all clients the provider is called `cursor-gateway`, a name that
none of them has built in.

`make clients` sets up the real programs and runs them against the gateway: a plain answer, a tool
that changes a file, three calls at once, the agent's own shell handed to the client, a second turn.
They cannot reach any other machine there, and a client that tries to send a prompt to one fails.
[failures.md](failures.md) shows what they print when something is wrong; `make failure-matrix`
writes it. `make captures` writes into each page what its program prints: the client, the gateway
and the tools are real, and a script plays the model.
"""


def doctor_page() -> str:
    """docs/doctor.md with new tables of checks; the rest is written by hand."""
    rows = (*in_order(CursorCli), *CursorCli.probes("auto", (45, 70)))
    page = _with_table("doctor.md", "the doctor's checks and probes", _checks(rows))
    sdk = (*SdkAgent.checks(), *SdkAgent.probes("auto", (45, 70)))
    return _with_table("doctor.md", "the SDK bridge's own checks and probes", _checks(sdk), page)


def _checks(rows: Sequence[Row[Any]]) -> list[str]:
    head = ["| check | looks at | why |", "|---|---|---|"]
    return [*head, *(f"| `{row.name}` | {row.title} | {row.why} |" for row in rows)]


def cli_page() -> str:
    sections = [_command_section(path, command) for path, command in commands()]
    return "\n\n".join([_CLI_HEAD, *sections]) + "\n"


_CLI_HEAD = f"""\
{NOTICE}

# Commands

`cursor-gateway COMMAND --help` prints the same. All commands also read the environment and the
[configuration file](configuration.md). The exit code is 0 on success, 1 if something failed, 2 if
an argument or a setting is wrong, 130 after Ctrl-C.

The commands print names and errors of models, MCP servers, clients and files without control
characters: these appear as `\\x1b` or `\\u202e`, so that no name can control the terminal. In a
terminal the answer of `ask` and the result of `mcp call` are printed the same way; in a pipe or a
file they are exact, byte for byte. JSON has the same characters escaped."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words of its command line."""
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

[`cursor-gateway doctor`](doctor.md) finds most of these problems and prints the command that fixes
them. Otherwise look here for what you see:

{_PLACES}

[`cursor-gateway logs`](observability.md) shows what happened to a request. Every error has its row
in [errors.md](errors.md). If a command below sets an option of `serve`, put the setting into the
[configuration file](configuration.md) to make it permanent."""


def _symptom_section(symptom: Symptom) -> str:
    text = [symptom.why, *dict.fromkeys(kind.hint for kind in symptom.kinds if kind.hint)]
    if symptom.kinds:
        named = ", ".join(f"`{kind.code}` ({kind.status})" for kind in symptom.kinds)
        text.append(f"Code: {named}.")
    if symptom.check:
        text.append(f"The doctor's check is `{symptom.check}`.")
    parts = [f"### {symptom.seen}", " ".join(text)]
    if symptom.command:
        parts.append(f"```sh\n{symptom.command}\n```")
    return "\n\n".join(parts)


PAGES: Mapping[str, Callable[[], str]] = {
    "agents.md": agents_page,
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
