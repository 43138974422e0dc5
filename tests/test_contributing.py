"""What contributors and code hosts read is true of the tree: targets, paths, versions, forms."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cursor_gateway import __version__

ROOT = Path(__file__).parent.parent
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
FOR_PEOPLE = [
    ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "README.md")
]
# `path/name` or `name.ext`, from the root or from the package.
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|\.?\w[\w-]*\.(?:py|md|toml|yml|yaml))`")


def read(*way: str) -> str:
    return ROOT.joinpath(*way).read_text("utf-8")


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def targets() -> set[str]:
    lines = re.findall(r"^([a-z][\w -]*):(?!=)", read("Makefile"), re.MULTILINE)
    return {name for line in lines for name in line.split()}


@pytest.mark.parametrize("page", [*FOR_PEOPLE, *FORMS], ids=lambda page: page.name)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`make ([a-z][\w-]*)|^    make ([\w-]+)", page.read_text(), re.MULTILINE)
    assert {one or other for one, other in named} <= targets()


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    paths = PATH.findall(read("CONTRIBUTING.md"))
    assert len(paths) > 15
    places = (ROOT, ROOT / "cursor_gateway")
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def test_the_map_shows_every_folder_of_the_package_and_no_other() -> None:
    (drawn,) = re.findall(r"^```\n(cursor_gateway/.*?)^```", read("CONTRIBUTING.md"), re.M | re.S)
    package, _, _ = drawn.partition("\ntests/")
    folders = {path.parent.name for path in (ROOT / "cursor_gateway").glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/", package, re.MULTILINE)) == folders
    for module in re.findall(r"\w+\.py", package):
        assert (ROOT / "cursor_gateway" / module).exists(), module
    for folder in re.findall(r"^(\w+)/", drawn, re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder


def classifiers() -> list[str]:
    return list(tomllib.loads(read("pyproject.toml"))["project"]["classifiers"])


def test_what_the_package_promises_is_what_the_hosted_ci_tries() -> None:
    (job,) = loaded(ROOT / ".github" / "workflows" / "ci.yml")["jobs"].values()
    matrix = job["strategy"]["matrix"]
    promised = re.findall(r"Python :: (3\.\d+)$", "\n".join(classifiers()), re.MULTILINE)
    assert matrix["python"] == promised
    systems = {line.rpartition(" :: ")[2] for line in classifiers() if "Operating" in line}
    assert systems == {"Linux", "MacOS"}
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}
    required = tomllib.loads(read("pyproject.toml"))["project"]["requires-python"]
    assert required == f">={promised[0]}"


def test_the_hosted_ci_runs_what_everybody_runs_with_its_own_python() -> None:
    (job,) = loaded(ROOT / ".github" / "workflows" / "ci.yml")["jobs"].values()
    (run,) = [step for step in job["steps"] if step.get("run") == ".ci/run"]
    assert run["env"] == {"PYTHON": "python${{ matrix.python }}"}
    assert 'export PYTHON="${PYTHON:-' in read(".ci", "run")
    assert re.search(r"^PYTHON \?=", read("Makefile"), re.MULTILINE)


def test_hooks_before_a_commit_are_targets_of_make() -> None:
    (repo,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        make, target = hook["entry"].split()
        assert make == "make" and target in targets()


@pytest.mark.parametrize("form", [form for form in FORMS if form.name != "config.yml"], ids=str)
def test_a_form_for_issues_has_what_code_hosts_ask_for(form: Path) -> None:
    content = loaded(form)
    assert content["name"] and content["description"]
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_changelog_knows_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", read("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased" and __version__ in headings
