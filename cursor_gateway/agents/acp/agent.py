"""AcpAgent: Cursor's CLI as an ACP server. Its parts are beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cursor_gateway.agents import (
    Agent,
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
from cursor_gateway.agents.acp.chats import MOST_ALIVE, ChatSessions
from cursor_gateway.agents.acp.launch import Launcher
from cursor_gateway.agents.acp.models import catalogue
from cursor_gateway.agents.acp.run import AcpRun
from cursor_gateway.agents.acp.session import CANCEL_SECONDS, AcpSession
from cursor_gateway.agents.cursor import isolation
from cursor_gateway.agents.cursor.cli import CursorCli
from cursor_gateway.agents.cursor.command_line import CommandLine
from cursor_gateway.agents.cursor.program import Program, find_cli
from cursor_gateway.agents.cursor.questions import Questions
from cursor_gateway.agents.cursor.starts import Starts
from cursor_gateway.agents.cursor.tool_channel import ToolChannel
from cursor_gateway.agents.cursor.transcripts import Transcripts
from cursor_gateway.agents.cursor.version_effects import relay_hold
from cursor_gateway.agents.cursor.version_facts import KnownVersions, VersionFacts
from cursor_gateway.agents.readable import agent_reads
from cursor_gateway.agents.warm_agents import WarmAgents
from cursor_gateway.background import in_background
from cursor_gateway.settings import Settings, SettingsError

KIND = "acp"
# How long the ends of runs may take when the gateway closes: until those are cancelled that can be.
# Then their processes are ended anyway.
CLOSING_SECONDS = CANCEL_SECONDS + 0.5


class AcpAgent(Agent):
    by_default = Capabilities(
        calls_back=True, resumes=True, starts_warm=True, reads_images=True, own_tools_off=True
    )

    @classmethod
    def check(cls, settings: Settings, env: Mapping[str, str]) -> None:
        if settings.agent_command:
            raise SettingsError(
                "`agent_command` runs Cursor's CLI elsewhere, and `agent` is `acp`: unset one of "
                "them."
            )
        if settings.isolate:
            isolation.check(env)

    @classmethod
    def find(cls, settings: Settings, env: Mapping[str, str]) -> Located:
        return replace(find_cli(settings, env).located, kind=KIND)

    @classmethod
    def login_command(cls, settings: Settings, env: Mapping[str, str]) -> Sequence[str]:
        return [*find_cli(settings, env).argv, "login"]

    @classmethod
    def update_command(cls, settings: Settings, env: Mapping[str, str]) -> str:
        return CursorCli.update_command(settings, env)

    @classmethod
    def files(cls, settings: Settings, env: Mapping[str, str]) -> Sequence[Path]:
        return CursorCli.files(settings, env)

    def __init__(self, context: AgentContext) -> None:
        self.settings = settings = context.settings
        self._context = context
        self._program: Program | None = None
        self._channel = ToolChannel(settings.tool_channel)
        self._transcripts = Transcripts(
            context.env, context.state_folder, keep=settings.transcripts == "keep"
        )
        self._transcripts.begin(context.children.scratch)
        command_line = CommandLine(
            settings, context.env, context.children, context.relay, self._transcripts
        )
        starts = Starts()
        self._questions = Questions(self._found, command_line, context.children, starts)
        self._launcher = Launcher(
            replace(context, env=command_line.env), self._found, self._transcripts, starts
        )
        self._known = KnownVersions(context.state_folder / "versions", self._heed)
        self._chats = ChatSessions(min(settings.slots, MOST_ALIVE), self._launcher)
        self.warm = WarmAgents(settings.warm, self._launcher.open, self._launcher.leave)
        self._endings: set[asyncio.Future[None]] = set()

    # What it is

    @property
    def make_room(self) -> Callable[[], Awaitable[bool]]:
        return self._launcher.make_room

    @make_room.setter
    def make_room(self, make_room: Callable[[], Awaitable[bool]]) -> None:
        self._launcher.make_room = make_room

    @property
    def capabilities(self) -> Capabilities:
        return replace(
            self.by_default,
            resumes=self.settings.session_reuse,
            starts_warm=bool(self.settings.warm),
        )

    @property
    def key_variable(self) -> str:
        return "CURSOR_API_KEY" if self._context.env.get("CURSOR_API_KEY") else ""

    @property
    def last_will(self) -> Transcripts:
        return self._transcripts

    def locate(self) -> Located:
        return replace(self._found().located, kind=KIND)

    def _found(self) -> Program:
        """Looked for until it is found, and again when it is gone."""
        if self._program is None or not self._program.is_there:
            self._program = find_cli(self.settings, self._context.env)
        return self._program

    async def sign_in(self) -> SignIn:
        return await self._questions.sign_in(self.settings.auth_check_timeout_ms / 1000)

    async def models(self) -> ModelList:
        return ModelList(catalogue(await self._launcher.catalogue()), complete=True)

    async def version(self) -> str:
        version = await self._questions.version()
        await self._known.recognise(version)
        return version

    def _heed(self, facts: VersionFacts) -> None:
        """What print mode has shown of this version, as far as it is true here."""
        self._context.relay.hold_for(relay_hold(self.settings, facts))

    def state(self) -> dict[str, Any]:
        reuses = self.settings.session_reuse
        return {
            "tools": self._channel.state(self._program) if self._program else None,
            "warm": self.warm.state(),
            "sessions": {"resume": reuses, "reason": None if reuses else "session_reuse is off"},
            "agent_reads": agent_reads(self.settings),
            "transcripts": self.settings.transcripts,
            "warnings": [],
        }

    # Its life

    async def begin(self) -> None:
        await asyncio.to_thread(self._transcripts.clear_behind_others)

    async def close(self) -> None:
        self.warm.close()
        if self._endings:
            await asyncio.wait(self._endings, timeout=CLOSING_SECONDS)
        await self._known.close()

    # Runs

    def start(self, spec: RunSpec, observer: RunObserver) -> AcpRun:
        return AcpRun(self._with_channel(spec), observer, self)

    def _with_channel(self, spec: RunSpec) -> RunSpec:
        if not spec.calls_back or self._channel.is_relay(self._found()):
            return spec
        return replace(spec, writes_calls=True)

    async def lend(self, spec: RunSpec) -> tuple[AcpSession, bool]:
        """A session for a run: the chat's, a warm one, or one that is made now."""
        if isinstance(chat := spec.chat, AcpSession):
            self._chats.take_out(chat)
            if not chat.is_there:
                await self._launcher.reopen(chat, spec)
            return chat, False
        if warm := self.warm.take(spec):
            return warm, True
        return await self._launcher.open(spec), False

    def give_back(self, session: AcpSession) -> None:
        self._launcher.leave(session)

    def relay_ignored(self) -> None:
        self._channel.relay_is_ignored()

    def answered(self, run: Run, channel: str) -> None:
        self._channel.count(channel, took_relay=run.channel == "relay")

    def end(self, run: Run) -> asyncio.Future[None]:
        assert isinstance(run, AcpRun)
        # Where the run did not come to a session, the chat that it was to go on with is left.
        session, run.session = run.session or run.spec.chat, None
        ending = in_background(self._ended(session), "ending a session")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return ending

    async def _ended(self, session: Chat | None) -> None:
        if not isinstance(session, AcpSession):
            return
        # Before anything else ends: the model shall not hear that its calls have failed.
        await session.cancel()
        await asyncio.wait({self._launcher.leave(session)})

    # Warm sessions

    def prepare(self, spec: RunSpec) -> None:
        self.warm.want(self._with_channel(spec))

    def give_way(self) -> asyncio.Future[None] | None:
        return self.warm.give_way() or self._chats.give_way()

    # Chats: the sessions that have finished

    def keep(self, run: Run) -> AcpSession | None:
        assert isinstance(run, AcpRun)
        if run.session is None or not run.has_finished or not self.settings.session_reuse:
            self.end(run)
            return None
        chat, run.session = run.session, None
        if chat.relay is not None and chat.relay.lost:
            # It gave up a call, which would stay open in there.
            self._launcher.end(chat)
        self._chats.add(chat)
        return chat

    def still_has(self, chat: Chat) -> bool:
        assert isinstance(chat, AcpSession)
        return self._chats.still_has(chat)

    def forget(self, chat: Chat) -> None:
        assert isinstance(chat, AcpSession)
        self._chats.take_out(chat)
        self._launcher.leave(chat)
