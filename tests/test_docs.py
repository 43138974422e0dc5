"""What the docs say is what the program does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.cli import cli
from cursor_gateway.dialects import DIALECTS, Dialect
from cursor_gateway.errors import UnsupportedParameter
from cursor_gateway.settings import FIELDS
from docs.generate import PAGES
from tests.conftest import FakeAgent
from tests.dialects.answers import REQUESTS

ROOT = Path(__file__).parent.parent
MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_program_says(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == PAGES[page](), "run `make docs`"


def test_every_command_and_endpoint_is_in_the_docs() -> None:
    readme, api = (ROOT / "README.md").read_text(), (ROOT / "docs" / "api.md").read_text()
    for command in cli.commands:
        assert f"`cursor-gateway {command}" in readme
    for dialect in DIALECTS:
        assert f"## POST /v1{dialect.PATH}" in api
    paths = (
        *("models", "chat/completions/ws", "responses/{id}", "tools", "requests"),
        *("events", "clients"),
    )
    for path in (*(f"/v1/{name}" for name in paths), "/health", "/metrics"):
        assert f"## GET {path}" in api
    for name in FIELDS:
        assert f"## {name}\n" in (ROOT / "docs" / "configuration.md").read_text()


class Noting(dict[str, Any]):
    """A request body that notes what is looked for in it."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.sought: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.sought.add(name)
        return super().get(name, default)


def documented_fields(dialect: Dialect) -> dict[str, set[str]]:
    """Verdict -> fields, from the dialect's table in docs/api.md."""
    api = (ROOT / "docs" / "api.md").read_text()
    section = api.split(f"## POST /v1{dialect.PATH}\n")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for cell, verdict in re.findall(r"^\| (`.*?) \| (\w+) \|", section, re.MULTILINE):
        names = re.findall(r"`(\w+)[.\w]*`", cell)
        found.setdefault(verdict, set()).update(names)
    return found


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.PATH)
def test_the_table_of_fields_is_what_the_dialect_reads(dialect: Dialect) -> None:
    fields = documented_fields(dialect)
    assert set(fields) == {"honoured", "emulated", "refused", "ignored"}
    plain = {"model": "auto"} | REQUESTS[dialect.PATH]
    body = Noting(plain)
    dialect.parse(body)
    assert body.sought == fields["honoured"] | fields["emulated"] | fields["refused"]
    assert not body.sought & fields["ignored"]
    for name in fields["refused"]:
        with pytest.raises(UnsupportedParameter):
            dialect.parse(plain | {name: 2})


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in set(re.findall(r"`((?:core|dialects|agents)?/?\w+\.py)`", text)):
        assert (ROOT / "cursor_gateway" / name).exists() or (ROOT / "tests" / name).exists(), name


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert f"({page.name})" in listed


def python_blocks() -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    return blocks


def test_the_readmes_python_runs(fake: FakeAgent) -> None:
    with_sdk, embedded = python_blocks()
    indented = "\n".join(f"    {line}" for line in embedded.splitlines())
    program = f"import asyncio\nasync def main():\n{indented}\nasyncio.run(main())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=fake.env, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("http://127.0.0.1:"), done.stderr
    served = with_sdk.replace("http://127.0.0.1:32124/v1", "{URL}")
    assert "{URL}" in served
    program = (
        "import asyncio, cursor_gateway\n"
        "async def main():\n"
        "    async with cursor_gateway.running() as gateway:\n"
        f"        source = {served!r}.replace('{{URL}}', gateway.base_url)\n"
        "        await asyncio.to_thread(exec, source, {})\n"
        "asyncio.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=fake.env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "Hello\n", done.stderr
