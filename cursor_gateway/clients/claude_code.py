"""Claude Code."""

from __future__ import annotations

from cursor_gateway.clients.client import CONTEXT, Client, Launch, Target, below


def _env(target: Target) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": target.root_url,
        # Not ANTHROPIC_API_KEY: it asks before it uses one of those.
        "ANTHROPIC_AUTH_TOKEN": target.key,
        "ANTHROPIC_MODEL": target.model,
        # It takes a model that it does not know for one of a million tokens, and compacts too late.
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(CONTEXT),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


CLIENT = Client(
    name="claude-code",
    title="Claude Code",
    page="claude-code.md",
    tried_with="2.1.325",
    program="claude",
    config=below("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
    wanted=lambda target: {"env": _env(target)},
    address=("env", "ANTHROPIC_BASE_URL"),
    key=("ANTHROPIC_AUTH_TOKEN",),
    launch=lambda target: Launch(env=_env(target)),
    example='claude -p "Rename the function"',
    has_v1=False,
)
