"""How the fakes are steered: steps in double brackets in the prompt, and files in one directory.

Both agents read a prompt in the same way, so that one test can ask either of them.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

HOME = Path(os.environ["FAKE_AGENT_DIR"])
RECORDINGS = Path(__file__).parent.parent / "recordings"
STEP = re.compile(r"\[\[([a-z0-9-]+)(?::(.*?))?\]\]", re.DOTALL)
USER_TURN = re.compile(r'<turn from="user">\n(.*?)\n</turn>', re.DOTALL)
INSTRUCTIONS = re.compile(r"^<instructions>\n.*?^</instructions>", re.DOTALL | re.MULTILINE)

Steps = list[tuple[str, str]]


def wanted(prompt: str) -> Steps:
    """What the last user turn with steps wants done, after so many answers of the agent's."""
    if (HOME / "always").exists():
        return STEP.findall((HOME / "always").read_text())
    turns = [turn for turn in USER_TURN.finditer(prompt) if STEP.search(turn[1])]
    # The instructions of real clients have double brackets of their own.
    script = turns[-1][1] if turns else INSTRUCTIONS.sub("", prompt)
    later = prompt[turns[-1].end() :] if turns else ""
    parts = script.split("[[then]]")
    part = parts[min(later.count('<turn from="assistant">'), len(parts) - 1)]
    return STEP.findall(part) or habit(part) or [("text", part.strip().rpartition("\n")[2])]


def habit(prompt: str) -> Steps:
    file = HOME / "habits.json"
    for pattern, steps in json.loads(file.read_text()) if file.exists() else ():
        if found := re.search(pattern, prompt, re.DOTALL):
            return STEP.findall(found.expand(steps))
    return []


def as_turn(prompt: str) -> str:
    tagged = re.search(r"^<(?:turn|tool_result|instructions)\b", prompt, re.MULTILINE)
    return prompt if tagged else f'<turn from="user">\n{prompt}\n</turn>'


def shell_words(argument: str) -> str:
    """A call of a shell tool; `commands[]` is a parameter that takes a list."""
    name, parameter, command = argument.split(" ", 2)
    value = [command] if parameter.endswith("[]") else command
    return f"{name} {json.dumps({parameter.removesuffix('[]'): value})}"


def account() -> str:
    try:
        return (HOME / "account").read_text()
    except FileNotFoundError:
        return ""


def switched_on(name: str) -> bool:
    return (HOME / name).exists()


def setting(name: str, default: str = "") -> str:
    """What a switch says."""
    try:
        return (HOME / name).read_text().strip()
    except FileNotFoundError:
        return default


def take_one(counter: str) -> bool:
    """Whether the file `counter` still held a number above zero; counts it down."""
    path = HOME / counter
    left = int(path.read_text()) if path.exists() else 0
    if left:
        path.write_text(str(left - 1))
    return left > 0


def note(what: dict[str, Any], cwd: Path) -> None:
    """Leave a note of what an agent was asked, whole or not at all."""
    about = cwd.stat()
    files = sorted(path.name for path in cwd.iterdir())
    place = {"cwd": str(cwd), "mode": about.st_mode, "inode": about.st_ino, "files": files}
    calls = HOME / "calls"
    calls.mkdir(exist_ok=True)
    path = calls / f"{time.time_ns()}-{os.getpid()}.json"
    path.with_suffix(".part").write_text(
        json.dumps({"pid": os.getpid(), **what, **place, "env": dict(os.environ)})
    )
    path.with_suffix(".part").rename(path)
