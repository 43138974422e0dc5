"""Codex."""

from __future__ import annotations

import json
from typing import Any

from cursor_gateway.clients.client import (
    KEY_VARIABLE,
    NO_KEY,
    PROVIDER,
    Client,
    Launch,
    Target,
    below,
)


def _wanted(target: Target) -> dict[str, Any]:
    provider: dict[str, Any] = {
        "name": "Cursor",
        "base_url": target.base_url,
        "wire_api": "responses",
    }
    if target.key != NO_KEY:
        provider["http_headers"] = {"x-api-key": target.key}
    return {
        "model": target.model,
        "model_provider": PROVIDER,
        "model_providers": {PROVIDER: provider},
    }


def _launch(target: Target) -> Launch:
    """It has no variables for this, but takes TOML for any setting."""
    provider = f'name="Cursor",base_url={json.dumps(target.base_url)},wire_api="responses"'
    if target.key != NO_KEY:
        provider += f',env_http_headers={{"x-api-key"="{KEY_VARIABLE}"}}'
    settings = (
        f"model={json.dumps(target.model)}",
        f'model_provider="{PROVIDER}"',
        f"model_providers.{PROVIDER}={{{provider}}}",
    )
    args = tuple(word for setting in settings for word in ("-c", setting))
    return Launch(args, {KEY_VARIABLE: target.key})


CLIENT = Client(
    name="codex",
    title="Codex",
    page="codex.md",
    tried_with="0.166.0",
    program="codex",
    config=below("CODEX_HOME", ".codex", "config.toml"),
    wanted=_wanted,
    address=("model_providers", PROVIDER, "base_url"),
    key=("http_headers", "x-api-key"),
    launch=_launch,
    example='codex exec "Rename the function"',
)
