"""VersionFacts: what is known of one version of the CLI, kept across restarts of the gateway.

Much of what makes an answer fast or right depends on habits of the CLI that nobody documents and
that change with its updates: whether it boots before it reads its prompt, whether a resumed chat
still has its history, how long it waits for a tool. The gateway observes them while it serves, and
`doctor --live` measures them. Both write them down here, by the version that showed them, so that
nobody has to pay for finding out twice.

The version itself is known only once `--version` has answered. What is observed before that is
written down as soon as it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from cursor_gateway.agents.cursor.transcripts import make_private
from cursor_gateway.background import in_background

log = logging.getLogger(__name__)

# A file of ours is a few hundred bytes; one that is longer is none of ours.
NOT_IN_FILE_NAMES = re.compile(r"[^0-9A-Za-z.-]")
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """None means that nobody knows yet."""

    # Whether it boots while its stdin is open, so that a warm agent saves time.
    boots_before_prompt: bool | None = None
    # From the prompt to its first output: started for it, and warm.
    cold_start_s: float | None = None
    warm_start_s: float | None = None
    # Whether `--resume` brings back what was said, and not only the id.
    resume_keeps_history: bool | None = None
    # Whether it fetches the relay's list of tools.
    fetches_relay_tools: bool | None = None
    # For how long a call over the relay was held without the CLI giving up, and after how long it
    # was seen to give up.
    relay_hold_s: float | None = None
    relay_gives_up_s: float | None = None
    # How many calls came at once where the model was asked for three.
    calls_at_once: int | None = None
    # Whether its own tools were refused where the deny list forbids them.
    obeys_deny_list: bool | None = None


_TYPES: Mapping[str, Any] = typing.get_type_hints(VersionFacts)


class KnownVersions:
    """The facts of the version that is installed now. Used inside one event loop."""

    def __init__(
        self,
        folder: Path,
        recognised: Callable[[VersionFacts], object] = lambda facts: None,
    ) -> None:
        self._folder = folder
        # Told what is known of each version that the CLI turns out to be.
        self._recognised = recognised
        self._version = ""
        self._facts = VersionFacts()
        self._writing: asyncio.Task[None] | None = None
        # Whether the last attempt to write failed.
        self._is_failing = False

    @property
    def version(self) -> str:
        return self._version

    @property
    def facts(self) -> VersionFacts:
        return self._facts

    async def recognise(self, version: str) -> None:
        """The CLI says that it is `version`. What was observed before it said so is about it, too,
        and newer than what was written down; what was known of another version is not."""
        if not version or version == self._version:
            return
        stored = await asyncio.to_thread(read_facts, self._folder, version)
        observed = VersionFacts() if self._version else self._facts
        self._version = version
        self._facts = dataclasses.replace(stored, **known_facts(observed))
        if self._facts != stored:
            self._save()
        self._recognised(self._facts)

    def learn(self, **facts: Any) -> None:
        """Something was observed; the file follows in the background."""
        changed = dataclasses.replace(self._facts, **facts)
        if changed != self._facts or self._is_failing:
            self._facts = changed
            if self._version:
                self._save()

    async def close(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing})

    def _save(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = in_background(self._write(), "writing down what the CLI does")

    async def _write(self) -> None:
        """Until the file holds what is known, also what was learnt while it was being written."""
        written = None
        while written != (self._version, self._facts):
            written = (self._version, self._facts)
            try:
                await asyncio.to_thread(write_facts, self._folder, *written)
                self._is_failing = False
            except OSError as error:
                if not self._is_failing:
                    log.warning("what was learnt about the CLI is not kept: %s", error)
                self._is_failing = True


def known_facts(facts: VersionFacts) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(facts).items() if value is not None}


def read_facts(folder: Path, version: str) -> VersionFacts:
    """What is written down about `version`; nothing where the file cannot be used."""
    try:
        with _file_of(folder, version).open("rb") as file:
            found = orjson.loads(file.read(_MAX_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return VersionFacts()
    facts = found if isinstance(found, dict) else {}
    return VersionFacts(
        **{name: value for name, value in facts.items() if name in _TYPES and _fits(name, value)}
    )


def write_facts(folder: Path, version: str, facts: VersionFacts) -> None:
    """All or nothing: two gateways may write at the same time."""
    path = _file_of(folder, version)
    make_private(folder)
    draft = path.with_name(f".{path.name}.{id(facts):x}")
    try:
        draft.write_bytes(orjson.dumps(known_facts(facts), option=orjson.OPT_INDENT_2))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _fits(name: str, value: object) -> bool:
    """Whether `value` is of the fact's type; JSON has one kind of number, and `True` is none."""
    [kind] = [kind for kind in typing.get_args(_TYPES[name]) if kind is not types.NoneType]
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _file_of(folder: Path, version: str) -> Path:
    return folder / f"{NOT_IN_FILE_NAMES.sub('_', version)[:100]}.json"
