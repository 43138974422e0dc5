"""CursorCli: Cursor's print CLI as an agent. A process for each run; its parts are beside it."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from cursor_gateway.agents import (
    AgentContext,
    Capabilities,
    Chat,
    Located,
    ModelList,
    Run,
    RunObserver,
    RunSpec,
    SignIn,
)
from cursor_gateway.agents.cursor import isolation, remote
from cursor_gateway.agents.cursor.chats import Chats, StoredChat, least_tokens
from cursor_gateway.agents.cursor.command_line import CommandLine
from cursor_gateway.agents.cursor.files import config_folders
from cursor_gateway.agents.cursor.program import Find, Program, find_cli
from cursor_gateway.agents.cursor.questions import Questions
from cursor_gateway.agents.cursor.run import CliRun
from cursor_gateway.agents.cursor.run_state import Prepared
from cursor_gateway.agents.cursor.start_times import StartTimes
from cursor_gateway.agents.cursor.starts import Starts
from cursor_gateway.agents.cursor.tool_channel import ToolChannel
from cursor_gateway.agents.cursor.transcripts import Transcripts, remove
from cursor_gateway.agents.cursor.version_effects import relay_hold, warnings
from cursor_gateway.agents.cursor.version_facts import KnownVersions, VersionFacts, known_facts
from cursor_gateway.agents.cursor.warm import WarmAgents
from cursor_gateway.agents.readable import agent_reads
from cursor_gateway.errors import AgentNotFound
from cursor_gateway.findings import Row
from cursor_gateway.processes.child import Child
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspace

log = logging.getLogger(__name__)


async def _nobody_waits() -> bool:
    return False


class CursorCli:
    by_default: ClassVar[Capabilities] = Capabilities(
        calls_back=True,
        resumes=True,
        starts_warm=True,
        reads_images=True,
        reports_usage=True,
        own_tools_off=True,
    )

    # Where its program is; the demo agent has another one.
    find_program: Find = staticmethod(find_cli)

    @classmethod
    def check(cls, settings: Settings, env: Mapping[str, str]) -> None:
        remote.check(settings)
        if settings.isolate:
            isolation.check(env)

    @classmethod
    def find(cls, settings: Settings, env: Mapping[str, str]) -> Located:
        return cls.program_for(settings, env).located

    @classmethod
    def program_for(cls, settings: Settings, env: Mapping[str, str]) -> Program:
        try:
            return cls.find_program(settings, env)
        except AgentNotFound:
            if settings.demo != "if-missing":
                raise
            from cursor_gateway.agents.demo.agent import find_demo

            return find_demo(settings, env)

    @classmethod
    def login_command(cls, settings: Settings, env: Mapping[str, str]) -> Sequence[str]:
        return [*cls.program_for(settings, env).argv, "login"]

    @classmethod
    def update_command(cls, settings: Settings, env: Mapping[str, str]) -> str:
        return f"{shlex.join(cls.program_for(settings, env).argv)} update"

    @classmethod
    def files(cls, settings: Settings, env: Mapping[str, str]) -> Sequence[Path]:
        """None of a remote agent, whose files are remote, too."""
        if settings.agent_command:
            return []
        names = ("cli-config.json", "auth.json")
        return [folder / name for folder in config_folders(env) for name in names]

    def __init__(self, context: AgentContext) -> None:
        self.settings = settings = context.settings
        self.children = context.children
        self.relay = context.relay
        self.starts = Starts()
        self.make_room: Callable[[], Awaitable[bool]] = _nobody_waits
        # What this CLI is known to do; as good as nothing until it has told its version.
        self.known = KnownVersions(context.state_folder / "versions", self._heed)
        self.chats = Chats(
            context.env,
            self.known,
            is_wanted=settings.session_reuse,
            sees_stores=not settings.agent_command,
        )
        self._context = context
        self._program: Program | None = None
        self._channel = ToolChannel(settings.tool_channel)
        keep = settings.transcripts == "keep"
        self.last_will = Transcripts(context.env, context.state_folder, keep=keep)
        self.last_will.begin(context.children.scratch)
        self._command_line = CommandLine(
            settings, context.env, context.children, context.relay, self.last_will
        )
        self._questions = Questions(self.program, self._command_line, context.children, self.starts)
        self._times = StartTimes(self.known)
        self.warm = WarmAgents(
            settings.warm, self.starts, self._launch_warm, self._discard, self._times
        )

    @property
    def env(self) -> Mapping[str, str]:
        return self._context.env

    @property
    def command(self) -> str:
        """As a person would type it."""
        return shlex.join(self.program().argv)

    @property
    def state_folder(self) -> Path:
        return self._context.state_folder

    @asynccontextmanager
    async def another(self, **changes: Any) -> AsyncIterator[CursorCli]:
        """The same by other settings, with everything of its own."""
        async with self._context.another(replace(self.settings, **changes)) as agent:
            assert isinstance(agent, CursorCli)
            yield agent

    @property
    def capabilities(self) -> Capabilities:
        is_local = not self.settings.agent_command
        return replace(
            self.by_default,
            calls_back=is_local,
            resumes=self.chats.may_resume,
            starts_warm=bool(self.settings.warm),
            reads_images=is_local,
        )

    @property
    def key_variable(self) -> str:
        return "CURSOR_API_KEY" if self.env.get("CURSOR_API_KEY") else ""

    # Where it is, who is signed in, what it can do

    def locate(self) -> Located:
        return self.program().located

    def program(self) -> Program:
        """Looked for until it is found, and again when it is gone."""
        if self._program is None or not self._program.is_there:
            self._program = self.program_for(self.settings, self._command_line.env)
        return self._program

    async def begin(self) -> None:
        await asyncio.to_thread(self.last_will.clear_behind_others)

    async def close(self) -> None:
        self.warm.close()
        await self.known.close()

    async def sign_in(self) -> SignIn:
        return await self._questions.sign_in(self.settings.auth_check_timeout_ms / 1000)

    async def models(self) -> ModelList:
        return await self._questions.models()

    async def version(self) -> str:
        version = await self._questions.version()
        await self.known.recognise(version)
        return version

    def state(self) -> dict[str, Any]:
        facts = self.known.facts
        return {
            "tools": self._channel.state(self.program()) if self._program else None,
            "warm": self.warm.state(),
            "sessions": self.chats.state(),
            "agent_reads": agent_reads(self.settings),
            "transcripts": self.settings.transcripts,
            "version_facts": known_facts(facts),
            "warnings": warnings(self.settings, facts),
        }

    def _heed(self, facts: VersionFacts) -> None:
        """What runs and `doctor --live` have shown of the version of the CLI that is installed."""
        self.relay.hold_for(relay_hold(self.settings, facts))
        self.relay.habits.calls_one_by_one = facts.calls_at_once == 1
        self._channel.heed(facts)
        for warning in warnings(self.settings, facts):
            log.warning("%s", warning)

    # Runs

    def start(self, spec: RunSpec, observer: RunObserver) -> CliRun:
        """A run for `spec`, by the channel that this CLI takes; it gets its prompt with the first
        reading."""
        return self.run(self._with_channel(spec), observer)

    def run(self, spec: RunSpec, observer: RunObserver) -> CliRun:
        prepared = self.warm.take(spec) or self._prepared(spec)
        if prepared.session is not None:
            prepared.session.one_at_a_time = not spec.conversation.parallel_calls
        return CliRun(spec, prepared, observer, self)

    def _with_channel(self, spec: RunSpec) -> RunSpec:
        if not spec.calls_back or self._channel.is_relay(self.program()):
            return spec
        return replace(spec, writes_calls=True)

    def answered(self, run: Run, channel: str) -> None:
        self._channel.count(channel, took_relay=run.channel == "relay")

    def end(self, run: Run) -> asyncio.Future[None]:
        assert isinstance(run, CliRun)
        if run.session is not None:
            self.relay.close_session(run.session)
        chat = run.stored_chat
        sessions = (run.session_id, chat.session_id if chat else "")
        return run.end(lambda: self._release(run.workspace, *sessions))

    def keep(self, run: Run) -> StoredChat | None:
        assert isinstance(run, CliRun)
        earlier = run.stored_chat
        if earlier is not None:
            self.chats.judge(earlier, run.tokens_read)
        if not run.is_resumable or not self.chats.may_resume:
            self.end(run)
            return None
        if run.session is not None:
            self.relay.close_session(run.session)
        before = earlier.seen if earlier else None
        least = least_tokens(run.tokens_read, run.steps)
        chat = StoredChat(run.session_id, run.workspace, before, least)
        chat.leaves(run.end(lambda: None))
        return chat

    def still_has(self, chat: Chat) -> bool:
        assert isinstance(chat, StoredChat)
        return self.chats.is_there(chat)

    def forget(self, chat: Chat) -> None:
        assert isinstance(chat, StoredChat)
        self.warm.leave(chat)
        chat.when_left(lambda: self._release(chat.workspace, chat.session_id))

    def _release(self, workspace: Workspace, *sessions: str) -> None:
        """Nobody works there any more. What the CLI kept of it goes with it; in a directory of the
        user's, what it kept of our `sessions`."""
        if workspace.is_scratch:
            traces = self.last_will.of_directory(workspace.path)
        else:
            traces = self.last_will.of_sessions(workspace.path, sessions)
        clear = (lambda: remove(traces)) if traces else None
        self._context.workspaces.release(workspace, clear)

    # What a run needs of its agent

    async def make_room_for_start(self) -> bool:
        return await self.make_room()

    def compose(self, run: CliRun) -> bytes:
        return self._command_line.prompt(run.spec, run.workspace, run.session)

    def launch(
        self,
        spec: RunSpec,
        workspace: Workspace,
        session: RelaySession | None,
        prompt: bytes | None = None,
    ) -> Child:
        # Whether it is still there was looked at when the request came; else its start fails.
        program = self._program or self.program()
        return self._command_line.launch(program, spec, workspace, session, prompt)

    def first_output(self, prompted_at: float, born: float | None) -> None:
        self._times.began(prompted_at, born)

    def relay_ignored(self) -> None:
        self._channel.relay_is_ignored()

    # Warm agents

    def prepare(self, spec: RunSpec) -> None:
        self.warm.want(self._with_channel(spec))

    def give_way(self) -> asyncio.Future[None] | None:
        return self.warm.give_way()

    def _prepared(self, spec: RunSpec) -> Prepared:
        # First: where there is no room for a directory, nothing else may be left open.
        chat = spec.chat
        assert chat is None or isinstance(chat, StoredChat)
        workspace = chat.workspace if chat else self._context.workspaces.take(spec.directory)
        tools = spec.conversation.callable_tools
        new_id = self._context.new_call_id
        session = self.relay.open_session(tools, new_id) if spec.calls_back else None
        return Prepared(workspace, session)

    def _launch_warm(self, spec: RunSpec) -> Prepared:
        prepared = self._prepared(spec)
        try:
            child = self.launch(spec, prepared.workspace, prepared.session)
        except BaseException:
            self._discard(spec, prepared)
            raise
        return replace(prepared, child=child, born=asyncio.get_running_loop().time())

    def _discard(self, spec: RunSpec, prepared: Prepared) -> asyncio.Future[None] | None:
        """Of a warm agent: its chat and the chat's workspace stay. What it returns is done when its
        process has ended, if it has one."""
        if prepared.session is not None:
            self.relay.close_session(prepared.session)

        def release() -> None:
            if spec.chat is None:
                self._release(prepared.workspace)

        if prepared.child is None:
            release()
            return None
        end = self.children.retire(prepared.child, then=release)
        if isinstance(spec.chat, StoredChat):
            spec.chat.leaves(end)
        return end

    # The doctor

    @classmethod
    def checks(cls) -> Sequence[Row[CursorCli]]:
        from cursor_gateway.agents.cursor.doctor.checks import CHECKS

        return CHECKS

    @classmethod
    def probes(cls, model: str, holds: tuple[float, ...]) -> Sequence[Row[CursorCli]]:
        from cursor_gateway.agents.cursor.doctor.probes import probes

        return probes(model, holds)

    def store_probes(self, version: str, at: str, findings: Sequence[Mapping[str, Any]]) -> None:
        from cursor_gateway.agents.cursor.doctor.probes import store_results

        store_results(self.state_folder, version, at, findings)
