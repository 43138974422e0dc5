"""Runs of an agent for the doctor's probes: what is asked, and what is heard.

They go through the parts that requests go through, each with an agent of its own. What is asked is
plain, and answers are recognised by words that nobody can guess.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cursor_gateway.agents import UNOBSERVED, RunSpec
from cursor_gateway.agents.cursor.run import CliRun
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolResult, ToolSpec
from cursor_gateway.core.events import AgentCall, ClientCall, Quiet, RunFinished, TextDelta

if TYPE_CHECKING:
    from cursor_gateway.agents.cursor.cli import CursorCli

LOOKUP = ToolSpec(
    "doctor_lookup",
    "Tells the word that belongs to a key.",
    {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)

Reply = Callable[[CliRun, Sequence[ClientCall]], Awaitable[None]]


@dataclass(slots=True)
class Heard:
    text: str = ""
    calls: list[ClientCall] = field(default_factory=list)
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
    conversation = Conversation(model, messages, tools=tuple(tools))
    return RunSpec(conversation, model, writes_calls=not by_relay)


def lookup(model: str, cli: CursorCli) -> CliRun:
    question = f"Call {LOOKUP.name} with the key red. Then answer with the word that it tells."
    return cli.run(spec(model, question, tools=(LOOKUP,), by_relay=True), UNOBSERVED)


async def listen(run: CliRun, reply: Reply | None = None) -> Heard:
    """Read a run to its end; `reply` is given the calls that are made at once."""
    heard, open_calls = Heard(), list[ClientCall]()
    while True:
        found = await run.read(burst_open=bool(open_calls))
        events = [] if isinstance(found, Quiet) else found
        heard.text += "".join(event.text for event in events if isinstance(event, TextDelta))
        open_calls += [event for event in events if isinstance(event, ClientCall)]
        heard.acted |= any(isinstance(event, AgentCall) for event in events)
        if any(isinstance(event, RunFinished) for event in events):
            return heard
        if open_calls and not events:
            heard.calls += open_calls
            heard.most_at_once = max(heard.most_at_once, len(open_calls))
            assert reply is not None
            await reply(run, open_calls)
            open_calls = []


def answer(run: CliRun, calls: Sequence[ClientCall], words: dict[str, str]) -> None:
    assert run.session is not None
    run.session.deliver(
        ToolResult(call.id, (Text(words.get(str(call.arguments.get("key")), "no such key")),))
        for call in calls
    )


def word() -> str:
    return f"word-{secrets.token_hex(4)}"


def uses_relay(cli: CursorCli) -> bool:
    return cli.settings.tool_channel != "text" and not cli.program().prefix
