"""Where the CLI is: on PATH, named by a setting, or behind a command such as `ssh`."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cursor_gateway.agents import Located
from cursor_gateway.agents.cursor import remote
from cursor_gateway.errors import AgentNotFound, NoWayToAgent
from cursor_gateway.redaction import OUTGOING
from cursor_gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Program:
    """A program that keeps the CLI's contract."""

    argv: tuple[str, ...]
    kind: str = "cursor-agent"
    # How many words of `argv` lead to another machine or into a container, where the program is.
    prefix: int = 0
    # Whether it is a part of the gateway: it connects to no relay, and has no model that could
    # look around.
    is_built_in: bool = False
    notice: str = ""
    title: str = ""

    @property
    def located(self) -> Located:
        if self.is_built_in:
            return Located(self.kind, "built in", self.notice, self.title)
        path = OUTGOING(shlex.join(self.argv)) if self.prefix else self.argv[0]
        return Located(self.kind, path, self.notice, self.title)

    @property
    def is_there(self) -> bool:
        """Whether it need not be looked for again: another may have been installed since a built-in
        one had to do."""
        return not self.is_built_in and os.access(self.argv[0], os.X_OK)


Find = Callable[[Settings, Mapping[str, str]], Program]


def find_cli(settings: Settings, env: Mapping[str, str]) -> Program:
    """The CLI, as far as there is one now."""
    if settings.agent_command:
        return _remote(settings.agent_command, env)
    if settings.agent_executable:
        found = shutil.which(settings.agent_executable, path=env.get("PATH"))
        if not found:
            raise AgentNotFound(
                f"CURSOR_AGENT_EXECUTABLE names {settings.agent_executable!r}, "
                "which is not an executable program."
            )
        return Program((found,))
    if found := _search(env):
        return Program((found,))
    raise AgentNotFound("`cursor-agent` is neither on PATH nor in ~/.local/bin.")


def _remote(command: str, env: Mapping[str, str]) -> Program:
    """Whether there is an agent over there, only running it can tell."""
    words = remote.words_of(command)
    found = shutil.which(words[0], path=env.get("PATH"))
    if not found:
        raise NoWayToAgent(f"agent_command begins with {words[0]!r}, which is no program here.")
    return Program((found, *words[1:]), prefix=len(words) - 1)


def _search(env: Mapping[str, str]) -> str | None:
    home = Path(env.get("HOME", "~")).expanduser()
    path = os.pathsep.join((env.get("PATH", os.defpath), str(home / ".local" / "bin")))
    if found := shutil.which("cursor-agent", path=path):
        return found
    # `agent` is the CLI's new name, but another vendor's too: only the target of the link tells.
    found = shutil.which("agent", path=path)
    return found if found and "cursor-agent" in str(Path(found).resolve()) else None
