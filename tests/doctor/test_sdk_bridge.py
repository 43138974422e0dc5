"""The doctor looks at the SDK's bridge: what is missing, and the command that fixes it."""

from __future__ import annotations

import json

import pytest

from tests.conftest import FakeAgent
from tests.doctor.machine import examined
from tests.support.programs import run

pytestmark = pytest.mark.agents("sdk")


def test_where_all_is_well_it_says_so(fake: FakeAgent) -> None:
    problems, report = examined(fake)
    assert problems == {}
    found = {each["check"]: each["what"] for each in report["findings"]}
    assert found["agent"] == str(fake.bridge)
    assert "version 1.0.0" in found["agent-version"]
    assert "CURSOR_API_KEY" in found["sign-in"]
    assert not fake.processes()


def test_a_bridge_that_is_missing_is_to_be_installed(fake: FakeAgent) -> None:
    del fake.env["CURSOR_SDK_BRIDGE_BIN"]
    fake.bridge.unlink()
    problems, _ = examined(fake)
    assert problems["agent"]["fix"] == "pip install 'cursor-gateway[sdk]'"
    fake.env["CURSOR_SDK_BRIDGE_BIN"] = "/nowhere"
    assert examined(fake)[0]["agent"]["fix"] == "unset CURSOR_SDK_BRIDGE_BIN"


def test_a_key_that_is_missing_is_to_be_set(fake: FakeAgent) -> None:
    del fake.env["CURSOR_API_KEY"]
    problems, _ = examined(fake)
    assert problems.keys() == {"agent-key"}
    assert problems["agent-key"]["fix"].startswith("export CURSOR_API_KEY=")


@pytest.mark.parametrize(
    ("switch", "value", "check", "words"),
    [
        ("schema-version", "2", "agent-version", "schemaVersion"),
        ("dies-at-start", "no node", "agent-version", "no node"),
        ("key", "another", "sign-in", "Invalid API key"),
    ],
)
def test_what_it_does_wrong_is_found(
    fake: FakeAgent, switch: str, value: str, check: str, words: str
) -> None:
    fake.put(switch, value)
    problems, _ = examined(fake)
    assert problems.keys() == {check}
    assert words in problems[check]["what"] and problems[check]["fix"]


def test_other_commands_know_it(fake: FakeAgent) -> None:
    assert "sdk (" in run(fake, "status").stdout
    assert "composer-2.5-fast" in run(fake, "models").stdout
    assert run(fake, "ask", "[[text:hi]]").stdout.strip() == "hi"
    refused = run(fake, "login")
    assert refused.returncode and "CURSOR_API_KEY" in refused.stderr
    assert not fake.processes()


def test_settings_of_the_cli_are_refused(fake: FakeAgent) -> None:
    refused = run(fake, "serve", "--agent-command", "ssh box cursor-agent")
    assert refused.returncode and "`agent_command`" in refused.stderr


SENSIBLE = [
    [r"this one word and nothing else: (\w+)", r"[[text:\1]]"],
    [r"Call `word_of_the_day`", "[[relay:word_of_the_day {}]][[say-result]]"],
    [r"Remember this word: (\w+)", r"[[text:remembered \1]]"],
]


def test_live_it_has_a_model_answer_call_and_remember(fake: FakeAgent) -> None:
    recalls = [r"remembered (\w+)[\s\S]*Which word did I ask", r"[[text:\1]]"]
    fake.put("habits.json", json.dumps([*SENSIBLE, recalls]))
    problems, report = examined(fake, "--live")
    assert problems.keys() <= {"live-resume"}, problems
    found = {each["check"]: each["verdict"] for each in report["findings"]}
    assert (found["live-answer"], found["live-call"]) == ("ok", "ok")
    assert len({sent["agentId"] for sent in fake.rpcs("Send")[-2:]}) == 1


def test_live_a_model_that_calls_nothing_is_found(fake: FakeAgent) -> None:
    fake.put("habits.json", json.dumps(SENSIBLE[:1]))
    problems, _ = examined(fake, "--live")
    assert "did not call" in problems["live-call"]["what"]
    assert "does not know" in problems["live-resume"]["what"]
