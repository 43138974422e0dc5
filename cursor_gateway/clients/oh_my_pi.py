"""oh-my-pi."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cursor_gateway.clients.client import (
    PROVIDER,
    Client,
    ConfigFile,
    Env,
    Launch,
    Target,
    first_existing,
)
from cursor_gateway.foreign_files import home


def _file(name: str) -> Callable[[Env], Path]:
    def path(env: Env) -> Path:
        if named := env.get("PI_CODING_AGENT_DIR"):
            folder = Path(named)
        else:
            folder = home(env) / (env.get("PI_CONFIG_DIR") or ".omp") / "agent"
        files = [folder / f"{name}.yml", folder / f"{name}.yaml"]
        return first_existing(files, files[0])

    return path


def _providers(target: Target) -> dict[str, Any]:
    provider = {
        "baseUrl": target.base_url,
        "apiKey": target.key,
        "api": "openai-completions",
        "discovery": {"type": "openai-models-list"},
    }
    return {"providers": {PROVIDER: provider}}


def _roles(target: Target) -> dict[str, Any]:
    """Without these it takes a model of whichever provider it finds a key for."""
    model = f"{PROVIDER}/{target.model}"
    return {"modelRoles": {"default": model, "smol": model, "slow": model}}


CLIENT = Client(
    name="oh-my-pi",
    title="oh-my-pi",
    page="oh-my-pi.md",
    tried_with="18.2.3",
    program="omp",
    config=_file("models"),
    wanted=_providers,
    address=("providers", PROVIDER, "baseUrl"),
    key=("apiKey",),
    # The one provider whose address it takes from the environment.
    launch=lambda target: Launch(
        ("--model", f"lm-studio/{target.model}"),
        {"LM_STUDIO_BASE_URL": target.base_url, "LM_STUDIO_API_KEY": target.key},
    ),
    example='omp -p "Rename the function"',
    second_file=ConfigFile("oh-my-pi-roles", "oh-my-pi", _file("config"), _roles),
)
