"""What agents can read of the user's files, whoever answers."""

from __future__ import annotations

from typing import Any

from cursor_gateway.settings import Settings


def agent_reads(settings: Settings) -> dict[str, Any]:
    """What agents can read of the user's, in words, for people who look at the gateway."""
    workspace = None
    if settings.workspace or settings.workspace_roots:
        workspace = "the workspace" if settings.isolate else "everything that you can read"
    return {
        "scratch": "nothing but images of the conversation",
        "workspace": workspace,
        "isolated": settings.isolate,
    }
