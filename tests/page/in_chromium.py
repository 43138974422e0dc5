"""The page in a real Chromium, before a real gateway with the fake agent: `make page`.

Not part of `make test`: it needs a browser. Each visit also checks that the console stays silent
and that no request leaves for another origin.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from cursor_gateway.agents.cursor.version_facts import VersionFacts, write_facts
from tests.conftest import RECORDINGS, Client, FakeAgent, Start, eventually
from tests.http.dialogue import Dialogue
from tests.page.visitor import NARROW, PATIENCE_MS, WIDE, Visitor, visiting

KEY = "gw-canary-key"
CANARY = "canary-9321"
HOSTILE = "<img src=x onerror=alert(1)>"
HELLO = "[[think:Let me see.]][[text:Hello ]][[text:there.]]"
TIME = '[[think:hm]][[relay:get_time {"timezone": "Asia/Tokyo"}]][[text:It is ]][[say-result]]'

expect.set_options(timeout=PATIENCE_MS)


async def test_a_chat_streams_and_its_request_appears_by_itself(client: Client) -> None:
    async with visiting(client) as visitor:
        await visitor.open()
        page = visitor.page
        await expect(page.get_by_text("No requests yet")).to_be_visible()
        await visitor.go("Playground")
        await visitor.asked(HELLO)
        await expect(page.locator(".message.model .words").last).to_have_text("Hello there.")
        thinking = page.locator(".thinking")
        await expect(thinking.locator(".words")).to_be_hidden()
        await thinking.locator("summary").click()
        await expect(thinking.locator(".words")).to_have_text("Let me see.")
        await visitor.go("Requests")
        row = page.locator(".requests tbody tr")
        await expect(row).to_have_count(1)
        await expect(row).to_contain_text("browser")
        await expect(row.locator(".outcome")).to_have_text("complete")
        await expect(row.locator(".output")).not_to_have_text("–")


async def test_words_are_there_before_the_answer_is_and_stop_stops_it(
    client: Client, fake: FakeAgent
) -> None:
    async with visiting(client) as visitor:
        await visitor.open("#playground")
        page = visitor.page
        await visitor.ask("[[text:Begun]][[hang]]")
        await expect(page.locator(".message.model .words")).to_have_text("Begun")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".foot")).to_contain_text("stopped")
        await eventually(lambda: not fake.processes())
        await visitor.go("Requests")
        await expect(page.locator("tbody .outcome")).to_have_text("client left")
        await visitor.go("Playground")
        await visitor.asked("[[text:And on]]")
        await expect(page.locator(".message.model .words").last).to_have_text("And on")


async def test_a_tool_call_goes_round(start: Start, fake: FakeAgent) -> None:
    async with start(record_prompts=True) as client, visiting(client) as visitor:
        await visitor.open("#playground")
        await visitor.asked(TIME)
        page = visitor.page
        call = page.locator(".call")
        await expect(call).to_have_count(1)
        await expect(call).to_contain_text('get_time({"timezone":')
        await expect(call.locator(".result")).to_contain_text("GMT+9")
        await expect(page.locator(".message.model .words").last).to_contain_text("It is ")
        await expect(page.locator(".foot a")).to_have_count(2)
        assert len(fake.runs()) == 1
        await page.get_by_role("link", name="request 1").click()
        await expect(page.get_by_label("Call of get_time")).to_contain_text("Asia/Tokyo")
        await page.keyboard.press("Escape")
        await expect(page.locator("tbody .channel").first).to_have_text("relay")


async def test_the_end_of_an_answer_stays_in_sight_unless_the_reader_goes_back(
    client: Client,
) -> None:
    long = "\n".join(f"line {number}" for number in range(200))
    async with visiting(client) as visitor:
        await visitor.open("#playground")
        page = visitor.page
        await visitor.asked(f"[[text:{long}]]")
        await expect(page.locator(".foot")).to_be_in_viewport()
        await visitor.asked(f"[[text:{long}]][[text:{long}]]")
        await expect(page.locator(".foot").last).to_be_in_viewport()
        await visitor.ask(f"[[text:{long}]][[hang]]")
        await expect(page.locator(".message.model .words").last).to_contain_text("line 199")
        log = page.get_by_role("log")
        await log.evaluate("log => log.scrollTo(0, 0)")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".foot").last).to_contain_text("stopped")
        assert await log.evaluate("log => log.scrollTop") == 0


async def test_code_in_an_answer_looks_like_code(client: Client) -> None:
    async with visiting(client) as visitor:
        await visitor.open("#playground")
        await visitor.asked("[[text:Use `sorted`:\n```python\nsorted(names)\n```\nThat is all.]]")
        said = visitor.page.locator(".message.model .words")
        await expect(said.locator("code")).to_have_text("sorted")
        await expect(said.locator("pre")).to_have_text("sorted(names)")
        await expect(said).to_contain_text("That is all.")


async def test_a_tool_is_not_offered_where_it_is_not_wanted(
    client: Client, fake: FakeAgent
) -> None:
    async with visiting(client) as visitor:
        await visitor.open("#playground")
        await visitor.page.get_by_label("Offer the tool").uncheck()
        await visitor.asked("hi")
        assert "get_time" not in fake.runs()[0]["prompt"]


@pytest.mark.agents("sdk")
async def test_a_run_that_has_no_process_of_its_own_names_none(client: Client) -> None:
    await client.content("[[text:hi]]")
    async with visiting(client) as visitor:
        await visitor.open()
        await visitor.page.locator(".requests tbody .model").click()
        detail = visitor.page.get_by_role("dialog")
        await expect(detail.locator(".facts")).to_contain_text("sdk")
        await expect(detail.get_by_text("fresh", exact=True)).to_be_visible()


async def test_a_request_shows_its_timeline_and_can_be_repeated(start: Start) -> None:
    async with start(record_prompts=True) as client, visiting(client) as visitor:
        await client.content(f"[[text:{CANARY}]]", headers={"X-Request-Id": "mine"})
        await visitor.open()
        page = visitor.page
        await page.locator(".requests tbody .model").click()
        detail = page.get_by_role("dialog")
        await expect(detail.get_by_role("heading", name="Request mine")).to_be_visible()
        moments = detail.locator(".timeline tbody th")
        await expect(moments.first).to_have_text("Asks for a slot")
        await expect(moments.last).to_have_text("End")
        await expect(detail.get_by_label("Answer", exact=True)).to_have_text(CANARY)
        await detail.get_by_role("button", name="Copy the curl command").click()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith(f"curl --no-buffer {client.url('/v1/chat/completions')}")
        assert CANARY in copied


async def test_what_was_asked_is_nowhere_unless_it_is_recorded(client: Client) -> None:
    async with visiting(client) as visitor:
        await client.content(f"[[text:{CANARY}]]", headers={"X-Request-Id": "mine"})
        await visitor.open("#requests/mine")
        detail = visitor.page.get_by_role("dialog")
        await expect(detail).to_contain_text("--record-prompts")
        await expect(detail.get_by_label("curl command")).to_contain_text("Hello")
        assert CANARY not in await visitor.page.content()


async def test_a_model_that_does_not_exist_is_named_once(client: Client) -> None:
    async with visiting(client) as visitor:
        model = "no-such-model-" + "x" * 80
        await client.error("hi", model=model, headers={"X-Request-Id": "mine"})
        await visitor.open("#requests/mine")
        facts = visitor.page.get_by_role("dialog").locator(".facts")
        await expect(facts).to_contain_text(model)
        assert (await facts.inner_text()).count(model) == 1


async def test_an_old_address_says_that_the_request_is_gone(client: Client) -> None:
    async with visiting(client) as visitor:
        visitor.expects("status of 404")
        await visitor.open("#requests/unknown")
        detail = visitor.page.get_by_role("dialog")
        await expect(detail).to_contain_text("Not among the running")
        await detail.get_by_role("button", name="Close").click()
        await expect(detail).to_be_hidden()


async def test_the_key_is_asked_for_until_it_is_right(start: Start) -> None:
    async with start(api_key=KEY) as client, visiting(client) as visitor:
        visitor.expects("status of 401")
        page = visitor.page
        await page.goto(visitor.home)
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("This gateway has a key")
        for _ in range(3):
            await page.keyboard.press("Escape")
            await expect(dialog).to_be_visible()
        assert await visitor.violations() == []
        for offered in ("wrong", "“smart quotes”", "日本"):
            await visitor.enter_key(offered)
            await expect(dialog).to_contain_text("That was not the key.")
            await expect(page.get_by_role("textbox", name="Key")).to_have_value("")
            assert await page.evaluate("sessionStorage.length") == 0
        await visitor.enter_key(KEY)
        await expect(page.locator("#status")).to_have_text("ready")
        await page.reload()
        await expect(page.locator("#status")).to_have_text("ready")
        await visitor.go("Playground")
        await visitor.asked(HELLO)
        await expect(dialog).to_be_hidden()


@pytest.mark.parametrize("key", ["schlüssel", "“日本”"])
async def test_any_key_will_do(start: Start, key: str) -> None:
    async with start(api_key=key) as client, visiting(client) as visitor:
        visitor.expects("status of 401")
        await visitor.page.goto(visitor.home)
        await visitor.enter_key(key)
        await expect(visitor.page.locator("#status")).to_have_text("ready")


async def test_what_came_with_a_request_is_text_whatever_it_says(
    start: Start, fake: FakeAgent
) -> None:
    listed = (RECORDINGS / "models.txt").read_text()
    fake.put("models.txt", listed.replace("Auto", HOSTILE))
    async with start(record_prompts=True) as client, visiting(client) as visitor:
        await client.error(
            HOSTILE, model=f"{HOSTILE}?", headers={"User-Agent": HOSTILE.replace(" ", "/")}
        )
        headers = {"X-Request-Id": "mine"}
        await client.content(f"[[think:{HOSTILE}]][[text:{HOSTILE}]]", headers=headers)
        await visitor.open()
        page = visitor.page
        await expect(page.locator("tbody tr", has_text=HOSTILE)).to_have_count(1)
        await page.goto(f"{visitor.home}#requests/mine")
        await expect(page.get_by_label("Answer", exact=True)).to_have_text(HOSTILE)
        await page.keyboard.press("Escape")
        await visitor.go("Playground")
        await visitor.asked(f"[[text:{HOSTILE}]]")
        await expect(page.get_by_label("Model")).to_contain_text(HOSTILE)
        assert await page.locator("img").count() == 1  # the icon


async def test_a_refusal_is_shown_as_it_is_and_the_question_comes_back(
    client: Client, fake: FakeAgent
) -> None:
    async with visiting(client) as visitor:
        visitor.expects("status of 429")
        await visitor.open("#playground")
        page = visitor.page
        await visitor.ask("[[play:fail_usage_limit]]")
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("quota_exceeded (429)")
        await expect(page.locator(".message.model")).to_have_count(0)
        await expect(alert.get_by_role("link")).to_be_visible()
        await expect(page.get_by_label("Question")).to_have_value("[[play:fail_usage_limit]]")


async def test_an_answer_that_breaks_off_is_told(client: Client) -> None:
    async with visiting(client) as visitor:
        visitor.expects("ERR_INCOMPLETE_CHUNKED_ENCODING")
        await visitor.open("#playground")
        await visitor.ask("[[text:Half an ans]][[half-line]]")
        alert = visitor.page.get_by_role("alert")
        await expect(alert).to_contain_text("agent_")


async def test_a_lost_sign_in_is_told_with_what_to_do_and_found_again(
    start: Start, fake: FakeAgent
) -> None:
    fake.sign_out()
    async with start() as client, visiting(client) as visitor:
        await visitor.open()
        page = visitor.page
        await expect(page.locator(".notice")).to_contain_text("cursor-gateway login")
        await expect(page.locator("#status")).to_have_text("not ready")
        assert await visitor.violations() == []
        fake.sign_in()
        await expect(page.locator("#status")).to_have_text("ready")
        await expect(page.locator(".notice")).to_have_count(0)
        await expect(page.locator("#state")).to_contain_text("dev@example.com")


async def test_what_is_known_of_the_cli_is_told(start: Start, fake: FakeAgent) -> None:
    folder = Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway" / "versions"
    facts = VersionFacts(boots_before_prompt=False, obeys_deny_list=False)
    write_facts(folder, "2026.09.18-fake", facts)
    async with start(warm=1) as client, visiting(client) as visitor:
        await visitor.open()
        await expect(visitor.page.get_by_text("warm starts do not help")).to_be_visible()
        await expect(visitor.page.get_by_text("disobeys the deny list")).to_be_visible()


async def test_a_gateway_that_is_gone_is_told(start: Start) -> None:
    async with start() as client, visiting(client) as visitor:
        visitor.expects("ERR_CONNECTION_REFUSED")
        await visitor.open()
        await client.server.close()
        page, words = visitor.page, "The gateway does not answer."
        await expect(page.locator("#notices")).to_contain_text(words)
        await expect(page.get_by_text("No requests yet")).to_have_count(0)
        await expect(page.locator("#request-table")).to_contain_text(
            "appear here when the gateway answers"
        )
        await visitor.go("Clients")
        await expect(page.locator("#client-list")).to_contain_text(words)
        await visitor.go("Playground")
        await visitor.ask("hi")
        await expect(page.get_by_role("alert")).to_contain_text(words)


async def test_a_page_asks_again_once_the_gateway_is_back(start: Start) -> None:
    async with start() as client, visiting(client) as visitor:
        visitor.expects("ERR_CONNECTION_REFUSED|status of 404")
        await client.content(HELLO, headers={"X-Request-Id": "mine"})
        await visitor.open()
        port = client.server.port
        await client.server.close()
        page = visitor.page
        await expect(page.locator("#notices")).to_contain_text("does not answer")
        await page.locator(".requests tbody a").click()
        detail = page.get_by_role("dialog")
        await expect(detail).to_contain_text("The gateway does not answer.")
        async with start(port=port):
            await expect(detail).to_contain_text("Not among the running")
            await page.keyboard.press("Escape")
            await expect(page.get_by_text("No requests yet")).to_be_visible()


async def test_a_gateway_that_dies_takes_its_running_requests_with_it(
    client: Client, fake: FakeAgent
) -> None:
    async with serving_alone(fake) as (serve, home), visiting(client) as visitor:
        visitor.home = home
        visitor.expects("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING")
        await visitor.open("#playground")
        page = visitor.page
        await visitor.ask("[[text:Begun]][[hang]]")
        await expect(page.locator(".message.model .words")).to_have_text("Begun")
        await visitor.go("Requests")
        await expect(page.locator("tbody .outcome")).to_have_text("running")
        await page.locator(".requests tbody a").click()
        detail = page.get_by_role("dialog")
        await expect(detail).to_contain_text("running")
        serve.kill()
        await expect(detail).to_contain_text("not known")
        await page.keyboard.press("Escape")
        await expect(page.locator("tbody .outcome")).to_have_text("not known")
        await visitor.go("Playground")
        await expect(page.get_by_role("alert")).to_contain_text("The connection broke off.")


@asynccontextmanager
async def serving_alone(fake: FakeAgent) -> AsyncIterator[tuple[Process, str]]:
    """A gateway that can be killed, and the address of its page."""
    serve = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cursor_gateway", "serve", "--port", "0"),
        env=fake.env,
        stderr=asyncio.subprocess.PIPE,
    )
    assert serve.stderr is not None
    await serve.stderr.readline()
    try:
        yield serve, (await serve.stderr.readline()).decode().split()[1]
    finally:
        if serve.returncode is None:
            serve.kill()
        await serve.communicate()
        for pid in fake.processes():
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not fake.processes())


async def test_the_keyboard_is_enough(client: Client) -> None:
    async with visiting(client) as visitor:
        await client.content(HELLO)
        await visitor.open()
        page = visitor.page
        link = page.locator(".requests tbody a")
        await expect(link).to_have_count(1)
        await tab_to(visitor, ".requests tbody a")
        await page.keyboard.press("Enter")
        detail = page.get_by_role("dialog")
        await expect(detail.locator(".timeline")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(detail).to_be_hidden()
        await expect(link).to_be_focused()
        await tab_to(visitor, "nav a[href='#playground']", backwards=True)
        await page.keyboard.press("Enter")
        await tab_to(visitor, "#question")
        await page.keyboard.type("[[text:Typed]]")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.model .words")).to_have_text("Typed")


async def tab_to(visitor: Visitor, selector: str, *, backwards: bool = False) -> None:
    for _ in range(40):
        await visitor.page.keyboard.press("Shift+Tab" if backwards else "Tab")
        if await visitor.page.locator(selector).evaluate("it => it === document.activeElement"):
            return
    raise AssertionError(f"{selector} cannot be reached by Tab")


async def test_the_table_can_be_filtered(client: Client) -> None:
    async with visiting(client) as visitor:
        await client.content("hi", headers={"User-Agent": "opencode/1.18"})
        await client.content("hi", headers={"User-Agent": "codex/0.166"})
        await visitor.open()
        page, rows = visitor.page, visitor.page.locator(".requests tbody tr")
        await expect(rows).to_have_count(2)
        await page.get_by_label("Filter requests").fill("CODEX")
        await expect(rows).to_have_count(1)
        await page.get_by_label("Filter requests").fill("nothing such")
        await expect(page.get_by_text("No request matches")).to_be_visible()


async def test_the_charts_say_the_same_as_a_table(client: Client) -> None:
    async with visiting(client) as visitor:
        await client.content(HELLO)
        await visitor.open()
        page = visitor.page
        await expect(page.get_by_role("img", name="Tokens out: ")).to_have_count(1)
        await page.get_by_text("These figures as a table").click()
        row = page.locator(".figures tbody tr")
        await expect(row.locator("td").first).to_have_text("1")


async def test_each_client_can_be_set_up_by_copying(client: Client) -> None:
    async with visiting(client) as visitor:
        await visitor.open("#clients")
        page = visitor.page
        await page.get_by_role("heading", name="Claude Code").click()
        await page.get_by_role("button", name="Copy the configuration of Claude Code").click()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert client.url("/")[:-1] in copied
        await expect(page.get_by_text("cursor-gateway setup claude-code --write")).to_be_visible()


async def test_any_client_finds_its_base_url_in_either_dialect(client: Client) -> None:
    async with visiting(client) as visitor:
        await visitor.open("#clients")
        page, origin = visitor.page, client.url("/")[:-1]
        for dialect, url in (("OpenAI", f"{origin}/v1"), ("Anthropic", origin)):
            await page.get_by_role("button", name=f"Copy the base URL for {dialect}'s").click()
            assert await page.evaluate("navigator.clipboard.readText()") == url
        await expect(page.get_by_text("any word works")).to_be_visible()


async def test_a_set_up_by_hand_says_where_the_key_goes(start: Start) -> None:
    async with start(api_key=KEY) as client, visiting(client) as visitor:
        visitor.expects("status of 401")
        page = visitor.page
        await page.goto(f"{visitor.home}#clients")
        await visitor.enter_key(KEY)
        card = page.locator(".client-card[open]")
        await expect(card).to_contain_text("Put the gateway's key in place of YOUR-GATEWAY-KEY.")
        await expect(card).to_contain_text("takes the key from CURSOR_GATEWAY_API_KEY")
        assert KEY not in await page.content()


LOOKS = pytest.mark.parametrize(
    ("size", "colours"),
    [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light"), (NARROW, "dark")],
    ids=["light", "dark", "narrow", "narrow-dark"],
)


@LOOKS
async def test_axe_finds_nothing_in_any_view(
    start: Start, size: tuple[int, int], colours: str
) -> None:
    async with start(record_prompts=True) as client, visiting(client, size, colours) as visitor:
        visitor.expects("status of 429")
        await visitor.open()
        await expect(visitor.page.get_by_text("No requests yet")).to_be_visible()
        assert await looked_at(visitor) == []
        await client.error("hi", model="gpt-99")
        await client.content(HELLO)
        await expect(visitor.page.locator(".requests tbody tr")).to_have_count(2)
        await visitor.page.get_by_text("These figures as a table").click()
        assert await looked_at(visitor) == []
        await visitor.page.locator(".requests tbody a").first.click()
        await expect(visitor.page.locator(".timeline")).to_be_visible()
        assert await looked_at(visitor) == []
        await visitor.page.keyboard.press("Escape")
        await visitor.go("Playground")
        await visitor.asked(TIME)
        await visitor.page.locator(".thinking summary").first.click()
        assert await looked_at(visitor) == []
        await visitor.ask("[[play:fail_usage_limit]]")
        await expect(visitor.page.get_by_role("alert")).to_be_visible()
        assert await looked_at(visitor) == []
        await visitor.go("Clients")
        await expect(visitor.page.locator(".client-card").first).to_be_visible()
        assert await looked_at(visitor) == []


@pytest.mark.parametrize("width", [320, 360, 761, 800, 1280])
async def test_nothing_runs_over_an_edge(start: Start, width: int) -> None:
    async with (
        start(record_prompts=True) as client,
        visiting(client, (width, 700)) as visitor,
    ):
        page = visitor.page
        for name, error in (("auto", False), ("no-such-model-" + "x" * 80, True)):
            ask = client.error if error else client.content
            await ask(HELLO, model=name, headers={"User-Agent": "client/" + "y" * 80})
        await visitor.open()
        await expect(page.locator(".requests tbody tr")).to_have_count(2)
        await page.get_by_text("These figures as a table").click()
        assert await visitor.run_over() == []
        await page.locator(".requests tbody a").first.click()
        await expect(page.locator(".timeline")).to_be_visible()
        assert await visitor.run_over() == []
        await page.keyboard.press("Escape")
        for view, content in (("Clients", ".client-card"), ("Playground", ".composer")):
            await visitor.go(view)
            await expect(page.locator(content).first).to_be_visible()
            assert await visitor.run_over() == []


async def looked_at(visitor: Visitor) -> list[str]:
    assert not await visitor.is_wider_than_its_window()
    return await visitor.violations()


async def test_a_running_request_is_shown_with_its_state(client: Client, fake: FakeAgent) -> None:
    async with visiting(client) as visitor:
        await visitor.open()
        page = visitor.page
        async with client.chat("[[text:Begun]][[hang]]", stream=True):
            await expect(page.locator("tbody .outcome")).to_have_text("running")
            await expect(page.locator("#state")).to_contain_text("1 of 10")
        await expect(page.locator("tbody .outcome")).to_have_text("client left")
        talk: Any = Dialogue(client)
        await talk.say('[[relay:bash {"command": "ls"}]]')
        await expect(page.locator("#state")).to_contain_text("1 run")
        await talk.bring("a.txt")
