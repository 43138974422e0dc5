"""The checks of the SDK bridge: cheap, they ask no model, and they change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cursor_gateway.agents.sdk import program
from cursor_gateway.agents.sdk.texts import INSTALL, BridgeNotFound
from cursor_gateway.errors import AgentOutdated, GatewayError
from cursor_gateway.findings import Finding, Row
from cursor_gateway.redaction import masked_address

if TYPE_CHECKING:
    from cursor_gateway.agents.sdk.agent import SdkAgent

_GET_A_KEY = f"export {program.KEY}=…  # from cursor.com/dashboard"


async def bridge(agent: SdkAgent) -> Sequence[Finding]:
    try:
        return [Finding("ok", str(program.find_bridge(agent.env)))]
    except BridgeNotFound as error:
        named = agent.env.get(program.NAMED_BY)
        return [Finding("fault", str(error), fix=f"unset {program.NAMED_BY}" if named else INSTALL)]


async def key(agent: SdkAgent) -> Sequence[Finding]:
    if agent.key:
        return [Finding("ok", f"there is one in {program.KEY}")]
    return [Finding("fault", f"{program.KEY} is not set", fix=_GET_A_KEY)]


async def handshake(agent: SdkAgent) -> Sequence[Finding]:
    try:
        version = await agent.version()
    except AgentOutdated as error:
        return [Finding("fault", str(error), fix=f"{INSTALL} --upgrade")]
    except GatewayError as error:
        return [Finding("fault", str(error), fix=f"{program.find_bridge(agent.env)} --help")]
    return [Finding("ok", f"it starts, and is version {version}")]


async def sign_in(agent: SdkAgent) -> Sequence[Finding]:
    try:
        found = await agent.sign_in()
    except GatewayError as error:
        return [Finding("fault", str(error), fix=_GET_A_KEY)]
    return [Finding("ok", f"as {masked_address(found.account)}, by the key in {program.KEY}")]


CHECKS: tuple[Row[SdkAgent], ...] = (
    Row("agent", "Cursor's SDK bridge", "No request can be answered without it.", bridge),
    Row("agent-key", "its API key", "The bridge knows no other sign-in.", key),
    Row(
        "agent-version",
        "its version, and whether it starts",
        "The gateway speaks one version of its protocol.",
        handshake,
        ("agent", "scratch"),
    ),
    Row(
        "sign-in",
        "the sign-in",
        "Cursor answers nobody who is not signed in.",
        sign_in,
        ("agent-version", "agent-key"),
    ),
)
