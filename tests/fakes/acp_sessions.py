"""The sessions of `cursor-agent acp`: in memory, and below `~/.cursor/acp-sessions`, where each has
a folder of its own for ever. They are not the chats of print mode, which know nothing of them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.fakes.acp_models import Choices
from tests.fakes.mcp import McpClient
from tests.fakes.steps import HOME, as_turn, setting, switched_on
from tests.fakes.traces import config_folder

if TYPE_CHECKING:
    from tests.fakes.acp_turn import Turn

Json = dict[str, Any]
T = TypeVar("T")
AGENT_NAME = {"User-Agent": "Cursor/1.0.0"}


async def in_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but nobody waits for its end when the process ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(value: T | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        try:
            value, error = work(), None
        except Exception as caught:
            value, error = None, caught
        loop.call_soon_threadsafe(tell, value, error)

    soon(run)
    return await done


def soon(work: Callable[[], object]) -> None:
    """In a thread for which nobody waits."""
    threading.Thread(target=work, daemon=True).start()


class McpServer:
    """A server that the client named, and the one connection of the agent's to it."""

    def __init__(self, described: Json) -> None:
        self.name = str(described["name"])
        headers = {each["name"]: each["value"] for each in described.get("headers", [])}
        self.client = McpClient({"url": described["url"], "headers": AGENT_NAME | headers})
        self.client.heeds_changes = False
        self._listing: asyncio.Future[Any] | None = None
        # One call at a time is on its way to a server.
        self.in_flight = asyncio.Semaphore(99 if switched_on("many-in-flight") else 1)

    async def connect(self) -> bool:
        """What happens while a session is made; whether the server is there."""
        try:
            await in_thread(lambda: self.client.connect(lists=False))
        except (OSError, ValueError, KeyError):
            return False
        soon(self.client.listen)
        return True

    async def connect_and_list(self) -> None:
        await asyncio.sleep(float(setting("late-mcp")))
        if await self.connect():
            await self.list_in_time()

    async def list_in_time(self) -> None:
        """Once for the whole session, whatever the server says later."""
        if not switched_on("never-lists"):
            await asyncio.sleep(float(setting("late-list", "0")))
            self._listing = asyncio.ensure_future(in_thread(self.client.list_tools))
            await self._listing

    async def listed(self) -> None:
        """Once a list that was asked for is there."""
        if self._listing is not None:
            await asyncio.wait({self._listing})


@dataclass(slots=True)
class Session:
    session_id: str
    cwd: Path
    choices: Choices
    # By their names.
    servers: dict[str, McpServer] = field(default_factory=dict)
    # For each turn that ended well: what the user said, and what was thought and said to that.
    history: list[Json] = field(default_factory=list)
    title: str = ""
    turn: Turn | None = None
    # The one that has ended, until its answer is written.
    last: Turn | None = None

    @property
    def transcript(self) -> str:
        """All that the model knows of it."""
        if switched_on("forgets"):
            return ""
        return "".join(
            f'{as_turn(entry["user"])}\n\n<turn from="assistant">\n'
            f"{''.join(entry['messages'])}\n</turn>\n\n"
            for entry in self.history
        )


class Store:
    def _folder(self, session_id: str) -> Path:
        return config_folder() / "acp-sessions" / session_id

    def write(self, session: Session) -> None:
        folder = self._folder(session.session_id)
        folder.mkdir(parents=True, exist_ok=True)
        about = {"sessionId": session.session_id, "cwd": str(session.cwd)}
        about |= {"title": session.title, "updatedAt": datetime.now(UTC).isoformat()}
        whole(folder / "store.db", session.history)
        whole(folder / "meta.json", about)

    def read(self, session_id: str) -> tuple[str, list[Json]] | None:
        """Its title and its history."""
        folder = self._folder(session_id)
        if not session_id or not (folder / "meta.json").exists():
            return None
        title = json.loads((folder / "meta.json").read_text())["title"]
        return title, json.loads((folder / "store.db").read_text())

    def listed(self) -> list[Json]:
        """Those of every directory that had a turn, the newest first."""
        found = [
            json.loads(meta.read_text())
            for meta in (config_folder() / "acp-sessions").glob("*/meta.json")
            if meta.with_name("store.db").read_text() != "[]"
        ]
        return sorted(found, key=lambda each: str(each["updatedAt"]), reverse=True)


def whole(file: Path, content: Any) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(file)


def note_call() -> None:
    with (HOME / "mcp-calls").open("a") as calls:
        calls.write(".")
