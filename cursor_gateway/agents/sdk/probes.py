"""The checks that have a model of the SDK's work: an answer, a call, and a chat that goes on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cursor_gateway.agents import UNOBSERVED, RunSpec
from cursor_gateway.agents.sdk.run import SdkRun
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolResult, ToolSpec
from cursor_gateway.core.events import ClientCall, Quiet, RunFinished, TextDelta
from cursor_gateway.findings import Finding, Row

if TYPE_CHECKING:
    from cursor_gateway.agents.sdk.agent import SdkAgent

RUN_SECONDS = 75.0

_TRY_AUTO = "cursor-gateway doctor --live --model auto"
_WORD = ToolSpec("word_of_the_day", "Tells the word of the day.", {"type": "object"})


async def answer(agent: SdkAgent, model: str) -> Sequence[Finding]:
    word = _word()
    question = f"Answer with this one word and nothing else: {word}"
    began = asyncio.get_running_loop().time()
    run = agent.start(_spec(model, question), UNOBSERVED)
    text, _ = await _heard(agent, run)
    seconds = round(asyncio.get_running_loop().time() - began, 1)
    if word not in text:
        words = f"the model answered something else: {text[:80]!r}"
        return [Finding("fault", words, fix=_TRY_AUTO)]
    return [Finding("ok", f"answered in {seconds:g} s", measured={"answer_s": seconds})]


async def call(agent: SdkAgent, model: str) -> Sequence[Finding]:
    word = _word()
    spec = _spec(model, "Call `word_of_the_day`, and answer with the word that it gives.", _WORD)
    text, calls = await _heard(agent, agent.start(spec, UNOBSERVED), word)
    if not calls:
        fix = "export CURSOR_GATEWAY_TOOL_CHANNEL=text"
        return [Finding("fault", "the model did not call the client's tool", fix=fix)]
    if word not in text:
        words = f"the result of a call did not reach the model: {text[:80]!r}"
        return [Finding("fault", words, fix=_TRY_AUTO)]
    return [Finding("ok", "the client's tools are called, and results reach the model")]


async def chat(agent: SdkAgent, model: str) -> Sequence[Finding]:
    if not agent.settings.session_reuse:
        return [Finding("skipped", "chats are not taken up (setting `session_reuse`)")]
    word = _word()
    first = _spec(model, f"Remember this word: {word}. Answer with the one word: remembered")
    run = agent.start(first, UNOBSERVED)
    await _heard(agent, run, ends=False)
    spec = _spec(model, "Which word did I ask you to remember? Answer with that word only.")
    # All that it is sent is the new question.
    again = agent.start(replace(spec, chat=agent.keep(run)), UNOBSERVED)
    text, _ = await _heard(agent, again)
    if word in text:
        return [Finding("ok", "a finished chat goes on")]
    fix = "export CURSOR_SESSION_REUSE=false"
    return [Finding("fault", "a chat that goes on does not know what was said", fix=fix)]


def probes(model: str) -> Sequence[Row[SdkAgent]]:
    def row(name: str, title: str, why: str, look: _Look, needs: str) -> Row[SdkAgent]:
        return Row(f"live-{name}", title, why, _timed(partial(look, model=model)), (needs,))

    return (
        row("answer", f"an answer of {model}", "Nothing works without.", answer, "sign-in"),
        row("call", "a call of the client's tool", "Coding agents need it.", call, "live-answer"),
        row("resume", "a chat that goes on", "It saves reading all again.", chat, "live-answer"),
    )


_Look = Callable[..., Awaitable[Sequence[Finding]]]


def _timed(look: _Look) -> Callable[[SdkAgent], Awaitable[Sequence[Finding]]]:
    async def looked(agent: SdkAgent) -> Sequence[Finding]:
        try:
            async with asyncio.timeout(RUN_SECONDS):
                return await look(agent)
        except TimeoutError:
            return [Finding("fault", f"nothing came of it in {RUN_SECONDS:g} s", fix=_TRY_AUTO)]

    return looked


def _word() -> str:
    return f"word{secrets.token_hex(3)}"


def _spec(model: str, question: str, *tools: ToolSpec) -> RunSpec:
    messages = (Message("user", (Text(question),)),)
    return RunSpec(Conversation(model, messages, tools=tools), model)


async def _heard(
    agent: SdkAgent, run: SdkRun, result: str = "", *, ends: bool = True
) -> tuple[str, int]:
    """All that it says, and how many calls it makes, each of which gets `result`."""
    said, calls, has_finished = "", 0, False
    try:
        while not has_finished:
            events = await run.read(burst_open=False)
            assert not isinstance(events, Quiet)
            for event in events:
                has_finished |= isinstance(event, RunFinished)
                if isinstance(event, TextDelta):
                    said += event.text
                elif isinstance(event, ClientCall):
                    calls += 1
                    run.deliver([ToolResult(event.id, (Text(result),))])
    except BaseException:
        agent.end(run)
        raise
    if ends:
        agent.end(run)
    return said, calls
