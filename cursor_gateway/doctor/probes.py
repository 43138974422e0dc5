"""The checks that have a model work: how this version of the CLI really behaves.

What they find is written down by version, for `serve` to heed
(`agents/cursor/version_facts.py`). Those of the relay stand in `relay_probes.py`, those of what an
agent must not do in `boundary_probes.py`, and how a run is made and heard in `runs.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cursor_gateway.agents.cursor.run import StartOver
from cursor_gateway.agents.cursor.start_times import boots_before_prompt
from cursor_gateway.agents.cursor.version_facts import NOT_IN_FILE_NAMES
from cursor_gateway.doctor.boundary_probes import deny_list, outside, own_server
from cursor_gateway.doctor.examination import Check, DoctorContext, Finding, Look
from cursor_gateway.doctor.relay_probes import BY_TEXT, held, parallel, relayed, ticket
from cursor_gateway.doctor.runs import Heard, fresh, listen, spec, uses_relay, word
from cursor_gateway.journal.record import Record
from cursor_gateway.running_gateways import state_folder

# For each run of the agent. Runs of 19 to 31 seconds were seen (2026.10.01).
RUN_SECONDS = 75.0
# A spare gets twice the time that a cold start took, within these limits.
HEAD_START = (1.0, 40.0)


async def plain(context: DoctorContext, model: str) -> Sequence[Finding]:
    expected, loop = word(), asyncio.get_running_loop()
    question = f"Answer with this one word and nothing else: {expected}"
    async with fresh(context) as another:
        began = loop.time()
        heard = await listen(another.agent.start(spec(model, question), Record()))
        seconds = round(loop.time() - began, 1)
    if expected not in heard.text:
        words = f"the model answered something else: {heard.text[:80]!r}"
        return [Finding("fault", words, fix="cursor-gateway doctor --live --model auto")]
    return [Finding("ok", f"answered in {seconds:g} s", measured={"answer_s": seconds})]


async def start_up(context: DoctorContext, model: str) -> Sequence[Finding]:
    wanted = spec(model, "Answer with the one word: ready")
    async with fresh(context, warm=1) as another:
        spares = another.agent.spares
        await listen(another.agent.start(wanted, Record()))
        cold = spares.state()["first_word_ms"]["cold"]
        spares.want(wanted)
        # By then it is there and has started, or it has left again.
        await asyncio.sleep(min(max(HEAD_START[0], 2 * cold / 1000), HEAD_START[1]))
        await listen(another.agent.start(wanted, Record()))
        warm = spares.state()["first_word_ms"]["spare"]
    if warm is None:
        context.agent.known.learn(boots_before_prompt=False, cold_start_s=cold / 1000)
        words = f"`init` after {cold:g} ms; one that was started ahead did not stay"
        return [_no_spares(words, {"cold_ms": cold})]
    return [_started(context, cold, warm)]


def _started(context: DoctorContext, cold: float, warm: float) -> Finding:
    early = boots_before_prompt(cold, warm)
    context.agent.known.learn(
        boots_before_prompt=early, cold_start_s=cold / 1000, warm_start_s=warm / 1000
    )
    words = f"`init` after {cold:g} ms, after {warm:g} ms where it was started ahead"
    measured: dict[str, Any] = {"cold_ms": cold, "spare_ms": warm}
    if early is not None:
        measured["boots_before_stdin_ends"] = early
    if early is False:
        return _no_spares(f"{words}: it boots when its stdin ends", measured)
    words += ": it boots before its stdin ends" if early else ": it boots partly before its prompt"
    return Finding("ok", words, measured=measured)


def _no_spares(words: str, measured: dict[str, Any]) -> Finding:
    why = "Agents that are started ahead save no time with this version, so none will be."
    return Finding("note", words, why, "export CURSOR_GATEWAY_WARM=0", measured)


async def resume(context: DoctorContext, model: str) -> Sequence[Finding]:
    if not context.settings.session_reuse:
        return [Finding("skipped", "chats are not taken up (setting `session_reuse`)")]
    expected = word()
    first = f"Remember this word: {expected}. Answer with the one word: remembered"
    second = "Which word did I ask you to remember? Answer with that word only."
    async with fresh(context) as another:
        run = another.agent.start(spec(model, first), Record())
        told = await listen(run)
        chat = another.agent.keep(run)
        if chat is None:
            reason = another.agent.chats.state()["reason"]
            return [Finding("skipped", str(reason or "the CLI's store of the chat did not grow"))]
        try:
            again = replace(spec(model, first, told.text, second), chat=chat, known=2)
            heard = await listen(another.agent.start(again, Record()))
        except StartOver:
            heard = Heard("")
    context.agent.known.learn(resume_keeps_history=expected in heard.text)
    if expected in heard.text:
        return [Finding("ok", "a finished chat goes on by `--resume`")]
    fix = "export CURSOR_SESSION_REUSE=false"
    return [Finding("fault", "a resumed chat does not know what was said", fix=fix)]


@dataclass(frozen=True, slots=True)
class Probe:
    name: str
    title: str
    why: str
    look: Callable[[DoctorContext, str], Any]
    # How many runs of the agent it makes, one after the other, and how long it waits besides.
    runs: int = 1
    waits: float = 0.0
    needs: str = "live-answer"
    by_relay: bool = False

    @property
    def seconds(self) -> float:
        return self.runs * RUN_SECONDS + self.waits

    def check(self, model: str) -> Check:
        return Check(f"live-{self.name}", self.title, self.why, self._timed(model), (self.needs,))

    def _timed(self, model: str) -> Look:
        async def look(context: DoctorContext) -> Sequence[Finding]:
            if self.by_relay and not uses_relay(context):
                words = "the relay is not used (setting `tool_channel` or `agent_command`)"
                return [Finding("skipped", words)]
            try:
                async with asyncio.timeout(self.seconds):
                    found: Sequence[Finding] = await self.look(context, model)
                    return found
            except TimeoutError:
                words = f"it took longer than {self.seconds:g} s"
                return [Finding("fault", words, fix="cursor-gateway doctor --live")]
            except StartOver:
                words = "this time the CLI did not fetch the relay's tools"
                return [Finding("fault", words, fix=BY_TEXT)]

        return look


def table(holds: tuple[float, ...]) -> tuple[Probe, ...]:
    shown = " s and ".join(f"{seconds:g}" for seconds in holds)
    at_all = "It is what every request needs."
    by_relay = "Else tools are called by text, which models do less well."
    by_ticket = "Calls that take longer than the CLI waits need it."
    before = "A call is lost when the CLI gives up before it gets a ticket."
    whole = "Else every request sends the whole conversation."
    alone = "The client's tools are the only ones that may act."
    ahead = "It is what agents that are started ahead save."
    private = "A model shall see what the client sends, and nothing else of yours."
    relay = partial(Probe, needs="live-relay", by_relay=True)
    hold = partial(held, holds=holds)
    waits = max(holds, default=0.0)
    return (
        Probe("answer", "a plain answer", at_all, plain, needs="sign-in"),
        Probe("start", "the time to start, cold and ahead", ahead, start_up, 2, HEAD_START[1]),
        Probe("relay", "a tool call over the relay", by_relay, relayed, by_relay=True),
        relay("parallel", "three calls at once", by_relay, parallel),
        relay("ticket", "a call answered by a ticket", by_ticket, ticket),
        relay("held", f"calls held for {shown} s", before, hold, waits=waits),
        Probe("resume", "a chat that goes on", whole, resume, 2),
        Probe("deny", "the deny list", alone, deny_list, 2),
        Probe("outside", "a file outside of a plain chat's directory", private, outside),
        relay("own-server", "an MCP server of your own", private, own_server),
    )


def probes(model: str, holds: tuple[float, ...]) -> tuple[Check, ...]:
    return tuple(probe.check(model) for probe in table(holds))


def kept_results(env: Mapping[str, str], version: str) -> Path:
    """Where the results of the probes of one version of the CLI are kept."""
    return state_folder(env) / "doctor" / f"{NOT_IN_FILE_NAMES.sub('_', version)}.json"


async def probed(context: DoctorContext) -> Sequence[Finding]:
    version = await context.agent.version()
    try:
        kept = json.loads(kept_results(context.env, version).read_text())
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
