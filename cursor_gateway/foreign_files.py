"""Files of other programs: read without blocking, and replaced without loss.

Such a path may lead to anything: a pipe that nobody writes to, a device without an end, a file of
another user.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

# No configuration is this long; a log that was named by mistake may be.
MAX_BYTES = 4 * 1024 * 1024


class UnusableFile(OSError):
    """The path leads to something that cannot be a configuration."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EINVAL, why)

    def __str__(self) -> str:
        return str(self.strerror)


def home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or Path.home())


def read(path: Path, most: int = MAX_BYTES) -> bytes:
    """The whole content of a regular file. Nothing else is opened."""
    _check_kind(path.stat())
    # The path may lead to a pipe by now, and to open one without O_NONBLOCK may wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        _check_kind(os.fstat(descriptor))
        content = file.read(most + 1)
    if len(content) > most:
        raise UnusableFile("it is too long")
    return content


def _check_kind(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnusableFile("it is not a file")


def replace(path: Path, content: bytes, look_again: Callable[[], object] = lambda: None) -> None:
    """Replace a file as a whole or not at all, through links, with its old mode and owner. A new
    file is readable by its owner only, since it may hold a key. `look_again` is called before the
    last step, and prevents it by an exception."""
    place = path.resolve()
    make_folder(place.parent)
    descriptor, draft = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _make_like(descriptor, place)
            os.fsync(descriptor)
        look_again()
        Path(draft).replace(place)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents. If something else has the name, the next step
    fails."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=mode, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, *_owner(folder.parent))


def _make_like(descriptor: int, place: Path) -> None:
    """Give the new file the mode and owner of the old one. With `sudo` the files belong to another
    user, who gets new ones, too."""
    is_root, is_new = os.geteuid() == 0, not place.exists()
    mode = 0o600 if is_new else stat.S_IMODE(place.stat().st_mode)
    owner = _owner(place.parent if is_new else place)
    if not is_new and not is_root and owner[0] != os.geteuid():
        raise UnusableFile("it belongs to another user")
    made = os.fstat(descriptor)
    if owner != (made.st_uid, made.st_gid) and (is_root or not is_new):
        os.fchown(descriptor, *owner)
    os.fchmod(descriptor, mode)


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid
