"""What people read uses the words of the glossary: no retired word comes back.

Names that scripts rely on stay, such as the doctor's check `strays`; docs write them as code, and
code is not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs.generate import commands

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RETIRED = re.compile(r"\b(?:mend(?:s|ed|ing)?|errands?|strays?|cures?|woven|restless)\b", re.I)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
# All that users read. The glossary of architecture.md may say which word replaced which.
PAGES = [
    *(ROOT / "README.md", *sorted((DOCS / "clients").glob("*.md"))),
    *sorted(set(DOCS.glob("*.md")) - {DOCS / "architecture.md"}),
]
PAGE_FILES = sorted((ROOT / "cursor_gateway" / "web" / "page").glob("*.[hj]*"))


def retired(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if RETIRED.search(line):
            yield line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_docs_use_no_retired_word(page: Path) -> None:
    assert list(retired(CODE.sub("", page.read_text()))) == []


def test_help_texts_use_no_retired_word() -> None:
    for name, command in commands():
        context = click.Context(command, info_name=name)
        assert list(retired(command.get_help(context))) == [], name


@pytest.mark.parametrize("file", PAGE_FILES, ids=lambda file: file.name)
def test_the_page_uses_no_retired_word(file: Path) -> None:
    assert list(retired(file.read_text())) == []
