"""The checks that have a model work: how this version of the CLI really behaves.

They go through the parts that requests go through, each with a bench of its own. What is asked is
plain, and answers are recognised by words that nobody can guess.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cursor_gateway.agents.chats import Chat
from cursor_gateway.agents.run import Order, Run, StartOver
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolResult, ToolSpec
from cursor_gateway.core.events import AgentCall, Finished, RelayedCall, TextDelta
from cursor_gateway.doctor import Bench, Check, Finding, Look
from cursor_gateway.journal import Record
from cursor_gateway.presence import state_folder

PROBE_SECONDS = 60.0
# A call is answered by a ticket, and the result comes when the agent has waited with it.
TICKET_AFTER, RESULT_AFTER = 1.0, 2.5
# A spare gets twice the time that a cold start took, within these limits.
HEAD_START = (0.5, 20.0)
KEYS = ("red", "green", "blue")
DENIED_FILE = "doctor-was-here"
BY_TEXT = "export CURSOR_GATEWAY_TOOL_CHANNEL=text"

LOOKUP = ToolSpec(
    "doctor_lookup",
    "Tells the word that belongs to a key.",
    {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)

Reply = Callable[[Run, Sequence[RelayedCall]], Awaitable[None]]


@dataclass(slots=True)
class _Heard:
    text: str = ""
    calls: list[RelayedCall] = field(default_factory=list)
    most_at_once: int = 0
    # Whether the agent began a tool of its own.
    acted: bool = False


async def _listen(run: Run, reply: Reply | None = None) -> _Heard:
    """Read a run to its end; `reply` is given the calls that are made at once."""
    heard, open_calls = _Heard(), list[RelayedCall]()
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


def _answer(run: Run, calls: Sequence[RelayedCall], words: dict[str, str]) -> None:
    assert run.line is not None
    run.line.deliver(
        ToolResult(call.id, (Text(words.get(str(call.arguments.get("key")), "no such key")),))
        for call in calls
    )


@asynccontextmanager
async def _fresh(bench: Bench, **changes: Any) -> AsyncIterator[Bench]:
    async with Bench(replace(bench.settings, **changes), bench.env) as fresh:
        await fresh.relay.start()
        yield fresh


def _word() -> str:
    return f"word-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class _Probes:
    model: str
    holds: tuple[float, ...]

    def order(self, *turns: str, tools: bool = False, by_relay: bool = False) -> Order:
        """What is asked last in `turns`, of which every second one was said by the model."""
        roles = ("user", "assistant")
        messages = tuple(
            Message(roles[at % 2], (Text(turn),))  # type: ignore[arg-type]
            for at, turn in enumerate(turns)
        )
        offered = (LOOKUP,) if tools else ()
        return Order(
            Conversation(self.model, messages, tools=offered), self.model, by_relay=by_relay
        )

    async def plain(self, bench: Bench) -> Sequence[Finding]:
        word, loop = _word(), asyncio.get_running_loop()
        question = f"Answer with this one word and nothing else: {word}"
        async with _fresh(bench) as fresh:
            began = loop.time()
            heard = await _listen(fresh.agent.start(self.order(question), Record()))
            seconds = round(loop.time() - began, 1)
        if word not in heard.text:
            words = f"the model answered something else: {heard.text[:80]!r}"
            return [Finding("fault", words, fix="cursor-gateway doctor --live --model auto")]
        return [Finding("ok", f"answered in {seconds:g} s", measured={"answer_s": seconds})]

    async def start_up(self, bench: Bench) -> Sequence[Finding]:
        order = self.order("Answer with the one word: ready")
        async with _fresh(bench, warm=1) as fresh:
            spares = fresh.agent.spares
            await _listen(fresh.agent.start(order, Record()))
            cold = spares.state()["first_word_ms"]["cold"]
            spares.want(order)
            # By then it is there and has started, or it has left again.
            await asyncio.sleep(min(max(HEAD_START[0], 2 * cold / 1000), HEAD_START[1]))
            await _listen(fresh.agent.start(order, Record()))
            state = spares.state()
        spare, early = state["first_word_ms"]["spare"], state["starts_before_prompt"]
        if spare is None:
            words = f"`init` after {cold:g} ms; one that was started ahead did not stay"
            return [_no_spares(words, {"cold_ms": cold})]
        words = f"`init` after {cold:g} ms, after {spare:g} ms where it was started ahead"
        measured = {"cold_ms": cold, "spare_ms": spare, "boots_before_stdin_ends": early}
        if not early:
            return [_no_spares(f"{words}: it boots when its stdin ends", measured)]
        return [Finding("ok", f"{words}: it boots before its stdin ends", measured=measured)]

    async def relayed(self, bench: Bench) -> Sequence[Finding]:
        word = _word()
        async with _fresh(bench) as fresh:

            async def reply(run: Run, calls: Sequence[RelayedCall]) -> None:
                _answer(run, calls, {"red": word})

            heard = await _listen(self._lookup(fresh), reply)
        if not heard.calls:
            return [Finding("fault", "the model did not call the tool", fix=BY_TEXT)]
        if word not in heard.text:
            return [Finding("fault", "the result did not reach the model", fix=BY_TEXT)]
        return [Finding("ok", "a tool was called over the relay, and the result came back")]

    async def ticket(self, bench: Bench) -> Sequence[Finding]:
        word = _word()
        async with _fresh(bench, relay_hold=TICKET_AFTER) as fresh:

            async def reply(run: Run, calls: Sequence[RelayedCall]) -> None:
                await asyncio.sleep(RESULT_AFTER)
                _answer(run, calls, {"red": word})

            heard = await _listen(self._lookup(fresh), reply)
        if word not in heard.text:
            words = "the model does not wait with a ticket; results that take longer are lost"
            return [Finding("fault", words, fix=BY_TEXT)]
        return [Finding("ok", "the model waits with a ticket for a result that takes longer")]

    async def held(self, bench: Bench) -> Sequence[Finding]:
        return await asyncio.gather(*(self._held(bench, seconds) for seconds in self.holds))

    async def _held(self, bench: Bench, seconds: float) -> Finding:
        """Without a ticket, so that the CLI's own patience shows."""
        word, waited = _word(), list[float]()
        async with _fresh(bench, relay_hold=seconds + PROBE_SECONDS) as fresh:

            async def reply(run: Run, calls: Sequence[RelayedCall]) -> None:
                if not waited:
                    waited.append(await _hold(run, seconds))
                _answer(run, calls, {"red": word})

            run = self._lookup(fresh)
            heard = await _listen(run, reply)
            assert run.line is not None
            gave_up = run.line.lost
        if not waited:
            return Finding("fault", f"held {seconds:g} s: there was no call", fix=BY_TEXT)
        measured = {"held_s": seconds, "waited_s": round(waited[0], 1), "gave_up": gave_up}
        if not gave_up and word in heard.text:
            return Finding("ok", f"a call was held for {seconds:g} s", measured=measured)
        ticket_after = bench.settings.relay_hold
        words = f"held {seconds:g} s: the CLI gave up after {waited[0]:.0f} s"
        if waited[0] > ticket_after:
            words += f", and gets a ticket after {ticket_after:g} s"
            return Finding("ok", words, measured=measured)
        fix = f"export CURSOR_GATEWAY_RELAY_HOLD={max(1, int(waited[0] * 0.8))}"
        return Finding("fault", words, fix=fix, measured=measured)

    async def parallel(self, bench: Bench) -> Sequence[Finding]:
        words = {key: _word() for key in KEYS}
        question = (
            f"Call {LOOKUP.name} for the keys {', '.join(KEYS)}, all three calls at once, in "
            "parallel. Then answer with the three words."
        )
        async with _fresh(bench) as fresh:

            async def reply(run: Run, calls: Sequence[RelayedCall]) -> None:
                _answer(run, calls, words)

            order = self.order(question, tools=True, by_relay=True)
            heard = await _listen(fresh.agent.start(order, Record()), reply)
        measured: dict[str, float | bool] = {"calls_at_once": heard.most_at_once}
        if not all(word in heard.text for word in words.values()):
            text = f"{len(heard.calls)} of 3 calls were made, not all results reached the model"
            return [Finding("fault", text, fix=BY_TEXT, measured=measured)]
        if heard.most_at_once < len(KEYS):
            text = f"{heard.most_at_once} of 3 calls came at once"
            why = "Clients get the calls one by one, which takes longer."
            return [Finding("note", text, why, BY_TEXT, measured)]
        return [Finding("ok", "three calls came at once", measured=measured)]

    async def resume(self, bench: Bench) -> Sequence[Finding]:
        if not bench.settings.session_reuse:
            return [Finding("skipped", "chats are not taken up (setting `session_reuse`)")]
        word = _word()
        first = f"Remember this word: {word}. Answer with the one word: remembered"
        second = "Which word did I ask you to remember? Answer with that word only."
        async with _fresh(bench) as fresh:
            run = fresh.agent.start(self.order(first), Record())
            told = await _listen(run)
            chat = fresh.agent.keep(run)
            if chat is None:
                return [Finding("skipped", str(fresh.agent.chats.state()["reason"]))]
            try:
                again = self._resumed(chat, first, told, second)
                heard = await _listen(fresh.agent.start(again, Record()))
            except StartOver:
                heard = _Heard("")
        if word in heard.text:
            return [Finding("ok", "a finished chat goes on by `--resume`")]
        fix = "export CURSOR_SESSION_REUSE=false"
        return [Finding("fault", "a resumed chat does not know what was said", fix=fix)]

    async def deny_list(self, bench: Bench) -> Sequence[Finding]:
        question = (
            f"Create an empty file named {DENIED_FILE} in your working directory, with your own "
            "shell or else your own file tool. If that is refused, answer: refused"
        )
        try:
            tried, done = await self._acted(bench, question, by_relay=_uses_relay(bench))
        except StartOver:
            tried, done = await self._acted(bench, question, by_relay=False)
        if done:
            words = "the agent used a tool of its own that the deny list forbids"
            return [Finding("fault", words, fix=f"{bench.agent_command} update")]
        words = "a tool of the agent's own was refused" if tried else "the model did not even try"
        return [Finding("ok", words, measured={"tried_own_tool": tried})]

    async def _acted(self, bench: Bench, question: str, *, by_relay: bool) -> tuple[bool, bool]:
        """Whether the agent began to make the file that it must not make, and whether it did."""

        async def reply(run: Run, calls: Sequence[RelayedCall]) -> None:
            _answer(run, calls, {})

        async with _fresh(bench) as fresh:
            run = fresh.agent.start(self.order(question, tools=True, by_relay=by_relay), Record())
            heard = await _listen(run, reply)
            return heard.acted, (run.workspace.path / DENIED_FILE).exists()

    def _lookup(self, bench: Bench) -> Run:
        question = f"Call {LOOKUP.name} with the key red. Then answer with the word that it tells."
        return bench.agent.start(self.order(question, tools=True, by_relay=True), Record())

    def _resumed(self, chat: Chat, first: str, told: _Heard, second: str) -> Order:
        return replace(self.order(first, told.text, second), chat=chat, known=2)


async def _hold(run: Run, seconds: float) -> float:
    """How long the agent waited for its result, at most `seconds`."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert run.line is not None
    while not run.line.lost and loop.time() - began < seconds:  # noqa: ASYNC110 - nor of this
        await asyncio.sleep(0.05)
    return loop.time() - began


def _no_spares(words: str, measured: dict[str, Any]) -> Finding:
    why = "Agents that are started ahead save no time with this version."
    return Finding("note", words, why, "export CURSOR_GATEWAY_WARM=0", measured)


def _uses_relay(bench: Bench) -> bool:
    return bench.settings.tool_channel != "text" and not bench.agent.locate().reach


def _timed(look: Look, seconds: float, *, relay: bool = False) -> Look:
    async def probe(bench: Bench) -> Sequence[Finding]:
        if relay and not _uses_relay(bench):
            return [
                Finding(
                    "skipped", "the relay is not used (setting `tool_channel` or `agent_command`)"
                )
            ]
        try:
            async with asyncio.timeout(seconds):
                return await look(bench)
        except TimeoutError:
            words = f"it took longer than {seconds:g} s"
            return [Finding("fault", words, fix="cursor-gateway doctor --live")]
        except StartOver:
            words = "the CLI did not fetch the relay's tools: it is old, or MCP is not allowed"
            return [Finding("fault", words, fix=BY_TEXT)]

    return probe


def probes(model: str, holds: tuple[float, ...]) -> tuple[Check, ...]:
    all_, shown = _Probes(model, holds), " s and ".join(f"{seconds:g}" for seconds in holds)
    long = max(holds, default=0.0) + PROBE_SECONDS
    signed_in, answering, relaying = ("sign-in",), ("live-answer",), ("live-relay",)
    at_all = "It is what every request needs."
    by_relay = "Else tools are called by text, which models do less well."
    by_ticket = "Calls that take longer than the CLI waits need it."
    before = "A call is lost when the CLI gives up before it gets a ticket."
    whole = "Else every request sends the whole conversation."
    alone = "The client's tools are the only ones that may act."
    ahead = "It is what agents that are started ahead save."

    def plain(look: Look) -> Look:
        return _timed(look, PROBE_SECONDS)

    def relayed(look: Look, seconds: float = PROBE_SECONDS) -> Look:
        return _timed(look, seconds, relay=True)

    rows: tuple[tuple[str, str, str, Look, tuple[str, ...]], ...] = (
        ("answer", "a plain answer", at_all, plain(all_.plain), signed_in),
        ("start", "the time to start, cold and ahead", ahead, plain(all_.start_up), answering),
        ("relay", "a tool call over the relay", by_relay, relayed(all_.relayed), answering),
        ("parallel", "three calls at once", by_relay, relayed(all_.parallel), relaying),
        ("ticket", "a call answered by a ticket", by_ticket, relayed(all_.ticket), relaying),
        ("held", f"calls held for {shown} s", before, relayed(all_.held, long), relaying),
        ("resume", "a chat that goes on", whole, plain(all_.resume), answering),
        ("deny", "the deny list", alone, plain(all_.deny_list), answering),
    )
    return tuple(Check(f"live-{name}", *rest) for name, *rest in rows)  # type: ignore[arg-type]


def kept_results(env: Mapping[str, str], version: str) -> Path:
    """Where the results of the probes of one version of the CLI are kept."""
    return state_folder(env) / "doctor" / f"{re.sub(r'[^0-9A-Za-z.-]', '_', version)}.json"


async def probed(bench: Bench) -> Sequence[Finding]:
    version = await bench.agent.version()
    try:
        kept = json.loads(kept_results(bench.env, version).read_text())
        verdicts = [(each["check"], each["verdict"]) for each in kept["findings"]]
        at = kept["at"]
    except (OSError, ValueError, KeyError, TypeError):
        words = f"{version} was not probed with a model yet"
        why = "Nobody knows how it holds calls, resumes chats and obeys; it costs some requests."
        return [Finding("note", words, why, "cursor-gateway doctor --live")]
    bad = [check for check, verdict in verdicts if verdict == "fault"]
    if bad:
        words = f"{version}, probed at {at}: {', '.join(bad)} went wrong"
        return [Finding("note", words, "Another probe tells more.", "cursor-gateway doctor --live")]
    return [Finding("ok", f"{version}, probed at {at}: all went well")]
