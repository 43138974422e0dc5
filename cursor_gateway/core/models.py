"""The models of an account, and which of them a client means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cursor_gateway.errors import ModelNotFound

# The one model every account has: Cursor chooses. It is usable before any list was seen.
AUTO = "auto"

CLAUDE_FAMILIES = ("opus", "sonnet", "haiku", "fable")

_LONGEST_NAME = 300
# What may stand behind `--model`. A leading dash would be read as a flag.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/\[\]=,@+-]{0,199}")


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    name: str


def resolve(wanted: str, models: tuple[Model, ...], aliases: Mapping[str, str]) -> str:
    """The agent's id for what the client calls `wanted`.

    Tried in turn: the id, the display name, an alias from the settings, and the same without the
    provider that many clients put in front (`cursor/auto`). A Claude model that the account does
    not have stands for one of its own family that it has: Claude Code asks by names of its own.
    """
    if len(wanted) > _LONGEST_NAME:
        raise ModelNotFound(_unknown(wanted, [AUTO]), param="model")
    by_id = {model.id: model.id for model in models} | {AUTO: AUTO}
    by_name = {model.name.casefold(): model.id for model in models}
    candidates = [wanted]
    while "/" in candidates[-1]:
        candidates.append(candidates[-1].split("/", 1)[1])
    for name in candidates:
        for spelling in (name, aliases.get(name, name)):
            if found := by_id.get(spelling) or by_name.get(spelling.casefold()):
                return checked(found)
    if relative := _of_the_same_family(candidates[-1], models):
        return checked(relative)
    raise ModelNotFound(_unknown(wanted, sorted(by_id)), param="model")


def _of_the_same_family(wanted: str, models: tuple[Model, ...]) -> str | None:
    """The account's model of the Claude family that `wanted` belongs to: the most alike, by id."""
    family = next((name for name in CLAUDE_FAMILIES if name in wanted), None)
    if family is None or not wanted.startswith("claude"):
        return None
    relatives = [m.id for m in models if m.id.startswith("claude") and family in m.id]
    return next(iter(difflib.get_close_matches(wanted, relatives, n=1, cutoff=0.0)), None)


def checked(model_id: str) -> str:
    """`model_id`, unless it could be taken for something else on a command line."""
    if not _SAFE_ID.fullmatch(model_id):
        raise ModelNotFound("That is not the name of a model.", param="model")
    return model_id


def _unknown(wanted: str, known: list[str]) -> str:
    shown = wanted if len(wanted) <= 80 else wanted[:80] + "…"
    nearest = difflib.get_close_matches(shown, known, n=3, cutoff=0.0)
    return f"There is no model {shown!r}. The nearest are {', '.join(nearest)}."
