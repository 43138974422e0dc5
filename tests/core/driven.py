"""Driven: a turn whose instructions are followed, with what came of them to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cursor_gateway.agents.cursor.native_tools import with_client_call
from cursor_gateway.core.conversation import Conversation, Message, ToolCall, ToolResult
from cursor_gateway.core.events import (
    SILENCE,
    ZERO_USAGE,
    AgentCall,
    AgentEvent,
    AnswerEvent,
    Finished,
    RunFinished,
    Usage,
)
from cursor_gateway.core.instructions import (
    AskAgain,
    Deliver,
    Done,
    Read,
    Reply,
    RunTools,
)
from cursor_gateway.core.turn import Turn


class Driven:
    def __init__(
        self,
        conversation: Conversation,
        *,
        max_repeat: int,
        new_id: Callable[[], str],
        show_activity: bool = False,
    ) -> None:
        self._turn = Turn(
            conversation, max_repeat=max_repeat, new_id=new_id, show_activity=show_activity
        )
        self._tools = conversation.callable_tools
        self._again: AskAgain | None = None
        self._done: Done | None = None
        self.burst_open = False
        self.replies: list[ToolResult] = []
        # Calls that a gateway would execute now, and the client's calls beside them.
        self.bridged: tuple[ToolCall, ...] = ()
        self.beside: tuple[str, ...] = ()

    def begin(self, asked: Conversation, reported: Usage = ZERO_USAGE) -> None:
        self._again = None
        self._turn.begin(asked, reported)

    def feed(self, events: Sequence[AgentEvent | Finished]) -> list[AnswerEvent]:
        """What the client gets for `events`; none at all mean a moment of silence."""
        found = [self._as_its_run_would(event) for event in events]
        self._turn.feed(found if events else SILENCE)
        return self._follow()

    def executed(self, results: Sequence[ToolResult]) -> list[AnswerEvent]:
        self.bridged = ()
        self._turn.executed(results)
        return self._follow()

    def _as_its_run_would(self, event: AgentEvent | Finished) -> AgentEvent:
        """So that a test can write down what goes in and what comes out in the same words."""
        if isinstance(event, Finished):
            return RunFinished(event.usage)
        return with_client_call(event, self._tools) if isinstance(event, AgentCall) else event

    def _follow(self) -> list[AnswerEvent]:
        """Do what the turn says until it wants to be fed, or to be told of something."""
        delivered: list[AnswerEvent] = []
        while self._done is None:
            match self._turn.next():
                case Deliver(events):
                    delivered += events
                case Reply(results):
                    self.replies += results
                case RunTools(calls, beside):
                    self.bridged, self.beside = calls, beside
                    break
                case AskAgain() as again:
                    self._again = again
                    break
                case Read(burst_open):
                    self.burst_open = burst_open
                    break
                case Done() as done:
                    self._done, self.burst_open = done, False
                    delivered += done.events
        return delivered

    @property
    def channel(self) -> str:
        return self._turn.channel

    @property
    def retry(self) -> tuple[Message, ...]:
        return self._again.messages if self._again else ()

    @property
    def over(self) -> bool:
        return self._done is not None

    @property
    def unread(self) -> list[AgentEvent]:
        return self._done.unread if self._done else []

    @property
    def usage(self) -> Usage:
        return self._done.usage if self._done else ZERO_USAGE

    @property
    def leaves_agent_waiting(self) -> bool:
        return self._done is not None and self._done.run_is == "waiting"

    @property
    def ended_with_agent(self) -> bool:
        if self._again is not None:
            return self._again.run_finished
        return self._done is not None and self._done.run_is == "finished"
