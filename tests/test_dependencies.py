"""Whatever is imported is declared in pyproject.toml, and the gateway declares nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("cursor_gateway", "tests", "benchmarks", "docs")
# `make page`, `make fuzz` and the target of Cursor's own client say how these come to be there.
INSTALLED_OTHERWISE = {"playwright", "atheris", "cursor_sdk"}


def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def distributions(requirements: Iterable[str]) -> set[str]:
    found = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {normal(name[0]) for name in found if name}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: str) -> Iterator[tuple[str, Path]]:
    """Each module of others that is imported below a folder, and where."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for module in modules_of(node):
                if module not in sys.stdlib_module_names and module not in OURS:
                    yield module, file


def modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module.partition(".")[0]]
    return []


@cache
def providers() -> dict[str, set[str]]:
    return {name: set(map(normal, by)) for name, by in packages_distributions().items()}


def undeclared(folder: str, declared: set[str]) -> set[str]:
    return {
        f"{module} in {file.relative_to(ROOT)}"
        for module, file in imported(folder)
        if module not in INSTALLED_OTHERWISE and not providers().get(module, set()) & declared
    }


def test_the_gateway_imports_only_what_it_declares() -> None:
    assert undeclared("cursor_gateway", distributions(project()["dependencies"])) == set()


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "docs"])
def test_what_surrounds_it_imports_only_what_developers_install(folder: str) -> None:
    extras = project()["optional-dependencies"]
    declared = distributions([*project()["dependencies"], *extras["dev"]])
    assert undeclared(folder, declared) == set()


def test_every_dependency_is_imported_by_the_gateway() -> None:
    used: set[str] = set()
    for module, _ in imported("cursor_gateway"):
        used |= providers()[module]
    assert distributions(project()["dependencies"]) <= used
