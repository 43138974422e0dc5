"""How the doctor looks: one check after the other, changing nothing.

A check is a row of a table: `checks.py` has those of every agent, and an agent brings its own. Each
gives findings, and a finding that is not good carries why it matters and the command that fixes it.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import cached_property
from types import TracebackType

from cursor_gateway import errors
from cursor_gateway.account import Account
from cursor_gateway.agents import Agent, chosen
from cursor_gateway.findings import Check, Finding
from cursor_gateway.parts import Parts, no_bridged_calls
from cursor_gateway.processes.children import Children
from cursor_gateway.settings import Settings


class DoctorContext:
    """The parts of a gateway that checks work with, as a gateway has them, without serving."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self.settings = settings
        self.env = env

    @cached_property
    def _parts(self) -> Parts:
        """Made when a check needs them: not every machine has room for them."""
        ids = map("call_{}".format, itertools.count(1))
        return Parts(self.settings, self.env, ids.__next__, no_bridged_calls)

    @property
    def children(self) -> Children:
        return self._parts.children

    @property
    def agent(self) -> Agent:
        return self._parts.agent

    @property
    def account(self) -> Account:
        return self._parts.account

    async def __aenter__(self) -> DoctorContext:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if "_parts" in vars(self):
            await self._parts.close()


# What fixes an agent's refusals; for others there is nothing but another try.
_FIXES: Mapping[type[errors.GatewayError], str] = {
    errors.NotAuthenticated: "cursor-gateway login",
    errors.AgentKeyInvalid: "unset CURSOR_API_KEY; cursor-gateway login",
    errors.PlanRequired: "cursor-gateway doctor --live --model auto",
    errors.ModelNotFound: "cursor-gateway models",
    errors.QuotaExceeded: "cursor-gateway doctor --live --model auto",
}


def problem_of(error: errors.GatewayError, context: DoctorContext) -> Finding:
    fix = _FIXES.get(type(error), "cursor-gateway models")
    if isinstance(error, errors.AgentOutdated | errors.WorkspaceNotTrusted):
        fix = f"{chosen(context.settings).update_command(context.settings, context.env)}"
    elif isinstance(error, errors.CursorUnreachable) and context.env.get("CURSOR_API_ENDPOINT"):
        fix = "unset CURSOR_API_ENDPOINT"
    return Finding("fault", str(error), error.hint, fix)


async def examine(
    checks: Iterable[Check],
    context: DoctorContext,
    begun: Callable[[Check], object] = lambda check: None,
) -> AsyncIterator[tuple[Check, list[Finding]]]:
    """Each check with its findings; `begun` is told before it is made."""
    failed: dict[str, str] = {}
    for check in checks:
        begun(check)
        cause = next((failed[name] for name in check.needs if name in failed), None)
        if cause is not None:
            findings = [Finding("skipped", f"not looked at before `{cause}` is fixed")]
            failed[check.name] = cause
        else:
            findings = await _look(check, context)
            if any(finding.verdict == "fault" for finding in findings):
                failed[check.name] = check.name
        yield check, findings


async def _look(check: Check, context: DoctorContext) -> list[Finding]:
    try:
        found = await check.look()
    except errors.GatewayError as error:
        found = [problem_of(error, context)]
    return [check.with_reason(finding) for finding in found]
