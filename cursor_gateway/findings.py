"""What a check finds: the vocabulary of the doctor, and of agents that have checks of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

# `note`: worth knowing, and nothing is broken. `skipped`: it depends on something that is.
# `fault` is what scripts know a problem by.
Verdict = Literal["ok", "note", "fault", "skipped"]

EDITOR = "${EDITOR:-vi}"

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    what: str
    why: str = ""
    # The command that fixes it.
    fix: str = ""
    # For programs: what was measured, by name.
    measured: Mapping[str, float | bool] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Row(Generic[S]):
    """A check that is to be made of some subject."""

    name: str
    # What is looked at, for who waits.
    title: str
    # Why it matters; findings without a reason of their own take it.
    why: str
    look: Callable[[S], Awaitable[Sequence[Finding]]]
    # The checks without which this one is of no use.
    needs: tuple[str, ...] = ()
    # Whether it tells what runs and probes have found before.
    is_from_memory: bool = False

    def of(self, subject: Callable[[], S]) -> Check:
        """`subject` is made when the check is."""
        return Check(self.name, self.title, self.why, lambda: self.look(subject()), self.needs)


@dataclass(frozen=True, slots=True)
class Check:
    """A row with its subject: it can be made."""

    name: str
    title: str
    why: str
    look: Callable[[], Awaitable[Sequence[Finding]]]
    needs: tuple[str, ...] = ()

    def with_reason(self, finding: Finding) -> Finding:
        is_good = finding.verdict in ("ok", "skipped")
        return finding if is_good or finding.why else replace(finding, why=self.why)
