"""Cline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cursor_gateway.clients.client import FILE, Client, Env, Launch, Target, below
from cursor_gateway.config_files.edits import IfMissing


def _config(env: Env) -> Path:
    if named := env.get("CLINE_PROVIDER_SETTINGS_PATH"):
        return Path(named)
    data = Path(env["CLINE_DATA_DIR"]) if env.get("CLINE_DATA_DIR") else None
    return (data or below("CLINE_DIR", ".cline", "data")(env)) / "settings" / "providers.json"


def _wanted(target: Target) -> dict[str, Any]:
    settings = {
        "provider": "openai-compatible",
        "apiKey": target.key,
        "model": target.model,
        "baseUrl": target.base_url,
    }
    # It keeps the time of its last change here; any time will do.
    changed = IfMissing("1970-01-01T00:00:00.000Z")
    return {
        "version": IfMissing(1),
        "lastUsedProvider": "openai-compatible",
        "providers": {"openai-compatible": {"settings": settings, "updatedAt": changed}},
    }


CLIENT = Client(
    name="cline",
    title="Cline",
    page="cline.md",
    tried_with="3.0.65",
    program="cline",
    config=_config,
    wanted=_wanted,
    address=("providers", "openai-compatible", "settings", "baseUrl"),
    key=("apiKey",),
    launch=lambda target: Launch(env={"CLINE_PROVIDER_SETTINGS_PATH": FILE}),
    example='cline "Rename the function"',
)
