"""The checks that have a model work: how this version of the CLI really behaves.

What they find is written down by version, for `serve` to heed
(`agents/cursor/version_facts.py`). Those of the relay stand in `relay_probes.py`, those of what an
agent must not do in `boundary_probes.py`, and how a run is made and heard in `runs.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursor_gateway.agents import UNOBSERVED, StartOver
from cursor_gateway.agents.cursor.doctor.boundary_probes import deny_list, outside, own_server
from cursor_gateway.agents.cursor.doctor.relay_probes import (
    BY_TEXT,
    held,
    parallel,
    relayed,
    ticket,
)
from cursor_gateway.agents.cursor.doctor.runs import Heard, listen, spec, uses_relay, word
from cursor_gateway.agents.cursor.start_times import boots_before_prompt
from cursor_gateway.agents.cursor.version_facts import NOT_IN_FILE_NAMES
from cursor_gateway.findings import Finding, Row

if TYPE_CHECKING:
    from cursor_gateway.agents.cursor.cli import CursorCli

# For each run of the agent. Runs of 19 to 31 seconds were seen (2026.10.01).
RUN_SECONDS = 75.0
# A warm agent gets twice the time that a cold start took, within these limits.
HEAD_START = (1.0, 40.0)


async def plain(cli: CursorCli, model: str) -> Sequence[Finding]:
    expected, loop = word(), asyncio.get_running_loop()
    question = f"Answer with this one word and nothing else: {expected}"
    async with cli.another() as another:
        began = loop.time()
        heard = await listen(another.run(spec(model, question), UNOBSERVED))
        seconds = round(loop.time() - began, 1)
    if expected not in heard.text:
        words = f"the model answered something else: {heard.text[:80]!r}"
        return [Finding("fault", words, fix="cursor-gateway doctor --live --model auto")]
    return [Finding("ok", f"answered in {seconds:g} s", measured={"answer_s": seconds})]


async def start_up(cli: CursorCli, model: str) -> Sequence[Finding]:
    wanted = spec(model, "Answer with the one word: ready")
    async with cli.another(warm=1) as another:
        warm_agents = another.warm
        await listen(another.run(wanted, UNOBSERVED))
        cold = warm_agents.state()["first_word_ms"]["cold"]
        warm_agents.want(wanted)
        # By then it is there and has started, or it has left again.
        await asyncio.sleep(min(max(HEAD_START[0], 2 * cold / 1000), HEAD_START[1]))
        await listen(another.run(wanted, UNOBSERVED))
        warm = warm_agents.state()["first_word_ms"]["spare"]
    if warm is None:
        cli.known.learn(boots_before_prompt=False, cold_start_s=cold / 1000)
        words = f"`init` after {cold:g} ms; a warm one did not stay"
        return [_no_spares(words, {"cold_ms": cold})]
    return [_started(cli, cold, warm)]


def _started(cli: CursorCli, cold: float, warm: float) -> Finding:
    early = boots_before_prompt(cold, warm)
    cli.known.learn(boots_before_prompt=early, cold_start_s=cold / 1000, warm_start_s=warm / 1000)
    words = f"`init` after {cold:g} ms, after {warm:g} ms where it was warm"
    measured: dict[str, Any] = {"cold_ms": cold, "spare_ms": warm}
    if early is not None:
        measured["boots_before_stdin_ends"] = early
    if early is False:
        return _no_spares(f"{words}: it boots when its stdin ends", measured)
    words += ": it boots before its stdin ends" if early else ": it boots partly before its prompt"
    return Finding("ok", words, measured=measured)


def _no_spares(words: str, measured: dict[str, Any]) -> Finding:
    why = "Warm agents save no time with this version, so none are kept."
    return Finding("note", words, why, "export CURSOR_GATEWAY_WARM=0", measured)


async def resume(cli: CursorCli, model: str) -> Sequence[Finding]:
    if not cli.settings.session_reuse:
        return [Finding("skipped", "chats are not taken up (setting `session_reuse`)")]
    expected = word()
    first = f"Remember this word: {expected}. Answer with the one word: remembered"
    second = "Which word did I ask you to remember? Answer with that word only."
    async with cli.another() as another:
        run = another.run(spec(model, first), UNOBSERVED)
        told = await listen(run)
        chat = another.keep(run)
        if chat is None:
            reason = another.chats.state()["reason"]
            return [Finding("skipped", str(reason or "the CLI's store of the chat did not grow"))]
        try:
            again = replace(spec(model, first, told.text, second), chat=chat, known=2)
            heard = await listen(another.run(again, UNOBSERVED))
        except StartOver:
            heard = Heard("")
    cli.known.learn(resume_keeps_history=expected in heard.text)
    if expected in heard.text:
        return [Finding("ok", "a finished chat goes on by `--resume`")]
    fix = "export CURSOR_SESSION_REUSE=false"
    return [Finding("fault", "a resumed chat does not know what was said", fix=fix)]


@dataclass(frozen=True, slots=True)
class Probe:
    name: str
    title: str
    why: str
    look: Callable[[CursorCli, str], Any]
    # How many runs of the agent it makes, one after the other, and how long it waits besides.
    runs: int = 1
    waits: float = 0.0
    needs: str = "live-answer"
    by_relay: bool = False

    @property
    def seconds(self) -> float:
        return self.runs * RUN_SECONDS + self.waits

    def row(self, model: str) -> Row[CursorCli]:
        return Row(f"live-{self.name}", self.title, self.why, self._timed(model), (self.needs,))

    def _timed(self, model: str) -> Callable[[CursorCli], Awaitable[Sequence[Finding]]]:
        async def look(cli: CursorCli) -> Sequence[Finding]:
            if self.by_relay and not uses_relay(cli):
                words = "the relay is not used (setting `tool_channel` or `agent_command`)"
                return [Finding("skipped", words)]
            try:
                async with asyncio.timeout(self.seconds):
                    found: Sequence[Finding] = await self.look(cli, model)
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
    ahead = "It is what warm agents save."
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


def probes(model: str, holds: tuple[float, ...]) -> tuple[Row[CursorCli], ...]:
    return tuple(probe.row(model) for probe in table(holds))


def stored_results(state_folder: Path, version: str) -> Path:
    """Where the results of the probes of one version of the CLI are stored."""
    return state_folder / "doctor" / f"{NOT_IN_FILE_NAMES.sub('_', version)}.json"


def store_results(
    state_folder: Path, version: str, at: str, findings: Sequence[Mapping[str, Any]]
) -> None:
    path = stored_results(state_folder, version)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    results = {"version": version, "at": at, "findings": findings}
    path.write_text(json.dumps(results, indent=2))


async def probed(cli: CursorCli) -> Sequence[Finding]:
    version = await cli.version()
    try:
        stored = json.loads(stored_results(cli.state_folder, version).read_text())
        verdicts = [(each["check"], each["verdict"]) for each in stored["findings"]]
        at = stored["at"]
    except (OSError, ValueError, KeyError, TypeError):
        words = f"{version} was not probed with a model yet"
        why = "Nobody knows how it holds calls, resumes chats and obeys; it costs some requests."
        return [Finding("note", words, why, "cursor-gateway doctor --live")]
    bad = [check for check, verdict in verdicts if verdict == "fault"]
    if bad:
        words = f"{version}, probed at {at}: {', '.join(bad)} went wrong"
        return [Finding("note", words, "Another probe tells more.", "cursor-gateway doctor --live")]
    return [Finding("ok", f"{version}, probed at {at}: all went well")]
