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

# Who may import whom: a module may use those to the right of it, and `errors`.
ORDER = [
    *("cli", "cli_logs", "cli_mcp", "cli_doctor", "terminal", "doctor_checks"),
    *("doctor_clients", "doctor_cursor_files", "doctor_habits", "doctor_probes"),
    *("doctor_relay_probes", "doctor_boundary_probes", "doctor_runs"),
    *(
        "doctor",
        "lifetime",
        "server",
        "chat_socket",
        "model_routes",
        "kept_routes",
        "page_routes",
        "events",
        "journal_routes",
        "replay",
        "refusals",
        "protocol",
        "delivery",
    ),
    *("gateway", "journal", "metrics", "journal_file", "account", "mcp_bridge", "mcp_server"),
    *("mcp_connection", "mcp_http", "mcp_stdio", "mcp_line", "recent_failures", "sessions"),
    *("tool_channel", "agents", "relay", "relay_messages", "connections", "workspaces"),
    *("scratch", "background", "mcp_files", "response_store", "request_ids", "core", "errors"),
    "redaction",
]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_what_shall_be_pure_is_pure(path: Path) -> None:
    used = imports(path)
    assert not {name.split(".")[0] for name in used} & IMPURE
    assert not any(name.startswith("cursor_gateway.settings") for name in used)


def test_imports_go_one_way() -> None:
    def layer(name: str) -> int | None:
        part = name.removeprefix("cursor_gateway.").split(".")[0]
        return ORDER.index(part) if part in ORDER else None

    for path in MODULES:
        own = layer(".".join(("cursor_gateway", *path.relative_to(PACKAGE).with_suffix("").parts)))
        for name in imports(path):
            used = layer(name) if name.startswith("cursor_gateway.") else None
            if own is not None and used is not None:
                assert used >= own, f"{path.name} imports {name}"


def test_dialects_are_known_at_the_edge_only() -> None:
    knowing = {
        path.stem
        for path in MODULES
        if path.parent.name != "dialects"
        and any(name.startswith("cursor_gateway.dialects") for name in imports(path))
    }
    routes = {"server", "chat_socket", "model_routes", "kept_routes", "replay"}
    edge = routes | {"refusals", "protocol", "delivery", "cli"}
    assert knowing == edge


def test_what_commands_print_has_one_exit() -> None:
    """Else words of others would steer a terminal from some forgotten place."""
    exits = re.compile(r"\bprint\(|click\.s?echo\(|\bConsole\(|sys\.std(?:out|err)\.write")
    printing = {path.stem for path in MODULES if exits.search(path.read_text())}
    # The demo agent is a program of its own, which speaks to the gateway only.
    assert printing == {"terminal", "demo"}
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
    behind = {"mcp_http", "mcp_stdio", "mcp_line"}
    assert importing == {"mcp_connection"} | behind
    for path in MODULES:
        used = {name.removeprefix("cursor_gateway.") for name in imports(path)}
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
    dates = {"cli", "delivery", "journal", "model_routes", "demo"}
    # It compares with the date of a file.
    assert reading <= dates | {"doctor_checks"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_files_and_functions_stay_readable(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= 420
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 50, f"{node.name} has {length} lines"
