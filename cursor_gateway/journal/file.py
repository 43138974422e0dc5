"""The journal's file: a JSON object per line, in a few files of bounded size.

A thread writes the lines, so that a slow disk delays no request, and a failing one costs only the
lines. Several gateways may share the files: each line is written whole, under a lock, and a gateway
that finds its file renamed by another opens the new one.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

import orjson

log = logging.getLogger(__name__)

NAME = "journal.jsonl"
FILES = 5
# How many records may wait for a disk that does not answer.
MAX_WAITING = 1000
# The writer waits so long for more records, and writes them together: that saves a busy gateway
# most of the work.
TOGETHER_SECONDS = 0.05
# How long the gateway waits for the writer when it ends.
CLOSE_SECONDS = 2.0
# Makes the object of a line; the writer calls it.
Entry = Callable[[], Mapping[str, Any]]
_LINE = orjson.OPT_APPEND_NEWLINE


class JournalFile:
    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._bytes_per_file = max_bytes // FILES
        self._waiting: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._is_failing = False
        self._has_logged_problem = False
        self.lost = 0

    def write(self, entry: Entry) -> None:
        """Write an entry soon. The caller does not wait; the writer's thread calls `entry`, too."""
        if not self._bytes_per_file:
            return
        if self._writer is None:
            # A daemon thread cannot keep the program from ending, even if the disk hangs for ever.
            self._writer = threading.Thread(target=self._work, name="journal", daemon=True)
            self._writer.start()
        if self._waiting.qsize() < MAX_WAITING:
            self._waiting.put(entry)
        else:
            self.lost += 1

    def close(self) -> None:
        if self._writer is not None:
            self._waiting.put(None)
            self._writer.join(CLOSE_SECONDS)

    def _work(self) -> None:
        """Write entries until the end. A failure costs only the entries at hand."""
        while entries := self._next_entries():
            lines = list(filter(None, map(self._line, entries)))
            try:
                self._append(lines)
                self._is_failing = False
            except Exception as error:
                self.lost += len(lines)
                if not self._is_failing:
                    log.warning("the journal %s cannot be written: %s", self._path, error)
                self._is_failing = True

    def _next_entries(self) -> list[Entry]:
        """The entries that come now and within a moment; none at the end."""
        entries = [self._waiting.get()]
        if entries[0] is not None:
            time.sleep(TOGETHER_SECONDS)
        while entries[-1] is not None and not self._waiting.empty():
            entries.append(self._waiting.get())
        if entries[-1] is None and len(entries) > 1:
            self._waiting.put(None)
        return [entry for entry in entries if entry is not None]

    def _line(self, entry: Entry) -> bytes:
        """The line of an entry; empty if it cannot be written as JSON."""
        try:
            return orjson.dumps(entry(), option=_LINE)
        except Exception:
            self.lost += 1
            if not self._has_logged_problem:
                log.exception("a record is missing in the journal, as it cannot be written as JSON")
            self._has_logged_problem = True
            return b""

    def _append(self, lines: list[bytes]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while lines:
            lines = lines[self._appended(lines) :]

    def _appended(self, lines: list[bytes]) -> int:
        """How many lines were written; none if the file was renamed meanwhile."""
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            opened = os.fstat(fd)
            if opened.st_ino != _inode(self._path):
                return 0
            ends = [opened.st_size + length for length in itertools.accumulate(map(len, lines))]
            fitting = sum(end <= self._bytes_per_file for end in ends) or not opened.st_size
            if not fitting:
                self._rotate()
            data = b"".join(lines[:fitting])
            if os.write(fd, data) < len(data):
                # Half a line would make the next one unreadable, too.
                os.ftruncate(fd, opened.st_size)
                raise OSError("no space left")
        finally:
            os.close(fd)
        return fitting

    def _rotate(self) -> None:
        paths = _paths(self._folder)
        for older, newer in zip(reversed(paths), reversed(paths[:-1]), strict=False):
            with suppress(FileNotFoundError):
                newer.replace(older)


def entries(folder: Path, *, follow: bool = False) -> Iterator[dict[str, Any] | None]:
    """All entries, oldest first. With `follow` this never ends: None means that nothing is new."""
    with ExitStack() as open_files:
        files = [open_files.enter_context(file) for file in _opened(folder)]
        for file in files:
            yield from _parsed(file)
        newest = files[-1] if files else None
        while follow:
            yield None
            current = _inode(folder / NAME)
            if newest is not None:
                yield from _parsed(newest)
            if current and (newest is None or os.fstat(newest.fileno()).st_ino != current):
                # A new file has taken its place, and the old one was read to its end.
                open_files.close()
                newest = None
                with suppress(FileNotFoundError):
                    newest = open_files.enter_context((folder / NAME).open("rb"))
                    yield from _parsed(newest)


def _opened(folder: Path) -> list[BinaryIO]:
    """The files, opened from the newest on: one that is renamed meanwhile is found twice rather
    than never."""
    opened: dict[int, BinaryIO] = {}
    for path in _paths(folder):
        with suppress(FileNotFoundError):
            file = path.open("rb")
            if opened.setdefault(os.fstat(file.fileno()).st_ino, file) is not file:
                file.close()
    return list(reversed(opened.values()))


def _parsed(file: BinaryIO) -> Iterator[dict[str, Any]]:
    while line := file.readline():
        if not line.endswith(b"\n"):
            file.seek(-len(line), os.SEEK_CUR)  # its end is not written yet
            return
        with suppress(orjson.JSONDecodeError):
            entry = orjson.loads(line)
            if isinstance(entry, dict):
                yield entry


def _paths(folder: Path) -> list[Path]:
    """The paths of all files, the newest first."""
    return [folder / NAME, *(folder / f"{NAME}.{number}" for number in range(1, FILES))]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
