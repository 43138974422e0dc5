"""aider."""

from __future__ import annotations

from typing import Any

from cursor_gateway.clients.client import Client, Launch, Target
from cursor_gateway.foreign_files import home


def _wanted(target: Target) -> dict[str, Any]:
    return {
        "model": f"openai/{target.model}",
        "openai-api-base": target.base_url,
        "openai-api-key": target.key,
    }


def _env(target: Target) -> dict[str, str]:
    return {
        "AIDER_MODEL": f"openai/{target.model}",
        "OPENAI_API_BASE": target.base_url,
        "OPENAI_API_KEY": target.key,
    }


CLIENT = Client(
    name="aider",
    title="aider",
    page="aider.md",
    tried_with="0.86.2",
    program="aider",
    config=lambda env: home(env) / ".aider.conf.yml",
    wanted=_wanted,
    address=("openai-api-base",),
    key=("openai-api-key",),
    launch=lambda target: Launch(env=_env(target)),
    example='aider --message "Rename the function" app.py',
)
