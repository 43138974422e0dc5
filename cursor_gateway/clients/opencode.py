"""OpenCode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cursor_gateway.clients.client import (
    CONTEXT,
    OUTPUT,
    PROVIDER,
    Client,
    Env,
    Launch,
    Target,
    below,
    first_existing,
)


def _config(env: Env) -> Path:
    if named := env.get("OPENCODE_CONFIG"):
        return Path(named)
    folder = below("XDG_CONFIG_HOME", ".config", "opencode")(env)
    # All of them are read, the first of these last: it has the last word.
    names = ("opencode.jsonc", "opencode.json", "config.json")
    return first_existing([folder / name for name in names], folder / "opencode.json")


def _wanted(target: Target) -> dict[str, Any]:
    limit = {"context": CONTEXT, "output": OUTPUT}
    return {
        "provider": {
            PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Cursor",
                "options": {"baseURL": target.base_url, "apiKey": target.key},
                "models": {
                    model.id: {"name": model.name, "tool_call": True, "limit": limit}
                    for model in target.models
                },
            }
        },
        "model": f"{PROVIDER}/{target.model}",
        "small_model": f"{PROVIDER}/{target.model}",
    }


CLIENT = Client(
    name="opencode",
    title="OpenCode",
    page="opencode.md",
    tried_with="1.18.33",
    program="opencode",
    config=_config,
    wanted=_wanted,
    address=("provider", PROVIDER, "options", "baseURL"),
    key=("apiKey",),
    launch=lambda target: Launch(env={"OPENCODE_CONFIG_CONTENT": json.dumps(_wanted(target))}),
    example='opencode run "Rename the function"',
    lists_models=True,
)
