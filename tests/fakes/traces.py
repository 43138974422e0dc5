"""What the CLI keeps on disk of every run, at its real places: the chat's store below
`chats/<md5 of the workspace>`, the transcript below `projects/<slug of the workspace>`."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path


def config_folder() -> Path:
    """Below the home directory, unless the CLI is told otherwise; by `xdg` it is one that keeps to
    `XDG_CONFIG_HOME`."""
    if configured := os.environ.get("CURSOR_CONFIG_DIR"):
        return Path(configured)
    if Path(os.environ["FAKE_AGENT_DIR"], "xdg").exists():
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "cursor")
    return Path.home() / ".cursor"


def store_of(session: str) -> Path:
    here = str(Path.cwd().resolve())
    folder = hashlib.md5(here.encode(), usedforsecurity=False).hexdigest()
    return config_folder() / "chats" / folder / session / "store.db"


def project() -> Path:
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd().resolve())).strip("-")
    return config_folder() / "projects" / slug


def is_trusted() -> bool:
    return (project() / ".workspace-trusted").exists()


def trust() -> None:
    project().mkdir(parents=True, exist_ok=True)
    (project() / ".workspace-trusted").touch()
    (project() / "worker.log").write_text("worker started\n")


def write_down(session: str, role: str, text: str) -> None:
    """A line of the transcript. Every word stands there, also after the workspace is gone."""
    file = project() / "agent-transcripts" / session / f"{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    content = [{"type": "text", "text": text}]
    with file.open("a", encoding="utf-8", errors="replace") as lines:
        lines.write(json.dumps({"role": role, "message": {"content": content}}) + "\n")
