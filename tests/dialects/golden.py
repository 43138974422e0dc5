"""Golden frames: what each dialect writes, byte for byte, for a few recordings.

They show in a review what a change does to the wire. `make golden` writes them anew, into
tests/golden/; clock and ids are fixed. Streams are `.sse`, whole answers `.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import orjson

from cursor_gateway.agents.cursor.texts import classify_failure
from cursor_gateway.core.events import Finished
from cursor_gateway.dialects import DIALECTS, Dialect
from tests.conftest import RECORDINGS, TESTS
from tests.dialects.answers import exchange, recorded
from tests.support.recorded import MANIFEST

GOLDEN = TESTS / "golden"
ANSWER_ID, CREATED, REQUEST_ID = "0123456789ab", 1790000000, "request-1"

# Plain text, thinking, characters beyond ASCII, calls, and an agent that dies while it speaks.
NAMES = ("partial_simple", "thinking", "unicode", "tool_shell", "fail_midstream")


def frames(dialect: Dialect, name: str) -> bytes:
    """The stream, with one silence of each kind at its beginning."""
    encoder = exchange(dialect).encoder(ANSWER_ID, CREATED)
    wire = encoder.keep_alive() + encoder.heartbeat()
    wire += encoder.feed(recorded(name, with_calls=True))
    if MANIFEST[name]["exit"]:
        words = (RECORDINGS / f"{name}.stderr").read_text()
        wire += encoder.fail(classify_failure(words), REQUEST_ID)
    return bytes(wire)


def body(dialect: Dialect, name: str) -> bytes:
    fold = exchange(dialect).fold(ANSWER_ID, CREATED)
    fold.feed(recorded(name, with_calls=True))
    return orjson.dumps(fold.body(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def files() -> Iterator[tuple[Path, bytes]]:
    for dialect in DIALECTS:
        for name in NAMES:
            stem = f"{dialect.PATH.strip('/').replace('/', '-')}.{name}"
            yield GOLDEN / f"{stem}.sse", frames(dialect, name)
            if isinstance(recorded(name, with_calls=True)[-1], Finished):
                yield GOLDEN / f"{stem}.json", body(dialect, name)


if __name__ == "__main__":
    for old in GOLDEN.iterdir():
        old.unlink()
    for path, content in files():
        path.write_bytes(content)
    sys.stdout.write("See `git diff tests/golden` for what changed.\n")
