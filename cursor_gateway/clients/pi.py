"""pi."""

from __future__ import annotations

from typing import Any

from cursor_gateway.clients.client import PROVIDER, Client, Target, below


def _wanted(target: Target) -> dict[str, Any]:
    provider = {
        "baseUrl": target.base_url,
        "apiKey": target.key,
        "api": "openai-completions",
        "models": [{"id": model.id, "name": model.name} for model in target.models],
    }
    return {"providers": {PROVIDER: provider}}


CLIENT = Client(
    name="pi",
    title="pi",
    page="pi.md",
    tried_with="0.73.1",
    program="pi",
    config=below("PI_CODING_AGENT_DIR", ".pi/agent", "models.json"),
    wanted=_wanted,
    address=("providers", PROVIDER, "baseUrl"),
    key=("apiKey",),
    launch=None,
    example=f'pi -p --provider {PROVIDER} --model auto "Rename the function"',
    lists_models=True,
)
