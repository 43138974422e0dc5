"""What the docs say is what the program does."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from cursor_gateway.agents import AGENTS, chosen
from cursor_gateway.agents.sdk import texts as sdk_texts
from cursor_gateway.cli.main import cli
from cursor_gateway.dialects import DIALECTS, Dialect
from cursor_gateway.doctor.checks import in_order
from cursor_gateway.errors import UnsupportedParameter
from cursor_gateway.parts import another_agent
from cursor_gateway.settings import FIELDS, Settings
from docs.generate import PAGES, error_classes, errors_of
from docs.symptoms import symptoms
from tests.conftest import FakeAgent
from tests.dialects.answers import REQUESTS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MARKDOWN = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


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


@pytest.mark.parametrize("kind", AGENTS)
async def test_an_agent_can_do_by_default_what_its_column_says(kind: str, fake: FakeAgent) -> None:
    """The page shows what the class says; this is what the agent says when the gateway asks it."""
    async with another_agent(Settings(agent=kind), fake.env) as agent:
        assert agent.capabilities == agent.by_default
    page = (ROOT / "docs" / "agents.md").read_text()
    assert f"| `{kind}` " in page and f"`--agent {kind}`" in page


def test_every_attack_names_tests_that_exist() -> None:
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "security.md").read_text())
    sources = "\n".join(path.read_text() for path in TESTS.rglob("*.py"))
    assert len(named) > 40
    assert [name for name in named if f"def {name}(" not in sources] == []


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


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Of its headings, as code hosts name them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE):
        words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(next(name for name in named(anchor) if name not in found))
    return found


def named(anchor: str) -> Iterator[str]:
    yield anchor
    yield from (f"{anchor}-{number}" for number in itertools.count(1))


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        place = page.parent / target if target else page
        assert place.exists(), link
        assert not anchor or anchor in anchors(place), link


def test_every_page_is_found_from_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_every_error_and_every_check_of_the_doctor_has_its_symptom() -> None:
    explained = [kind for symptom in symptoms() for kind in symptom.kinds]
    raised = [*error_classes(), *errors_of(sdk_texts)]
    assert sorted(map(repr, explained)) == sorted(map(repr, raised))
    checked = {row.name for kind in AGENTS for row in in_order(chosen(Settings(agent=kind)))}
    assert {symptom.check for symptom in symptoms()} - {""} == checked


def test_what_the_symptoms_quote_is_said() -> None:
    """By the gateway or by the CLI; what clients say stands under their names."""
    sources = [*(ROOT / "cursor_gateway").rglob("*.py"), *(TESTS / "recordings").iterdir()]
    said = "\n".join(source.read_text() for source in sources)
    said = re.sub(r'"\s+f?"', "", said).lower()
    for symptom in symptoms():
        if symptom.kinds or symptom.check not in ("", "clients"):
            for words in re.findall("“(.*?)”", symptom.seen):
                assert words.lower() in said, words


SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def gateway_commands(page: Path) -> Iterator[list[str]]:
    """Every `cursor-gateway …` in the shell blocks of a page, as words."""
    for block in SHELL.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            # It is also what our provider is called.
            found_here = r"(?<!--provider )\bcursor-gateway [^;&|>)\n]*"
            for found in re.findall(found_here, line.split(" #")[0]):
                yield shlex.split(found)


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_on_every_page_exist(page: Path) -> None:
    for words in gateway_commands(page):
        command: click.Command = cli
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, words
            command = command.commands[rest.pop(0)]
        known = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
        ours = itertools.takewhile(lambda word: word != "--", rest)
        flags = {word.partition("=")[0] for word in ours if word.startswith("-")}
        assert flags <= known | {"--help"}, words


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in set(re.findall(r"`((?:core|dialects|agents)?/?\w+\.py)`", text)):
        assert (ROOT / "cursor_gateway" / name).exists() or (ROOT / "tests" / name).exists(), name


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert f"({page.name})" in listed
