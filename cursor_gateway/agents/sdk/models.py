"""The models of an account as the bridge lists them, and how one is asked for.

A model has parameters (effort, context, fast, thinking), and variants that name values for them.
Clients ask for a model by one name, so each variant is an id of its own, written as the CLI writes
them: `MODEL-thinking-high-fast`. Where a model has no variants, each value of a parameter is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cursor_gateway.core.models import Model

Params = tuple[tuple[str, str], ...]

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._]+")
_YES, _NO = ("true", "on", "yes"), ("false", "off", "no", "none", "")


@dataclass(frozen=True, slots=True)
class Catalogue:
    models: tuple[Model, ...] = ()
    # The model and the parameters that an id stands for.
    _selections: Mapping[str, tuple[str, Params]] = field(default_factory=dict)

    def selection(self, model_id: str) -> dict[str, Any]:
        """What the bridge is told. An id that is not listed is the model's own."""
        base, params = self._selections.get(model_id, (model_id, ()))
        listed = [{"id": name, "value": value} for name, value in params]
        return {"id": base, "params": listed} if listed else {"id": base}


def catalogue(response: Mapping[str, Any]) -> Catalogue:
    """The answer to `ListModels`."""
    models: dict[str, Model] = {}
    selections: dict[str, tuple[str, Params]] = {}
    for item in _objects(response.get("items")):
        for model, params in _variants(item):
            if model.id not in models:
                models[model.id] = model
                selections[model.id] = str(item["id"]), params
    return Catalogue(tuple(models.values()), selections)


def _variants(item: Mapping[str, Any]) -> Iterator[tuple[Model, Params]]:
    """The model by its own id, without parameters, and each variant but the one that it stands
    for."""
    base = item.get("id")
    if not isinstance(base, str) or not base:
        return
    name = str(item.get("displayName") or base)
    yield Model(base, name), ()
    listed = _objects(item.get("variants")) or list(_of_parameters(item))
    variants = [(_params(each), each) for each in listed]
    plain = next((dict(params) for params, each in variants if each.get("isDefault")), {})
    for params, each in variants:
        model_id = "-".join([base, *_words(params, plain)])
        if model_id != base:
            yield Model(model_id, str(each.get("displayName") or model_id)), params


def _words(params: Params, plain: Mapping[str, str]) -> Iterator[str]:
    """What an id says of parameters: those that are not as they are by default."""
    for name, value in sorted(params, key=lambda param: _ORDER.get(param[0], 0)):
        if value == plain.get(name) or (value in _NO and name not in plain):
            continue
        if value in _YES:
            yield _word(name)
        elif value in _NO:
            yield f"no-{_word(name)}"
        else:
            yield _word(value)


# The CLI writes `claude-opus-5-thinking-high`, and what is fast at the end.
_ORDER = {"thinking": -1, "fast": 1}


def _word(text: str) -> str:
    return _NOT_IN_IDS.sub("-", text).strip("-").lower()


def _params(variant: Mapping[str, Any]) -> Params:
    return tuple(
        (str(param.get("id", "")), str(param.get("value", "")))
        for param in _objects(variant.get("params"))
    )


def _of_parameters(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A variant for each value that one parameter may have."""
    for parameter in _objects(item.get("parameters")):
        for value in _objects(parameter.get("values")):
            yield {"params": [{"id": parameter.get("id", ""), "value": value.get("value", "")}]}


def _objects(value: object) -> Iterable[Mapping[str, Any]]:
    listed = value if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, dict)]
