"""DemoAgent: the demo program, run as the CLI is run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cursor_gateway.agents import Capabilities
from cursor_gateway.agents.cursor.cli import CursorCli
from cursor_gateway.agents.cursor.program import Program
from cursor_gateway.settings import Settings

# By its path: as a module, all that the package imports would be loaded with each answer.
_PROGRAM = Path(__file__).with_name("program.py")
_TITLE = "DEMO AGENT"
_NOTICE = "No model answers here. Every answer comes from the built-in demo agent."


def find_demo(settings: Settings, env: Mapping[str, str]) -> Program:
    words = (sys.executable, str(_PROGRAM))
    return Program(words, "demo", is_built_in=True, notice=_NOTICE, title=_TITLE)


class DemoAgent(CursorCli):
    by_default = replace(CursorCli.by_default, calls_back=False, resumes=False)

    find_program = staticmethod(find_demo)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, calls_back=False, resumes=False)
