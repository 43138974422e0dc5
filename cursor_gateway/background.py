"""Background tasks: work that nobody waits for, so that nobody would see its failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


def in_background(work: Coroutine[Any, Any, T], what: str) -> asyncio.Task[T]:
    """A task whose failure is logged when it happens. asyncio itself reports it only when nothing
    holds the task any more, which may be never. `what` is the task's name in the log."""
    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed: %r", task.get_name(), error, exc_info=error)
