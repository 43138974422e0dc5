"""Laws for the tests themselves, read from their source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MODULES = sorted(TESTS.rglob("test_*.py"))
EVERY_MODULE = pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: path.relative_to(TESTS).as_posix()
)

# Where time itself is what is tested, or a moment of a program's that nothing shows from outside.
MAY_SLEEP = {
    "agents/test_fake_agent.py": "that a program does not boot before its prompt",
    "bridge/test_vices.py": "servers are killed again and again",
    "http/test_warm_starts.py": "a warm agent helps after the time of a cold start",
    "test_siege.py": "a gateway stands still for so long",
}
CLOCKS = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"}


def name_of(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=name_of)
def test_no_test_module_is_imported_by_another(path: Path) -> None:
    modules = {".".join(each.relative_to(ROOT).with_suffix("").parts) for each in MODULES}
    assert not set(imported(path)) & modules


def is_sleep(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"time.sleep", "asyncio.sleep", "sleep"}
        # To let others have their turn is no waiting.
        and [ast.unparse(argument) for argument in node.args] != ["0"]
    )


@EVERY_MODULE
def test_no_test_sleeps_to_wait_for_something(path: Path) -> None:
    waited = [node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Await)]
    called = [node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Expr)]
    sleeps = [node for node in (*waited, *called) if is_sleep(node)]
    assert sleeps == [] or name_of(path) in MAY_SLEEP


def tells_the_time(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in CLOCKS


@EVERY_MODULE
def test_no_test_asserts_how_long_something_took(path: Path) -> None:
    """No difference in an assertion may come from a clock, directly or by a name."""
    tree = parsed(path)
    timed = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(map(tells_the_time, ast.walk(node.value)))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    asserted = (node.test for node in ast.walk(tree) if isinstance(node, ast.Assert))
    spans = (
        each
        for test in asserted
        for each in ast.walk(test)
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub)
    )
    for span in spans:
        names = {each.id for each in ast.walk(span) if isinstance(each, ast.Name)}
        assert not names & timed and not any(map(tells_the_time, ast.walk(span))), span.lineno


def test_what_may_sleep_still_does() -> None:
    for name in MAY_SLEEP:
        assert any(map(is_sleep, ast.walk(parsed(TESTS / name)))), name


def named_in_the_makefile() -> list[str]:
    text = (ROOT / "Makefile").read_text()
    lists = re.findall(r"^(?:SMOKE|PURE_TESTS) := ((?:.*\\\n)*.*)", text, re.MULTILINE)
    return [word for each in lists for word in each.split() if word.startswith("tests/")]


@pytest.mark.parametrize("word", [word for word in named_in_the_makefile() if "::" in word])
def test_what_make_quick_names_exists(word: str) -> None:
    file, _, test = word.partition("::")
    functions = {getattr(node, "name", "") for node in parsed(ROOT / file).body}
    assert test in functions
