"""Trees of processes that an agent may leave behind, as shell scripts: small, so that there may be
thousands. Each touches `grown` in `$FAKE_AGENT_DIR` when it has its size.
"""

from __future__ import annotations

import os
from pathlib import Path

SCRIPTS = {
    # It calls itself, so many times deep.
    "deep": """
        if [ "$1" -gt 0 ]; then sh "$0" $(($1 - 1)); exit; fi
        : > "$FAKE_AGENT_DIR/grown"
        exec sleep 600
    """,
    # So many siblings.
    "wide": """
        i=0
        while [ $i -lt "$1" ]; do sleep 600 & i=$((i + 1)); done
        : > "$FAKE_AGENT_DIR/grown"
        wait
    """,
    # So many who each start their child again when it dies.
    "stubborn": """
        i=0
        while [ $i -lt "$1" ]; do (while :; do sleep 600; done) & i=$((i + 1)); done
        : > "$FAKE_AGENT_DIR/grown"
        wait
    """,
    # So many who run away: each starts another and ends, in sessions of their own.
    "fleeing": """
        if [ "$2" ]; then
            sleep 0.01
            [ "$2" -eq 0 ] || sh "$0" 1 $(($2 - 1)) &
            exit
        fi
        i=0
        while [ $i -lt "$1" ]; do setsid sh "$0" 1 1000 & i=$((i + 1)); done
        : > "$FAKE_AGENT_DIR/grown"
    """,
    # A proper daemon: nothing that it has inherited by name shows whose it is.
    "daemon": """
        cd /
        if [ "$1" ]; then exec setsid env -i "$(command -v sh)" "$0" "" "$FAKE_AGENT_DIR"; fi
        (
            sh -c 'echo $PPID' > "$2/daemon.new"
            mv "$2/daemon.new" "$2/daemon"
            exec sleep 600
        ) < /dev/null > /dev/null 2>&1 &
    """,
}


def command(kind: str, size: str, home: Path) -> list[str]:
    """What grows it, with a script that is put into `home`."""
    script = home / f"{kind}.sh"
    script.write_text(SCRIPTS[kind])
    return ["sh", str(script), size or "1"]


def grow(kind: str, size: str) -> None:
    import subprocess

    subprocess.Popen(command(kind, size, Path(os.environ["FAKE_AGENT_DIR"])))
