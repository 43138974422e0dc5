"""StartTimes: whether a warm agent answers sooner, as far as runs have shown.

Nobody documents on which side of its stdin the CLI boots. So each run is timed, from its prompt to
the line that begins its output, which comes before the model has a say. An agent that was given
longer than a cold start takes before it got its prompt shows where this version boots: one that is
about as slow as a cold one boots when it has its prompt, and starting it ahead is of no use.
"""

from __future__ import annotations

import asyncio
from collections import deque
from statistics import median
from typing import Any

from cursor_gateway.agents.cursor.version_facts import KnownVersions

_SAMPLES = 20
# A single slow start may have any reason, and what is found useless is not tried again.
_ENOUGH = 3
# Parts of a cold start: below the first it is saved, above the second it is not.
_SAVED, _NOT_SAVED = 0.35, 0.75
# Seconds. The CLI takes 6 to 8 (2026.10.01). Where an agent takes less than this, what else the
# machine does decides what is slower, and little could be saved.
_WORTH_SAVING = 0.25
# Medians move with every run; only a change that means something is written down.
_CHANGE = 0.1

HELPS = "this version of the CLI boots before it has its prompt"
NO_HELP = (
    "warm starts do not help with this version of the CLI and are not made: "
    "it boots only once it has its prompt"
)
UNKNOWN = "whether this version of the CLI boots before it has its prompt is not known yet"


def boots_before_prompt(cold: float, warm: float) -> bool | None:
    """What these seconds say; None where they lie between."""
    if warm < _SAVED * cold:
        return True
    return False if warm > _NOT_SAVED * cold else None


class StartTimes:
    def __init__(self, known: KnownVersions) -> None:
        self._known = known
        self._version = known.version
        self._forget()

    @property
    def warm_helps(self) -> bool:
        """Also where nobody knows: only warm agents can show it."""
        return self._known.facts.boots_before_prompt is not False

    @property
    def cold_is_wanted(self) -> bool:
        """Whether the next start shall not be made ahead: all that is known of cold ones may be one
        that was slow, as the first after a restart of the machine is."""
        is_known = self._known.facts.boots_before_prompt is not None
        return not is_known and len(self._rested) >= _ENOUGH > len(self._cold)

    def began(self, fed_at: float, born: float | None) -> None:
        """The output of an agent begins now. It got its prompt at `fed_at`, and had been started at
        `born`, if it was warm."""
        if self._version and self._version != self._known.version:
            self._forget()
        self._version = self._known.version
        seconds = asyncio.get_running_loop().time() - fed_at
        if born is None:
            self._cold.append(seconds)
            self._learn("cold_start_s", median(self._cold))
        else:
            self._began_warm(seconds, fed_at - born)

    def _began_warm(self, seconds: float, head_start: float) -> None:
        self._warm.append(seconds)
        cold = self._known.facts.cold_start_s
        if cold is None or cold < _WORTH_SAVING or head_start <= cold:
            return
        self._rested.append(seconds)
        warm = median(self._rested)
        self._learn("warm_start_s", warm)
        early = boots_before_prompt(cold, warm)
        if early or (early is False and len(self._rested) >= _ENOUGH):
            self._known.learn(boots_before_prompt=early)

    def state(self) -> dict[str, Any]:
        facts = self._known.facts
        cold = median(self._cold) if self._cold else facts.cold_start_s
        warm = median(self._warm) if self._warm else facts.warm_start_s
        return {
            "first_word_ms": {"cold": _milliseconds(cold), "spare": _milliseconds(warm)},
            "starts_before_prompt": facts.boots_before_prompt,
        }

    def reason(self) -> tuple[str, str]:
        """Whether warm starts help, in a word and in a sentence."""
        early = self._known.facts.boots_before_prompt
        if early is None:
            return "unproven", UNKNOWN
        return ("helps", HELPS) if early else ("no_help", NO_HELP)

    def _forget(self) -> None:
        """What was measured of a version says nothing about the next one."""
        self._cold, self._warm, self._rested = (deque[float](maxlen=_SAMPLES) for _ in range(3))

    def _learn(self, fact: str, seconds: float) -> None:
        known = getattr(self._known.facts, fact)
        if known is None or abs(seconds - known) > _CHANGE * known:
            self._known.learn(**{fact: round(seconds, 3)})


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
