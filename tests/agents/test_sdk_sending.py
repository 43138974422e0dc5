"""Sending: whatever happens to what the bridge sends, its reader learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from cursor_gateway.agents.sdk.sending import Sending
from cursor_gateway.agents.sdk.texts import BridgeFault
from cursor_gateway.agents.sdk.tool_calls import ToolCalls
from cursor_gateway.parts import no_bridged_calls


async def with_a_bug() -> AsyncGenerator[list[dict[str, Any]], None]:
    yield [{"interactionUpdate": {"update": {"type": "text-delta", "text": "Hello"}}}]
    raise ZeroDivisionError


async def test_a_bug_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    sending = Sending(with_a_bug(), ToolCalls((), lambda: "1", no_bridged_calls))
    async with asyncio.timeout(10):
        await sending.over
    assert isinstance(sending.failure, BridgeFault)
    assert "could not be read" in caplog.text


async def without_end() -> AsyncGenerator[list[dict[str, Any]], None]:
    yield [{"interactionUpdate": {"update": {"type": "text-delta", "text": "Hello"}}}]
    await asyncio.get_running_loop().create_future()


async def test_when_the_bridge_ends_its_reader_learns_of_it_whatever_the_connection_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cursor_gateway.agents.sdk.sending.END_SECONDS", 0.0)
    sending = Sending(without_end(), ToolCalls((), lambda: "1", no_bridged_calls))
    sending.bridge_ended()
    async with asyncio.timeout(10):
        await asyncio.wait({sending.over})
    assert isinstance(sending.failure, BridgeFault)
