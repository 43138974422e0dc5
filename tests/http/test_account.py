"""Models, sign-in and health: remembered, refreshed behind the scenes, honest when unknown."""

from __future__ import annotations

import asyncio
import errno
import math
from pathlib import Path
from unittest.mock import ANY

import pytest

from tests.conftest import RECORDINGS, Client, FakeAgent, Start, eventually
from tests.support.views import health_when, healthy


@pytest.fixture(autouse=True)
def noted(fake: FakeAgent) -> None:
    """Here it matters how often the agent is asked."""
    fake.put("notes-questions")


def asked(fake: FakeAgent, word: str) -> int:
    return sum(word in call["argv"] for call in fake.calls())


@pytest.mark.parametrize(
    "fault", [OSError(errno.EMFILE, "Too many open files"), MemoryError(), ValueError("a bug")]
)
async def test_a_sign_in_that_could_not_be_checked_is_checked_again(
    start: Start,
    fake: FakeAgent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
) -> None:
    """By the gateway itself: nobody asks for its health here."""
    for name in ("NO_SIGN_IN_LASTS", "RETRIED_AFTER", "SIGN_IN_WATCH"):
        monkeypatch.setattr(f"cursor_gateway.account.{name}", 0.05)
    tries: list[str] = []

    def fails(**where: str) -> None:
        tries.append(where["dir"])
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr("tempfile.TemporaryFile", fails)
        async with start() as client:
            await eventually(lambda: len(tries) > 9)
            assert (await client.get("/v1/models"))[0] == 502
            broken.undo()
            await eventually(lambda: asked(fake, "status") and asked(fake, "models"))
            assert (await healthy(client))["auth"] == "authenticated"
    # For each of the three that are asked for: once, not at each attempt.
    assert caplog.text.count("The agent could not be asked") == 3


async def test_models_have_the_fields_that_scripts_rely_on(client: Client) -> None:
    status, body = await client.get("/v1/models")
    assert (status, body["object"], len(body["data"])) == (200, "list", 16)
    first = body["data"][0]
    assert first.pop("created") > 0
    assert first == {"id": "auto", "name": "Auto", "object": "model", "owned_by": "cursor"}


@pytest.mark.parametrize("wanted", ["composer-2.5", "cursor/composer-2.5", "Composer 2.5"])
async def test_one_model_is_found_by_all_its_names(client: Client, wanted: str) -> None:
    status, body = await client.get(f"/v1/models/{wanted}")
    assert (status, body["id"]) == (200, "composer-2.5")


async def test_an_unknown_model_is_a_400_with_the_nearest_three(client: Client) -> None:
    status, body = await client.get("/v1/models/composer-9")
    assert (status, body["error"]["code"]) == (400, "model_not_found")
    assert "composer-2.5" in body["error"]["message"]
    status, error = await client.error("hi", model="composer-9")
    assert (status, error["code"]) == (400, "model_not_found")


async def test_an_alias_from_the_settings_is_a_model(start: Start, fake: FakeAgent) -> None:
    async with start(aliases={"gpt-4o": "composer-2.5"}) as client:
        answer = await client.answer("[[text:ok]]", model="gpt-4o")
    assert answer["model"] == "gpt-4o"
    assert "composer-2.5" in fake.runs()[0]["argv"]


async def test_many_requests_share_one_look_at_the_agent(client: Client, fake: FakeAgent) -> None:
    await asyncio.gather(*(client.get("/v1/models") for _ in range(20)))
    await healthy(client)
    assert asked(fake, "models") == 1
    assert asked(fake, "status") == 1


async def test_a_list_that_was_cut_short_is_asked_for_again(start: Start, fake: FakeAgent) -> None:
    fake.put("truncate-models", "2")
    async with start() as client:
        _, body = await client.get("/v1/models")
    assert len(body["data"]) == 16
    assert asked(fake, "models") == 3


async def test_a_list_that_is_always_cut_short_is_better_than_none(
    start: Start, fake: FakeAgent
) -> None:
    fake.put("truncate-models", "99")
    async with start() as client:
        _, body = await client.get("/v1/models")
        assert 0 < len(body["data"]) < 16


async def test_a_shorter_list_never_replaces_a_complete_one(
    client: Client, fake: FakeAgent
) -> None:
    await client.get("/v1/models")
    fake.put("truncate-models", "99")
    await client.server._gateway.account._models.refresh()
    _, body = await client.get("/v1/models")
    assert len(body["data"]) == 16


async def test_a_new_model_is_found_without_waiting_for_the_cache(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.get("/v1/models")
    listing = (RECORDINGS / "models.txt").read_text()
    fake.put("models.txt", listing.replace("auto - Auto", "brand-new - Brand New\nauto - Auto"))
    monkeypatch.setattr("cursor_gateway.account.MODELS_DOUBTFUL", 0.0)
    assert await client.content("[[text:ok]]", model="brand-new") == "ok"


async def test_signed_out_the_list_is_still_known_and_auto_needs_none(
    start: Start, fake: FakeAgent
) -> None:
    async with start() as client:
        await client.get("/v1/models")
        fake.sign_out()
        assert (await client.get("/v1/models"))[0] == 200
    async with start() as client:
        status, body = await client.get("/v1/models")
        assert (status, body["error"]["code"]) == (401, "not_authenticated")
        status, error = await client.error("hi")
        assert (status, error["code"]) == (401, "not_authenticated")
        assert "cursor-gateway login" in error["message"]


async def test_models_are_checked_before_the_sign_in(client: Client, fake: FakeAgent) -> None:
    await client.get("/v1/models")
    fake.sign_out()
    assert (await client.error("hi", model="gpt-99"))[0] == 400
    assert (await client.error("hi"))[0] == 401


async def test_where_there_is_no_list_the_agent_judges_the_model(
    start: Start, fake: FakeAgent
) -> None:
    fake.put("models.txt", "A new design without any list")
    async with start() as client:
        assert await client.content("[[text:ok]]", model="gpt-5") == "ok"
        assert (await client.error("hi", model="--force"))[0] == 400


async def test_health_says_what_scripts_need(client: Client, fake: FakeAgent) -> None:
    state = await healthy(client)
    path = str(Path(fake.env["PATH"].split(":")[0]) / "cursor-agent")
    assert state == {
        "status": "ok",
        "version": state["version"],
        "auth": "authenticated",
        "account": "dev@example.com",
        "mcp": {"enabled": False, "servers": 0, "tools": 0},
        "mcp_servers": [],
        "agent": {"kind": "cursor-agent", "path": path, "version": "2026.09.18-fake"},
        "slots": {"total": 10, "busy": 0, "waiting": 0},
        "tools": {
            "channel": "relay",
            "reason": "tool_channel is auto",
            "served": {"relay": 0, "text": 0, "native": 0},
        },
        "warm": {
            "most": 0,
            "spares": 0,
            "used": 0,
            "first_word_ms": {"cold": None, "spare": None},
            "starts_before_prompt": None,
            "state": "off",
            "reason": "the setting `warm` is 0",
        },
        "sessions": {
            "parked": 0,
            "most_parked": 40,
            "gave_way": 0,
            "chats": 0,
            "resume": True,
            "reason": None,
        },
        "loops_stopped": 0,
        "record_prompts": False,
        "agent_reads": {
            "scratch": "nothing but images of the conversation",
            "workspace": None,
            "isolated": False,
        },
        "transcripts": "remove",
        "version_facts": {},
        "warnings": [],
        "descriptors": {"used": ANY, "limit": ANY},
    }


async def test_a_check_that_is_on_its_way_is_a_gateway_that_starts(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.FIRST_CHECK_WAIT", 0.1)
    fake.put("status-hangs")
    async with start() as client:
        await eventually(lambda: asked(fake, "status"))
        for status, state in await asyncio.gather(*(client.get("/health") for _ in range(20))):
            assert (status, state["status"], state["auth"]) == (503, "starting", "unknown")
            assert "error" not in state
        assert asked(fake, "status") == 1
        assert await client.content("[[text:ok]]") == "ok"
        status, state = await client.get("/health")
        assert (status, state["status"], state["auth"]) == (200, "ok", "authenticated")


async def test_who_asks_right_after_the_start_waits_for_the_first_check(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.FIRST_CHECK_WAIT", 60.0)
    fake.put("status-takes", "0.3")
    async with start() as client:
        status, state = await client.get("/health")
        assert (status, state["status"], state["auth"]) == (200, "ok", "authenticated")
    fake.sign_out()
    async with start() as client:
        status, state = await client.get("/health")
        assert (status, state["error"]["code"]) == (503, "not_authenticated")


async def test_without_an_agent_nobody_waits_for_it(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.FIRST_CHECK_WAIT", math.inf)
    async with start(agent_executable="/nonexistent/agent") as client:
        assert (await client.get("/health"))[1]["status"] == "error"


async def test_a_check_that_takes_too_long_is_named(start: Start, fake: FakeAgent) -> None:
    fake.put("status-hangs")
    async with start(auth_check_timeout_ms=300) as client:
        await asyncio.wait({client.server._gateway.account._sign_in.refresh()})
        _, state = await client.get("/health")
        assert "0.3 seconds" in state["error"]["message"]


async def test_a_fresh_sign_in_is_noticed(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.NO_SIGN_IN_LASTS", 0.1)
    monkeypatch.setattr("cursor_gateway.account.NO_SIGN_IN_TRUSTED", 0.0)
    fake.sign_out()
    async with start() as client:
        await health_when(
            client, lambda state: state.get("error", {}).get("code") == "not_authenticated"
        )
        assert (await client.get("/health"))[0] == 503
        assert (await client.error("hi"))[0] == 401
        fake.sign_in()
        assert await client.content("[[text:ok]]") == "ok"
        assert (await healthy(client))["auth"] == "authenticated"


async def test_a_lost_sign_in_is_noticed_by_the_request_that_meets_it(
    client: Client, fake: FakeAgent
) -> None:
    await healthy(client)
    fake.sign_out()
    assert (await client.error("hi"))[0] == 401
    await health_when(client, lambda state: state["auth"] != "authenticated")


async def test_a_failure_at_the_start_is_not_held_against_later_requests(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.FAILURE_LASTS", 0.0)
    fake.put("offline")
    async with start() as client:
        status, body = await client.get("/v1/models")
        assert (status, body["error"]["code"]) == (503, "cursor_unreachable")
        assert (await client.error("hi", model="composer-2.5"))[0] == 503
        (fake.home / "offline").unlink()
        assert (await client.get("/v1/models"))[0] == 200
        assert await client.content("[[text:ok]]", model="composer-2.5") == "ok"


async def test_the_models_come_with_the_sign_in(
    start: Start, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.account.NO_SIGN_IN_LASTS", 0.1)
    fake.sign_out()
    async with start() as client:
        await eventually(lambda: asked(fake, "models"))
        fake.sign_in()
        await eventually(lambda: client.server._gateway.account._models.value)


async def test_an_answer_is_proof_of_a_sign_in(start: Start, fake: FakeAgent) -> None:
    fake.put("status-hangs")
    async with start(auth_check_timeout_ms=200) as client:
        assert await client.content("[[text:ok]]") == "ok"
        status, state = await client.get("/health")
        assert (status, state["auth"]) == (200, "authenticated")


async def test_an_old_cli_without_json_status_is_understood(start: Start, fake: FakeAgent) -> None:
    fake.put("old")
    async with start() as client:
        assert (await healthy(client))["auth"] == "authenticated"


async def test_an_api_key_travels_in_the_environment_only(start: Start, fake: FakeAgent) -> None:
    fake.sign_out()
    fake.env["CURSOR_API_KEY"] = "crsr_canary"
    fake.env["CURSOR_GATEWAY_API_KEY"] = ""
    fake.env["NODE_OPTIONS"] = "--inspect"
    async with start() as client:
        assert (await healthy(client))["auth"] == "authenticated"
        assert await client.content("[[text:ok]]") == "ok"
    (run,) = fake.runs()
    assert run["env"]["CURSOR_API_KEY"] == "crsr_canary"
    assert "NODE_OPTIONS" not in run["env"]
    assert "crsr_canary" not in str([call["argv"] for call in fake.calls()])
    assert asked(fake, "status") == 0


async def test_a_key_that_is_refused_is_not_signed_in(start: Start, fake: FakeAgent) -> None:
    fake.env["CURSOR_API_KEY"] = "bad"
    fake.put("models.txt", "")
    fake.put("config-race", "0")
    async with start() as client:
        await asyncio.wait({client.server._gateway.account._sign_in.refresh()})
        assert (await client.get("/health"))[0] == 503


@pytest.mark.parametrize("named", ["/nonexistent/agent", "cursor-agent-that-is-not-there"])
async def test_a_named_agent_that_is_absent_is_not_searched_for(
    start: Start, fake: FakeAgent, named: str
) -> None:
    async with start(agent_executable=named) as client:
        status, state = await client.get("/health")
        assert (status, state["status"]) == (503, "error")
        assert state["error"]["code"] == "agent_not_found"
        status, error = await client.error("hi", stream=True)
        assert (status, error["code"]) == (503, "agent_not_found")
        assert "cursor.com/install" in error["message"]


async def test_without_any_agent_the_gateway_starts_and_says_so(
    start: Start, fake: FakeAgent
) -> None:
    fake.env["PATH"] = "/usr/bin:/bin"
    async with start() as client:
        status, state = await client.get("/health")
        assert (status, state["agent"]["kind"]) == (503, None)
        assert (await client.error("hi"))[1]["code"] == "agent_not_found"


async def test_the_clis_new_name_is_taken_only_when_it_is_the_clis(
    start: Start, fake: FakeAgent, tmp_path: Path
) -> None:
    real = Path(fake.env["PATH"].split(":")[0]) / "cursor-agent"
    other = tmp_path / "other"
    other.mkdir()
    (other / "agent").symlink_to("/bin/true")
    fake.env["PATH"] = f"{other}:/usr/bin:/bin"
    async with start() as client:
        assert (await client.get("/health"))[1]["agent"]["kind"] is None
    (other / "agent").unlink()
    (other / "agent").symlink_to(real)
    async with start() as client:
        assert (await client.get("/health"))[1]["agent"]["path"] == str(other / "agent")


async def test_the_demo_agent_is_served_when_asked_for_and_named(
    start: Start, fake: FakeAgent
) -> None:
    async with start(demo="on") as client:
        assert (await healthy(client))["agent"]["kind"] == "demo"
        assert "“Why?”" in await client.content("Why?", model="demo-fast")
        reminded = "<system-reminder>\nToday is Monday.\n</system-reminder>\nWhy?"
        assert "“Why?”" in await client.content(reminded, model="demo-fast")
    async with start(demo="if-missing") as client:
        assert (await healthy(client))["agent"]["kind"] == "cursor-agent"
    fake.env["PATH"] = "/usr/bin:/bin"
    async with start(demo="if-missing") as client:
        assert (await healthy(client))["agent"]["kind"] == "demo"
