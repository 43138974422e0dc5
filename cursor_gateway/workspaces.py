"""Workspaces: where an agent works, by default in an empty directory of its own.

To make or remove a directory may wait for the disk, for milliseconds in which nothing else could
run. So a directory that a run left unchanged serves the next run, and is removed when none comes; a
thread removes it. The one file that an agent has written for every run (`put_standing`) does not
count as a change, since most runs get the same one.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cursor_gateway.errors import WorkspaceNotAllowed
from cursor_gateway.scratch import Scratch

# An unused directory stays for so long: a user reads an answer before the next request comes.
UNUSED_LAST = 30.0


@dataclass(frozen=True, slots=True)
class Workspace:
    # The agent's working directory.
    path: Path
    # A directory of this run alone; the same as `path` unless the request names a real one.
    scratch: Path
    number: int
    _made: _Made = field(compare=False, repr=False)

    @property
    def is_scratch(self) -> bool:
        return self.path is self.scratch

    def make_sure(self) -> None:
        """Make the scratch directory again if another program removed or replaced it."""
        with self._made.root.in_use():
            self._made.make_sure()

    def is_as_left(self) -> bool:
        """Whether everything is there that the gateway wrote for an agent that waits for its
        prompt."""
        return self._made.root.is_there() and self._made.is_as_left()

    def put(self, name: str, data: bytes) -> None:
        """Write a file of the gateway. An earlier agent may have left a link in its place, which
        must not lead out of the directory."""
        file = self.scratch / name
        with self._made.root.in_use():
            self._made.make_sure()
            folder = file.parent
            if folder.is_symlink() or not folder.is_dir():
                folder.unlink(missing_ok=True)
                folder.mkdir(mode=0o700)
            file.unlink(missing_ok=True)
            with file.open("xb") as created:
                created.write(data)

    def put_standing(self, name: str, data: bytes) -> None:
        """Write the file that every run gets, `folder/file`, unless an earlier run left the same
        one unchanged. A directory has one such file at most."""
        if not self._made.has(data):
            self.put(name, data)
            with self._made.root.in_use():
                self._made.remember(name, data)


class Workspaces:
    def __init__(self, root: Scratch, default: str, allowed_roots: Sequence[str]) -> None:
        self._root = root
        self._default = Path(default).expanduser().resolve() if default else None
        self._allowed = [Path(entry).expanduser().resolve() for entry in allowed_roots]
        # The CLI stores every directory in which it was started, for ever. So numbers are used
        # again, the lowest first.
        self._free: list[int] = []
        self._highest = 0
        self._made: dict[int, _Made] = {}
        self._tidying: asyncio.TimerHandle | None = None

    def choose(self, wanted: str | None) -> Path | None:
        """The real directory for a request that asks for `wanted`, or None for a scratch one."""
        if wanted is None:
            return self._default
        path = _existing(wanted)
        inside = path is not None and any(path.is_relative_to(root) for root in self._allowed)
        if path is None or not inside or not path.is_dir():
            raise WorkspaceNotAllowed("X-Cursor-Workspace names no directory that is allowed.")
        return path

    def take(self, chosen: Path | None) -> Workspace:
        number = self._free[0] if self._free else self._highest + 1
        made = self._made.get(number) or _Made(self._root, self._root.path / f"run-{number}")
        with self._root.in_use():
            made.make_sure()
        # The number is taken only now: if the directory could not be made, the number is still
        # free.
        if self._free:
            heapq.heappop(self._free)
        self._highest = max(self._highest, number)
        self._made[number] = made
        return Workspace(chosen or made.path, made.path, number, made)

    def release(self, workspace: Workspace, clear: Callable[[], object] | None = None) -> None:
        """Give a workspace back. `clear` removes what the run left in other places. It may wait for
        the disk, and ends before another run gets the directory, since that one leaves files of the
        same names."""
        is_untouched = self._made[workspace.number].is_untouched()
        if is_untouched and clear is None:
            self._offer(workspace.number)
        else:
            self._clear_up(workspace.number, clear, keep=is_untouched)

    def _offer(self, number: int) -> None:
        heapq.heappush(self._free, number)
        if self._tidying is None:
            loop = asyncio.get_running_loop()
            self._tidying = loop.call_later(UNUSED_LAST, self._remove_unused)

    def _remove_unused(self) -> None:
        self._tidying = None
        unused = [number for number in self._free if number in self._made]
        self._free = sorted(number for number in self._free if number not in self._made)
        for number in unused:
            self._clear_up(number)

    def _clear_up(
        self, number: int, clear: Callable[[], object] | None = None, *, keep: bool = False
    ) -> None:
        """Remove the directory, unless it may serve another run (`keep`). If it cannot be removed,
        its number is not used again."""
        scratch = self._made[number].path

        def work() -> bool:
            if clear is not None:
                clear()
            return keep or _is_removed(scratch)

        def give_back(done: asyncio.Future[bool]) -> None:
            if keep:
                self._offer(number)
                return
            del self._made[number]
            if done.result():
                heapq.heappush(self._free, number)

        asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(give_back)


@dataclass(slots=True)
class _Made:
    root: Scratch
    path: Path
    # Device, inode and mode of the directory when it was made.
    identity: tuple[int, ...] = ()
    # The standing file that the gateway wrote, and what `stat` said of it and its folder then.
    standing: bytes = b""
    written: tuple[int, ...] = ()
    # These are strings because they are checked before and after every run, and to join a Path
    # takes as long as the check.
    _path: str = ""
    _folder: str = ""
    _file: str = ""

    def __post_init__(self) -> None:
        self._path = str(self.path)

    def make_sure(self) -> None:
        """Make the directory, unless it is there. If only its mode has changed, it is not made
        again; `is_untouched` notices that."""
        if not self.is_there():
            _is_removed(self.path)
            self.path.mkdir(mode=0o700)
            self.identity, self.standing = _identity(self.path), b""

    def is_there(self) -> bool:
        try:
            return _identity(self._path)[:2] == self.identity[:2]
        except OSError:
            return False

    def is_as_left(self) -> bool:
        return self.is_there() and (not self.standing or self.has(self.standing))

    def has(self, standing: bytes) -> bool:
        try:
            return self.standing == standing and self._as_written() == self.written
        except OSError:
            return False

    def remember(self, name: str, standing: bytes) -> None:
        self._file = f"{self._path}/{name}"
        self._folder = self._file.rpartition("/")[0]
        self.standing, self.written = standing, self._as_written()

    def is_untouched(self) -> bool:
        """Whether the directory is as the gateway left it; an agent may have done anything."""
        try:
            return _identity(self.path) == self.identity and self._has_nothing_else()
        except OSError:
            return False

    def _has_nothing_else(self) -> bool:
        if not self.standing:
            return not _names(self.path)
        folder, file = self._file.split("/")[-2:]
        return (
            _names(self.path) == [folder]
            and _names(self._folder) == [file]
            and self._as_written() == self.written
        )

    def _as_written(self) -> tuple[int, ...]:
        file = os.lstat(self._file)
        # `st_ctime` shows every write, and no program can set it.
        return (*_identity(self._folder), file.st_ino, file.st_mode, file.st_size, file.st_ctime_ns)


def _existing(wanted: str) -> Path | None:
    """The real path of an absolute path; None if there is nothing."""
    try:
        return Path(wanted).resolve(strict=True) if Path(wanted).is_absolute() else None
    except (OSError, RuntimeError, ValueError):  # missing, forbidden, too long; a loop; a null byte
        return None


def _is_removed(scratch: Path) -> bool:
    """Remove whatever has the name by now. Returns whether that was possible."""
    with suppress(OSError):
        if not stat.S_ISDIR(os.lstat(scratch).st_mode):
            scratch.unlink()
    shutil.rmtree(scratch, ignore_errors=True)
    return not os.path.lexists(scratch)


def _identity(directory: Path | str) -> tuple[int, ...]:
    found = os.lstat(directory)
    return found.st_dev, found.st_ino, found.st_mode


def _names(directory: Path | str) -> list[str]:
    return os.listdir(directory)  # noqa: PTH208 - a Path takes four times as long
