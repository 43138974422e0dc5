"""No prompt goes past the gateway: a client that tries to reach anybody else fails its test.

What it tried is in the file of tests/clients/loopback_only.py, by name or by address.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.loopback_only import LOG

# What each client asks for by habit before or beside a prompt, and never with one. Whoever is not
# listed here, as Claude Code and pi, reaches nobody but the gateway.
CALLS_HOME = {
    # Its experiments, its announcements, and the plugins that it offers.
    "codex": {"ab.chatgpt.com", "chatgpt.com", "api.github.com", "github.com"},
    # The package of a provider's client.
    "opencode": {"registry.npmjs.org"},
    # Lists of models, of every provider that gives its list without a key.
    "oh-my-pi": {
        "api.commandcode.ai",
        "api.kilo.ai",
        "api.venice.ai",
        "catalog.stencil.so",
        "coding-intl.dashscope.aliyuncs.com",
        "hyper.charm.land",
        "zenmux.ai",
    },
    # Its settings, and telemetry.
    "droid": {
        "api.factory.ai",
        "otel-collector-123358924663.us-central1.run.app",
        "telemetry.factory.ai",
    },
    # Lists of models, and telemetry.
    "kilo": {"api.kilo.ai", "models.dev", "us.i.posthog.com"},
    # Its settings.
    "continue": {"api.continue.dev"},
    # Telemetry.
    "cline": {"data.cline.bot", "otel.cline.bot"},
    "qwen-code": {"gb4w8c3ygj-default-sea.rum.aliyuncs.com"},
    # Prices of models, and telemetry for some users, whom it draws by lot.
    "aider": {"raw.githubusercontent.com", "us.i.posthog.com"},
    # The table by which it counts tokens.
    "gptme": {"openaipublic.blob.core.windows.net"},
}
# A test of one client that is not given it.
PLAYS_IN = {"test_codex_that_tries_a_websocket_goes_on_over_http_at_once": "codex"}


@pytest.fixture(autouse=True)
def nobody_else_is_asked(request: pytest.FixtureRequest) -> Iterator[None]:
    if LOG not in os.environ:
        pytest.fail("Run it with tests/clients/loopback_only.py, as `make clients` does.")
    log = Path(os.environ[LOG])
    before = log.stat().st_size
    yield
    with log.open() as file:
        file.seek(before)
        tried = set(file.read().splitlines())
    assert tried <= allowed(request), tried


def allowed(request: pytest.FixtureRequest) -> set[str]:
    """With several at a time nobody knows whose attempt it was."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return set().union(*CALLS_HOME.values())
    given = getattr(request.node, "callspec", None)
    program = given.params.get("program") if given else None
    return CALLS_HOME.get(program.name if program else PLAYS_IN.get(request.node.name, ""), set())
