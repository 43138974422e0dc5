"""The clients: where each keeps its configuration, what to set in it, how to start it without.

This table is the only place that knows them: `cursor-gateway setup`, the question whether a client
points to us, and docs/clients/README.md read it. Each was tried with the version that it names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cursor_gateway.clients.client import (
    FILE,
    KEY_VARIABLE,
    NO_KEY,
    PROVIDER,
    Client,
    ConfigFile,
    Env,
    Launch,
    Target,
)
from cursor_gateway.config_files.edits import IfMissing

# Cursor does not tell the sizes of its models; these fit all that it had when this was written.
_CONTEXT, _OUTPUT = 200_000, 32_000


def _home(env: Env) -> Path:
    return Path(env.get("HOME") or Path.home())


def _below(variable: str, default: str, *names: str) -> Callable[[Env], Path]:
    """A file in the folder that `variable` names, else in `default` of the home directory."""

    def path(env: Env) -> Path:
        folder = Path(env[variable]) if env.get(variable) else _home(env) / default
        return folder.joinpath(*names)

    return path


def _first_existing(paths: list[Path], otherwise: Path) -> Path:
    return next((path for path in paths if path.exists()), otherwise)


def _opencode_config(env: Env) -> Path:
    if named := env.get("OPENCODE_CONFIG"):
        return Path(named)
    folder = _below("XDG_CONFIG_HOME", ".config", "opencode")(env)
    # All of them are read, the first of these last: it has the last word.
    names = ("opencode.jsonc", "opencode.json", "config.json")
    return _first_existing([folder / name for name in names], folder / "opencode.json")


def _opencode(target: Target) -> dict[str, Any]:
    limit = {"context": _CONTEXT, "output": _OUTPUT}
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


def _omp_file(name: str) -> Callable[[Env], Path]:
    def path(env: Env) -> Path:
        if named := env.get("PI_CODING_AGENT_DIR"):
            folder = Path(named)
        else:
            folder = _home(env) / (env.get("PI_CONFIG_DIR") or ".omp") / "agent"
        files = [folder / f"{name}.yml", folder / f"{name}.yaml"]
        return _first_existing(files, files[0])

    return path


def _omp(target: Target) -> dict[str, Any]:
    provider = {
        "baseUrl": target.base_url,
        "apiKey": target.key,
        "api": "openai-completions",
        "discovery": {"type": "openai-models-list"},
    }
    return {"providers": {PROVIDER: provider}}


def _omp_roles(target: Target) -> dict[str, Any]:
    """Without these it takes a model of whichever provider it finds a key for."""
    model = f"{PROVIDER}/{target.model}"
    return {"modelRoles": {"default": model, "smol": model, "slow": model}}


def _pi(target: Target) -> dict[str, Any]:
    provider = {
        "baseUrl": target.base_url,
        "apiKey": target.key,
        "api": "openai-completions",
        "models": [{"id": model.id, "name": model.name} for model in target.models],
    }
    return {"providers": {PROVIDER: provider}}


def _droid_config(env: Env) -> Path:
    return Path(env.get("FACTORY_HOME_OVERRIDE") or _home(env)) / ".factory" / "settings.json"


def _droid(target: Target) -> dict[str, Any]:
    models = [
        {
            "model": model.id,
            "id": f"custom:{PROVIDER}-{model.id}",
            "displayName": f"Cursor {model.name}",
            "baseUrl": target.base_url,
            "apiKey": target.key,
            "provider": "generic-chat-completion-api",
            "maxOutputTokens": _OUTPUT,
        }
        for model in target.models
    ]
    default = {"model": f"custom:{PROVIDER}-{target.model}"}
    return {"customModels": models, "sessionDefaultSettings": default}


def _codex(target: Target) -> dict[str, Any]:
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


def _codex_launch(target: Target) -> Launch:
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


def _claude_env(target: Target) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": target.root_url,
        # Not ANTHROPIC_API_KEY: it asks before it uses one of those.
        "ANTHROPIC_AUTH_TOKEN": target.key,
        "ANTHROPIC_MODEL": target.model,
        # It takes a model that it does not know for one of a million tokens, and compacts too late.
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(_CONTEXT),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _aider(target: Target) -> dict[str, Any]:
    return {
        "model": f"openai/{target.model}",
        "openai-api-base": target.base_url,
        "openai-api-key": target.key,
    }


def _aider_env(target: Target) -> dict[str, str]:
    return {
        "AIDER_MODEL": f"openai/{target.model}",
        "OPENAI_API_BASE": target.base_url,
        "OPENAI_API_KEY": target.key,
    }


def _continue(target: Target) -> dict[str, Any]:
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


def _cline_config(env: Env) -> Path:
    if named := env.get("CLINE_PROVIDER_SETTINGS_PATH"):
        return Path(named)
    data = Path(env["CLINE_DATA_DIR"]) if env.get("CLINE_DATA_DIR") else None
    return (data or _below("CLINE_DIR", ".cline", "data")(env)) / "settings" / "providers.json"


def _cline(target: Target) -> dict[str, Any]:
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


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="opencode",
            title="OpenCode",
            page="opencode.md",
            tried_with="1.18.33",
            program="opencode",
            config=_opencode_config,
            wanted=_opencode,
            address=("provider", PROVIDER, "options", "baseURL"),
            key=("apiKey",),
            launch=lambda target: Launch(
                env={"OPENCODE_CONFIG_CONTENT": json.dumps(_opencode(target))}
            ),
            example='opencode run "Rename the function"',
            lists_models=True,
        ),
        Client(
            name="oh-my-pi",
            title="oh-my-pi",
            page="oh-my-pi.md",
            tried_with="18.2.3",
            program="omp",
            config=_omp_file("models"),
            wanted=_omp,
            address=("providers", PROVIDER, "baseUrl"),
            key=("apiKey",),
            # The one provider whose address it takes from the environment.
            launch=lambda target: Launch(
                ("--model", f"lm-studio/{target.model}"),
                {"LM_STUDIO_BASE_URL": target.base_url, "LM_STUDIO_API_KEY": target.key},
            ),
            example='omp -p "Rename the function"',
            second_file=ConfigFile("oh-my-pi-roles", "oh-my-pi", _omp_file("config"), _omp_roles),
        ),
        Client(
            name="droid",
            title="Factory Droid",
            page="factory-droid.md",
            tried_with="0.215.0",
            program="droid",
            config=_droid_config,
            wanted=_droid,
            address=("customModels", "baseUrl"),
            key=("apiKey",),
            launch=lambda target: Launch(env={"FACTORY_RUNTIME_SETTINGS_PATH": FILE}),
            example='droid exec "Rename the function"',
            lists_models=True,
        ),
        Client(
            name="codex",
            title="Codex",
            page="codex.md",
            tried_with="0.166.0",
            program="codex",
            config=_below("CODEX_HOME", ".codex", "config.toml"),
            wanted=_codex,
            address=("model_providers", PROVIDER, "base_url"),
            key=("http_headers", "x-api-key"),
            launch=_codex_launch,
            example='codex exec "Rename the function"',
        ),
        Client(
            name="claude-code",
            title="Claude Code",
            page="claude-code.md",
            tried_with="2.1.325",
            program="claude",
            config=_below("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
            wanted=lambda target: {"env": _claude_env(target)},
            address=("env", "ANTHROPIC_BASE_URL"),
            key=("ANTHROPIC_AUTH_TOKEN",),
            launch=lambda target: Launch(env=_claude_env(target)),
            example='claude -p "Rename the function"',
            has_v1=False,
        ),
        Client(
            name="aider",
            title="aider",
            page="aider.md",
            tried_with="0.86.2",
            program="aider",
            config=lambda env: _home(env) / ".aider.conf.yml",
            wanted=_aider,
            address=("openai-api-base",),
            key=("openai-api-key",),
            launch=lambda target: Launch(env=_aider_env(target)),
            example='aider --message "Rename the function" app.py',
        ),
        Client(
            name="continue",
            title="Continue",
            page="continue.md",
            tried_with="1.5.47",
            program="cn",
            config=_below("CONTINUE_GLOBAL_DIR", ".continue", "config.yaml"),
            wanted=_continue,
            address=("models", "apiBase"),
            key=("apiKey",),
            launch=lambda target: Launch(("--config", FILE)),
            example='cn -p "Rename the function"',
            lists_models=True,
        ),
        Client(
            name="cline",
            title="Cline",
            page="cline.md",
            tried_with="3.0.65",
            program="cline",
            config=_cline_config,
            wanted=_cline,
            address=("providers", "openai-compatible", "settings", "baseUrl"),
            key=("apiKey",),
            launch=lambda target: Launch(env={"CLINE_PROVIDER_SETTINGS_PATH": FILE}),
            example='cline "Rename the function"',
        ),
        Client(
            name="pi",
            title="pi",
            page="pi.md",
            tried_with="0.73.1",
            program="pi",
            config=_below("PI_CODING_AGENT_DIR", ".pi/agent", "models.json"),
            wanted=_pi,
            address=("providers", PROVIDER, "baseUrl"),
            key=("apiKey",),
            launch=None,
            example=f'pi -p --provider {PROVIDER} --model auto "Rename the function"',
            lists_models=True,
        ),
    )
}
