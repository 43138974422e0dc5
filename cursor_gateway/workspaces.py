"""Where an agent works: by default in an empty directory that nobody else has."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cursor_gateway.errors import WorkspaceNotAllowed


@dataclass(frozen=True, slots=True)
class Workspace:
    # The agent's working directory.
    path: Path
    # A directory of this run alone; the same as `path` unless the user named a real one.
    scratch: Path

    @property
    def is_scratch(self) -> bool:
        return self.path == self.scratch

    def put(self, name: str, data: bytes) -> None:
        """Write a file of our own. An agent that worked here may have left a link in its place,
        which must not lead us out."""
        file = self.scratch / name
        for folder in (self.scratch, file.parent):
            if folder.is_symlink() or not folder.is_dir():
                folder.unlink(missing_ok=True)
                folder.mkdir(mode=0o700)
        file.unlink(missing_ok=True)
        with file.open("xb") as created:
            created.write(data)


class Workspaces:
    def __init__(self, root: Path, default: str, allowed_roots: Sequence[str]) -> None:
        self._root = root
        self._default = Path(default).expanduser().resolve() if default else None
        self._allowed = [Path(entry).expanduser().resolve() for entry in allowed_roots]
        # The CLI remembers every directory it was started in, for ever; so numbers are used again.
        self._taken: set[int] = set()

    def choose(self, wanted: str | None) -> Path | None:
        """The real directory for a request that asks for `wanted`, or None for a scratch one."""
        if wanted is None:
            return self._default
        path = Path(wanted).expanduser().resolve() if "\0" not in wanted else Path()
        inside = any(path.is_relative_to(root) for root in self._allowed)
        if not inside or not Path(wanted).is_absolute() or not path.is_dir():
            raise WorkspaceNotAllowed("X-Cursor-Workspace names no directory that is allowed.")
        return path

    def take(self, chosen: Path | None) -> Workspace:
        number = next(n for n in range(1, len(self._taken) + 2) if n not in self._taken)
        self._taken.add(number)
        scratch = self._root / f"run-{number}"
        scratch.mkdir(mode=0o700)
        return Workspace(chosen or scratch, scratch)

    def release(self, workspace: Workspace) -> None:
        """Remove it. What an agent made so that it cannot be removed keeps its number."""
        scratch = workspace.scratch
        if scratch.is_symlink():
            scratch.unlink()
        shutil.rmtree(scratch, ignore_errors=True)
        if not scratch.exists():
            self._taken.discard(int(scratch.name.removeprefix("run-")))
