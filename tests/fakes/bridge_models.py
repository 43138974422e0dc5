"""The models as the bridge lists them: a model of its own for each family of `models.txt`, whose
variants are combinations of parameters. `models.json` in the home replaces the whole answer."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes.steps import HOME

_LINE = re.compile(r"^(\S+) - (.+)$", re.MULTILINE)
_EFFORTS = ("extra-high", "medium", "high", "low", "max", "none")
_PARAMETERS = {"thinking": "Thinking", "effort": "Effort", "fast": "Fast"}


def listed() -> list[dict[str, Any]]:
    replaced = HOME / "models.json"
    if replaced.exists():
        return list(json.loads(replaced.read_text()))
    families: dict[str, list[tuple[dict[str, str], str]]] = {}
    for name, words in _LINE.findall((HOME / "models.txt").read_text()):
        family, chosen = _taken_apart(name)
        families.setdefault(family, []).append((chosen, words))
    return [_model(family, variants) for family, variants in families.items()]


def _taken_apart(name: str) -> tuple[str, dict[str, str]]:
    """`gpt-5.5-high-fast` is the model `gpt-5.5` with two parameters."""
    chosen = {}
    if name.endswith("-fast"):
        name, chosen["fast"] = name.removesuffix("-fast"), "true"
    for effort in _EFFORTS:
        if name.endswith(f"-{effort}"):
            name, chosen["effort"] = name.removesuffix(f"-{effort}"), effort
            break
    if name.endswith("-thinking"):
        name, chosen["thinking"] = name.removesuffix("-thinking"), "true"
    return name, chosen


def _model(family: str, variants: list[tuple[dict[str, str], str]]) -> dict[str, Any]:
    used = [each for each in _PARAMETERS if any(each in chosen for chosen, _ in variants)]
    model: dict[str, Any] = {"id": family, "displayName": _title(variants)}
    if used:
        model["parameters"] = [_parameter(each, variants) for each in used]
    model["variants"] = [_variant(chosen, words, used) for chosen, words in variants]
    model["variants"][0]["isDefault"] = True
    return model


def _title(variants: list[tuple[dict[str, str], str]]) -> str:
    return variants[0][1].split(" (")[0]


def _parameter(name: str, variants: list[tuple[dict[str, str], str]]) -> dict[str, Any]:
    values = dict.fromkeys(_value(name, chosen) for chosen, _ in variants)
    shown = [{"value": value, "displayName": value.capitalize()} for value in values]
    return {"id": name, "displayName": _PARAMETERS[name], "values": shown}


def _variant(chosen: dict[str, str], words: str, used: list[str]) -> dict[str, Any]:
    params = [{"id": name, "value": _value(name, chosen)} for name in used]
    return {"params": params, "displayName": words.split(" (")[0]}


def _value(name: str, chosen: dict[str, str]) -> str:
    return chosen.get(name, "medium" if name == "effort" else "false")
