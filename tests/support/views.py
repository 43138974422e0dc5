"""What a test can see of a gateway and of its agents, beside the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import Client, FakeAgent, eventually


def resumed(fake: FakeAgent) -> list[bool]:
    """Of each run, whether it took up a chat."""
    runs = fake.runs()
    if fake.kind == "cli":
        return ["--resume" in run["argv"] for run in runs]
    # A chat is an agent that was sent a message before.
    agents = [run.get("agent") or run["session"] for run in runs]
    return [agent in agents[:at] for at, agent in enumerate(agents)]


async def health_when(client: Client, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The first health that is as wanted."""

    async def check() -> dict[str, Any] | None:
        _, state = await client.get("/health")
        return dict(state) if wanted(state) else None

    return dict(await eventually(check))


async def healthy(client: Client) -> dict[str, Any]:
    """The state, once the gateway has asked the agent all it wants to know at the start."""
    return await health_when(
        client, lambda state: state["status"] == "ok" and state["agent"]["version"]
    )


async def until_the_agent_has_left(client: Client) -> None:
    """As the gateway knows it, which is later than the operating system does."""

    async def exit_code() -> bool:
        return (await listed(client))[0]["agents"][0]["exit"] is not None

    await eventually(exit_code)


def folder(fake: FakeAgent) -> Path:
    return Path(fake.env["XDG_STATE_HOME"]) / "cursor-gateway"


async def listed(client: Client) -> list[dict[str, Any]]:
    status, body = await client.get("/v1/requests")
    assert status == 200 and body["object"] == "list"
    return list(body["data"])


ALL = [
    *("Write(**)", "Write(/**)", "Shell(*)", "WebFetch(*)"),
    *("Read(**)", "Read(/**)", "Read(~/**)", "Mcp(*:*)"),
]


def denied(run: dict[str, Any]) -> list[str]:
    file = Path(run["cwd"]) / ".cursor" / "cli.json"
    return list(json.loads(file.read_text())["permissions"]["deny"])


async def warm(client: Client) -> dict[str, Any]:
    return dict((await client.get("/health"))[1]["warm"])


async def spare(client: Client, fake: FakeAgent) -> int:
    """The process of the one spare, once it is ready and whoever answered last is gone."""
    await health_when(client, lambda state: state["warm"]["spares"] == 1)
    (pid,) = await eventually(lambda: one_of(fake.processes()))
    return int(pid)


def one_of(found: list[int]) -> list[int]:
    return found if len(found) == 1 else []
