"""The models of an account, and which of them a client means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cursor_gateway.errors import ModelNotFound

# Every account has this model, with which the agent chooses one itself. It can be used before any
# list of models was read.
AUTO = "auto"

_LONGEST_NAME = 300
# What may follow `--model` on a command line. A leading dash would be read as a flag.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/\[\]=,@+-]{0,199}")


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    name: str


# What the ids of one maker begin with -> the names of its families, which are parts of the ids.
Families = Mapping[str, tuple[str, ...]]


def resolve(
    wanted: str,
    models: tuple[Model, ...],
    aliases: Mapping[str, str],
    families: Families,
) -> str:
    """The agent's id for what the client calls `wanted`.

    Tried in turn: the id, the display name, an alias from the settings, and the same without the
    provider that many clients put in front (`provider/auto`). A model of one of the `families`
    that the account does not have stands for the nearest one of the same family.
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
    if relative := _of_the_same_family(candidates[-1], models, families):
        return checked(relative)
    raise ModelNotFound(_unknown(wanted, sorted(by_id)), param="model")


def _of_the_same_family(wanted: str, models: tuple[Model, ...], families: Families) -> str | None:
    """The id of the account's model that is most alike among those of the family of `wanted`."""
    maker = next((maker for maker in families if wanted.startswith(maker)), None)
    family = next((name for name in families.get(maker or "", ()) if name in wanted), None)
    if maker is None or family is None:
        return None
    relatives = [m.id for m in models if m.id.startswith(maker) and family in m.id]
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
