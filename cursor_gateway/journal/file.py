"""The journal's file: a JSON object per line, in a few files of bounded size.

Lines are written by a thread of their own, so that a slow disk delays nobody, and one that fails
costs only the lines. Several gateways may share the files: lines are written whole, under a lock,
and whoever finds that the file was moved away meanwhile opens the new one.
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
# Records that may wait for a disk that does not answer.
MAX_WAITING = 1000
# A busy gateway's records are written together. A moment's delay spares it most of the work.
TOGETHER_SECONDS = 0.05
# How long the end of the gateway may wait for it.
CLOSE_SECONDS = 2.0
# What makes a line's object, for the writer to call.
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
        self._has_told_fault = False
        self.lost = 0

    def write(self, entry: Entry) -> None:
        """Soon, and without waiting for it; so soon is it made, too."""
        if not self._bytes_per_file:
            return
        if self._writer is None:
            # A daemon: not even a disk that hangs for ever may keep the program from ending.
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
        """Whatever one record or the disk does to it, it goes on with the next ones."""
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
        """Those that come now and in a moment; none at the end."""
        entries = [self._waiting.get()]
        if entries[0] is not None:
            time.sleep(TOGETHER_SECONDS)
        while entries[-1] is not None and not self._waiting.empty():
            entries.append(self._waiting.get())
        if entries[-1] is None and len(entries) > 1:
            self._waiting.put(None)
        return [entry for entry in entries if entry is not None]

    def _line(self, entry: Entry) -> bytes:
        """Nothing where the record cannot be written as JSON."""
        try:
            return orjson.dumps(entry(), option=_LINE)
        except Exception:
            self.lost += 1
            if not self._has_told_fault:
                log.exception("a record is missing in the journal, as it cannot be written as JSON")
            self._has_told_fault = True
            return b""

    def _append(self, lines: list[bytes]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while lines:
            lines = lines[self._appended(lines) :]

    def _appended(self, lines: list[bytes]) -> int:
        """How many of them; none where another file is the journal by now."""
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
                # Half a line would spoil the next one, too.
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
    """What was written, oldest first. With `follow` it never ends: None means nothing new yet."""
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
                # Another has taken its place; of the old one all is read.
                open_files.close()
                newest = None
                with suppress(FileNotFoundError):
                    newest = open_files.enter_context((folder / NAME).open("rb"))
                    yield from _parsed(newest)


def _opened(folder: Path) -> list[BinaryIO]:
    """From the newest on, so that one that is moved meanwhile is met twice rather than never."""
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
            file.seek(-len(line), os.SEEK_CUR)  # its end is still to come
            return
        with suppress(orjson.JSONDecodeError):
            entry = orjson.loads(line)
            if isinstance(entry, dict):
                yield entry


def _paths(folder: Path) -> list[Path]:
    """The newest first."""
    return [folder / NAME, *(folder / f"{NAME}.{number}" for number in range(1, FILES))]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
