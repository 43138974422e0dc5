"""Questions: what the CLI is asked by short commands, which run to their end."""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cursor_gateway.agents import ModelList, SignIn
from cursor_gateway.agents.cursor.command_line import CommandLine
from cursor_gateway.agents.cursor.program import Program
from cursor_gateway.agents.cursor.starts import START_ATTEMPTS, Starts
from cursor_gateway.agents.cursor.texts import (
    classify_failure,
    is_config_race,
    parse_models,
    parse_status,
    parse_version,
)
from cursor_gateway.errors import AgentTimedOut
from cursor_gateway.processes.child import Command
from cursor_gateway.processes.children import Children
from cursor_gateway.redaction import OUTGOING

MODELS_TIMEOUT = 30.0
VERSION_TIMEOUT = 15.0
MODELS_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class _Output:
    stdout: str
    stderr: str


class Questions:
    def __init__(
        self,
        program: Callable[[], Program],
        command_line: CommandLine,
        children: Children,
        starts: Starts,
    ) -> None:
        self._program = program
        self._command_line = command_line
        self._children = children
        self._starts = starts

    async def sign_in(self, seconds: float) -> SignIn:
        output = await self._ask(["status", "--format", "json"], seconds)
        state = parse_status(output.stdout)
        if state is None:
            # Older CLIs know no `--format`.
            output = await self._ask(["status"], seconds)
            state = parse_status(output.stdout) or parse_status(output.stderr)
        if state is None:
            raise classify_failure(output.stderr or output.stdout)
        return replace(state, account=OUTGOING(state.account))

    async def models(self) -> ModelList:
        """The account's models; `complete` is False where every attempt was cut short."""
        best = ModelList((), complete=False)
        for _ in range(MODELS_ATTEMPTS):
            output = await self._ask(["models"], MODELS_TIMEOUT)
            listed = parse_models(output.stdout)
            if listed.complete and listed.models:
                return listed
            best = max(best, listed, key=lambda found: len(found.models))
            if not listed.models:
                raise classify_failure(f"{output.stderr}\n{output.stdout}")
        return best

    async def version(self) -> str:
        return parse_version((await self._ask(["--version"], VERSION_TIMEOUT)).stdout)

    async def _ask(self, arguments: Sequence[str], seconds: float) -> _Output:
        """Run a short command to its end. Its stdout is a file: pipes were seen to lose the end."""
        for attempt in range(1, START_ATTEMPTS + 1):
            await self._starts.wait()
            output = await self._ask_once(arguments, seconds)
            if attempt == START_ATTEMPTS or not is_config_race(output.stderr):
                break
            self._starts.space_out()
        return output

    async def _ask_once(self, arguments: Sequence[str], seconds: float) -> _Output:
        argv, here = self._argv(arguments), self._children.scratch
        with self._children.root.in_use():
            output = tempfile.TemporaryFile(dir=here)  # noqa: SIM115 - closed below
        with output:
            env = self._command_line.encoded_env
            child = self._children.spawn(Command(argv, env, here, b"", output.fileno()))
            try:
                left = await child.exit_code(seconds) is not None
                # Some commands answer and then do not leave; what they wrote counts.
                if not left and not os.fstat(output.fileno()).st_size:
                    command = shlex.join([*self._program().argv, *arguments])
                    raise AgentTimedOut(f"`{command}` said nothing within {seconds:g} seconds.")
            finally:
                self._children.retire(child)
            output.seek(0)
            return _Output(output.read().decode("utf-8", "replace"), child.stderr)

    def _argv(self, arguments: Sequence[str]) -> list[str]:
        program = self._program()
        if program.prefix:
            return self._command_line.carried(program, arguments, secrets.token_hex(4))
        return [*program.argv, *arguments]
