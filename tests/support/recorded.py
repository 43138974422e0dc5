"""What is known of each recording of the CLI in tests/recordings."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import RECORDINGS

MANIFEST: dict[str, Any] = json.loads((RECORDINGS / "manifest.json").read_text())


COMPLETE = [name for name, facts in MANIFEST.items() if facts["has_result"] and not facts["exit"]]


def expected_text(data: bytes) -> str:
    last = [line for line in data.split(b"\n") if line.strip()][-1]
    return str(json.loads(last)["result"])
