"""Launcher: processes of the CLI that speak ACP, the sessions in them, and what is left of both.

Each conversation has a process. Whether two prompts at once get along in one process nobody has
measured, and a process that dies takes all of its prompts with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from cursor_gateway import __version__
from cursor_gateway.agents import AgentContext, RunSpec
from cursor_gateway.agents.acp.peer import Peer, Reply
from cursor_gateway.agents.acp.requests import initialize, reply_to
from cursor_gateway.agents.acp.session import INITIALIZE_SECONDS, AcpSession
from cursor_gateway.agents.acp.texts import error_for
from cursor_gateway.agents.acp.wire import Json, RpcError
from cursor_gateway.agents.cursor.files import PERMISSIONS, config_folders
from cursor_gateway.agents.cursor.isolation import isolated
from cursor_gateway.agents.cursor.permissions import permissions
from cursor_gateway.agents.cursor.program import Program
from cursor_gateway.agents.cursor.starts import START_ATTEMPTS, Starts
from cursor_gateway.agents.cursor.texts import is_config_race
from cursor_gateway.agents.cursor.transcripts import Transcripts, remove
from cursor_gateway.errors import GatewayError, OutOfResources
from cursor_gateway.processes.child import Child, Command, Environment, encoded
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.workspaces import Workspace

# Where the CLI keeps the sessions of ACP, each in a folder of its own.
STORES = "acp-sessions"
# It ends when its stdin does; some were seen to linger.
LINGER_GRACE = 1.0
# How often it is tried where there is no descriptor, process or memory; before each, another ends.
ROOM_ATTEMPTS = 5
CATALOGUE_SECONDS = 30.0

# A session that nobody has signed in for would have it open one.
_NO_BROWSER = {"BROWSER": "/usr/bin/true", "NO_OPEN_BROWSER": "1"}


async def _nobody_waits() -> bool:
    return False


class Launcher:
    def __init__(
        self,
        context: AgentContext,
        program: Callable[[], Program],
        transcripts: Transcripts,
        starts: Starts,
    ) -> None:
        self._context = context
        self._env = {**context.env, **_NO_BROWSER}
        self._encoded_env: Environment = encoded(self._env)
        self._program = program
        self._transcripts = transcripts
        self._starts = starts
        self._home = Path(self._env.get("HOME", "~")).expanduser().resolve()
        self._stores = [folder / STORES for folder in config_folders(self._env)]
        self.make_room: Callable[[], Awaitable[bool]] = _nobody_waits

    # Sessions

    async def open(self, spec: RunSpec) -> AcpSession:
        """A new session in a process of its own. Raises a GatewayError."""
        session = AcpSession(self._context.workspaces.take(spec.directory))
        try:
            await self._started(session, spec)
        except BaseException:
            self.leave(session)
            raise
        return session

    async def reopen(self, session: AcpSession, spec: RunSpec) -> None:
        """A session whose process has ended, in another one. Raises a GatewayError."""
        self.end(session)
        if session.ending is not None:
            await asyncio.wait({session.ending})
        await self._started(session, spec)

    def may_reopen(self, session: AcpSession) -> bool:
        """Whether the CLI still has what was said. One that is isolated keeps it to itself."""
        if self._context.settings.isolate:
            return False
        return any((store / session.session_id / "store.db").exists() for store in self._stores)

    async def _started(self, session: AcpSession, spec: RunSpec) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            await self._starts.wait()
            peer = await self._launched(session, spec)
            try:
                await self._opened(session, peer, spec)
            except GatewayError:
                # The one failure that is nobody's fault: agents that start together break one file.
                if attempt == START_ATTEMPTS or not is_config_race(peer.child.stderr):
                    raise
                self._starts.space_out()
                self.end(session)
            else:
                return

    async def _opened(self, session: AcpSession, peer: Peer, spec: RunSpec) -> None:
        relay = session.relay
        servers = self._context.relay.configuration(relay)["mcpServers"] if relay else {}
        try:
            await session.open(peer, servers)
            self._transcripts.note_names(STORES, session.session_id)
            await session.choose(spec.model, self._mode(spec, session.workspace))
        except RpcError as error:
            raise error_for(error, has_key=bool(self._env.get("CURSOR_API_KEY"))) from error

    def _mode(self, spec: RunSpec, workspace: Workspace) -> str:
        """In `ask` a model is told that it cannot act, and would not call the client's tools
        either. Of edits and reads nobody is asked for leave."""
        may_edit = self._context.settings.agent_mode == "agent" and not workspace.is_scratch
        return "agent" if spec.conversation.callable_tools or may_edit else "ask"

    # Processes

    async def _launched(self, session: AcpSession, spec: RunSpec) -> Peer:
        workspace = session.workspace
        workspace.make_sure()
        if workspace.is_scratch:
            # Nothing but that stops reads and edits. Images come beside the text.
            bare = replace(spec, conversation=replace(spec.conversation, messages=()))
            workspace.put_standing(PERMISSIONS, permissions(bare, workspace, self._home))
            self._transcripts.note(workspace.path)
        relay = session.relay = self._relay_for(spec)
        child = await self._spawned(self._argv(workspace), workspace.path)
        if relay is not None:
            relay.on_arrival = child.wake
        session.peer = Peer(child, _reply(relay))
        return session.peer

    def _relay_for(self, spec: RunSpec) -> RelaySession | None:
        if not spec.calls_back:
            return None
        tools = spec.conversation.callable_tools
        return self._context.relay.open_session(tools, self._context.new_call_id)

    def _argv(self, workspace: Workspace | None = None) -> list[str]:
        """Global options would stand before `acp`."""
        argv = [*self._program().argv, "acp"]
        settings = self._context.settings
        if workspace is None or not settings.isolate:
            return argv
        may_edit = settings.agent_mode == "agent"
        return isolated(argv, self._env, workspace, may_edit=may_edit, hidden=(STORES,))

    async def _spawned(self, argv: list[str], cwd: Path, attempts: int = ROOM_ATTEMPTS) -> Child:
        """Where something has run out, those who only wait give way, one after the other."""
        try:
            return self._context.children.spawn(Command(argv, self._encoded_env, cwd))
        except OutOfResources:
            if attempts == 1 or not await self.make_room():
                raise
        return await self._spawned(argv, cwd, attempts - 1)

    async def catalogue(self) -> Json:
        """What the CLI says of models, by a process of its own, which ends at once: the command
        `models` was seen to end those that live (2026.08). Raises a GatewayError."""
        await self._starts.wait()
        child = await self._spawned(self._argv(), self._context.children.scratch)
        peer = Peer(child, _reply(None))
        try:
            await peer.call("initialize", initialize(__version__), INITIALIZE_SECONDS)
            return await peer.insist("cursor/list_available_models", {}, CATALOGUE_SECONDS)
        except RpcError as error:
            raise error_for(error, has_key=bool(self._env.get("CURSOR_API_KEY"))) from error
        finally:
            self._context.children.retire(child, LINGER_GRACE)

    # Ends

    def end(self, session: AcpSession) -> asyncio.Future[None]:
        """End its process, which may be loaded by another one."""
        if session.relay is not None:
            self._context.relay.close_session(session.relay)
        peer, session.peer, session.relay = session.peer, None, None
        if peer is not None:
            # It ends by itself when its stdin does, but for those that wait for an answer.
            grace = LINGER_GRACE if peer.is_alive else 0.0
            session.ending = self._context.children.retire(peer.child, grace)
        return session.ending or _done()

    def leave(self, session: AcpSession) -> asyncio.Future[None]:
        """End it, and leave nothing of it."""
        ending = self.end(session)
        ending.add_done_callback(lambda _: self._release(session))
        return ending

    def _release(self, session: AcpSession) -> None:
        workspace = session.workspace
        if workspace.is_scratch:
            traces = self._transcripts.of_directory(workspace.path)
        else:
            traces = self._transcripts.of_sessions(workspace.path, [session.session_id])
        traces += self._transcripts.of_names(STORES, session.session_id)
        self._context.workspaces.release(workspace, (lambda: remove(traces)) if traces else None)


def _reply(relay: RelaySession | None) -> Reply:
    tools = relay.tools if relay else None
    return lambda asked: reply_to(asked, tools)


def _done() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
