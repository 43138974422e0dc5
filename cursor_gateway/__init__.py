"""Use the models of a Cursor subscription from any OpenAI client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cursor_gateway.web.server import running

__version__ = "0.1.0"

__all__ = ["__version__", "running"]


def __getattr__(name: str) -> object:
    # The server and all it needs are loaded when someone asks, not when the CLI prints its help.
    if name == "running":
        from cursor_gateway.web.server import running

        return running
    raise AttributeError(name)
