"""From Python: a gateway inside the caller's own event loop."""

from __future__ import annotations

import re
from typing import Any

import openai
import pytest

import cursor_gateway
from cursor_gateway.settings import SettingsError
from tests.conftest import FakeAgent


async def test_a_gateway_runs_inside_the_callers_loop(
    fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    async with (
        cursor_gateway.running() as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url, api_key="-") as api,
    ):
        answer = await api.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": "[[text:ok]]"}]
        )
    assert answer.choices[0].message.content == "ok"
    assert fake.processes() == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"aip_key": "x"}, "There is no setting 'aip_key'. Did you mean 'api_key'?"),
        ({"zzzzzz": 1}, "There is no setting 'zzzzzz'."),
        ({"queue": -5}, "queue (flag) must be between 0 and 1000000000, not -5."),
        ({"idle_timeout": float("nan")}, "idle_timeout (flag) must be more than 0"),
    ],
)
async def test_what_is_no_setting_does_not_start(
    fake: FakeAgent, settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        async with cursor_gateway.running(demo="on", **settings):
            pytest.fail("it started")


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError):
        cursor_gateway.nothing  # noqa: B018
