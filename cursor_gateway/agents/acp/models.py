"""The models of an account as ACP lists them, and how one is chosen.

A model has options there (effort, fast, thinking, context), where print mode has an id for each
combination: `gpt-5.6-sol-high-fast` is `gpt-5.6-sol` with the effort `high`, fast. Clients know the
ids of print mode, so these are what is listed, and what is taken apart again: the model, then the
words behind it, in whatever order. Some ids of print mode begin with a name (`cursor-grok-4.6-low`
for `grok-4.6`), and its words are those that an option's choices are shown by (`extra-high` for
`xhigh`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cursor_gateway.agents.acp.wire import Json, json_object, text_of
from cursor_gateway.core.models import AUTO, Model
from cursor_gateway.errors import ModelNotFound

_NOT_IN_IDS = re.compile(r"[^a-z0-9.]+")
_YES, _NO = "true", "false"
# Options that say nothing of the model.
_OTHERS = frozenset({"mode", "model"})
# In ids, thinking stands first and fast at the end; between them the effort.
_THINKING, _FAST = "thinking", "fast"
_EFFORT = "thought_level"


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    name: str

    @property
    def words(self) -> tuple[str, str]:
        """How ids name it: as print mode does, and by its value."""
        return _slug(self.name), _slug(self.value)


@dataclass(frozen=True, slots=True)
class Option:
    """Something that can be chosen in a session: its model, or how that works."""

    id: str
    category: str
    current: str
    choices: tuple[Choice, ...]
    # Whether its values are no texts.
    is_boolean: bool = False

    @property
    def is_switch(self) -> bool:
        return {choice.value for choice in self.choices} == {_YES, _NO}

    def value(self, chosen: str) -> str | bool:
        """As the protocol has it."""
        return chosen == _YES if self.is_boolean else chosen


Chosen = Sequence[tuple[Option, str]]


def options_of(result: Json) -> tuple[Option, ...]:
    """What can be chosen, by the answer to `session/new`, `session/load` or `set_config_option`."""
    return tuple(_options(result.get("configOptions")))


def model_option(options: Iterable[Option]) -> Option | None:
    return next((option for option in options if "model" in (option.id, option.category)), None)


def catalogue(result: Json) -> tuple[Model, ...]:
    """The answer to `cursor/list_available_models`, by the ids of print mode."""
    listed = result.get("models") or result.get("availableModels")
    models: dict[str, Model] = {}
    for entry in _objects(listed):
        value = text_of(entry.get("value")) or text_of(entry.get("modelId"))
        choice = Choice(value, text_of(entry.get("name")) or value)
        for model in _variants(choice, tuple(_options(entry.get("configOptions")))):
            models.setdefault(model.id, model)
    return tuple(models.values())


def model_for(model_id: str, models: Iterable[Choice]) -> tuple[str, str]:
    """Which of `models` an id of print mode means, and the words behind it. Raises
    ModelNotFound."""
    found: dict[str, str] = {}
    for choice in models:
        if model_id == AUTO and _is_auto(choice):
            return choice.value, ""
        found |= dict.fromkeys((_base(choice), choice.value), choice.value)
    # The longest one: `gpt-5.6-sol` begins as `gpt-5.6` does.
    fitting = [base for base in found if base and f"{model_id}-".startswith(f"{base}-")]
    if not fitting:
        raise _unknown(model_id)
    base = max(fitting, key=len)
    return found[base], model_id[len(base) + 1 :]


def settings_for(words: str, options: Iterable[Option], model_id: str) -> Chosen:
    """What is chosen by the words of an id that stand behind its model. Raises ModelNotFound."""
    own = [option for option in options if option.id not in _OTHERS]
    chosen = dict(_taken_apart(words, own, model_id))
    for option in own:
        # An id that names no speed means the common one. One that names an effort means all of it.
        is_left_out = option.id == _FAST or (option.id == _THINKING and words)
        if option.is_switch and is_left_out:
            chosen.setdefault(option.id, _NO)
    return [(o, chosen[o.id]) for o in own if chosen.get(o.id, o.current) != o.current]


def _taken_apart(words: str, options: Sequence[Option], model_id: str) -> Iterator[tuple[str, str]]:
    known = {word: chosen for option in options for word, chosen in _words(option)}
    while words:
        fitting = [word for word in known if f"{words}-".startswith(f"{word}-")]
        if not fitting:
            raise _unknown(model_id)
        word = max(fitting, key=len)
        yield known[word]
        words = words[len(word) + 1 :]


def _words(option: Option) -> Iterator[tuple[str, tuple[str, str]]]:
    if option.is_switch:
        yield _slug(option.id), (option.id, _YES)
        return
    for choice in option.choices:
        for word in filter(None, choice.words):
            yield word, (option.id, choice.value)


def _variants(choice: Choice, options: Sequence[Option]) -> Iterator[Model]:
    base = _base(choice)
    if not base:
        return
    yield Model(base, choice.name)
    thinking, efforts, fast = _ways(options)
    for way in itertools.product(thinking, efforts, fast):
        said = list(filter(None, way))
        if said:
            names = " ".join(name for name, _ in said)
            yield Model("-".join([base, *(word for _, word in said)]), f"{choice.name} {names}")


_Way = tuple[str, str] | None


def _ways(options: Sequence[Option]) -> tuple[list[_Way], list[_Way], list[_Way]]:
    """In which ways a model thinks, with which efforts, and how fast: the name and the word of
    each."""
    by_id = {option.id: option for option in options if option.is_switch}
    thinking: list[_Way] = [None, ("Thinking", _THINKING)] if _THINKING in by_id else [None]
    fast: list[_Way] = [None, ("Fast", _FAST)] if _FAST in by_id else [None]
    efforts = [o for o in options if o.category == _EFFORT and not o.is_switch]
    named: list[_Way] = [
        (choice.name, choice.words[0]) for option in efforts for choice in option.choices
    ]
    return thinking, named or [None], fast


def _base(choice: Choice) -> str:
    """What its ids begin with in print mode."""
    if _is_auto(choice):
        return AUTO
    name = _slug(choice.name)
    return name if name.endswith(f"-{choice.value}") else choice.value


def _is_auto(choice: Choice) -> bool:
    return choice.value == "default" or choice.name.casefold() == AUTO


def _options(listed: object) -> Iterator[Option]:
    for entry in _objects(listed):
        is_boolean = entry.get("type") == "boolean"
        choices = tuple(_choices(entry.get("options"))) or (Choice(_YES, "On"), Choice(_NO, "Off"))
        current = entry.get("currentValue")
        yield Option(
            text_of(entry.get("id")),
            text_of(entry.get("category")),
            (_YES if current else _NO) if isinstance(current, bool) else text_of(current),
            choices,
            is_boolean,
        )


def _choices(listed: object) -> Iterator[Choice]:
    for entry in _objects(listed):
        value = text_of(entry.get("value"))
        yield Choice(value, text_of(entry.get("name")) or value)


def _objects(listed: object) -> Iterator[Mapping[str, Any]]:
    return map(json_object, listed if isinstance(listed, list) else [])


def _slug(text: str) -> str:
    return _NOT_IN_IDS.sub("-", text.lower()).strip("-")


def _unknown(model_id: str) -> ModelNotFound:
    return ModelNotFound(f"Cursor's agent has no model {model_id!r}.", param="model")
