"""Somebody at the page with a real Chromium, who notices whatever a browser complains about."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright, expect

from tests.conftest import Client

AXE = Path(os.environ["PAGE_DIR"]).resolve() / "node_modules" / "axe-core" / "axe.min.js"
# Machines are shared, and a browser is a large program.
PATIENCE_MS = 20_000
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # Grey edges of letters: small pictures, the same on each screen.
    "--disable-lcd-text",
)
WIDE, NARROW = (1240, 860), (380, 800)

# A table that is too wide for its card is cut by it, so what holds tables is looked at, too.
RUN_OVER = """() => [document.documentElement, ...document.querySelectorAll(
    "header, .bar, nav, #request-table, tbody tr, .panel, .client-card, summary"
  )].filter(it => it.scrollWidth > it.clientWidth && it.checkVisibility())
    .map(it => `${it.tagName}.${it.className}: ${it.scrollWidth} > ${it.clientWidth}`)"""


@dataclass
class Visitor:
    page: Page
    home: str
    complaints: list[str] = field(default_factory=list)
    strayed: list[str] = field(default_factory=list)
    expected: list[re.Pattern[str]] = field(default_factory=list)

    def watch(self) -> None:
        """From now on, for everything that a clean page does not do."""
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", self._left)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _left(self, request: Any) -> None:
        if not request.url.startswith((self.home, "data:")):
            self.strayed.append(request.url)

    def expects(self, complaint: str) -> None:
        """A browser writes every refusal to its console, soon or late; some are meant."""
        self.expected.append(re.compile(complaint))

    @property
    def surprises(self) -> list[str]:
        return [
            complaint
            for complaint in self.complaints
            if not any(pattern.search(complaint) for pattern in self.expected)
        ]

    async def open(self, view: str = "") -> None:
        await self.page.goto(f"{self.home}{view}")
        await expect(self.page.locator("#status")).not_to_have_text("connecting")

    async def enter_key(self, key: str) -> None:
        await self.page.get_by_role("textbox", name="Key").fill(key)
        await self.page.keyboard.press("Enter")

    async def go(self, view: str) -> None:
        """To another view, by its link."""
        await self.page.get_by_role("navigation").get_by_role("link", name=view).click()

    async def ask(self, question: str) -> None:
        await self.page.get_by_label("Question").fill(question)
        await self.page.get_by_role("button", name="Send").click()

    async def asked(self, question: str) -> None:
        """Until the answer is complete."""
        await self.ask(question)
        await expect(self.page.locator(".foot").last.get_by_role("link").first).to_be_visible()

    async def violations(self) -> list[str]:
        found = await self.page.evaluate("() => axe.run({resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    async def run_over(self) -> list[str]:
        """What does not fit the width it has, where nothing else cuts or scrolls it."""
        return list(await self.page.evaluate(RUN_OVER))

    async def is_wider_than_its_window(self) -> bool:
        script = "() => document.documentElement.scrollWidth > innerWidth"
        return bool(await self.page.evaluate(script))


@asynccontextmanager
async def visiting(
    client: Client, size: tuple[int, int] = WIDE, colours: str = "light"
) -> AsyncIterator[Visitor]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=os.environ["CHROMIUM"], args=list(SWITCHES)
        )
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=colours,
            permissions=["clipboard-read", "clipboard-write"],
            reduced_motion="reduce",
        )
        await context.add_init_script(path=AXE)
        visitor = Visitor(await context.new_page(), client.url("/"))
        visitor.watch()
        try:
            yield visitor
            assert visitor.surprises == []
            assert visitor.strayed == []
        finally:
            await browser.close()
