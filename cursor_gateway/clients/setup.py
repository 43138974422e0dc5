"""Pointing a client to the gateway: what would change, the change itself, and the way back.

Before the first change the file is kept as it was; undoing gives it back byte for byte. Where the
client or its owner has changed the file meanwhile, only our values are taken out of it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from cursor_gateway import foreign_files
from cursor_gateway.clients.client import FILE, Client, ConfigFile, Env, Target
from cursor_gateway.config_files import Unreadable, format_of
from cursor_gateway.core.models import AUTO, Model
from cursor_gateway.errors import InvalidApiKey, ModelNotFound
from cursor_gateway.running_gateways import state_folder

Pointing = Literal["here", "elsewhere", "nowhere", "unreadable"]

ANSWER_SECONDS = 5.0
_BYTE_ORDER_MARK = "\ufeff"


class SetupError(Exception):
    """Why a client cannot be set up, for the person who asked."""


class FileChanged(SetupError):
    """The client has written its file since the change of it was planned."""


class KeyRefused(SetupError):
    """The gateway that runs has a key, and it is another one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change of one file. `before` is None where there is no file yet."""

    file: ConfigFile
    path: Path
    before: bytes | None
    after: bytes
    # The file without any change of ours; what an earlier one set, this one does not build upon.
    original: bytes | None

    @property
    def is_done(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered about a change: the file before it and after it."""

    path: Path
    before: bytes | None
    written: bytes


def files_of(client: Client) -> tuple[ConfigFile, ...]:
    return (client, client.second_file) if client.second_file else (client,)


def plans(client: Client, target: Target, env: Env) -> tuple[Plan, ...]:
    """One for each of its files; nothing is written before all of them are known."""
    return tuple(plan(file, target, env) for file in files_of(client))


def plan(file: ConfigFile, target: Target, env: Env) -> Plan:
    path = file.config(env)
    before = _read(path)
    kept = _remembered(file, env)
    merged, wanted = format_of(path.name).merged, file.wanted(target)
    try:
        original = _undone(kept, before) if kept and kept.path == path else before
        after = merged(_text(path, original or b""), wanted)
        is_safe = merged(after, wanted) == after
    except Unreadable as error:
        raise SetupError(f"{path} cannot be changed: {error}. Nothing was written.") from None
    if not is_safe:
        raise SetupError(f"{path} is written in a way that cannot be changed safely.")
    return Plan(file, path, before, _bytes(after, original), original)


def write(change: Plan, env: Env) -> Path:
    """Keep the file as it is, then change it. Returns where it is kept."""
    folder = _folder(change.file, env)
    kept = _remembered(change.file, env)
    if kept is not None and kept.path != change.path:
        raise SetupError(
            f"{change.file.title} is already set up in {kept.path}. Undo that first, with `--undo`."
        )
    _remember(folder, Kept(change.path, change.original, change.after))
    try:
        _replace(change.path, change.after, lambda: _check_unchanged(change.path, change.before))
    except SetupError:
        if kept is None:
            shutil.rmtree(folder)
        else:
            _remember(folder, kept)
        raise
    return folder / "before"


def undo_all(client: Client, env: Env) -> tuple[Path, ...]:
    """Give its files back as they were before the first change. Returns their paths."""
    if not is_set_up(client, env):
        raise SetupError(f"{client.title} was not set up by `cursor-gateway setup --write`.")
    # The first one last: as long as it is remembered, this can be tried again.
    undone = [undo(file, env) for file in reversed(files_of(client)) if is_set_up(file, env)]
    return tuple(reversed(undone))


def undo(file: ConfigFile, env: Env) -> Path:
    kept = _remembered(file, env)
    assert kept is not None
    now = _read(kept.path)
    try:
        before = _undone(kept, now)
    except Unreadable as error:
        copy = _folder(file, env) / "before"
        raise SetupError(
            f"{kept.path} was changed later and cannot be read: {error}. The old file is {copy}."
        ) from None
    if before is None:
        _check_unchanged(kept.path, now)
        # A link that led nowhere before does so again.
        kept.path.resolve().unlink(missing_ok=True)
    elif before != now:
        _replace(kept.path, before, lambda: _check_unchanged(kept.path, now))
    shutil.rmtree(_folder(file, env))
    return kept.path


def is_set_up(file: ConfigFile, env: Env) -> bool:
    """Whether `write` has set it up, and nobody has undone that."""
    return (_folder(file, env) / "change.json").exists()


def points(client: Client, base_url: str, env: Env) -> Pointing:
    """Where a client's configuration leads."""
    try:
        keys = _keys_by_place(client, env)
    except (Unreadable, SetupError):
        return "unreadable"
    if _same_place(client.url(Target(base_url, ()))) in keys:
        return "here"
    return "elsewhere" if keys else "nowhere"


def configured_key(client: Client, base_url: str, env: Env) -> str | None:
    """The key that a client's configuration has for the gateway that it points to."""
    return _keys_by_place(client, env)[_same_place(client.url(Target(base_url, ())))]


def _keys_by_place(client: Client, env: Env) -> dict[str, str | None]:
    path = client.config(env)
    found = format_of(path.name).read(_text(path, _read(path) or b""))
    return {_same_place(url): key for url, key in client.configured(found)}


def launch(client: Client, target: Target, env: Env, args: Sequence[str]) -> int:
    """Start the client so that it uses the gateway, without touching any file of the user's."""
    program = client.installed(env)
    if program is None:
        raise SetupError(
            f"{client.title} is not installed: there is no `{client.program}` on PATH."
        )
    if client.launch is None:
        raise SetupError(f"{client.title} reads its settings from a file only. Use `--write`.")
    start = client.launch(target)
    with tempfile.TemporaryDirectory(prefix="cursor-gateway-") as folder:
        file = Path(folder, client.config(env).name)
        if any(FILE in word for word in (*start.args, *start.env.values())):
            file.write_text(format_of(file.name).merged("", client.wanted(target)))
        words = [word.replace(FILE, str(file)) for word in start.args]
        extra = {name: value.replace(FILE, str(file)) for name, value in start.env.items()}
        return _run([program, *words, *args], {**env, **extra})


def _run(argv: list[str], env: Mapping[str, str]) -> int:
    with subprocess.Popen(argv, env=env) as process:
        # Ctrl-C is for the client; it decides what that means.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)


def models_of(base_url: str, key: str) -> tuple[Model, ...]:
    """The models of a gateway that runs; none if none does."""
    try:
        listed = _asked(f"{base_url}/models", key)["data"]
        return tuple(Model(entry["id"], entry.get("name", entry["id"])) for entry in listed)
    except (KeyError, TypeError, AttributeError):
        return ()


def why_not(model: str, base_url: str, key: str) -> str:
    """Why a gateway that runs would not take `model`; empty if it would, or none runs."""
    error = _asked(f"{base_url}/models/{quote(model)}", key).get("error")
    if isinstance(error, dict) and error.get("code") == ModelNotFound.code:
        return str(error.get("message"))
    return ""


def _asked(url: str, key: str) -> dict[str, Any]:
    """What the gateway says, be it an error; nothing if none runs there."""
    request = urllib.request.Request(  # noqa: S310 - the URL is the user's own gateway
        url, headers={"Authorization": f"Bearer {key}"}
    )
    # A proxy from the environment cannot reach this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), AnyStatus())
    try:
        with opener.open(request, timeout=ANSWER_SECONDS) as response:
            said = json.load(response)
    except (OSError, HTTPException, ValueError):
        return {}
    if not isinstance(said, dict):
        return {}
    error = said.get("error")
    # Not every 401 is about this key: the agent may be signed out.
    if isinstance(error, dict) and error.get("code") == InvalidApiKey.code:
        raise KeyRefused(f"The gateway at {url.partition('/models')[0]} refuses the key.")
    return said


class AnyStatus(urllib.request.HTTPErrorProcessor):
    """An error of the gateway says why."""

    def http_response(self, request: object, response: object) -> object:
        return response


def models_for(client: Client, listed: tuple[Model, ...]) -> tuple[Model, ...]:
    """`auto` first, which becomes the default; the others for those that must know them by name."""
    others = listed if client.lists_models else ()
    return (Model(AUTO, "Auto"), *(model for model in others if model.id != AUTO))


def _undone(kept: Kept, now: bytes | None) -> bytes | None:
    """The file without our change."""
    if now == kept.written:
        return kept.before
    if now is None or now == kept.before:
        return now
    form = format_of(kept.path.name)
    before = form.read(_text(kept.path, kept.before or b""))
    written = form.read(_text(kept.path, kept.written))
    return _bytes(form.restored(_text(kept.path, now), before, written), now)


def _remembered(file: ConfigFile, env: Env) -> Kept | None:
    folder = _folder(file, env)
    try:
        path = Path(json.loads(foreign_files.read(folder / "change.json"))["path"])
        return Kept(path, _read(folder / "before"), foreign_files.read(folder / "written"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise SetupError(f"The record of the earlier change in {folder} cannot be read.") from None


def _remember(folder: Path, kept: Kept) -> None:
    with _told(folder):
        foreign_files.make_folder(folder, 0o700)
    if kept.before is None:
        (folder / "before").unlink(missing_ok=True)
    else:
        _replace(folder / "before", kept.before)
    _replace(folder / "written", kept.written)
    _replace(folder / "change.json", json.dumps({"path": str(kept.path)}).encode())


def _folder(file: ConfigFile, env: Env) -> Path:
    return state_folder(env) / "setup" / file.name


def _read(path: Path) -> bytes | None:
    try:
        return foreign_files.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}.") from None


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode().removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError:
        raise SetupError(f"{path} is not UTF-8. Nothing was written.") from None


def _bytes(text: str, like: bytes | None) -> bytes:
    mark = _BYTE_ORDER_MARK.encode()
    return (mark if (like or b"").startswith(mark) else b"") + text.encode()


def _replace(path: Path, content: bytes, look_again: Callable[[], object] = lambda: None) -> None:
    with _told(path):
        foreign_files.replace(path, content, look_again)


def _check_unchanged(path: Path, seen: bytes | None) -> None:
    if _read(path) != seen:
        raise FileChanged(f"{path} was changed meanwhile, so nothing was written. Try again.")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """A disk that is full, a folder that is not ours: one line says so."""
    try:
        yield
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}.") from None


def _same_place(url: str) -> str:
    return url.rstrip("/").replace("//localhost:", "//127.0.0.1:")
