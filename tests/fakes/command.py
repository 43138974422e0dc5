"""The fake agent as a program on PATH.

Every gateway asks its agent for the version, the sign-in and the models. Where no switch of
agent.py changes the answer, the shell gives it in a tenth of the time that Python takes to start,
and without a note in `calls/`; with the switch `notes-questions` there is one for each.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from cursor_gateway.agents.demo import program as demo
from tests.fakes import VERSION

ACCOUNT = "dev@example.com"
# Without `site`, and as a module, whose bytecode is kept: it starts some thousand times.
PYTHON = (
    f'exec "{sys.executable}" -P -S -c '
    '"import sys; from tests.fakes.agent import main; sys.exit(main(sys.argv[1:]))" "$@"'
)


# The launcher of the real bridge is a shell, too, which waits for the server that it has started.
# It is not given the gateway's environment.
def bridge(home: Path) -> str:
    return f"""#!/bin/sh
export FAKE_AGENT_DIR="{home}" PYTHONPATH="{Path(__file__).parents[2]}"
"{sys.executable}" -P -S -m tests.fakes.bridge "$@"
"""


def _status() -> str:
    out = io.StringIO()
    demo.write_status(out, ACCOUNT, "json")
    return out.getvalue()


SCRIPT = f"""#!/bin/sh
has() {{ for name; do test -e "$FAKE_AGENT_DIR/$name" && return; done; false; }}
is_signed_in() {{ has account && read -r found < "$FAKE_AGENT_DIR/account"
    test "$found" = {ACCOUNT}; }}
is_plain() {{ is_signed_in && ! has notes-questions "$@"; }}
case "$*" in
--version)
    has version || {{ echo {VERSION}; exit; }};;
"status --format json")
    is_plain status-hangs status-takes old && {{ echo '{_status().rstrip()}'; exit; }};;
models)
    test -z "$CURSOR_API_ENDPOINT" && is_plain key offline truncate-models acp-processes &&
        cd "$FAKE_AGENT_DIR" && exec cat models.txt;;
esac
{PYTHON}
"""
