from __future__ import annotations

import pytest

from cursor_gateway.agents.model_families import MODEL_FAMILIES
from cursor_gateway.core.models import Model, checked, resolve
from cursor_gateway.errors import ModelNotFound

MODELS = (
    Model("auto", "Auto"),
    Model("composer-2.5", "Composer 2.5"),
    Model("gpt-5.5-high", "GPT-5.5 High"),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("composer-2.5", "composer-2.5"),
        ("Composer 2.5", "composer-2.5"),
        ("composer 2.5", "composer-2.5"),
        ("fast", "composer-2.5"),
        ("nice", "gpt-5.5-high"),
        ("cursor/composer-2.5", "composer-2.5"),
        ("openrouter/openai/gpt-5.5-high", "gpt-5.5-high"),
        ("cursor/fast", "composer-2.5"),
        ("auto", "auto"),
        ("cursor/auto", "auto"),
    ],
)
def test_a_model_is_found_by_id_name_alias_and_behind_a_provider(wanted: str, found: str) -> None:
    aliases = {"fast": "composer-2.5", "nice": "GPT-5.5 High"}
    assert resolve(wanted, MODELS, aliases, MODEL_FAMILIES) == found


def test_auto_needs_no_list() -> None:
    assert resolve("auto", (), {}, MODEL_FAMILIES) == "auto"


CLAUDES = (
    *MODELS,
    Model("claude-opus-5-thinking-high", "Opus"),
    Model("claude-4.6-sonnet-medium", "Sonnet"),
    Model("claude-sonnet-5-high", "Sonnet 5"),
    Model("not-a-claude-haiku", "Trap"),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("claude-opus-4-1-20250805", "claude-opus-5-thinking-high"),
        ("anthropic/claude-sonnet-5-20260301", "claude-sonnet-5-high"),
        ("claude-haiku-4-5", None),
        ("claude-3", None),
        ("my-opus", None),
    ],
)
def test_a_claude_stands_for_its_family_and_for_nothing_else(
    wanted: str, found: str | None
) -> None:
    if found:
        assert resolve(wanted, CLAUDES, {}, MODEL_FAMILIES) == found
        return
    with pytest.raises(ModelNotFound):
        resolve(wanted, CLAUDES, {}, MODEL_FAMILIES)


def test_an_unknown_model_is_refused_with_the_nearest_three() -> None:
    with pytest.raises(
        ModelNotFound, match=r"composer-2\.5.*auto|nearest are composer-2\.5"
    ) as info:
        resolve("composer-2", MODELS, {}, MODEL_FAMILIES)
    assert str(info.value).count(",") == 2
    with pytest.raises(ModelNotFound):
        resolve("x" * 10_000, MODELS, {}, MODEL_FAMILIES)


@pytest.mark.parametrize("model", ["--force", "", "a b", "x\n", "-", "é"])
def test_what_could_be_a_flag_is_no_model(model: str) -> None:
    with pytest.raises(ModelNotFound):
        checked(model)


def test_parameters_in_brackets_are_part_of_an_id() -> None:
    assert checked("claude-opus-4-8[context=1m,effort=high]")


def test_a_name_of_great_length_is_not_looked_up_at_length() -> None:
    with pytest.raises(ModelNotFound, match=r"There is no model '/+…'"):
        resolve("/" * 1_000_000, MODELS, {}, MODEL_FAMILIES)
