"""The program that a guardian runs (guardian.py): it clears up behind a gateway that was killed.

It waits until the gateway's end of its stdin closes, then ends every process with the gateway's
mark, removes the scratch directories, and becomes the program that removes what the agent stored
about them. That is how a gateway killed with SIGKILL leaves nothing.

Nothing of the user's environment can break it: it runs without Python's variables and `site`, and
finds its modules in its own package and in the folder that it is told. All of them are loaded at
its start, for later they may have been replaced by another version.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path += [str(Path(__file__).resolve().parents[2]), sys.argv[1]]

from cursor_gateway.processes import tree

_SECONDS = 30.0
_INTERVAL = 0.02


def main(mark: str, scratch: str, then: list[str]) -> None:
    """`then` are the words of the program that follows; the last is a note, which a gateway that
    ended by itself has removed."""
    guard(mark, Path(scratch))
    if then and Path(then[-1]).exists():
        os.execv(sys.executable, [sys.executable, "-I", "-S", *then])  # noqa: S606


def guard(mark: str, scratch: Path) -> None:
    """Wait for the gateway's end, then clear up behind it. A clean end leaves nothing to do."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = str(scratch.resolve())
    while os.read(0, 4096):
        pass
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and not _end_all(mark, folder):
        time.sleep(_INTERVAL)
    shutil.rmtree(scratch, ignore_errors=True)


def _end_all(mark: str, folder: str) -> bool:
    """Kill whom the gateway left; whether there was nobody."""
    try:
        left = [*tree.marked(mark), *tree.working_in(folder)]
    except OSError:  # it is tried again
        return False
    family = left
    with contextlib.suppress(OSError):
        # They need not carry the mark.
        family = list(tree.with_followers(left))
    tree.signal_all(family, signal.SIGKILL)
    return not left


if __name__ == "__main__":
    main(sys.argv[2], sys.argv[3], sys.argv[4:])
