"""cursor-agent in print mode: where it is, how it is called, how long it may be silent."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import orjson

from cursor_gateway.agents.cursor import remote
from cursor_gateway.agents.cursor.chats import Chat, Chats, least_tokens
from cursor_gateway.agents.cursor.isolation import isolated
from cursor_gateway.agents.cursor.permissions import permissions
from cursor_gateway.agents.cursor.run import START_ATTEMPTS, Run, RunObserver, RunSpec, Starts
from cursor_gateway.agents.cursor.start_times import StartTimes
from cursor_gateway.agents.cursor.texts import (
    ModelList,
    SignIn,
    classify_failure,
    is_config_race,
    parse_models,
    parse_status,
    parse_version,
)
from cursor_gateway.agents.cursor.transcripts import remove
from cursor_gateway.agents.cursor.version_facts import KnownVersions
from cursor_gateway.agents.cursor.warm import Prepared, WarmAgents
from cursor_gateway.core.prompt import Reading, render
from cursor_gateway.core.relayed_tools import SERVER
from cursor_gateway.errors import (
    AgentNotFound,
    AgentTimedOut,
    ContextTooLong,
    NoWayToAgent,
    UnsupportedParameter,
)
from cursor_gateway.processes.child import Child, Command, encoded
from cursor_gateway.processes.children import Children
from cursor_gateway.redaction import OUTGOING
from cursor_gateway.relay.server import Relay
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspace, Workspaces

log = logging.getLogger(__name__)

MODELS_TIMEOUT = 30.0
VERSION_TIMEOUT = 15.0
MODELS_ATTEMPTS = 3

# Not for the agent: the gateway's own key, options for a node that is not the CLI's, and what
# would tell the CLI that it runs inside itself.
_WITHHELD = frozenset(
    {"CURSOR_GATEWAY_API_KEY", "NODE_OPTIONS", "CURSOR_AGENT", "CURSOR_INVOKED_AS"}
)


@dataclass(frozen=True, slots=True)
class Located:
    kind: Literal["cursor-agent", "demo"]
    argv: tuple[str, ...]
    # How many words of it lead to another machine or into a container, where the program is.
    reach: int = 0

    @property
    def path(self) -> str:
        if self.kind == "demo":
            return "built in"
        return OUTGOING(shlex.join(self.argv)) if self.reach else self.argv[0]


def locate(settings: Settings, env: Mapping[str, str]) -> Located:
    """The agent to run, as far as there is one now."""
    demo = Located("demo", (sys.executable, "-m", "cursor_gateway.agents.demo"))
    if settings.demo == "on":
        return demo
    if settings.agent_command:
        return _elsewhere(settings.agent_command, env)
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


def _elsewhere(command: str, env: Mapping[str, str]) -> Located:
    """Whether there is an agent over there, only running it can tell."""
    words = remote.words_of(command)
    found = shutil.which(words[0], path=env.get("PATH"))
    if not found:
        raise NoWayToAgent(f"agent_command begins with {words[0]!r}, which is no program here.")
    return Located("cursor-agent", (found, *words[1:]), reach=len(words) - 1)


def _search(env: Mapping[str, str]) -> str | None:
    home = Path(env.get("HOME", "~")).expanduser()
    path = os.pathsep.join((env.get("PATH", os.defpath), str(home / ".local" / "bin")))
    if found := shutil.which("cursor-agent", path=path):
        return found
    # `agent` is the CLI's new name, but another vendor's too: only the target of the link tells.
    found = shutil.which("agent", path=path)
    return found if found and "cursor-agent" in str(Path(found).resolve()) else None


async def _nobody_waits() -> bool:
    return False


class CursorCli:
    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        children: Children,
        workspaces: Workspaces,
        relay: Relay,
        new_call_id: Callable[[], str],
        known_versions: KnownVersions,
    ) -> None:
        self._settings = settings
        self._env = {name: value for name, value in env.items() if name not in _WITHHELD}
        self._encoded_env = encoded(self._env)
        self._children = children
        self._workspaces = workspaces
        self._relay = relay
        self._new_call_id = new_call_id
        # What this CLI is known to do; as good as nothing until it has said its version.
        self.known = known_versions
        self._starts = Starts()
        self._located: Located | None = None
        self._home = Path(env.get("HOME", "~")).expanduser().resolve()
        self._transcripts = children.transcripts
        self.chats = Chats(
            env,
            known_versions,
            is_wanted=settings.session_reuse,
            sees_stores=not settings.agent_command,
        )
        self._times = StartTimes(known_versions)
        # Has somebody who only waits give way; whether there was anybody. `Sessions` knows them.
        self.make_room: Callable[[], Awaitable[bool]] = _nobody_waits
        self.spares = WarmAgents(
            settings.warm, self._starts, self._launch_spare, self._discard, self._times
        )

    @property
    def has_api_key(self) -> bool:
        return bool(self._env.get("CURSOR_API_KEY"))

    def locate(self) -> Located:
        """The agent to run. Looked for until it is found, and again when it is gone."""
        known = self._located
        if known is None or known.kind == "demo" or not os.access(known.argv[0], os.X_OK):
            known = self._located = locate(self._settings, self._env)
        return known

    def start(self, order: RunSpec, watch: RunObserver) -> Run:
        """An agent for `order`; it gets its prompt with the first reading."""
        place = self.spares.take(order) or self._place(order)
        if place.line is not None:
            place.line.one_at_a_time = not order.conversation.parallel_calls
        return Run(
            order,
            place.workspace,
            place.line,
            place.child,
            watch,
            launch=lambda run, prompt: self._launch(run.order, run.workspace, run.line, prompt),
            make_room=self.make_room,
            compose=self._compose,
            began=lambda at, is_spare: self._times.began(at, place.born if is_spare else None),
            children=self._children,
            starts=self._starts,
            settings=self._settings,
        )

    def end(self, run: Run) -> asyncio.Future[None]:
        """Stop it, and leave nothing of it."""
        if run.line is not None:
            self._relay.close_session(run.line)
        chat = run.order.chat
        sessions = (run.session_id, chat.session_id if chat else "")
        return run.end(lambda: self._release(run.workspace, *sessions))

    def keep(self, run: Run) -> Chat | None:
        """It has finished; what it knows can be taken up again until `forget`, if it can be."""
        earlier = run.order.chat
        if earlier is not None:
            self.chats.judge(earlier, run.tokens_read)
        if not run.is_resumable or not self.chats.may_resume:
            self.end(run)
            return None
        if run.line is not None:
            self._relay.close_session(run.line)
        before = earlier.seen if earlier else None
        least = least_tokens(run.tokens_read, run.steps)
        chat = Chat(run.session_id, run.workspace, before, least)
        chat.leaves(run.end(lambda: None))
        return chat

    def forget(self, chat: Chat) -> None:
        self.spares.leave(chat)
        chat.when_left(lambda: self._release(chat.workspace, chat.session_id))

    def _release(self, workspace: Workspace, *sessions: str) -> None:
        """Nobody works there any more. What the CLI kept of it goes with it; in a directory of the
        user's, what it kept of our `sessions`."""
        if workspace.is_scratch:
            traces = self._transcripts.of_directory(workspace.path)
        else:
            traces = self._transcripts.of_sessions(workspace.path, sessions)
        self._workspaces.release(workspace, (lambda: remove(traces)) if traces else None)

    def _place(self, order: RunSpec) -> Prepared:
        # First: where there is no room for a directory, nothing else may be left open.
        workspace = order.chat.workspace if order.chat else self._workspaces.take(order.directory)
        tools = order.conversation.callable_tools
        line = self._relay.open_session(tools, self._new_call_id) if order.by_relay else None
        return Prepared(workspace, line)

    def _launch_spare(self, order: RunSpec) -> Prepared:
        place = self._place(order)
        try:
            child = self._launch(order, place.workspace, place.line)
        except BaseException:
            self._discard(order, place)
            raise
        return replace(place, child=child, born=asyncio.get_running_loop().time())

    def _discard(self, order: RunSpec, place: Prepared) -> asyncio.Future[None] | None:
        """Of a spare: its chat and the chat's workspace stay. What it returns is done when its
        process has ended, if it has one."""
        if place.line is not None:
            self._relay.close_session(place.line)

        def release() -> None:
            if order.chat is None:
                self._release(place.workspace)

        if place.child is None:
            release()
            return None
        end = self._children.retire(place.child, then=release)
        if order.chat is not None:
            order.chat.leaves(end)
        return end

    def _launch(
        self,
        order: RunSpec,
        workspace: Workspace,
        line: RelaySession | None,
        prompt: bytes | None = None,
    ) -> Child:
        """A process that has everything, but perhaps its prompt."""
        # Whether it is still there was looked at when the request came; else its start fails.
        located = self._located or self.locate()
        workspace.make_sure()
        flags = self._flags(order, workspace, is_elsewhere=bool(located.reach))
        log.debug("starting %s", [*located.argv, *flags])
        # A real workspace is the user's, also in what an agent may do there.
        denials = permissions(order, workspace, self._home) if workspace.is_scratch else b""
        if located.reach:
            argv = self._carried(located, flags, workspace.scratch.name, denials.decode())
            return self._children.spawn(Command(argv, self._encoded_env, workspace.path, prompt))
        argv = [*located.argv, *flags]
        if denials:
            workspace.put_permissions(denials)
            self._transcripts.note(workspace.path)
        if line is not None:
            servers = self._relay.configuration(line)
            workspace.put(".cursor/mcp.json", orjson.dumps(servers))
        # The demo agent is a part of the gateway, and has no model that could look around.
        if self._settings.isolate and located.kind != "demo":
            may_edit = self._settings.agent_mode == "agent"
            argv = isolated(argv, self._env, workspace, may_edit=may_edit)
        return self._children.spawn(Command(argv, self._encoded_env, workspace.path, prompt))

    def _compose(self, run: Run) -> bytes:
        """The prompt; its images are put where it says they are."""
        prompt = render(run.order.conversation, self._reading(run))
        text = prompt.text.encode()
        if len(text) > self._settings.max_prompt_mb * 1024 * 1024:
            raise ContextTooLong(f"The conversation has {len(text)} bytes.")
        if prompt.files and self.locate().reach:
            raise UnsupportedParameter("Images do not reach an agent elsewhere (agent_command).")
        for name, data in prompt.files:
            run.workspace.put(name, data)
        return text

    def _reading(self, run: Run) -> Reading:
        image_folder = "" if run.workspace.is_scratch else str(run.workspace.scratch)
        if run.line is None:
            return Reading(image_folder, run.order.known)
        tools = run.line.tools
        return Reading(image_folder, run.order.known, SERVER, tools.wait_tool, tools.aliases)

    def _flags(self, order: RunSpec, workspace: Workspace, *, is_elsewhere: bool) -> list[str]:
        flags = ["--print", "--output-format", "stream-json", "--stream-partial-output", "--trust"]
        flags += [] if is_elsewhere else ["--workspace", str(workspace.path)]
        flags += ["--model", order.model]
        # In `ask` a model is told that it cannot act, and would not call the client's tools either.
        has_tools = bool(order.conversation.callable_tools)
        acts = has_tools or (self._settings.agent_mode == "agent" and not workspace.is_scratch)
        if not acts:
            flags += ["--mode", "ask"]
        if order.conversation.has_images and not workspace.is_scratch:
            flags += ["--add-dir", str(workspace.scratch)]
        if order.by_relay:
            flags.append("--approve-mcps")
        if order.chat is not None:
            flags += ["--resume", order.chat.session_id]
        # At the end, where the script that goes along adds the directory over there.
        return [*flags, "--workspace"] if is_elsewhere else flags

    def _carried(
        self, located: Located, words: Sequence[str], place: str, permissions: str = ""
    ) -> list[str]:
        """The agent's command line, for an agent elsewhere; `place` is unique in this gateway."""
        place = f"{self._children.scratch.name}-{place}"
        return remote.carried([*located.argv, *words], located.reach, place, permissions)

    async def sign_in(self) -> SignIn:
        seconds = self._settings.auth_check_timeout_ms / 1000
        said = await self._ask(["status", "--format", "json"], seconds)
        state = parse_status(said.stdout)
        if state is None:
            # Older CLIs know no `--format`.
            said = await self._ask(["status"], seconds)
            state = parse_status(said.stdout) or parse_status(said.stderr)
        if state is None:
            raise classify_failure(said.stderr or said.stdout)
        return replace(state, account=OUTGOING(state.account))

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
                raise classify_failure(f"{said.stderr}\n{said.stdout}")
        return best

    async def version(self) -> str:
        version = parse_version((await self._ask(["--version"], VERSION_TIMEOUT)).stdout)
        await self.known.recognise(version)
        return version

    async def _ask(self, arguments: Sequence[str], seconds: float) -> _Said:
        """Run a short command to its end. Its stdout is a file: pipes were seen to lose the end."""
        for attempt in range(1, START_ATTEMPTS + 1):
            await self._starts.wait()
            said = await self._ask_once(arguments, seconds)
            if attempt == START_ATTEMPTS or not is_config_race(said.stderr):
                break
            self._starts.space_out()
        return said

    def _question(self, arguments: Sequence[str]) -> list[str]:
        located = self.locate()
        if located.reach:
            return self._carried(located, arguments, secrets.token_hex(4))
        return [*located.argv, *arguments]

    async def _ask_once(self, arguments: Sequence[str], seconds: float) -> _Said:
        argv, here = self._question(arguments), self._children.scratch
        with self._children.root.in_use():
            output = tempfile.TemporaryFile(dir=here)  # noqa: SIM115 - closed below
        with output:
            child = self._children.spawn(
                Command(argv, self._encoded_env, here, b"", output.fileno())
            )
            try:
                left = await child.exit_code(seconds) is not None
                # Some commands answer and then do not leave; what they said counts.
                if not left and not os.fstat(output.fileno()).st_size:
                    command = shlex.join([*self.locate().argv, *arguments])
                    raise AgentTimedOut(f"`{command}` said nothing within {seconds:g} seconds.")
            finally:
                self._children.retire(child)
            output.seek(0)
            return _Said(output.read().decode("utf-8", "replace"), child.stderr)


@dataclass(frozen=True, slots=True)
class _Said:
    stdout: str
    stderr: str
