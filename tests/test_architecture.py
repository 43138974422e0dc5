"""The laws of docs/architecture.md, read from the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "cursor_gateway"
MODULES = sorted(PACKAGE.rglob("*.py"))
PURE = [
    path
    for path in MODULES
    if {"core", "dialects", "config_files"} & set(path.relative_to(PACKAGE).parts)
]
IMPURE = {"asyncio", "aiohttp", "subprocess", "os", "socket", "time", "mcp", "click", "logging"}

# Who may import whom: a module may use those of later rows, and those to its right in its own row.
# Each folder and each file at the top stands in exactly one place.
LAYERS = (
    ("__init__", "__main__", "cli"),
    ("doctor", "lifetime"),
    ("web",),
    ("gateway", "clients"),
    ("parts",),
    ("recent_failures", "sessions", "account", "journal", "mcp_bridge"),
    ("agents",),
    ("workspaces", "relay", "processes", "scratch"),
    ("settings_sources", "running_gateways", "foreign_files", "connections", "request_ids"),
    ("background", "settings", "settings_row", "dialects", "core", "config_files"),
    ("findings", "errors", "redaction"),
)
ORDER = [unit for layer in LAYERS for unit in layer]


def imports(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {name for node in nodes for name in names_in(node)}


def names_in(node: ast.AST) -> set[str]:
    """What an import brings, if this is one."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return set()


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_what_shall_be_pure_is_pure(path: Path) -> None:
    used = imports(path)
    assert not {name.split(".")[0] for name in used} & IMPURE
    assert not any(name.startswith("cursor_gateway.settings") for name in used)


def unit_of(name: str) -> str:
    """The folder or the file at the top that a dotted name lies in."""
    return name.removeprefix("cursor_gateway.").split(".")[0]


def test_every_module_belongs_to_one_layer() -> None:
    units = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert units == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in imports(path):
        # `cursor_gateway` itself holds the version, which everybody may have.
        if name.startswith("cursor_gateway.") and unit_of(name) in ORDER:
            assert ORDER.index(unit_of(name)) >= ORDER.index(own), name


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: path.parent.name
)
def test_every_folder_states_its_law_or_axis(path: Path) -> None:
    words = ast.get_docstring(ast.parse(path.read_text()))
    assert words and (path.parent == PACKAGE or words.startswith(("Law: ", "Axis: "))), words


# Inside `core/` a module uses those of later rows only: the turn is at the top.
CORE = (
    ("turn",),
    ("turn_run",),
    ("burst", "history", "instructions", "relayed_calls", "usage_meter"),
    ("events", "prompt", "written_calls"),
    ("bridged_calls", "client_habits", "loop_guard", "relayed_tools", "retry"),
    ("structured", "tool_text", "tools"),
    ("call_block", "conversation"),
    ("json_schema",),
    (
        "call_ids",
        "half_characters",
        "json_text",
        "limits",
        "line_buffer",
        "models",
        "seams",
        "text_lines",
        "visible",
    ),
)


def test_inside_the_core_imports_go_from_the_turn_to_the_conversation() -> None:
    row_of = {name: row for row, names in enumerate(CORE) for name in names}
    modules = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] == "core"]
    parts = {path: path.relative_to(PACKAGE).parts[1].removesuffix(".py") for path in modules}
    assert set(parts.values()) - {"__init__"} == set(row_of)
    for path, own in parts.items():
        used = {name.split(".")[2] for name in imports(path) if name.startswith(CORE_PREFIX)}
        for name in used & row_of.keys() - {own}:
            assert row_of[name] > row_of[own], f"{own} imports {name}"


CORE_PREFIX = "cursor_gateway.core."


# What Cursor's agents share: the words of its servers, and the names of its tools.
OF_CURSOR = {"cursor_gateway.agents.cursor.texts", "cursor_gateway.agents.cursor.native_tools"}
# Whom an agent may know. ACP is another way to speak to the same program, of which it shares much.
KNOWN = {"acp": {"acp", "cursor"}, "demo": {"cursor", "demo"}, "cursor": {"cursor"}, "sdk": {"sdk"}}


def test_inside_agents_the_seam_knows_no_agent_and_only_the_demo_knows_another() -> None:
    for path in MODULES:
        unit, *rest = path.relative_to(PACKAGE).parts
        if unit != "agents":
            continue
        folder = rest[0].removesuffix(".py")
        at_top = {
            name
            for node in ast.parse(path.read_text()).body
            for name in names_in(node)
            if name.startswith("cursor_gateway.agents.")
        }
        shared = {name for name in at_top for known in OF_CURSOR if name.startswith(known)}
        top = {name.split(".")[2] for name in at_top - (shared if folder == "sdk" else set())}
        assert top & KNOWN.keys() <= KNOWN.get(folder, set()), path


VENDORS = re.compile(
    r"cursor(?![_-]gateway)|claude|openai|anthropic|opencode|codex|droid", re.IGNORECASE
)


def test_the_core_names_no_vendor() -> None:
    for path in (PACKAGE / "core").rglob("*.py"):
        assert not VENDORS.findall(path.read_text()), path


def test_dialects_are_known_at_the_edge_only() -> None:
    knowing = {
        path
        for path in MODULES
        if path.parent.name != "dialects"
        and any(name.startswith("cursor_gateway.dialects") for name in imports(path))
    }
    assert {path.relative_to(PACKAGE).parts[0] for path in knowing} == {"web", "cli"}


def test_what_commands_print_has_one_exit() -> None:
    """Else words of others would steer a terminal from some forgotten place."""
    exits = re.compile(r"\bprint\(|click\.s?echo\(|\bConsole\(|sys\.std(?:out|err)\.write")
    printing = {path.stem for path in MODULES if exits.search(path.read_text())}
    # The demo agent is a program of its own, which speaks to the gateway only.
    assert printing == {"terminal", "program"}
    assert {path.stem for path in MODULES if "rich" in map(first_part, imports(path))} == {
        "terminal"
    }


def first_part(name: str) -> str:
    return name.split(".")[0]


def test_mcp_is_imported_behind_one_module() -> None:
    """It takes a second, so it must be easy to see who pays."""
    heavy = {"mcp", "mcp_types", "anyio", "httpx2"}
    importing = {
        path.stem for path in MODULES if {name.split(".")[0] for name in imports(path)} & heavy
    }
    behind = {"http", "stdio", "bounded_stream"}
    assert importing == {"connection"} | behind
    for path in MODULES:
        used = {name.removeprefix("cursor_gateway.mcp_bridge.") for name in imports(path)}
        assert path.stem in importing or not used & behind, path.stem


def test_no_task_is_started_whose_failure_nobody_would_see() -> None:
    starting = {
        path.stem
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "create_task"
    }
    assert starting == {"background"}


def test_the_wall_clock_tells_dates_only() -> None:
    """It may jump; who waits, or lets something expire, asks another."""
    reading = {path.stem for path in MODULES if "time.time" in path.read_text()}
    dates = {"main", "delivery", "record", "models", "program"}
    # It compares with the date of a file.
    assert reading <= dates | {"cursor_files"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_files_and_functions_stay_readable(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= 420
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 50, f"{node.name} has {length} lines"
