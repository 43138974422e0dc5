"""The probes of the relay: how this version of the CLI calls the client's tools, and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cursor_gateway.agents import UNOBSERVED, StartOver
from cursor_gateway.agents.cursor.doctor.runs import LOOKUP, answer, listen, lookup, spec, word
from cursor_gateway.agents.cursor.run import CliRun
from cursor_gateway.agents.cursor.version_effects import relay_hold
from cursor_gateway.agents.cursor.version_facts import VersionFacts
from cursor_gateway.core.events import ClientCall
from cursor_gateway.findings import Finding

if TYPE_CHECKING:
    from cursor_gateway.agents.cursor.cli import CursorCli

# A call is answered by a ticket, and the result comes when the agent has waited with it.
TICKET_AFTER, RESULT_AFTER = 1.0, 2.5
KEYS = ("red", "green", "blue")
BY_TEXT = "export CURSOR_GATEWAY_TOOL_CHANNEL=text"
# How long the relay itself would hold a call that a probe holds.
_FOR_EVER = 3600.0


async def relayed(cli: CursorCli, model: str) -> Sequence[Finding]:
    expected = word()

    async def reply(run: CliRun, calls: Sequence[ClientCall]) -> None:
        answer(run, calls, {"red": expected})

    try:
        async with cli.another() as another:
            heard = await listen(lookup(model, another), reply)
    except StartOver:
        cli.known.learn(fetches_relay_tools=False)
        words = "the CLI did not fetch the relay's tools: it is old, or MCP is not allowed"
        return [Finding("fault", words, fix=BY_TEXT)]
    cli.known.learn(fetches_relay_tools=True)
    if not heard.calls:
        return [Finding("fault", "the model did not call the tool", fix=BY_TEXT)]
    if expected not in heard.text:
        return [Finding("fault", "the result did not reach the model", fix=BY_TEXT)]
    return [Finding("ok", "a tool was called over the relay, and the result came back")]


async def ticket(cli: CursorCli, model: str) -> Sequence[Finding]:
    expected = word()

    async def reply(run: CliRun, calls: Sequence[ClientCall]) -> None:
        await asyncio.sleep(RESULT_AFTER)
        answer(run, calls, {"red": expected})

    async with cli.another(relay_hold=TICKET_AFTER) as another:
        heard = await listen(lookup(model, another), reply)
    if expected not in heard.text:
        words = "the model does not wait with a ticket; results that take longer are lost"
        return [Finding("fault", words, fix=BY_TEXT)]
    return [Finding("ok", "the model waits with a ticket for a result that takes longer")]


async def held(cli: CursorCli, model: str, holds: Sequence[float]) -> Sequence[Finding]:
    found = await asyncio.gather(*(_held(cli, model, seconds) for seconds in holds))
    measured = [finding.measured for finding in found if finding.measured]
    gave_up = [float(each["waited_s"]) for each in measured if each["gave_up"]]
    kept = [float(each["held_s"]) for each in measured if not each["gave_up"]]
    if measured:
        cli.known.learn(
            relay_hold_s=max(kept, default=None), relay_gives_up_s=min(gave_up, default=None)
        )
    return found


async def _held(cli: CursorCli, model: str, seconds: float) -> Finding:
    """Without a ticket, so that the CLI's own patience shows."""
    expected, waited = word(), list[float]()

    async def reply(run: CliRun, calls: Sequence[ClientCall]) -> None:
        if not waited:
            waited.append(await _hold(run, seconds))
        answer(run, calls, {"red": expected})

    async with cli.another(relay_hold=_FOR_EVER) as another:
        run = lookup(model, another)
        heard = await listen(run, reply)
        assert run.session is not None
        gave_up = run.session.lost
    if not waited:
        return Finding("fault", f"held {seconds:g} s: there was no call", fix=BY_TEXT)
    measured = {"held_s": seconds, "waited_s": round(waited[0], 1), "gave_up": gave_up}
    if not gave_up and expected in heard.text:
        return Finding("ok", f"a call was held for {seconds:g} s", measured=measured)
    ticket_after = relay_hold(cli.settings, VersionFacts(relay_gives_up_s=waited[0]))
    return _gave_up(seconds, waited[0], ticket_after, measured)


def _gave_up(
    seconds: float, waited: float, ticket_after: float, measured: dict[str, float | bool]
) -> Finding:
    words = f"held {seconds:g} s: the CLI gave up after {waited:.0f} s"
    if waited > ticket_after:
        words += f", and gets a ticket after {ticket_after:g} s"
        return Finding("ok", words, measured=measured)
    fix = f"export CURSOR_GATEWAY_RELAY_HOLD={max(1, int(waited * 0.8))}"
    return Finding("fault", words, fix=fix, measured=measured)


async def _hold(run: CliRun, seconds: float) -> float:
    """How long the agent waited for its result, at most `seconds`."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert run.session is not None
    while not run.session.lost and loop.time() - began < seconds:  # noqa: ASYNC110 - nor of this
        await asyncio.sleep(0.05)
    return loop.time() - began


async def parallel(cli: CursorCli, model: str) -> Sequence[Finding]:
    words = {key: word() for key in KEYS}
    question = (
        f"Call {LOOKUP.name} for the keys {', '.join(KEYS)}, all three calls at once, in "
        "parallel. Then answer with the three words."
    )

    async def reply(run: CliRun, calls: Sequence[ClientCall]) -> None:
        answer(run, calls, words)

    async with cli.another() as another:
        wanted = spec(model, question, tools=(LOOKUP,), by_relay=True)
        heard = await listen(another.run(wanted, UNOBSERVED), reply)
    measured: dict[str, float | bool] = {"calls_at_once": heard.most_at_once}
    if not all(word in heard.text for word in words.values()):
        text = f"{len(heard.calls)} of 3 calls were made, not all results reached the model"
        return [Finding("fault", text, fix=BY_TEXT, measured=measured)]
    cli.known.learn(calls_at_once=heard.most_at_once)
    if heard.most_at_once < len(KEYS):
        text = f"{heard.most_at_once} of 3 calls came at once"
        why = "Clients get the calls one by one, which takes longer."
        return [Finding("note", text, why, BY_TEXT, measured)]
    return [Finding("ok", "three calls came at once", measured=measured)]
