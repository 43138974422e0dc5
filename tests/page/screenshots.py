"""The pictures of docs/page.md, written anew by `make page-pictures`. Look at them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from playwright.async_api import expect

from cursor_gateway.settings_sources import load
from cursor_gateway.web.server import serving
from tests.conftest import Client
from tests.http.dialogue import BASH
from tests.page.visitor import NARROW, Visitor, visiting

DOCS = Path(__file__).parent.parent.parent / "docs"
# Who asks what, in which dialect, at which model.
ASKED: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("opencode/1.18.33", "chat/completions", {"model": "demo-fast", "tools": [BASH]}),
    ("claude-cli/2.1.325", "messages", {"model": "auto", "max_tokens": 1024}),
    ("codex_exec/0.166.0", "responses", {"model": "demo-fast"}),
    ("OpenAI/Python 2.1.0", "chat/completions", {"model": "gpt-99"}),
    ("aider/0.86.2", "completions", {"model": "demo-echo"}),
    ("opencode/1.18.33", "chat/completions", {"model": "demo-fast", "tools": [BASH]}),
)


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "XDG_RUNTIME_DIR": home}
        settings = load({"port": 0, "demo": "on"}, env).settings
        async with (
            serving(settings, env) as server,
            aiohttp.ClientSession() as session,
        ):
            client = Client(session, server)
            for who, path, body in ASKED:
                await ask(client, who, path, body)
            await picture(client)


async def ask(client: Client, who: str, path: str, body: Mapping[str, Any]) -> None:
    words = "Rename the function and run its tests. " * 20
    field = {"responses": "input", "completions": "prompt"}.get(path, "messages")
    said: Any = [{"role": "user", "content": words}] if field == "messages" else words
    asked = {**body, field: said}
    url, headers = client.url(f"/v1/{path}"), {"User-Agent": who}
    async with client.session.post(url, json=asked, headers=headers) as response:
        await response.read()


async def picture(client: Client) -> None:
    async with visiting(client) as visitor:
        await visitor.open("#playground")
        await visitor.asked("What time is it?")
        await take(visitor, "chat")
        await visitor.go("Requests")
        await expect(visitor.page.locator(".requests tbody tr")).to_have_count(len(ASKED) + 2)
        await take(visitor, "light")
    async with visiting(client, (1240, 720), colours="dark") as visitor:
        await visitor.open()
        await visitor.page.locator("tbody tr", has_text="opencode").first.click()
        await expect(visitor.page.locator(".timeline")).to_be_visible()
        await take(visitor, "dark")
    async with visiting(client, NARROW) as visitor:
        await visitor.open()
        await visitor.page.locator(".above-table").scroll_into_view_if_needed()
        await take(visitor, "narrow")


async def take(visitor: Visitor, name: str) -> None:
    await visitor.page.screenshot(path=DOCS / f"page-{name}.png")


if __name__ == "__main__":
    asyncio.run(main())
