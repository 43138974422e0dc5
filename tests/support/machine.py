"""What a test asks the machine it runs on."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


OF_CLIENTS = re.compile("OPENCODE|CODEX|CLAUDE|ANTHROPIC|AIDER|OPENAI|PI_|FACTORY|CLINE|CONTINUE")


def is_blocked_on_its_pipe(pid: int) -> bool:
    return "pipe_write" in Path(f"/proc/{pid}/wchan").read_text()
