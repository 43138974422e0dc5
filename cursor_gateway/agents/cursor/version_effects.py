"""What follows from what is known of the installed version of the CLI."""

from __future__ import annotations

from cursor_gateway.agents.cursor.version_facts import VersionFacts
from cursor_gateway.settings import FIELDS, Settings

# Of the time after which the CLI was seen to give up a call: so much is safe.
_SAFE = 0.8

DISOBEYS = (
    "this version of the CLI disobeys the deny list: a model can use the agent's own tools, and "
    "read your files. Update it (`cursor-agent update`) and try again with `cursor-gateway doctor "
    "--live`, or keep it away from them with `--isolate`"
)


def relay_hold(settings: Settings, facts: VersionFacts) -> float:
    """For how long a call is held before it is answered by a ticket. Whoever has set another time
    than the default knows better."""
    hold = settings.relay_hold
    if facts.relay_gives_up_s is None or hold != FIELDS["relay_hold"].default:
        return hold
    return min(hold, _SAFE * facts.relay_gives_up_s)


def warnings(settings: Settings, facts: VersionFacts) -> list[str]:
    """What whoever runs the gateway has to know."""
    disobeys = facts.obeys_deny_list is False and not settings.isolate
    return [DISOBEYS] if disobeys else []
