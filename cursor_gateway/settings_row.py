"""What a row of the table in settings.py says of its setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """Which numbers a setting may have."""

    least: float
    most: float
    unit: str = ""
    # Whether `least` itself is too little.
    is_open: bool = False

    def allow(self, number: float) -> bool:
        """Never what is no number at all, which compares with nothing."""
        is_enough = self.least < number if self.is_open else self.least <= number
        return is_enough and number <= self.most

    def __str__(self) -> str:
        if self.is_open:
            return f"more than {self.least} and at most {self.most}"
        return f"between {self.least} and {self.most}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    default: Any
    env: str
    help: str
    limits: Limits | None
    choices: tuple[str, ...]
    secret: bool
    # Whether a running gateway takes it over on SIGHUP. The rest is bound to what was started with
    # it: the socket, the slots, the agent and its directories.
    reloads: bool
    # Both come from the field of `Settings`: `port`, and its type as it is written there, `int`.
    name: str = ""
    kind: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def unit(self) -> str:
        return self.limits.unit if self.limits else ""


def setting(
    default: Any,
    env: str,
    help: str,
    limits: Limits | None = None,
    *,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    reloads: bool = False,
) -> Any:
    """`limits` is for numbers, and each of them has some."""
    row = {"row": Setting(default, env, help, limits, choices, secret, reloads)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=row)
    return field(default=default, metadata=row)
