"""Permissions: what the CLI lets a model do with tools of its own, which in a scratch directory is
nothing.

`--mode ask` is not enough: in it a model reads whatever the user can read, and a shell call was
seen (CLI 2026.10.01). What stops it is `.cursor/cli.json` in the directory where it works. The
tokens below were accepted together and refused reads by every spelling of a path. `deny` stands
above `allow` and above every mode, so an exception can only be made by not denying it. That is why
images are hard: everything but them has to be named.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

import orjson

from cursor_gateway.agents import RunSpec
from cursor_gateway.core.relayed_tools import SERVER
from cursor_gateway.workspaces import Workspace

_NO_ACTS = ("Write(**)", "Write(/**)", "Shell(*)", "WebFetch(*)")
_NO_READS = ("Read(**)", "Read(/**)", "Read(~/**)")
# A directory that everybody may write to can hold any number of names.
_MOST_NAMES = 1000
# All others could mean something in a glob, or between brackets.
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def permissions(spec: RunSpec, workspace: Workspace, home: Path) -> bytes:
    """The CLI's file for a run in a scratch directory: a call of its own tools is refused.

    With the relay, only what is on neither list keeps the user's own MCP servers out.
    """
    denied = [*_NO_ACTS, *_NO_READS]
    if spec.conversation.has_images:
        globs = _all_but_images(workspace.scratch, home)
        denied = [*_NO_ACTS, *(f"Read({glob})" for glob in globs)]
    denied += [] if spec.calls_back else ["Mcp(*:*)"]
    allowed = [f"Mcp({SERVER}:*)"] if spec.calls_back else []
    return orjson.dumps({"permissions": {"allow": allowed, "deny": denied}})


def _all_but_images(scratch: Path, home: Path) -> Iterator[str]:
    """What lies beside the way from the root to `scratch`, at each step of it."""
    yield from (".cursor/**", f"{scratch}/.cursor/**")
    if not scratch.is_relative_to(home):
        yield "~/**"
    for child in (scratch, *scratch.parents[:-1]):
        names = _other_numbers(child.name) if child == scratch else _names_in(child.parent)
        for glob in sorted(set(_globs_beside(child.name, names))):
            beside = child.parent / glob
            yield from (str(beside), f"{beside}/**")


def _globs_beside(own: str, names: Iterable[str]) -> Iterator[str]:
    """Globs that match `names` and never `own`. The shortest, as what is made later there shall be
    denied as well, and the names themselves are nobody's business."""
    for name in names:
        shared = _length_shared(own, name)
        head = name[: shared + 1]
        if shared == len(name):
            glob = name
        elif _NOT_PLAIN.search(head):
            glob = _NOT_PLAIN.sub("*", name)
        else:
            glob = f"{head}*"
        if not fnmatchcase(own, glob):
            yield glob


def _length_shared(one: str, other: str) -> int:
    differences = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differences, min(len(one), len(other)))


def _names_in(folder: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from (entry.name for entry in islice(entries, _MOST_NAMES))


def _other_numbers(own: str) -> Iterator[str]:
    """The directories of other runs, of those that come later as well: `own` with another digit
    anywhere, or with less of them or more."""
    for at in range(1, len(own) + 1):
        yield own[:at]
        yield from (own[:at] + digit for digit in string.digits)
