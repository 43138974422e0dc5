"""`GET /metrics`, read by a parser that nobody here wrote; and the dashboard that stands on it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cursor_gateway.journal.metrics import FAMILIES, PREFIX
from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, eventually, frames_of
from tests.http.dialogue import Dialogue
from tests.support.views import until_the_agent_has_left

DASHBOARD = Path(__file__).parent.parent.parent / "docs" / "grafana-dashboard.json"
LS = '[[relay:bash {"command": "ls"}]]'


async def scraped(client: Client) -> dict[tuple[str, str], float]:
    """(name, its labels' values) -> value."""
    async with client.session.get(client.url("/metrics")) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await response.text()
    return {
        (sample.name.removeprefix(PREFIX), ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@EITHER_AGENT
async def test_requests_and_errors_are_counted(client: Client) -> None:
    await client.content("[[text:Hello]]")
    await client.error("hi", model="gpt-99")
    await client.error("[[exit:1]]")
    found = await scraped(client)
    assert found["requests_total", "chat,complete"] == 1
    assert found["requests_total", "chat,error"] == 2
    assert found["errors_total", "model_not_found"] == found["errors_total", "agent_failed"] == 1
    assert found["requests_running", ""] == 0
    assert found["healthy", ""] == 1


async def test_the_first_look_shows_agents_that_had_left_before_it(client: Client) -> None:
    await client.content("[[text:Hello]]")
    await until_the_agent_has_left(client)
    assert (await scraped(client))["agent_exits_total", "finished"] == 1


@EITHER_AGENT
async def test_times_and_tokens_are_summed_by_model(client: Client) -> None:
    usage = (await client.answer("[[text:Hello]]"))["usage"]
    await client.answer("[[no-usage]][[text:Hello]]", model="composer-2.5-fast")
    found = await scraped(client)
    assert found["tokens_total", "auto,input"] == usage["prompt_tokens"]
    assert found["tokens_total", "auto,output"] == usage["completion_tokens"]
    assert found["estimates_total", ""] == 1
    for model in ("auto", "composer-2.5-fast"):
        for name in ("first_token_seconds", "duration_seconds"):
            assert found[f"{name}_count", model] == found[f"{name}_bucket", f"{model},+Inf"] == 1
            assert found[f"{name}_sum", model] > 0
        assert found["first_token_seconds_sum", model] <= found["duration_seconds_sum", model]


async def test_a_histogram_never_falls(client: Client) -> None:
    await client.answer("[[text:Hello]]")
    found = await scraped(client)
    reached = [value for (name, _), value in found.items() if name == "duration_seconds_bucket"]
    assert reached == sorted(reached) and len(reached) > 10


async def test_agents_are_counted_by_how_they_came_and_went(
    client: Client, fake: FakeAgent
) -> None:
    talk = Dialogue(client)
    await talk.say(f"{LS}[[text:ok]]")
    found = await scraped(client)
    assert (found["parked_runs", ""], found["kept_chats", ""]) == (1, 0)
    assert found["tool_calls_total", "relay"] == 1
    await talk.bring("a.txt")
    await talk.say("[[text:again]]")
    await client.error("[[exit:1]]")
    await client.answer("[[text:x]][[linger]]")
    async with client.chat("[[deaf]][[text:x]][[hang]]", stream=True) as response:
        await anext(frames_of(response))
    await eventually(lambda: not fake.at_work())
    while ("agent_exits_total", "killed") not in (found := await scraped(client)):
        pass
    runs = {kind: found["agent_runs_total", kind] for kind in ("fresh", "continued", "resumed")}
    assert runs == {"fresh": 4, "continued": 1, "resumed": 1}
    exits = {reason: found["agent_exits_total", reason] for reason in ("finished", "failed")}
    assert exits == {"finished": 2, "failed": 1}
    assert found["agent_exits_total", "stopped"] == found["agent_exits_total", "killed"] == 1


@EITHER_AGENT
async def test_slots_and_queue_are_shown(start: Start) -> None:
    async with start(slots=1) as client:
        async with client.chat("[[text:one]][[hang]]", stream=True) as response:
            await anext(frames_of(response))
            waiting = asyncio.ensure_future(client.content("[[text:two]]"))
            while (found := await scraped(client))["queue_length", ""] == 0:
                pass
            assert (found["slots", ""], found["slots_busy", ""]) == (1, 1)
            assert found["requests_running", ""] == 2
        await waiting


async def test_names_of_models_are_no_series_without_end(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the CLI lists no models it may have any."""
    monkeypatch.setattr("cursor_gateway.journal.ring.MAX_MODELS", 2)
    fake.put("models.txt", "nothing that looks like a list\n")
    async with start(slots=1, queue=0) as client:
        async with client.chat("[[text:one]][[hang]]", stream=True) as response:
            await anext(frames_of(response))
            for number in range(4):
                assert (await client.error("hi", model=f"model-{number}"))[0] == 429
            found = await scraped(client)
        models = {labels for name, labels in found if name == "duration_seconds_count"}
        assert models == {"model-0", "model-1", "other"}


@EITHER_AGENT
async def test_a_stopped_loop_is_counted(client: Client) -> None:
    assert (await scraped(client))["loop_guard_stops_total", ""] == 0
    await client.answer('[[own:semSearch {"q": "x"}]]' * 6 + "[[hang]]")
    assert (await scraped(client))["loop_guard_stops_total", ""] == 1


def queries() -> list[str]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}


async def test_the_dashboard_asks_only_for_what_there_is(client: Client) -> None:
    async with client.session.get(client.url("/metrics")) as response:
        declared = list(text_string_to_metric_families(await response.text()))
    exposed = {each.name + suffix for each in declared for suffix in SUFFIXES[each.type]}
    used: set[str] = set()
    for query in queries():
        names = set(re.findall(rf"{PREFIX}\w+", query))
        assert names and names <= exposed, query
        families = {re.sub("_(bucket|sum|count)$", "", name).removeprefix(PREFIX) for name in names}
        labels = {label for name in families for label in FAMILIES[name].labels} | {"le"}
        grouped = re.findall(r"by \(([\w, ]+)\)", query)
        assert {label for group in grouped for label in group.split(", ")} <= labels, query
        used |= families
    assert used == FAMILIES.keys() - {"info", "estimates_total"}
