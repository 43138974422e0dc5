"""Transcripts: what the CLI keeps on disk of every run, and who removes it.

The CLI (2026.10.01) writes every prompt and answer below its folder, into `projects/<slug>` and
`chats/<md5>`, both named after the directory in which it works, and leaves them there. Whatever is
named after one of our scratch directories goes with it, by its exact path. In a directory of the
user's only what carries the id of a session of ours is removed.

A gateway notes in its state folder where its scratch directories are, and holds a lock on the note.
Its guardian inherits the lock, so a note that nobody locks is of a gateway that was killed together
with its guardian; the next one that starts clears up behind it. Run as a program, by the guardian,
this file does the same. It therefore imports nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

ROOT_PREFIX = "cursor-gateway-"
_PROGRAM = __file__
# A line for each directory that was ever in use at once, and for each folder that a session had;
# more than this is no note of ours.
_MAX_NOTE = 16 * 1024 * 1024
# What an agent says its session is becomes a part of a path.
_NO_LETTER_OR_DIGIT = re.compile(r"[^A-Za-z0-9]")
_DASHES = re.compile("-+")
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")

# A folder of the CLI's, and names below it: the last of them is removed. Links among the names are
# not followed; an agent could have laid them.
Trace = tuple[str, ...]


@lru_cache(maxsize=256)
def chats_name(directory: str) -> str:
    """The folder, in `chats`, of those that were begun in `directory`."""
    return hashlib.md5(directory.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=256)
def project_names(directory: str) -> tuple[str, ...]:
    """The folder in `projects`. Whether several odd characters give one dash or several was not
    seen; hardly any directory has them."""
    dashed = _NO_LETTER_OR_DIGIT.sub("-", directory).strip("-")
    return tuple(dict.fromkeys(filter(None, (dashed, _DASHES.sub("-", dashed)))))


def _of_directory(folders: Iterable[str], directory: str) -> Iterator[Trace]:
    for folder in folders:
        yield f"{folder}/chats", chats_name(directory)
        for name in project_names(directory):
            yield f"{folder}/projects", name


def _of_session(folders: Iterable[str], directory: str, session: str) -> Iterator[Trace]:
    for folder in folders:
        yield f"{folder}/chats", chats_name(directory), session
        for name in project_names(directory):
            yield f"{folder}/projects", name, "agent-transcripts", session


def make_private(folder: Path) -> None:
    """Make a folder in the state folder, and that one too: `parents` would make it everybody's."""
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)


def remove(traces: Iterable[Trace]) -> None:
    for folder, *names in traces:
        with suppress(OSError):
            _remove_below(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), names)


def _remove_below(folder: int, names: Sequence[str]) -> None:
    try:
        if len(names) > 1:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            _remove_below(os.open(names[0], flags, dir_fd=folder), names[1:])
        elif stat.S_ISDIR(os.stat(names[0], dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(names[0], ignore_errors=True, dir_fd=folder)
        else:
            os.unlink(names[0], dir_fd=folder)
    finally:
        os.close(folder)


class Transcripts:
    """Those of one gateway's agents."""

    def __init__(self, env: Mapping[str, str], state: Path, *, keep: bool) -> None:
        # Here and not above: as a program this file cannot import the package.
        from cursor_gateway.agents.cursor.files import config_folders

        self._folders = list(map(str, config_folders(env)))
        self._notes = state / "scratch"
        self._keep = keep
        self._note: tuple[Path, int] | None = None
        self._noted: set[Path] = set()
        # What is named after a session, and not after a directory, by its names below the folders.
        self._named: set[tuple[str, ...]] = set()
        self._unwritten = b""

    def begin(self, root: Path) -> None:
        """All scratch directories will be below `root`. That this cannot be noted is no reason not
        to serve; only a crash would then leave something."""
        if self._keep:
            return
        with suppress(OSError):
            make_private(self._notes)
            self._note = _noted(self._notes, root, self._folders)
        self.note(root)

    @property
    def locks(self) -> tuple[int, ...]:
        """What the guardian inherits."""
        return (self._note[1],) if self._note else ()

    @property
    def program(self) -> list[str]:
        """What the guardian runs when the gateway is gone."""
        return [_PROGRAM, str(self._note[0])] if self._note else []

    def note(self, directory: Path) -> None:
        """The CLI is about to work in a directory of ours. What a full disk does not take now is
        written with the next one."""
        if self._keep or directory in self._noted:
            return
        self._noted.add(directory)
        self._write_down(str(directory))

    def note_names(self, *names: str) -> None:
        """The CLI keeps something by these names below its folder, whatever the directory."""
        if not self._keep and _are_names(names):
            self._named.add(names)
            self._write_down(names)

    def _write_down(self, what: object) -> None:
        self._unwritten += json.dumps(what).encode() + b"\n"
        if self._note:
            with suppress(OSError):
                written = os.write(self._note[1], self._unwritten)
                self._unwritten = self._unwritten[written:]

    def of_directory(self, directory: Path) -> list[Trace]:
        """What there is of it."""
        return self._existing(_of_directory(self._folders, str(directory)))

    def of_sessions(self, directory: Path, sessions: Iterable[str]) -> list[Trace]:
        return self._existing(
            trace
            for session in sessions
            if _SESSION.fullmatch(session)
            for trace in _of_session(self._folders, str(directory), session)
        )

    def of_names(self, *names: str) -> list[Trace]:
        """What was noted by these names, and is removed now."""
        self._named.discard(names)
        traces = ((folder, *names) for folder in self._folders)
        return self._existing(traces) if _are_names(names) else []

    def clear_behind_others(self) -> None:
        """What gateways left that are gone, and their guardians as well."""
        for note in self._notes.glob("*.json"):
            with suppress(OSError), note.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear(note)

    def fulfil(self) -> None:
        """The gateway ends: remove what the CLI kept of its scratch directories."""
        for directory in self._noted:
            remove(_of_directory(self._folders, str(directory)))
        for names in self._named:
            remove((folder, *names) for folder in self._folders)
        if self._note:
            path, lock = self._note
            path.unlink(missing_ok=True)
            os.close(lock)

    def _existing(self, traces: Iterable[Trace]) -> list[Trace]:
        return [] if self._keep else [trace for trace in traces if os.path.lexists("/".join(trace))]


def _noted(notes: Path, root: Path, folders: Sequence[str]) -> tuple[Path, int]:
    """A new note, locked before it has its name, so that nobody ever takes it for an old one."""
    path = notes / f"{secrets.token_hex(8)}.json"
    draft = path.with_suffix(".new")
    lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, json.dumps({"root": str(root), "folders": list(folders)}).encode() + b"\n")
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        os.close(lock)
        raise
    return path, lock


def _clear(note: Path) -> None:
    """Remove what `note` names, and the note."""
    head, *others = _lines(note)
    match head:
        case {"root": str(root), "folders": [*folders]} if _is_ours(root):
            for each in (root, *others):
                remove(_noted_traces(list(map(str, folders)), root, each))
            shutil.rmtree(root, ignore_errors=True)
    note.unlink(missing_ok=True)


def _noted_traces(folders: Sequence[str], root: str, noted: object) -> Iterator[Trace]:
    """Nothing that is not below a root of ours, nor named after a session, whatever a note says."""
    if isinstance(noted, str) and Path(noted).is_relative_to(root):
        yield from _of_directory(folders, noted)
    elif isinstance(noted, list) and _are_names(noted):
        yield from ((folder, *noted) for folder in folders)


def _are_names(names: Sequence[object]) -> bool:
    """Whether these lead to one thing in a folder of the CLI's, and not out of it."""
    return len(names) == 2 and all(
        isinstance(name, str) and _SESSION.fullmatch(name) for name in names
    )


def _lines(note: Path) -> list[object]:
    """What stands in it; at least one thing. A disk that was full may have cut it anywhere."""
    with note.open("rb") as file:
        lines = file.read(_MAX_NOTE).splitlines()
    found: list[object] = []
    for line in lines or [b"null"]:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            found.append(None)
    return found


def _is_ours(root: str) -> bool:
    return Path(root).is_absolute() and Path(root).name.startswith(ROOT_PREFIX)


if __name__ == "__main__":
    with suppress(FileNotFoundError):
        _clear(Path(sys.argv[1]))
