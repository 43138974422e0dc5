"""Models of ACP by the names of print mode: one name works with every agent."""

from __future__ import annotations

from typing import Any

import pytest

from cursor_gateway.agents.acp.models import (
    Choice,
    catalogue,
    model_for,
    model_option,
    options_of,
    settings_for,
)
from cursor_gateway.core.models import Model
from cursor_gateway.errors import ModelNotFound


def option(name: str, current: Any, *values: str, category: str = "model_config") -> dict[str, Any]:
    shown = [{"value": value, "name": NAMES.get(value, value.capitalize())} for value in values]
    about = {"id": name, "category": category, "type": "select", "currentValue": current}
    return about | {"options": shown}


NAMES = {"xhigh": "Extra High"}
EFFORT = option("reasoning", "medium", "low", "medium", "high", "xhigh", category="thought_level")
FAST = option("fast", "true", "true", "false")
THINKING = option("thinking", "true", "false", "true")
CONTEXT = option("context", "300k", "300k", "1m")
LISTED = {
    "models": [
        {"value": "default", "name": "Auto", "configOptions": []},
        {"value": "gpt-5.6", "name": "GPT-5.6", "configOptions": [EFFORT]},
        {"value": "gpt-5.6-sol", "name": "GPT-5.6 Sol", "configOptions": [EFFORT, FAST, CONTEXT]},
        {"value": "grok-4.6", "name": "Cursor Grok 4.6", "configOptions": [EFFORT]},
        {"value": "composer-2.5", "name": "Composer 2.5", "configOptions": [FAST]},
        {"value": "claude-opus-5", "name": "Opus 5", "configOptions": [EFFORT, THINKING]},
        {"value": "gpt-5.3-codex", "name": "Codex 5.3"},
        {"value": ""},
        "nothing",
    ]
}
MODELS = [Choice(each["value"], each["name"]) for each in LISTED["models"][:-2]]  # type: ignore[index]
OPTIONS = {each["value"]: options_of(each) for each in LISTED["models"][:-1]}  # type: ignore[index, arg-type]


def chosen(model_id: str) -> tuple[str, dict[str, str]]:
    value, words = model_for(model_id, MODELS)
    settings = settings_for(words, OPTIONS[value], model_id)
    return value, {option.id: to for option, to in settings}


@pytest.mark.parametrize(
    ("model_id", "value", "settings"),
    [
        ("auto", "default", {}),
        ("gpt-5.6-sol-high-fast", "gpt-5.6-sol", {"reasoning": "high"}),
        ("gpt-5.6-sol-high", "gpt-5.6-sol", {"reasoning": "high", "fast": "false"}),
        ("gpt-5.6-sol", "gpt-5.6-sol", {"fast": "false"}),
        ("gpt-5.6-medium", "gpt-5.6", {}),
        ("gpt-5.6-sol-1m-fast", "gpt-5.6-sol", {"context": "1m"}),
        ("gpt-5.6-sol-extra-high-fast", "gpt-5.6-sol", {"reasoning": "xhigh"}),
        ("gpt-5.6-sol-xhigh-fast", "gpt-5.6-sol", {"reasoning": "xhigh"}),
        ("cursor-grok-4.6-low", "grok-4.6", {"reasoning": "low"}),
        ("grok-4.6-low", "grok-4.6", {"reasoning": "low"}),
        ("composer-2.5", "composer-2.5", {"fast": "false"}),
        ("composer-2.5-fast", "composer-2.5", {}),
        ("claude-opus-5-thinking-high", "claude-opus-5", {"reasoning": "high"}),
        ("claude-opus-5-high-thinking", "claude-opus-5", {"reasoning": "high"}),
        ("claude-opus-5-high", "claude-opus-5", {"reasoning": "high", "thinking": "false"}),
        ("claude-opus-5", "claude-opus-5", {}),
        ("gpt-5.3-codex", "gpt-5.3-codex", {}),
    ],
)
def test_an_id_of_print_mode_is_a_model_and_its_options(
    model_id: str, value: str, settings: dict[str, str]
) -> None:
    assert chosen(model_id) == (value, settings)


@pytest.mark.parametrize(
    "model_id", ["gpt-99", "gpt-5.6-solid", "gpt-5.6-huge", "gpt-5.3-codex-fast"]
)
def test_a_model_that_there_is_not_is_not_found(model_id: str) -> None:
    with pytest.raises(ModelNotFound, match=model_id):
        chosen(model_id)


def test_what_is_listed_can_be_chosen_and_names_one_thing_each() -> None:
    listed = catalogue(LISTED)
    found = [(chosen(model.id), model.id) for model in listed]
    names = [model.name for model in listed]
    assert len(set(names)) == len(names) == len({model.id for model in listed})
    wanted = {"auto", "gpt-5.6-sol-high-fast", "cursor-grok-4.6-low", "composer-2.5-fast"}
    assert wanted <= {model_id for _, model_id in found}
    assert Model("gpt-5.6-sol-extra-high-fast", "GPT-5.6 Sol Extra High Fast") in listed
    assert Model("claude-opus-5-thinking-high", "Opus 5 Thinking High") in listed


def test_older_lists_have_another_key() -> None:
    listed = {"availableModels": [{"modelId": "composer-2.5"}]}
    assert catalogue(listed) == (Model("composer-2.5", "composer-2.5"),)
    assert catalogue({}) == ()


def test_auto_is_found_by_its_name() -> None:
    assert model_for("auto", [Choice("x", "X"), Choice("router", "Auto")]) == ("router", "")


def test_a_switch_may_be_a_boolean() -> None:
    boolean = {"id": "fast", "type": "boolean", "currentValue": True}
    (fast,) = options_of({"configOptions": [boolean]})
    assert fast.current == "true" and fast.value("false") is False
    [(_, to)] = settings_for("", [fast], "composer-2.5")
    assert to == "false"
    (text,) = options_of({"configOptions": [FAST]})
    assert text.value("false") == "false"


def test_a_switch_that_cannot_be_switched_is_left_alone() -> None:
    (pinned,) = options_of({"configOptions": [option("fast", "true", "true")]})
    assert settings_for("", [pinned], "composer-2.5") == []


def test_the_options_of_a_session_are_not_its_mode_and_model() -> None:
    mode, model = option("mode", "agent", "agent", "ask"), option("m", "a", "a", category="model")
    options = options_of({"configOptions": [mode, model, {"id": 5, "options": [None]}]})
    found = model_option(options)
    assert found is not None and found.id == "m"
    assert model_option([]) is None
    assert settings_for("", options, "a") == []
    with pytest.raises(ModelNotFound):
        settings_for("ask", options_of({"configOptions": [mode]}), "a-ask")
