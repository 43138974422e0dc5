"""What the bridge knows of its agents, in memory and on disk.

The real one keeps them below `~/.cursor/projects`, a database for each working directory, whatever
`--state-root` says; a `--local-store` of type `jsonl` with a `rootDir` moves them. An agent is
written down when it is made, together with its first run: until that has ended nobody can delete
the agent, and who resumes it finds that it has a run already.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.steps import switched_on


@dataclass(slots=True)
class Agent:
    agent_id: str
    options: dict[str, Any]
    cwd: Path
    # All that it has read and said.
    transcript: str = ""
    # The run that has not ended yet, as far as the disk knows: after a crash it never does.
    active_run: str = ""
    # The same, as long as nothing was sent.
    first_run: str = ""

    @property
    def model(self) -> dict[str, Any]:
        return dict(self.options.get("model") or {})

    @property
    def key(self) -> str:
        return str(self.options.get("apiKey") or os.environ.get("CURSOR_API_KEY", ""))

    @property
    def tools(self) -> dict[str, Any]:
        """The custom ones; without `mcp` among its tools the model is not shown them."""
        if "mcp" not in self.options.get("tools", {}).get("names", ["mcp"]):
            return {}
        return dict(self.options.get("local", {}).get("customTools") or {})


class Store:
    def __init__(self, root: str) -> None:
        self._root = root

    def write(self, agent: Agent) -> None:
        file = self._file(agent.agent_id, agent.cwd)
        file.parent.mkdir(parents=True, exist_ok=True)
        state = {"transcript": agent.transcript, "active": agent.active_run}
        part = file.with_suffix(".part")
        part.write_text(json.dumps(state))
        part.replace(file)

    def read(self, agent_id: str, options: dict[str, Any], cwd: Path) -> Agent | None:
        try:
            state = json.loads(self._file(agent_id, cwd).read_text())
        except FileNotFoundError:
            return None
        said = "" if switched_on("forgets") else state["transcript"]
        return Agent(agent_id, options, cwd, said, state["active"])

    def delete(self, agent_id: str, cwd: Path) -> None:
        self._file(agent_id, cwd).unlink()

    def _file(self, agent_id: str, cwd: Path) -> Path:
        here = str(cwd.resolve())
        folder = hashlib.sha256(here.encode()).hexdigest()
        if self._root:
            return Path(self._root, folder, f"{agent_id}.json")
        slug = re.sub(r"[^A-Za-z0-9]", "-", here).strip("-")
        home = Path.home() / ".cursor" / "projects" / slug / "sdk-agent-store"
        return home / folder / f"{agent_id}.json"
