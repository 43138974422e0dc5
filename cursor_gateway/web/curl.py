"""A recorded request as a `curl` command that sends it again."""

from __future__ import annotations

import json
import shlex

from cursor_gateway.clients.client import KEY_VARIABLE
from cursor_gateway.core.models import AUTO
from cursor_gateway.dialects import BY_NAME
from cursor_gateway.journal.record import WORDS_KEPT, Record

# The body is a here document, in which the shell expands nothing and which no limit of arguments
# cuts. It is JSON, and no line of JSON can be this word.
_END = "END_OF_REQUEST"
_NOTE = "# With a small prompt in place of the real one, {}.\n"


def as_curl(record: Record, origin: str, *, with_key: bool) -> str:
    """The command has the body that was sent if all of it was recorded, else a small one."""
    dialect = BY_NAME[record.dialect]
    lines = [f"curl --no-buffer {shlex.quote(f'{origin}/v1{dialect.PATH}')}"]
    if with_key:
        lines.append(f'-H "Authorization: Bearer ${KEY_VARIABLE}"')
    lines += ["-H 'Content-Type: application/json'", f"--data-binary @- <<'{_END}'"]
    body, note = record.asked, ""
    if body is None or len(body.encode()) >= WORDS_KEPT:
        note = _NOTE.format("which is not recorded" if body is None else "of which a part is kept")
        small = {"model": record.model or AUTO, "stream": record.stream, **dialect.EXAMPLE}
        body = json.dumps(small, ensure_ascii=False)
    return note + " \\\n  ".join(lines) + f"\n{body}\n{_END}\n"
