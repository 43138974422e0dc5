"""From Python: a gateway inside the caller's own event loop."""

from __future__ import annotations

import openai
import pytest

import cursor_gateway
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


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError):
        cursor_gateway.nothing  # noqa: B018
