"""EchoAgent: an agent without any process, as small as the seam allows.

It repeats what the user said last. `call NAME` has it call that tool of the client's and repeat the
result. A chat is how many messages it has read so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cursor_gateway.agents import (
    Agent,
    AgentContext,
    AgentProcess,
    Capabilities,
    Chat,
    Located,
    ModelList,
    Run,
    RunObserver,
    RunSpec,
    SignIn,
)
from cursor_gateway.core.conversation import Text, ToolResult, ToolSpec
from cursor_gateway.core.events import (
    SILENCE,
    ZERO_USAGE,
    AgentEvent,
    ClientCall,
    Quiet,
    RunFinished,
    TextDelta,
    Usage,
)
from cursor_gateway.core.models import Model
from cursor_gateway.processes.children import NoWill
from cursor_gateway.settings import Settings

HERE = Located("echo", "in memory")


@dataclass(frozen=True, slots=True)
class EchoChat:
    session_id: str
    messages: int


class EchoRun:
    process: AgentProcess | None = None
    channel: Literal["relay"] = "relay"

    def __init__(self, spec: RunSpec, observer: RunObserver, new_id: Callable[[], str]) -> None:
        self.spec = spec
        self.session_id = spec.chat.session_id if spec.chat else new_id()
        self.reported_usage = ZERO_USAGE
        self.is_waiting = False
        self._observer = observer
        self._new_id = new_id
        self._events: list[AgentEvent] = []
        self._has_begun = False

    async def read(self, *, burst_open: bool) -> Sequence[AgentEvent] | Quiet:
        if not self._has_begun:
            self._has_begun = True
            how: Literal["fresh", "resumed"] = "resumed" if self.spec.chat else "fresh"
            self._observer.started(how, None, is_warm=False)
            self._begin()
        if not self._events:
            assert burst_open and self.is_waiting
            return SILENCE
        events, self._events = self._events, []
        return events

    def _begin(self) -> None:
        new_messages = self.spec.conversation.messages[self.spec.known :]
        parts = [part.text for part in new_messages[-1].parts if isinstance(part, Text)]
        first, _, rest = parts[-1].partition(" ")
        if first == "call":
            self.is_waiting = True
            self._events = [ClientCall(self._new_id(), rest, {})]
        else:
            self._say(f"{parts[-1]} ({len(new_messages)} new)")

    def _say(self, words: str) -> None:
        self._events = [TextDelta(words), RunFinished(Usage(3, 2))]

    def deliver(self, results: Sequence[ToolResult]) -> None:
        self.is_waiting = False
        texts = [part.text for r in results for part in r.content if isinstance(part, Text)]
        self._say("result: " + ", ".join(texts))

    def park(self, unread: Sequence[AgentEvent], usage: Usage) -> None:
        self.reported_usage += usage

    def resume(
        self, results: Sequence[ToolResult], tools: Sequence[ToolSpec], *, parallel_calls: bool
    ) -> str:
        self.deliver(results)
        return ""

    def when_over(self, call: Callable[[], object]) -> None: ...


async def _nobody() -> bool:
    return False


class EchoAgent(Agent):
    by_default = Capabilities(calls_back=True, resumes=True)

    last_will = NoWill()

    def __init__(self, context: AgentContext) -> None:
        self.make_room = _nobody
        self._new_id = context.new_call_id

    @classmethod
    def find(cls, settings: Settings, env: Mapping[str, str]) -> Located:
        return HERE

    @classmethod
    def login_command(cls, settings: Settings, env: Mapping[str, str]) -> Sequence[str]:
        return ["true"]

    @classmethod
    def update_command(cls, settings: Settings, env: Mapping[str, str]) -> str:
        return "true"

    def locate(self) -> Located:
        return HERE

    async def sign_in(self) -> SignIn:
        return SignIn(authenticated=True, account="echo@localhost")

    async def models(self) -> ModelList:
        return ModelList((Model("echo", "Echo"),), complete=True)

    async def version(self) -> str:
        return "1"

    def start(self, spec: RunSpec, observer: RunObserver) -> Run:
        return EchoRun(spec, observer, self._new_id)

    def end(self, run: Run) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def keep(self, run: Run) -> Chat | None:
        return EchoChat(run.session_id, len(run.spec.conversation.messages))

    def still_has(self, chat: Chat) -> bool:
        return isinstance(chat, EchoChat)
