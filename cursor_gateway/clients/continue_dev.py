"""Continue."""

from __future__ import annotations

from typing import Any

from cursor_gateway.clients.client import FILE, Client, Launch, Target, below
from cursor_gateway.config_files.edits import IfMissing


def _wanted(target: Target) -> dict[str, Any]:
    models = [
        {
            "name": f"Cursor {model.id}",
            "provider": "openai",
            "model": model.id,
            "apiBase": target.base_url,
            "apiKey": target.key,
        }
        for model in target.models
    ]
    return {
        "name": IfMissing("Local"),
        "version": IfMissing("1.0.0"),
        "schema": IfMissing("v1"),
        "models": models,
    }


CLIENT = Client(
    name="continue",
    title="Continue",
    page="continue.md",
    tried_with="1.5.47",
    program="cn",
    config=below("CONTINUE_GLOBAL_DIR", ".continue", "config.yaml"),
    wanted=_wanted,
    address=("models", "apiBase"),
    key=("apiKey",),
    launch=lambda target: Launch(("--config", FILE)),
    example='cn -p "Rename the function"',
    lists_models=True,
)
