"""The agent's own tools in the client's words: the table of docs/tools.md.

When the agent announces `shellToolCall` and the client has a tool that does the same, the call is
the client's to make. A call is translated only as a whole: each argument that carries its meaning
must have a place in the client's schema. What has none stays the agent's own (and is denied there).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.events import AgentCall
from cursor_gateway.core.tools import find, fit

Arguments = Mapping[str, Any]

# One thing by the names that clients give it, in the order of preference.
PATH = "path file_path filepath filename file target_file notebook_path"
FOLDER = "path directory_path dirpath folder directory dir target_directory"
COMMAND = "command cmd script"
WORKDIR = "workdir cwd working_directory directory"
BACKGROUND = "is_background run_in_background fire_and_forget background"
CONTENT = "content contents file_text text new_content"
OLD = "old_string old_str old_text oldtext search"
NEW = "new_string new_str new_text newtext replace"
ALL = "replace_all change_all"
PATTERN = "pattern regex"
GLOBS = "pattern patterns glob_pattern glob"
INCLUDE = "include glob glob_pattern"
URL = "url uri"
TODOS = "todos todo_list items"


@dataclass(frozen=True, slots=True)
class Native:
    """A tool of the agent's and its equivalents, by letters only: `run_command`, `RunCommand`."""

    names: str
    # The agent's argument -> the client's names for it. All `needed` ones must be there and find a
    # place; `kept` ones must find one if they are there, or the call would mean something else.
    needed: Mapping[str, str]
    kept: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    # Reshapes the agent's arguments first; None when nothing certain can be made of them.
    prepare: Callable[[Arguments], Arguments | None] = lambda arguments: arguments


def _whole_file(arguments: Arguments) -> Arguments | None:
    """New content for a whole file; a sketch that leaves out "existing code" would destroy it."""
    content = arguments.get("fileText", arguments.get("content"))
    if content is None:
        # An edit's content may still be on its way: nothing of it is not an empty file.
        content = arguments.get("streamContent") or None
    if not isinstance(content, str) or _ELISION.search(content):
        return None
    return {"path": arguments.get("path"), "content": content}


def _replacement(arguments: Arguments) -> Arguments | None:
    """One piece of text for another. Without the old text nobody knows what would be lost, and a
    new one that is missing is not an empty one."""
    change = arguments.get("strReplace", arguments)
    if not isinstance(change, dict) or not change.get("oldText"):
        return None
    return {
        "path": arguments.get("path"),
        "oldText": change["oldText"],
        "newText": change.get("newText"),
        "replaceAll": change.get("replaceAll") or None,
    }


def _command(arguments: Arguments) -> Arguments:
    """The agent's own directory means nothing to the client; `false` is what the client does."""
    here = arguments.get("workingDirectory") in ("", ".")
    dropped = {"workingDirectory"} if here else set()
    if not arguments.get("isBackground"):
        dropped.add("isBackground")
    return {name: value for name, value in arguments.items() if name not in dropped}


def _todos(arguments: Arguments) -> Arguments | None:
    todos = arguments.get("todos")
    if not isinstance(todos, list) or not all(isinstance(todo, dict) for todo in todos):
        return None
    if arguments.get("merge"):
        # The client's tool replaces the whole list, and the rest of it is not known here.
        return None
    return {"todos": [_todo(todo, at) for at, todo in enumerate(todos, 1)]}


def _todo(todo: Arguments, number: int) -> Arguments:
    status = str(todo.get("status", "")).lower().removeprefix("todo_status_")
    return {
        "id": str(todo.get("id") or number),
        "content": todo.get("content"),
        "status": status or "pending",
        "priority": "medium",
    }


_IMAGE_NAME = re.compile(r"image-\d+\.\w+")
_NO_LETTER = re.compile(r"[^a-z0-9]")
_ELISION = re.compile(
    r"(?:\.\.\.|…)\s*(?:existing|rest of|remaining|unchanged)"
    r"|(?:existing|rest of) .{0,30}(?:\.\.\.|…)",
    re.I,
)

_SHELL = Native(
    "bash shell execute run_shell_command exec_command run_command run_terminal_cmd terminal exec",
    {"command": COMMAND},
    {"workingDirectory": WORKDIR, "isBackground": BACKGROUND},
    prepare=_command,
)
_READ = Native(
    "read read_file view view_file open_file cat",
    {"path": PATH},
    optional={"offset": "offset", "limit": "limit"},
)
_WRITE = Native(
    "write write_file create create_file write_to_file save_file",
    {"path": PATH, "content": CONTENT},
    prepare=_whole_file,
)
_EDIT = Native(
    "edit edit_file str_replace replace replace_in_file search_replace",
    {"path": PATH, "oldText": OLD, "newText": NEW},
    {"replaceAll": ALL},
    prepare=_replacement,
)
_GREP = Native(
    "grep grep_search ripgrep rg search_files",
    {"pattern": PATTERN},
    {"path": FOLDER, "glob": INCLUDE},
)
_GLOB = Native(
    "glob find_files find file_search", {"globPattern": GLOBS}, {"targetDirectory": FOLDER}
)
_LIST = Native("list ls list_files list_directory list_dir", {"path": FOLDER})
_DELETE = Native("delete delete_file remove remove_file rm", {"path": PATH})
_FETCH = Native("webfetch web_fetch fetch fetch_url read_url", {"url": URL})
_TODOS = Native("todowrite todo_write update_todos write_todos", {"todos": TODOS}, prepare=_todos)

# The keys of stream-json without `ToolCall`, in small letters, old and new; tried in turn.
TABLE: Mapping[str, tuple[Native, ...]] = {
    "shell": (_SHELL,),
    "bash": (_SHELL,),
    "read": (_READ,),
    "readfile": (_READ,),
    "edit": (_EDIT, _WRITE),
    "editfile": (_EDIT, _WRITE),
    "write": (_WRITE,),
    "writefile": (_WRITE,),
    "grep": (_GREP,),
    "glob": (_GLOB,),
    "ls": (_LIST,),
    "delete": (_DELETE,),
    "webfetch": (_FETCH,),
    "fetch": (_FETCH,),
    "updatetodos": (_TODOS,),
}

# Nothing may take the place of something, and a file may be empty.
_MAY_BE_EMPTY = frozenset({"newText", "content"})
_PATHS = frozenset({"path", "targetDirectory", "workingDirectory"})


def with_client_call(event: AgentCall, tools: Sequence[ToolSpec]) -> AgentCall:
    """The call of one of the agent's own tools, as the client's where the client has the like."""
    found = translate(event.tool, event.arguments, event.description, tuple(tools), event.workspace)
    return replace(event, as_client_call=found) if found else event


def translate(
    tool: str, arguments: Arguments, description: str, tools: Iterable[ToolSpec], workspace: str
) -> tuple[str, dict[str, Any]] | None:
    """The client's tool and arguments for a call of the agent's own, or None where there is none.

    Paths in the agent's `workspace` mean nothing to the client; they become relative ones.
    """
    tools = tuple(tools)
    if _is_our_image(arguments.get("path"), workspace):
        return None
    if tool.lower() == "mcp":
        return _mcp(arguments, description, tools)
    for native in TABLE.get(tool.lower(), ()):
        prepared = native.prepare(
            {name: _at_home(name, value, workspace) for name, value in arguments.items()}
        )
        target = _equivalent(native, tools)
        if prepared is None or target is None:
            continue
        mapped = _mapped(native, prepared, target) or _as_edits(native, prepared, target)
        if mapped is None:
            continue
        described = description or _description(prepared)
        fitted, problem = fit(target, mapped, described, exactly=True)
        if not problem:
            return target.name, fitted
    return None


def _mcp(
    arguments: Arguments, description: str, tools: tuple[ToolSpec, ...]
) -> tuple[str, dict[str, Any]] | None:
    called = arguments.get("args")
    for key in ("toolName", "name"):
        name = arguments.get(key)
        target = _by_mcp_name(name, tools) if isinstance(name, str) else None
        if target and isinstance(called, dict):
            fitted, problem = fit(target, called, description)
            return None if problem else (target.name, fitted)
    return None


def _by_mcp_name(name: str, tools: tuple[ToolSpec, ...]) -> ToolSpec | None:
    """The CLI writes `server-tool` where clients write `mcp__server__tool`."""
    by_letters = {_letters(tool.name): tool for tool in tools}
    letters = _letters(name)
    return find(name, tools) or by_letters.get(letters) or by_letters.get(f"mcp{letters}")


def _is_our_image(path: object, workspace: str) -> bool:
    """The images of the conversation lie in the agent's workspace, and only there."""
    return (
        isinstance(path, str)
        and bool(workspace)
        and path.startswith(f"{workspace}/")
        and bool(_IMAGE_NAME.fullmatch(path, len(workspace) + 1))
    )


def _equivalent(native: Native, tools: Iterable[ToolSpec]) -> ToolSpec | None:
    by_letters = {_letters(tool.name): tool for tool in tools}
    names = (by_letters.get(_letters(name)) for name in native.names.split())
    return next(filter(None, names), None)


def _mapped(native: Native, arguments: Arguments, target: ToolSpec) -> dict[str, Any] | None:
    declared = target.schema.get("properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, dict) else {}
    places = {_letters(name): name for name in properties}
    mapped: dict[str, Any] = {}
    for source, names in {**native.needed, **native.kept, **native.optional}.items():
        value = arguments.get(source)
        found = (places[_letters(name)] for name in names.split() if _letters(name) in places)
        place = next((place for place in found if place not in mapped), None)
        is_missing = value is None or (value == "" and source not in _MAY_BE_EMPTY)
        if place is not None and not is_missing:
            mapped[place] = _shaped(value, properties[place])
        elif source in native.needed or (source in native.kept and not is_missing):
            return None
    return mapped


def _as_edits(native: Native, arguments: Arguments, target: ToolSpec) -> dict[str, Any] | None:
    """Some clients take a list of replacements where the agent makes one."""
    properties = target.schema.get("properties")
    edits = properties.get("edits") if isinstance(properties, dict) else None
    items = edits.get("items") if isinstance(edits, dict) else None
    if native is not _EDIT or not isinstance(items, dict) or arguments.get("replaceAll"):
        return None
    outer = _mapped(Native("", {"path": PATH}), arguments, target)
    change = Native("", {"oldText": OLD, "newText": NEW})
    inner = _mapped(change, arguments, ToolSpec("", "", items))
    return {**outer, "edits": [inner]} if outer and inner else None


def _shaped(value: Any, wanted: Any) -> Any:
    """Some clients take several patterns where the agent gives one; lists hold what they know."""
    if not isinstance(wanted, dict) or wanted.get("type") != "array":
        return value
    items = wanted.get("items")
    known = items.get("properties") if isinstance(items, dict) else None
    if not isinstance(value, list):
        return [value]
    if not isinstance(known, dict):
        return value
    return [{name: entry[name] for name in entry if name in known} for entry in value]


def _at_home(name: str, value: Any, workspace: str) -> Any:
    if name not in _PATHS or not isinstance(value, str) or not workspace:
        return value
    if value.rstrip("/") == workspace:
        return "."
    return value.removeprefix(workspace + "/")


def _description(arguments: Arguments) -> str:
    subject = next((value for value in arguments.values() if isinstance(value, str) and value), "")
    return subject.split("\n")[0][:80]


def _letters(name: str) -> str:
    return _NO_LETTER.sub("", name.lower())
