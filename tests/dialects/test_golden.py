"""The frames on the wire are those that were last looked at: see tests/dialects/golden.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.golden import GOLDEN, files

FILES = dict(files())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_wire_is_what_the_golden_file_says(path: Path) -> None:
    assert FILES[path] == path.read_bytes(), "if that is meant: `make golden`, and read the diff"


def test_no_golden_file_is_left_over() -> None:
    assert set(GOLDEN.iterdir()) == set(FILES)
