"""Scratch: the directory in which each agent of a gateway gets a directory of its own.

It is in the folder for temporary files, where the system removes what was not used for three days
(macOS) or ten (systemd). A lock on the directory keeps systemd away from it, and a new date every
hour keeps other cleaners away. If it is gone all the same, it is made again at its old path, which
the guardian and the CLI know. In a shared folder another user may have put something there
meanwhile: the gateway does not use that, whatever it is.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cursor_gateway.background import in_background
from cursor_gateway.errors import ScratchUnusable

log = logging.getLogger(__name__)

# By which such a directory is known to be a gateway's.
PREFIX = "cursor-gateway-"

TOUCHED_EVERY = 3600.0
# How long the result of a check is used if it found no problem, and if it found one; and how long a
# caller waits for a check on a slow disk.
LOOK_LASTS = 10.0
PROBLEM_LASTS = 1.0
LOOK_WAIT = 1.0

# The check writes so much: a run needs a directory and a file of some hundred bytes at least.
_TRIED_BYTES = 4096
# Errors of the whole process, which are no problem of the directory.
_OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Scratch:
    def __init__(self) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        except OSError as error:
            raise ScratchUnusable(
                f"No directory for agents can be made: {error.strerror or error}."
            ) from error
        _warn_if_tmpdir_is_not_used(self.path)
        self._descriptor = -1
        self._hold()
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        # Why no agent can work there, by the last attempt.
        self.problem: ScratchUnusable | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A context for all work in the directory: it exists, and errors become
        `ScratchUnusable`."""
        try:
            self.make_sure()
            yield
        except OSError as error:
            if error.errno in _OF_THE_PROCESS:
                raise
            raise self._fail(error) from error

    def make_sure(self) -> None:
        """Make the directory again if it is gone."""
        if not self.is_there():
            log.warning("%s was removed or replaced by another program; making it again", self.path)
            _make_again(self.path)
            self._hold()

    def is_there(self) -> bool:
        try:
            return _identity(os.lstat(self._text)) == self._identity
        except OSError:
            return False

    async def keep(self) -> None:
        """Renew the date of the directory for as long as the gateway runs."""
        while True:
            with suppress(OSError):
                self.make_sure()
                os.utime(self._descriptor)
            await asyncio.sleep(TOUCHED_EVERY)

    async def look(self) -> None:
        """Check whether an agent could work there now."""
        now, lasts = (
            asyncio.get_running_loop().time(),
            PROBLEM_LASTS if self.problem else LOOK_LASTS,
        )
        if self._looking is None or (self._looking.done() and now > self._looked_at + lasts):
            self._looked_at = now
            self._looking = in_background(self._look(), "the look at the scratch directory")
        await asyncio.wait({self._looking}, timeout=LOOK_WAIT)

    async def _look(self) -> None:
        try:
            self.make_sure()
            await asyncio.to_thread(_try_out, self.path)
            self.problem = None
        except OSError as error:
            if error.errno not in _OF_THE_PROCESS:
                self._fail(error)

    def _fail(self, error: OSError) -> ScratchUnusable:
        why = f"No agent can work in {self.path}: {error.strerror or error}."
        if self.problem is None:
            log.warning("%s", why)
        # The one that is raised is another object: its traceback would hold the whole conversation.
        self.problem = ScratchUnusable(why)
        return ScratchUnusable(why)

    async def remove(self) -> None:
        if self._looking is not None:  # the check makes a directory there, and removes it again
            await asyncio.wait({self._looking}, timeout=LOOK_WAIT)
        if self.is_there():
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)

    def _hold(self) -> None:
        """Open the directory: as long as a descriptor is open, no other directory gets its
        inode."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        # A string, because it is checked before every run, and a Path takes longer than the check.
        self._text = str(self.path)
        self._descriptor = os.open(self.path, _DIRECTORY)
        self._identity = _identity(os.fstat(self._descriptor))
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid


def _make_again(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            path.unlink()
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _take_over(path)


def _take_over(path: Path) -> None:
    """Use the directory that has the name, but only if it is the user's: the owner of any other one
    could reach into it."""
    descriptor = os.open(path, _DIRECTORY)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user has made it")
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _try_out(root: Path) -> None:
    folder = tempfile.mkdtemp(prefix="look-", dir=root)
    try:
        with Path(folder, "file").open("xb") as file:
            file.write(b"x" * _TRIED_BYTES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _warn_if_tmpdir_is_not_used(path: Path) -> None:
    named = os.environ.get("TMPDIR")
    if named and not path.is_relative_to(Path(named).resolve()):
        log.warning("TMPDIR names %s, which cannot be written to; agents work in %s", named, path)
