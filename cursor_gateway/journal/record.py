"""The journal: what became of each request. The last records in memory, all of them in a file.

A record is made by the server and handed along the path of its request; whoever knows something
writes it in. It costs the path a few assignments and, for each batch of events, one call. What was
asked and answered is not in it, unless the user switched that on.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from cursor_gateway.agents import AgentProcess
from cursor_gateway.core.conversation import ToolCall
from cursor_gateway.core.events import AnswerEvent, Finished, TextDelta, ThinkingDelta, Usage
from cursor_gateway.core.loop_guard import Loop
from cursor_gateway.errors import GatewayError
from cursor_gateway.redaction import OUTGOING

log = logging.getLogger(__name__)

RUNNING, COMPLETE, CLIENT_GONE = "running", "complete", "client_gone"
# What the server notes for a client that did not wait for the end, whatever it had been sent.
NO_STATUS = 499

# How much is kept of what was asked and answered.
WORDS_KEPT = 1024 * 1024

_PRODUCT = re.compile(r"[!-~]{1,60}(?: v?\d[!-~]{0,20})?")
_MODEL_CHARACTERS = 100
_ERROR_CHARACTERS = 2000


How = Literal["fresh", "resumed", "continued"]


@dataclass(slots=True)
class RecordedRun:
    """A run of an agent that worked for a request."""

    # `fresh`, `resumed` (it took up a chat) or `continued` (it waited for results).
    how: How
    process: AgentProcess | None
    # Whether it was started before anybody asked.
    is_warm: bool = False

    def as_json(self) -> dict[str, Any]:
        process = self.process
        is_over = process is not None and process.exited.done()
        return {
            "how": self.how,
            "spare": self.is_warm,
            "pid": process.pid if process else None,
            "run": process.mark if process else "",
            "exit": process.exited.result() if process and is_over else None,
        }


@dataclass(slots=True, eq=False)
class Record:
    id: str = ""
    client: str = ""
    dialect: str = ""
    at: float = field(default_factory=time.time)
    stream: bool = False
    # The model as it was asked for, and the one that was meant.
    model: str = ""
    resolved: str = ""
    # How the client's tools reached the agent: `relay`, `text`, `native`, or `none` without tools.
    # Known in the end only: the agent may not take what it was offered.
    channel: str = ""
    # The kind of agent that was asked, as `/health` names it.
    agent_kind: str = ""
    runs: list[RecordedRun] = field(default_factory=list)
    # The agent's own name for the conversation.
    chat: str = ""
    usage: Usage | None = None
    calls: tuple[str, ...] = ()
    loop: Loop | None = None
    # `running`, `complete`, `client_gone` or the code of an error.
    outcome: str = RUNNING
    # What the client was told of an error; many show their users nothing of it.
    error: str = ""
    status: int | None = None
    # What happened, and how many seconds after the request came.
    timeline: dict[str, float] = field(default_factory=dict)
    # What was asked and answered; None where it is not recorded.
    asked: str | None = None
    answered: list[AnswerEvent] | None = None
    _began: float = field(default_factory=time.monotonic)

    # Moments, each noted once

    def mark(self, moment: str) -> None:
        self.timeline.setdefault(moment, time.monotonic() - self._began)

    def started(self, how: How, process: AgentProcess | None, *, is_warm: bool = False) -> None:
        """A run works for the request, by `process` if it has one of its own."""
        self.mark("agent_started")
        self.runs.append(RecordedRun(how, process, is_warm))

    def spoke(self) -> None:
        self.mark("first_event")

    def passed_on(self, events: Sequence[AnswerEvent]) -> None:
        """The client gets `events`."""
        if "first_token" not in self.timeline and any(map(_is_token, events)):
            self.mark("first_token")
        if self.answered is not None:
            self.answered += events
        if events and isinstance(last := events[-1], Finished):
            # Calls are handed out with the end of a turn, never before.
            self.calls = tuple(event.name for event in events if isinstance(event, ToolCall))
            self.usage, self.loop = last.usage, last.loop
            if self.calls:
                self.mark("calls")

    def failed(self, error: GatewayError) -> None:
        """What went wrong first is what went wrong. The agent may repeat the prompt in its last
        words, so these are kept only where prompts are."""
        if self.outcome == RUNNING:
            is_kept = self.answered is not None or not error.quotes_agent
            told = error.message if is_kept else error.hint
            self.outcome, self.error = error.code, told[:_ERROR_CHARACTERS]

    def left(self) -> None:
        """The client did not wait for the end."""
        if self.outcome == RUNNING:
            self.outcome = CLIENT_GONE

    def end(self) -> None:
        if self.outcome == RUNNING:
            self.outcome = COMPLETE if self.status is not None else CLIENT_GONE
        if self.outcome == CLIENT_GONE or self.status is None:
            self.status = NO_STATUS
        self.mark("end")

    # Reading

    def left_of(self, seconds: float) -> float:
        """What is left of so many seconds for the answer; all of them while none is under way."""
        started = self.timeline.get("started")
        if started is None or self.outcome != RUNNING:
            return seconds
        return max(0.0, self._began + started + seconds - time.monotonic())

    @property
    def duration(self) -> float:
        return self.timeline.get("end", time.monotonic() - self._began)

    @property
    def stage(self) -> tuple[int, str, str]:
        """What differs as soon as anything but the time has changed."""
        return len(self.timeline), self.outcome, self.model

    @property
    def queue_wait(self) -> float | None:
        queued, started = self.timeline.get("queued"), self.timeline.get("started")
        return started - queued if queued is not None and started is not None else None

    def processes(self) -> list[dict[str, Any]]:
        return [run.as_json() for run in self.runs]

    def words(self) -> dict[str, Any]:
        """What was asked and answered, where it is recorded."""
        if self.asked is None:
            return {}
        return {"request": self.asked, "answer": _answer(self.answered or ())}

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "at": _iso(self.at),
            "client": self.client,
            "dialect": self.dialect,
            "stream": self.stream,
            "model": OUTGOING(self.model[:_MODEL_CHARACTERS]),
            "resolved": self.resolved,
            "channel": self.channel or ("none" if self.outcome != RUNNING else None),
            "agent": self.runs[-1].how if self.runs else "none",
            "agent_kind": self.agent_kind,
            "outcome": self.outcome,
            "status": self.status,
            "error": self.error or None,
            "queue_ms": _ms(self.queue_wait),
            "first_token_ms": _ms(self.timeline.get("first_token")),
            "duration_ms": _ms(self.duration),
            "tokens": _tokens(self.usage) if self.usage else None,
            "calls": self.calls,
            "loop": self.loop.as_json() if self.loop else None,
            "chat": self.chat,
            "agents": self.processes(),
            "timeline": {moment: _ms(seconds) for moment, seconds in self.timeline.items()},
        }


def client_of(user_agent: str) -> str:
    """The program that asks, such as `claude-cli/2.1.3`, without the systems it names."""
    found = _PRODUCT.match(user_agent)
    # All browsers begin with the same word, which says nothing else.
    return "browser" if user_agent.startswith("Mozilla/") else found[0] if found else ""


_TOKENS = (TextDelta, ThinkingDelta, ToolCall)


def _is_token(event: AnswerEvent) -> bool:
    return isinstance(event, _TOKENS)


def _answer(events: Sequence[AnswerEvent]) -> dict[str, Any]:
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    calls = [
        {"name": event.name, "arguments": event.arguments}
        for event in events
        if isinstance(event, ToolCall)
    ]
    return {"text": text[:WORDS_KEPT], "thinking": thinking[:WORDS_KEPT], "calls": calls}


def _tokens(usage: Usage) -> dict[str, Any]:
    tokens: dict[str, Any] = {
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "estimated": usage.estimated,
    }
    return tokens if usage.reasoning is None else tokens | {"reasoning": usage.reasoning}


def _iso(at: float) -> str:
    return f"{_second(int(at))}.{int(at % 1 * 1000):03}+00:00"


@lru_cache(maxsize=1)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else int(seconds * 10_000 + 0.5) / 10
