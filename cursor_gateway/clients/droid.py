"""Factory Droid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cursor_gateway.clients.client import FILE, OUTPUT, PROVIDER, Client, Env, Launch, Target
from cursor_gateway.foreign_files import home


def _config(env: Env) -> Path:
    return Path(env.get("FACTORY_HOME_OVERRIDE") or home(env)) / ".factory" / "settings.json"


def _wanted(target: Target) -> dict[str, Any]:
    models = [
        {
            "model": model.id,
            "id": f"custom:{PROVIDER}-{model.id}",
            "displayName": f"Cursor {model.name}",
            "baseUrl": target.base_url,
            "apiKey": target.key,
            "provider": "generic-chat-completion-api",
            "maxOutputTokens": OUTPUT,
        }
        for model in target.models
    ]
    default = {"model": f"custom:{PROVIDER}-{target.model}"}
    return {"customModels": models, "sessionDefaultSettings": default}


CLIENT = Client(
    name="droid",
    title="Factory Droid",
    page="factory-droid.md",
    tried_with="0.215.0",
    program="droid",
    config=_config,
    wanted=_wanted,
    address=("customModels", "baseUrl"),
    key=("apiKey",),
    launch=lambda target: Launch(env={"FACTORY_RUNTIME_SETTINGS_PATH": FILE}),
    example='droid exec "Rename the function"',
    lists_models=True,
)
