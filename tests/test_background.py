"""What nobody waits for is not lost when it fails."""

from __future__ import annotations

import asyncio

import pytest

from cursor_gateway.background import in_background


async def test_a_failure_is_logged_though_the_task_is_held(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise ValueError("of all things")

    held = in_background(fail(), "the watch on something")
    await asyncio.wait({held})
    await asyncio.sleep(0)
    assert "the watch on something failed: ValueError('of all things')" in caplog.text
    assert "Traceback" in caplog.text


async def test_an_end_that_was_wanted_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    task = in_background(asyncio.sleep(60), "a long sleep")
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert caplog.text == ""
