"""cursor-agent in print mode: where it is, how it is called, how long it may be silent."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

from cursor_gateway.agents.child import Child, Children
from cursor_gateway.core.agent_stream import AgentStream
from cursor_gateway.core.agent_text import (
    ModelList,
    SignIn,
    classify_failure,
    is_config_race,
    parse_models,
    parse_status,
    parse_version,
)
from cursor_gateway.core.conversation import Conversation
from cursor_gateway.core.events import Event
from cursor_gateway.core.prompt import render
from cursor_gateway.errors import AgentNotFound, AgentTimedOut, ContextTooLong
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspace, Workspaces

log = logging.getLogger(__name__)

# After `result` some versions never exit; a healthy one is gone in well under a second.
LINGER_GRACE = 2.0
# Between the end of its output and its exit code.
LAST_WORDS = 2.0
# After the turn's closing repetition `result` follows at once. Where a background shell keeps the
# CLI from sending it, it never comes.
END_OF_TURN_GRACE = 30.0
# A tool of the agent's own may build or search for minutes without a word.
TOOL_PATIENCE = 4
# Between the calls that a model makes at once there is no thinking, only writing of lines.
MOMENT = 0.25
MODELS_TIMEOUT = 30.0
VERSION_TIMEOUT = 15.0
MODELS_ATTEMPTS = 3
START_ATTEMPTS = 5
START_SPACING = 0.25
START_SPACING_LASTS = 60.0

# Not for the agent: the gateway's own key, options for a node that is not the CLI's, and what
# would tell the CLI that it runs inside itself.
_WITHHELD = frozenset(
    {"CURSOR_GATEWAY_API_KEY", "NODE_OPTIONS", "CURSOR_AGENT", "CURSOR_INVOKED_AS"}
)


@dataclass(frozen=True, slots=True)
class Located:
    kind: Literal["cursor-agent", "demo"]
    argv: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.argv[0] if self.kind == "cursor-agent" else "built in"


def locate(settings: Settings, env: Mapping[str, str]) -> Located:
    """The agent to run. Looked up each time, so that a fresh install is noticed."""
    demo = Located("demo", (sys.executable, "-m", "cursor_gateway.agents.demo"))
    if settings.demo == "on":
        return demo
    if settings.agent_executable:
        found = shutil.which(settings.agent_executable, path=env.get("PATH"))
        if not found:
            raise AgentNotFound(
                f"CURSOR_AGENT_EXECUTABLE names {settings.agent_executable!r}, "
                "which is not an executable program."
            )
        return Located("cursor-agent", (found,))
    found = _search(env)
    if found:
        return Located("cursor-agent", (found,))
    if settings.demo == "if-missing":
        return demo
    raise AgentNotFound("`cursor-agent` is neither on PATH nor in ~/.local/bin.")


def _search(env: Mapping[str, str]) -> str | None:
    home = Path(env.get("HOME", "~")).expanduser()
    path = os.pathsep.join((env.get("PATH", os.defpath), str(home / ".local" / "bin")))
    if found := shutil.which("cursor-agent", path=path):
        return found
    # `agent` is the CLI's new name, but another vendor's too: only the target of the link tells.
    found = shutil.which("agent", path=path)
    return found if found and "cursor-agent" in str(Path(found).resolve()) else None


class CursorCli:
    def __init__(
        self, settings: Settings, env: Mapping[str, str], children: Children, workspaces: Workspaces
    ) -> None:
        self._settings = settings
        self._env = {name: value for name, value in env.items() if name not in _WITHHELD}
        self._secrets = tuple(filter(None, (settings.api_key, env.get("CURSOR_API_KEY"))))
        self._children = children
        self._workspaces = workspaces
        self._starts = _Starts()

    @property
    def has_api_key(self) -> bool:
        return bool(self._env.get("CURSOR_API_KEY"))

    def locate(self) -> Located:
        return locate(self._settings, self._env)

    async def run(
        self,
        conversation: Conversation,
        model: str,
        directory: Path | None,
        restless: Callable[[], bool],
    ) -> AsyncGenerator[list[Event], None]:
        """One answer: batches of events, the last with `Finished`. Raises where it fails.

        While `restless()`, a moment of silence is told by an empty batch.
        """
        if conversation.callable_tools:
            # The client acts, on its own files. The agent has no business in any directory.
            directory = None
        for attempt in range(1, START_ATTEMPTS + 1):
            await self._starts.wait()
            workspace = self._workspaces.take(directory)
            stream = AgentStream(partial=True)
            child = None
            try:
                child = self._start(conversation, model, workspace)
                async with aclosing(self._listen(child, stream, restless)) as batches:
                    async for events in batches:
                        yield events
                if stream.finished:
                    return
                exit_code = await child.exit_code(LAST_WORDS)
                words = f"{child.stderr}\n{stream.noise}"
            finally:
                self._end(child, workspace, stream)
            if not self._is_worth_another_start(stream, words, attempt):
                raise classify_failure(self._redacted(words), exit_code=exit_code)

    def _start(self, conversation: Conversation, model: str, workspace: Workspace) -> Child:
        prompt = render(conversation, "" if workspace.is_scratch else str(workspace.scratch))
        text = prompt.text.encode()
        if len(text) > self._settings.max_prompt_mb * 1024 * 1024:
            raise ContextTooLong(f"The conversation has {len(text)} bytes.")
        for name, data in prompt.files:
            (workspace.scratch / name).write_bytes(data)
        has_images, has_tools = bool(prompt.files), bool(conversation.callable_tools)
        if has_tools:
            _deny_own_tools(workspace.scratch, may_read=has_images)
        argv = [*self.locate().argv, *self._flags(model, workspace, has_images, has_tools)]
        log.debug("starting %s", argv)
        child = self._children.spawn(argv, self._env, workspace.path)
        child.feed(text)
        return child

    def _flags(
        self, model: str, workspace: Workspace, has_images: bool, has_tools: bool
    ) -> list[str]:
        flags = ["--print", "--output-format", "stream-json", "--stream-partial-output", "--trust"]
        flags += ["--workspace", str(workspace.path), "--model", model]
        # In `ask` a model is told that it cannot act, and would not call the client's tools either.
        acts = has_tools or (self._settings.agent_mode == "agent" and not workspace.is_scratch)
        if not acts:
            flags += ["--mode", "ask"]
        if has_images and not workspace.is_scratch:
            flags += ["--add-dir", str(workspace.scratch)]
        return flags

    async def _listen(
        self, child: Child, stream: AgentStream, restless: Callable[[], bool]
    ) -> AsyncGenerator[list[Event], None]:
        patience = _Patience(self._settings)
        while not stream.finished:
            data = await patience.read(child, stream, restless=restless())
            if data is None:
                yield []
                continue
            events = stream.feed(data) if data else stream.close()
            if events:
                yield events
            if stream.failure:
                raise stream.failure
            if not data:
                return

    def _end(self, child: Child | None, workspace: Workspace, stream: AgentStream) -> None:
        def release() -> None:
            self._workspaces.release(workspace)

        if child is None:
            release()
        else:
            self._children.retire(child, LINGER_GRACE if stream.finished else 0.0, release)

    def _is_worth_another_start(self, stream: AgentStream, words: str, attempt: int) -> bool:
        """The one failure that is nobody's fault: agents that start together break one file."""
        if stream.session_id or attempt == START_ATTEMPTS or not is_config_race(words):
            return False
        log.info("agents that started together met in cli-config.json; starting again")
        self._starts.space_out()
        return True

    async def sign_in(self) -> SignIn:
        seconds = self._settings.auth_check_timeout_ms / 1000
        said = await self._ask(["status", "--format", "json"], seconds)
        state = parse_status(said.stdout)
        if state is None:
            # Older CLIs know no `--format`.
            said = await self._ask(["status"], seconds)
            state = parse_status(said.stdout) or parse_status(said.stderr)
        if state is None:
            raise classify_failure(self._redacted(said.stderr or said.stdout))
        return state

    async def models(self) -> ModelList:
        """The account's models; `complete` is False where every attempt was cut short."""
        best = ModelList((), complete=False)
        for _ in range(MODELS_ATTEMPTS):
            said = await self._ask(["models"], MODELS_TIMEOUT)
            listed = parse_models(said.stdout)
            if listed.complete and listed.models:
                return listed
            best = max(best, listed, key=lambda found: len(found.models))
            if not listed.models:
                raise classify_failure(self._redacted(f"{said.stderr}\n{said.stdout}"))
        return best

    async def version(self) -> str:
        return parse_version((await self._ask(["--version"], VERSION_TIMEOUT)).stdout)

    async def _ask(self, arguments: Sequence[str], seconds: float) -> _Said:
        """Run a short command to its end. Its stdout is a file: pipes were seen to lose the end."""
        for attempt in range(1, START_ATTEMPTS + 1):
            await self._starts.wait()
            said = await self._ask_once([*self.locate().argv, *arguments], seconds)
            if attempt == START_ATTEMPTS or not is_config_race(said.stderr):
                break
            self._starts.space_out()
        return said

    async def _ask_once(self, argv: Sequence[str], seconds: float) -> _Said:
        with tempfile.TemporaryFile(dir=self._children.scratch) as output:
            child = self._children.spawn(
                argv, self._env, self._children.scratch, stdout=output.fileno()
            )
            try:
                child.feed(b"")
                left = await child.exit_code(seconds) is not None
                # Some commands answer and then do not leave; what they said counts.
                if not left and not os.fstat(output.fileno()).st_size:
                    raise AgentTimedOut(
                        f"`{shlex.join(argv)}` said nothing within {seconds:g} seconds."
                    )
            finally:
                self._children.retire(child)
            output.seek(0)
            return _Said(output.read().decode("utf-8", "replace"), child.stderr)

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _deny_own_tools(workspace: Path, *, may_read: bool) -> None:
    """Make the CLI refuse its own tools: a call of them is the client's, or nobody's.

    The CLI obeys `deny` above all else. Reading is left to it where it shall look at images.
    """
    denied = ["Shell(*)", "Write(**)", "WebFetch(*)", "Mcp(*:*)"]
    if not may_read:
        denied.append("Read(**)")
    folder = workspace / ".cursor"
    folder.mkdir()
    permissions = {"permissions": {"allow": [], "deny": denied}}
    (folder / "cli.json").write_bytes(orjson.dumps(permissions))


@dataclass(frozen=True, slots=True)
class _Said:
    stdout: str
    stderr: str


class _Starts:
    """Starts cost nothing until two agents have met in cli-config.json; then they take turns."""

    def __init__(self) -> None:
        self._spaced_until = 0.0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._spaced_until:
            async with self._turn:
                await asyncio.sleep(random.uniform(0.5, 1.5) * START_SPACING)  # noqa: S311

    def space_out(self) -> None:
        self._spaced_until = asyncio.get_running_loop().time() + START_SPACING_LASTS


class _Patience:
    """The three time-outs of one run, each named in its error."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + settings.total_timeout
        self._heard = False

    async def read(self, child: Child, stream: AgentStream, *, restless: bool) -> bytes | None:
        """What the agent writes next; None when it is silent and `restless` asks to know."""
        seconds, complaint = (MOMENT, "") if restless else self._limit(stream)
        deadline = self._loop.time() + seconds
        if deadline > self._end:
            deadline = self._end
            complaint = (
                f"did not finish within {self._settings.total_timeout:g} seconds (total_timeout)"
            )
        try:
            async with asyncio.timeout_at(deadline):
                data = await child.read()
        except TimeoutError:
            if not complaint:
                return None
            raise AgentTimedOut(f"Cursor's agent {complaint}.") from None
        self._heard = True
        return data

    def _limit(self, stream: AgentStream) -> tuple[float, str]:
        first, idle = self._settings.first_event_timeout, self._settings.idle_timeout
        if not self._heard:
            return first, f"said nothing for {first:g} seconds (first_event_timeout)"
        if stream.turn_ended:
            return END_OF_TURN_GRACE, "ended its turn and sent no result"
        if stream.tool_is_running:
            idle *= TOOL_PATIENCE
        return idle, f"was silent for {idle:g} seconds (idle_timeout)"
