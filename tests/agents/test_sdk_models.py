"""Models of the bridge: every variant is an id, and an id is a model with parameters."""

from __future__ import annotations

from typing import Any

import pytest

from cursor_gateway.agents.sdk.models import Catalogue, catalogue


def variant(name: str = "", *, default: bool = False, **params: str) -> dict[str, Any]:
    listed = [{"id": each, "value": value} for each, value in params.items()]
    return {"params": listed, "displayName": name} | ({"isDefault": True} if default else {})


MODELS = catalogue(
    {
        "items": [
            {"id": "auto", "displayName": "Auto"},
            {
                "id": "composer",
                "displayName": "Composer",
                "variants": [
                    variant("Composer", default=True, fast="false"),
                    variant("Composer Fast", fast="true"),
                ],
            },
            {
                "id": "opus",
                "variants": [
                    variant(default=True, effort="medium", thinking="true", context="200k"),
                    variant(fast="true", effort="high", thinking="true", context="1m"),
                    variant("Opus plain", effort="medium", thinking="false", context="200k"),
                    variant(effort="Extra High!", thinking="true", context="200k"),
                ],
            },
            {
                "id": "gpt",
                "parameters": [
                    {"id": "effort", "values": [{"value": "high"}, {"value": "none"}, 7]},
                    {"id": "fast", "values": [{"value": "true"}, {"value": "false"}]},
                    {"id": "odd", "values": 7},
                ],
            },
            *({"id": each} for each in (None, "", 7, "composer")),
            "odd",
        ]
    }
)


def test_ids_are_written_as_the_cli_writes_them() -> None:
    names = {model.id: model.name for model in MODELS.models}
    assert list(names) == [
        *("auto", "composer", "composer-fast"),
        *("opus", "opus-high-1m-fast", "opus-no-thinking", "opus-extra-high"),
        *("gpt", "gpt-high", "gpt-fast"),
    ]
    assert names["composer-fast"] == "Composer Fast"
    assert names["opus-no-thinking"] == "Opus plain"
    assert names["opus-high-1m-fast"] == "opus-high-1m-fast"


@pytest.mark.parametrize(
    ("model_id", "selection"),
    [
        ("composer", {"id": "composer"}),
        ("composer-fast", {"id": "composer", "params": [{"id": "fast", "value": "true"}]}),
        ("gpt-high", {"id": "gpt", "params": [{"id": "effort", "value": "high"}]}),
        ("unheard-of", {"id": "unheard-of"}),
    ],
)
def test_an_id_is_a_model_with_parameters(model_id: str, selection: dict[str, Any]) -> None:
    assert MODELS.selection(model_id) == selection


def test_before_any_list_an_id_is_the_models_own() -> None:
    assert Catalogue().selection("auto") == {"id": "auto"}
    assert catalogue({}).models == ()
