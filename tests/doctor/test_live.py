"""`cursor-gateway doctor --live`: a model works, with the CLI as it should be and as it may be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.agents.cursor.doctor.probes import table
from cursor_gateway.agents.cursor.version_facts import read_facts
from tests.conftest import FakeAgent
from tests.doctor.machine import examined, examined_after

QUICK = ("--live", "--hold", "0.2", "--hold", "6")

RED = """[[relay:doctor_lookup {"key": "red"}]][[say-result]]"""
# What a model does that understands what it is asked.
HABITS = [
    (r"one word and nothing else: (\S+)", r"[[text:\1]]"),
    (r"with the key red", RED),
    (
        r"the keys red, green, blue",
        """[[announce:doctor_lookup {"key": "red"}]][[announce:doctor_lookup {"key": "green"}]]"""
        """[[relay:doctor_lookup {"key": "blue"}]][[say-results]]""",
    ),
    (r"Remember this word: (\S+)\..*Which word", r"[[text:\1]]"),
    (
        r"Create an empty file named (\S+)",
        r"""[[rejected:shell {"command": "touch \1"}]][[act:touch \1]][[text:refused]]""",
    ),
    (r"Read the file (\S+)", r"""[[try:read {"path": "\1"}]][[say-result]]"""),
    (r"the tool (\S+) of the MCP server (\w+)", r"[[own-server:\2 \1 {}]][[say-result]]"),
]


def think(fake: FakeAgent, **instead: str) -> None:
    """Give the model its habits, some of them replaced by others."""
    habits = [(pattern, instead.get(pattern.split()[-1], steps)) for pattern, steps in HABITS]
    fake.put("habits.json", json.dumps(habits))


def state(fake: FakeAgent) -> Path:
    return Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway"


def said(report: dict[str, Any]) -> dict[str, str]:
    return {each["check"]: each["what"] for each in report["findings"]}


def measured(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for each in report["findings"] for name, value in each["measured"].items()}


def test_a_good_cli_passes_every_probe_and_the_results_are_kept(fake: FakeAgent) -> None:
    think(fake)
    problems, report = examined(fake, *QUICK)
    assert problems == {}
    words = said(report)
    assert words["live-relay"] == "a tool was called over the relay, and the result came back"
    assert words["live-parallel"] == "three calls came at once"
    assert words["live-held"] == "a call was held for 6 s"
    assert words["live-resume"] == "a finished chat goes on by `--resume`"
    assert words["live-deny"] == "a tool of the agent's own was refused"
    assert words["live-outside"] == "reading was refused"
    assert words["live-own-server"] == "a call of it was refused"
    assert measured(report)["boots_before_stdin_ends"] in (True, False)
    folder = state(fake) / "doctor"
    kept = json.loads((folder / "2026.09.18-fake.json").read_text())
    assert {each["check"] for each in kept["findings"]} == {
        *("live-answer", "live-start", "live-relay", "live-parallel", "live-ticket", "live-held"),
        *("live-resume", "live-deny", "live-outside", "live-own-server"),
    }
    facts = read_facts(folder.parent / "versions", "2026.09.18-fake")
    assert facts.boots_before_prompt is not False
    assert facts.cold_start_s and facts.warm_start_s
    assert facts == replace(
        facts,
        resume_keeps_history=True,
        fetches_relay_tools=True,
        relay_hold_s=6.0,
        relay_gives_up_s=None,
        calls_at_once=3,
        obeys_deny_list=True,
    )
    assert said(examined(fake)[1])["probed"].endswith(": all went well")
    fake.put("version", "2026.09.17-other")
    assert "was not probed" in said(examined(fake)[1])["probed"]
    assert fake.processes() == []
    # Nor is anything left of what the models were asked.
    assert list(fake.cursor.glob("chats/*")) == list(fake.cursor.glob("projects/*")) == []


def test_a_cli_that_gives_up_forgets_and_obeys_nobody_is_found_and_fixed(
    fake: FakeAgent,
) -> None:
    think(fake, red=f"[[patience:3]]{RED}")
    fake.env["CURSOR_GATEWAY_RELAY_HOLD"] = "30"
    fake.put("ignores-deny")
    fake.put("no-resume", "99")
    problems, _ = examined(fake, *QUICK)
    limits = {"live-deny", "live-outside", "live-own-server"}
    assert set(problems) == {"live-held", "live-resume", *limits}
    assert problems["live-held"]["fix"] == "export CURSOR_GATEWAY_RELAY_HOLD=2"
    facts = read_facts(state(fake) / "versions", "2026.09.18-fake")
    assert (facts.obeys_deny_list, facts.resume_keeps_history) == (False, False)
    assert facts.relay_hold_s == 0.2 and 2 < (facts.relay_gives_up_s or 0) < 6
    old, report = examined(fake)
    assert "live-held" in said(report)["probed"]
    assert "disobey" in old["obedience"]["what"]
    fixes = [problem["fix"] for problem in problems.values()]
    problems, report = examined_after(fake, *fixes, words=" ".join(QUICK))
    assert problems == {}
    assert "gets a ticket after 2 s" in said(report)["live-held"]


def test_a_cli_that_gives_up_soon_gets_its_tickets_sooner(fake: FakeAgent) -> None:
    think(fake, red=f"[[patience:3]]{RED}")
    problems, report = examined(fake, "--live", "--hold", "6")
    assert problems == {}
    assert "the CLI gave up after 3 s, and gets a ticket after 2." in said(report)["live-held"]


def test_a_cli_without_mcp_is_found_and_the_tools_go_by_text(fake: FakeAgent) -> None:
    think(fake)
    fake.put("no-mcp")
    problems, report = examined(fake, *QUICK)
    assert list(problems) == ["live-relay"]
    assert "did not fetch the relay's tools" in problems["live-relay"]["what"]
    assert said(report)["live-held"] == "not looked at before `live-relay` is fixed"
    assert read_facts(state(fake) / "versions", "2026.09.18-fake").fetches_relay_tools is False
    problems, report = examined_after(fake, problems["live-relay"]["fix"], words=" ".join(QUICK))
    assert problems == {}
    assert "the relay is not used" in said(report)["live-relay"]


ONE_BY_ONE = "".join(RED.replace("red", key) for key in ("red", "green", "blue"))


@pytest.mark.parametrize(
    ("habits", "words"),
    [
        ({"red": "[[text:Rather not]]"}, {"live-relay": "did not call the tool"}),
        ({"red": f"{RED[:-14]}"}, {"live-relay": "did not reach the model"}),
        (
            {"red": f"[[impatient]]{RED}", "blue": ONE_BY_ONE},
            {"live-ticket": "does not wait with", "live-parallel": "1 of 3 calls came at once"},
        ),
    ],
)
def test_what_the_model_does_otherwise_is_said(
    fake: FakeAgent, habits: dict[str, str], words: dict[str, str]
) -> None:
    think(fake, **habits)
    _, report = examined(fake, "--live", "--hold", "0.2")
    for check, expected in words.items():
        assert expected in said(report)[check]


def test_a_cli_that_does_not_wait_for_its_prompt_is_said(fake: FakeAgent) -> None:
    fake.put("no-waiting")
    _, report = examined(fake, "--live", "--hold", "0.2")
    (start,) = (each for each in report["findings"] if each["check"] == "live-start")
    assert start["verdict"] == "note" and "did not stay" in start["what"]
    assert start["fix"] == "export CURSOR_GATEWAY_WARM=0"


def test_a_model_that_is_not_there_is_said_and_nothing_more_is_tried(fake: FakeAgent) -> None:
    fake.put("habits.json", json.dumps([("one word", "[[play:fail_unknown_model]]")]))
    problems, _ = examined(fake, "--live", "--model", "gpt-99")
    assert list(problems) == ["live-answer"]
    assert problems["live-answer"]["fix"] == "cursor-gateway models"
    assert len(fake.runs()) == 1


def test_every_probe_allows_for_runs_of_31_seconds() -> None:
    for probe in table((45.0, 70.0)):
        assert probe.seconds - probe.waits >= 2 * 31 * probe.runs
    (held,) = (probe for probe in table((45.0, 70.0)) if probe.name == "held")
    assert held.seconds >= 70 + 31


def test_an_agent_that_calls_servers_that_nobody_has_denied_is_found(fake: FakeAgent) -> None:
    think(fake)
    folder = Path(fake.env["HOME"], ".cursor")
    folder.mkdir()
    (folder / "cli-config.json").write_text(json.dumps({"approvalMode": "unrestricted"}))
    problems, report = examined(fake, "--live", "--hold", "0.2")
    assert list(problems) == ["live-own-server"]
    assert "is not the gateway's" in problems["live-own-server"]["what"]
    assert "`approvalMode: unrestricted`" in said(report)["approval"]
