"""Runs of an agent for the doctor's probes: what is asked, and what is heard.

They go through the parts that requests go through, each with a context of its own. What is asked is
plain, and answers are recognised by words that nobody can guess.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cursor_gateway.agents.cursor.run import Run, RunSpec
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolResult, ToolSpec
from cursor_gateway.core.events import AgentCall, Finished, RelayedCall, TextDelta
from cursor_gateway.doctor.examination import DoctorContext
from cursor_gateway.journal.record import Record

LOOKUP = ToolSpec(
    "doctor_lookup",
    "Tells the word that belongs to a key.",
    {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)

Reply = Callable[[Run, Sequence[RelayedCall]], Awaitable[None]]


@dataclass(slots=True)
class Heard:
    text: str = ""
    calls: list[RelayedCall] = field(default_factory=list)
    most_at_once: int = 0
    # Whether the agent began a tool of its own.
    acted: bool = False


def spec(
    model: str, *turns: str, tools: Sequence[ToolSpec] = (), by_relay: bool = False
) -> RunSpec:
    """What is asked last in `turns`, of which every second one was said by the model."""
    roles = ("user", "assistant")
    messages = tuple(
        Message(roles[at % 2], (Text(turn),))  # type: ignore[arg-type]
        for at, turn in enumerate(turns)
    )
    return RunSpec(Conversation(model, messages, tools=tuple(tools)), model, by_relay=by_relay)


def lookup(model: str, context: DoctorContext) -> Run:
    question = f"Call {LOOKUP.name} with the key red. Then answer with the word that it tells."
    return context.agent.start(spec(model, question, tools=(LOOKUP,), by_relay=True), Record())


async def listen(run: Run, reply: Reply | None = None) -> Heard:
    """Read a run to its end; `reply` is given the calls that are made at once."""
    heard, open_calls = Heard(), list[RelayedCall]()
    while True:
        events = await run.read(restless=bool(open_calls))
        heard.text += "".join(event.text for event in events if isinstance(event, TextDelta))
        open_calls += [event for event in events if isinstance(event, RelayedCall)]
        heard.acted |= any(isinstance(event, AgentCall) for event in events)
        if any(isinstance(event, Finished) for event in events):
            return heard
        if open_calls and not events:
            heard.calls += open_calls
            heard.most_at_once = max(heard.most_at_once, len(open_calls))
            assert reply is not None
            await reply(run, open_calls)
            open_calls = []


def answer(run: Run, calls: Sequence[RelayedCall], words: dict[str, str]) -> None:
    assert run.line is not None
    run.line.deliver(
        ToolResult(call.id, (Text(words.get(str(call.arguments.get("key")), "no such key")),))
        for call in calls
    )


@asynccontextmanager
async def fresh(context: DoctorContext, **changes: Any) -> AsyncIterator[DoctorContext]:
    async with DoctorContext(replace(context.settings, **changes), context.env) as another:
        await another.relay.start()
        yield another


def word() -> str:
    return f"word-{secrets.token_hex(4)}"


def uses_relay(context: DoctorContext) -> bool:
    return context.settings.tool_channel != "text" and not context.agent.locate().reach
