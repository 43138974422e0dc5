"""Starts: two CLIs that start at the same moment may break one file; then they take turns."""

from __future__ import annotations

import asyncio
import random

START_ATTEMPTS = 5
START_SPACING = 0.25
START_SPACING_LASTS = 60.0


class Starts:
    """Starts cost nothing until two agents have met in cli-config.json."""

    def __init__(self) -> None:
        self._spaced_until = 0.0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._spaced_until:
            async with self._turn:
                await asyncio.sleep(random.uniform(0.5, 1.5) * START_SPACING)  # noqa: S311

    def space_out(self) -> None:
        self._spaced_until = asyncio.get_running_loop().time() + START_SPACING_LASTS
