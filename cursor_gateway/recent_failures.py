"""Recent failures: a request that has just failed is not given to one agent after the other.

Clients repeat a failed request by themselves (Codex 0.166 thirty times in 25 seconds), mostly
without showing it to their user. These repetitions get the error again, and no agent is started:

- What Cursor refuses for the account or for a model, it refuses for some seconds to every request.
- A conversation that fails twice in the same way has failed for good: the error is final, and is
  given again for some seconds, the longer the more often it failed.
- If several conversations of a caller failed (OpenCode asks for a title beside its first turn), one
  of them tries again, and the others wait a moment for it. If it fails, it has failed for all.

An answer clears the failures that it disproves. All of this is bounded in number and in time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import TypeVar

from cursor_gateway.errors import (
    AgentKeyInvalid,
    AgentNotFound,
    AgentRefused,
    ContextTooLong,
    GatewayError,
    ModelBlocked,
    ModelNotFound,
    NotAuthenticated,
    OutOfResources,
    PlanRequired,
    QuotaExceeded,
    ShuttingDown,
    TooManyRequests,
    Unavailable,
)
from cursor_gateway.sessions import TurnRequest

T = TypeVar("T")

# How long a refusal is repeated. A user who signs in tries again at once.
REFUSAL_LASTS = 15.0
SIGN_IN_REFUSAL_LASTS = 5.0
# How long a final failure is repeated: this long at first, then twice, at most MAX_HOLDS times as
# long.
HOLD = 15.0
MAX_HOLDS = 4
# A request that comes later than this after a failure is no repetition of it.
WINDOW = 120.0
FINAL_AT = 2
# How long other requests wait for the one that tries again. The CLI takes up to eight seconds to
# start and fail.
TRIAL_LASTS = 10.0
MAX_ENTRIES = 1000

# For the gateway's own limits, and if there is no agent, no agent is started anyway.
_NOT_OF_AN_AGENT = (TooManyRequests, OutOfResources, ShuttingDown, AgentNotFound)
_OF_THE_SIGN_IN = (NotAuthenticated, AgentKeyInvalid)
_OF_A_MODEL = (QuotaExceeded, PlanRequired, ModelBlocked, ModelNotFound)
_ACCOUNT = ("account", "")


@dataclass(slots=True)
class _Refusal:
    error: GatewayError
    until: float
    # The number of sign-ins so far: a new one may be of another account.
    sign_ins: int


@dataclass(slots=True)
class _Streak:
    """Failures of one conversation in a row, all of one kind."""

    error: GatewayError
    at: float
    times: int = 0
    # How often the error was given without asking an agent.
    repeats: int = 0

    def is_over(self, now: float) -> bool:
        return now - self.at >= WINDOW

    def add(self, error: GatewayError, now: float) -> None:
        if error.code != self.error.code or self.is_over(now):
            self.times = self.repeats = 0
        self.error, self.at = error, now
        self.times += 1


@dataclass(slots=True)
class _Trial:
    """An attempt that one conversation makes for all of its caller's: does it still fail?"""

    code: str = ""
    failed_at: float = float("-inf")
    # Set when the attempt has ended; None if there was none.
    ended: asyncio.Event | None = None

    async def until_known(self) -> None:
        if self.ended is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(TRIAL_LASTS):
                    await self.ended.wait()


class RecentFailures:
    def __init__(self, sign_ins: Callable[[], int]) -> None:
        self._sign_ins = sign_ins
        self._refusals: _Newest[_Refusal] = _Newest()
        self._conversations: _Newest[_Streak] = _Newest()
        # By caller, model and directory.
        self._trials: _Newest[_Trial] = _Newest()

    def attempt(self, request: TurnRequest) -> _Attempt:
        """A context in which an agent answers `request`. Entering it raises a known failure."""
        return _Attempt(self, request)

    async def check(self, request: TurnRequest) -> _Trial | None:
        """Raises a known failure. Returns the trial of this attempt if it repeats one."""
        if not self._refusals and not self._conversations:
            return None
        conversation = _conversation(request)
        self._raise_refusal(request, conversation)
        failing = self._conversations.get(conversation)
        if failing is None or not failing.times or failing.is_over(monotonic()):
            return None
        trial = self._trials.renewed(request.scope, _Trial())
        await trial.until_known()
        _raise_final(failing, trial)
        return trial

    def failed(
        self, request: TurnRequest, error: GatewayError, trial: _Trial | None
    ) -> GatewayError:
        """Store the failure. Returns the error that the client gets."""
        # The copy has no traceback, which would hold the whole conversation.
        now, stored = monotonic(), copy(error)
        if isinstance(error, Unavailable) and not isinstance(error, _NOT_OF_AN_AGENT):
            if trial is not None:
                trial.code, trial.failed_at = error.code, now
            streak = self._conversations.renewed(_conversation(request), _Streak(stored, now))
            streak.add(stored, now)
            return _final(streak) if streak.times >= FINAL_AT else error
        if (scope := _refused(error, request)) is not None:
            lasts = SIGN_IN_REFUSAL_LASTS if scope == _ACCOUNT else REFUSAL_LASTS
            self._refusals.put(scope, _Refusal(stored, now + lasts, self._sign_ins()))
        return error

    def answered(self, request: TurnRequest) -> None:
        if self._conversations:
            self._conversations.pop(_conversation(request), None)
        self._refusals.pop(_ACCOUNT, None)
        self._refusals.pop(("model", request.model), None)

    def _raise_refusal(self, request: TurnRequest, conversation: Hashable) -> None:
        now = monotonic()
        for scope in (_ACCOUNT, ("model", request.model), ("conversation", conversation)):
            refusal = self._refusals.get(scope)
            if refusal and now < refusal.until and refusal.sign_ins == self._sign_ins():
                streak = self._conversations.renewed(conversation, _Streak(refusal.error, now))
                streak.repeats = 1 if streak.is_over(now) else streak.repeats + 1
                streak.at = now
                raise refusal.error.again(_from_memory(refusal.until - now), streak.repeats)


def _raise_final(failing: _Streak, trial: _Trial) -> None:
    times, at = failing.times, failing.at
    if trial.code == failing.error.code and trial.failed_at > at:
        times, at = max(times, FINAL_AT), trial.failed_at
    left = at + HOLD * min(times - FINAL_AT + 1, MAX_HOLDS) - monotonic()
    if times >= FINAL_AT and left > 0:
        failing.repeats += 1
        final = _final(failing)
        raise final.again(f"{final.remark} {_from_memory(left)}".strip(), final.repeats)


class _Attempt:
    def __init__(self, failures: RecentFailures, request: TurnRequest) -> None:
        self._failures = failures
        self._request = request
        self._trial: _Trial | None = None
        self._ended = asyncio.Event()

    async def __aenter__(self) -> None:
        self._trial = await self._failures.check(self._request)
        if self._trial is not None:
            self._trial.ended = self._ended

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._failures.answered(self._request)
            elif isinstance(error, GatewayError):
                instead = self._failures.failed(self._request, error, self._trial)
                if instead is not error:
                    raise instead from error
        finally:
            self._ended.set()


def _refused(error: GatewayError, request: TurnRequest) -> Hashable | None:
    """The requests that Cursor will refuse again; None if it may accept the same request."""
    if isinstance(error, _OF_THE_SIGN_IN):
        return _ACCOUNT
    if isinstance(error, _OF_A_MODEL):
        return "model", request.model
    if isinstance(error, AgentRefused | ContextTooLong):
        return "conversation", _conversation(request)
    return None


def _conversation(request: TurnRequest) -> Hashable:
    return request.scope, request.whole.said


def _final(streak: _Streak) -> GatewayError:
    remark = f"It failed {streak.times} times in a row." if streak.times > 1 else ""
    if not streak.error.hint:
        remark += " `cursor-gateway doctor` looks for the cause."
    return streak.error.again(remark.strip(), streak.times - 1 + streak.repeats)


def _from_memory(seconds: float) -> str:
    return f"(No agent was started for this answer; the next one may be in {seconds:.0f} s.)"


class _Newest(OrderedDict[Hashable, T]):
    """A dictionary of the newest entries."""

    def renewed(self, key: Hashable, value: T) -> T:
        """The entry, or `value` if there is none, moved to the end as the newest."""
        return self.put(key, self.get(key, value))

    def put(self, key: Hashable, value: T) -> T:
        self[key] = value
        self.move_to_end(key)
        if len(self) > MAX_ENTRIES:
            self.popitem(last=False)
        return value
