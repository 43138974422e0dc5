"""What the doctor says, and how it looks: one check after the other, changing nothing.

A check is a row of a table: `doctor/checks.py` has those that ask the machine and the CLI,
`doctor/probes.py` those that have a model work. Each gives findings, and a finding that is not good
carries why it matters and the command that mends it.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Literal

from cursor_gateway import errors
from cursor_gateway.account import Account
from cursor_gateway.agents.cursor.cli import CursorCli
from cursor_gateway.agents.cursor.transcripts import Transcripts
from cursor_gateway.agents.cursor.version_facts import KnownVersions
from cursor_gateway.core.conversation import ToolCall, ToolResult
from cursor_gateway.processes.child import TERM_GRACE
from cursor_gateway.processes.children import Children
from cursor_gateway.relay.server import Relay
from cursor_gateway.running_gateways import state_folder, versions_folder
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspaces

# `note`: worth knowing, and nothing is broken. `skipped`: it depends on something that is.
Verdict = Literal["ok", "note", "fault", "skipped"]

EDITOR = "${EDITOR:-vi}"


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    what: str
    why: str = ""
    # The command that mends it.
    fix: str = ""
    # For programs: what was measured, by name.
    measured: Mapping[str, float | bool] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class DoctorContext:
    """The parts of a gateway that checks work with, as a gateway has them, without serving."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self.settings = settings
        self.env = env

    @cached_property
    def children(self) -> Children:
        keep = self.settings.transcripts == "keep"
        transcripts = Transcripts(self.env, state_folder(self.env), keep=keep)
        return Children(transcripts, owns_process=False)

    @cached_property
    def relay(self) -> Relay:
        return Relay(self.settings.relay_hold, _no_errand)

    @cached_property
    def agent(self) -> CursorCli:
        ids = map("call_{}".format, itertools.count(1))
        workspaces = Workspaces(self.children.root, "", ())
        return CursorCli(
            self.settings,
            self.env,
            self.children,
            workspaces,
            self.relay,
            ids.__next__,
            KnownVersions(versions_folder(self.env)),
        )

    @cached_property
    def account(self) -> Account:
        return Account(self.agent, self.settings)

    @property
    def agent_command(self) -> str:
        return shlex.join(self.agent.locate().argv)

    async def __aenter__(self) -> DoctorContext:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        made = vars(self)
        if "account" in made:
            await self.account.close()
        if "agent" in made:
            await self.agent.known.close()
            self.agent.spares.close()
        await self.relay.close()
        if "children" in made:
            await self.children.close(TERM_GRACE)


async def _no_errand(call: ToolCall) -> ToolResult:
    raise AssertionError("the doctor offers no tools of MCP servers")


Look = Callable[[DoctorContext], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    # What is looked at, for who waits.
    title: str
    # Why it matters; findings without a reason of their own take it.
    why: str
    look: Look
    # The checks without which this one is of no use.
    needs: tuple[str, ...] = ()


# What the CLI's refusals are mended by; for others there is nothing but another try.
_CURES: Mapping[type[errors.GatewayError], str] = {
    errors.NotAuthenticated: "cursor-gateway login",
    errors.AgentKeyInvalid: "unset CURSOR_API_KEY; cursor-gateway login",
    errors.PlanRequired: "cursor-gateway doctor --live --model auto",
    errors.ModelNotFound: "cursor-gateway models",
    errors.QuotaExceeded: "cursor-gateway doctor --live --model auto",
}


def fault_of(error: errors.GatewayError, context: DoctorContext) -> Finding:
    fix = _CURES.get(type(error), "cursor-gateway models")
    if isinstance(error, errors.AgentOutdated | errors.WorkspaceNotTrusted):
        fix = f"{context.agent_command} update"
    elif isinstance(error, errors.CursorUnreachable) and context.env.get("CURSOR_API_ENDPOINT"):
        fix = "unset CURSOR_API_ENDPOINT"
    return Finding("fault", str(error), error.hint, fix)


async def examine(
    checks: Iterable[Check],
    context: DoctorContext,
    begun: Callable[[Check], object] = lambda check: None,
) -> AsyncIterator[tuple[Check, list[Finding]]]:
    """Each check with its findings; `begun` is told before it is looked at."""
    failed: dict[str, str] = {}
    for check in checks:
        begun(check)
        cause = next((failed[name] for name in check.needs if name in failed), None)
        if cause is not None:
            findings = [Finding("skipped", f"not looked at before `{cause}` is mended")]
            failed[check.name] = cause
        else:
            findings = await _look(check, context)
            if any(finding.verdict == "fault" for finding in findings):
                failed[check.name] = check.name
        yield check, findings


async def _look(check: Check, context: DoctorContext) -> list[Finding]:
    try:
        found = await check.look(context)
    except errors.GatewayError as error:
        found = [fault_of(error, context)]
    return [_reasoned(finding, check) for finding in found]


def _reasoned(finding: Finding, check: Check) -> Finding:
    is_good = finding.verdict in ("ok", "skipped")
    return finding if is_good or finding.why else replace(finding, why=check.why)
