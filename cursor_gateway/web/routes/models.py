"""The models of the account, in the shape that the asking client knows."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from cursor_gateway.account import Account
from cursor_gateway.core.models import Model
from cursor_gateway.dialects import messages
from cursor_gateway.errors import ModelNotFound
from cursor_gateway.web.delivery import json_response
from cursor_gateway.web.error_responses import dialect_of


def model_routes(prefix: str, account: Account) -> list[web.RouteDef]:
    # The agent does not say when a model was made, and clients insist on a time.
    since = int(time.time())

    async def list_models(request: web.Request) -> web.Response:
        models = await account.models()
        if dialect_of(request) is messages:
            return json_response(messages.render_models(models, since))
        listed = [_entry(model, since) for model in models]
        return json_response({"object": "list", "data": listed})

    async def show_model(request: web.Request) -> web.Response:
        found = await account.resolve(request.match_info["id"])
        listed = {model.id: model for model in await account.models()}
        if found not in listed:
            raise ModelNotFound(f"The agent does not list {found!r}.")
        if dialect_of(request) is messages:
            return json_response(messages.render_model(listed[found], since))
        return json_response(_entry(listed[found], since))

    return [
        web.get(f"{prefix}/models", list_models),
        web.get(prefix + "/models/{id:.+}", show_model),
    ]


def _entry(model: Model, since: int) -> dict[str, Any]:
    named = {"id": model.id, "name": model.name, "object": "model"}
    return {**named, "created": since, "owned_by": "cursor"}
