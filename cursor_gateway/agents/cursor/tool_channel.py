"""ToolChannel: by which channel the client's tools reach the agent, and which ones served."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any

from cursor_gateway.agents.cursor.program import Program
from cursor_gateway.agents.cursor.version_facts import VersionFacts

log = logging.getLogger(__name__)

# An agent that never came to the relay will not begin to, but it may be updated.
_ASK_AGAIN_AFTER = 600.0
_IGNORED_OFTEN = 2
_IGNORED = "the agent did not connect to the relay (an old CLI, or MCP is not allowed)"
_NOT_FETCHED = "this version of the CLI was seen not to fetch the relay's tools (`doctor --live`)"
_REMOTE = "the agent is remote (agent_command), where the relay cannot be reached"


class ToolChannel:
    """By which channel the client's tools reach the agent, and which ones served."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        # How many agents in a row did without the relay, and how long it is not tried again.
        self._ignored = 0
        self._ignored_until = 0.0
        self._served = dict.fromkeys(("relay", "text", "native"), 0)
        # Whether this version of the CLI was seen to fetch the relay's tools, or not to.
        self._is_fetched: bool | None = None

    def heed(self, facts: VersionFacts) -> None:
        self._is_fetched = facts.fetches_relay_tools

    def is_relay(self, program: Program) -> bool:
        if self._wanted == "text" or program.is_built_in or program.prefix:
            return False
        if self._wanted == "relay":
            return True
        return self._is_fetched is not False and monotonic() >= self._ignored_until

    def relay_is_ignored(self) -> None:
        self._ignored += 1
        if self._ignored == 1:
            log.warning("tools went by text: %s", _IGNORED)
        if self._ignored >= _IGNORED_OFTEN:
            self._ignored_until = monotonic() + _ASK_AGAIN_AFTER

    def count(self, channel: str, *, took_relay: bool) -> None:
        if channel != "none":
            self._ignored = 0 if took_relay else self._ignored
            self._served[channel] += 1
            log.info("answered; tools by the %s channel", channel)

    def state(self, program: Program) -> dict[str, Any]:
        is_relay = self.is_relay(program)
        reason = _REMOTE if program.prefix else f"tool_channel is {self._wanted}"
        if self._wanted == "auto" and self._is_fetched is False:
            reason = _NOT_FETCHED
        return {
            "channel": "relay" if is_relay else "text",
            "reason": _IGNORED if self._ignored and not is_relay else reason,
            "served": dict(self._served),
        }
