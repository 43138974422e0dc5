"""SdkAgent: Cursor's SDK bridge as an agent. One process for all runs; its parts are beside it."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

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
    StartOver,
)
from cursor_gateway.agents.readable import agent_reads
from cursor_gateway.agents.sdk import program
from cursor_gateway.agents.sdk.bridge import Bridge, Connection
from cursor_gateway.agents.sdk.bridge_agent import SERVICE, BridgeAgent
from cursor_gateway.agents.sdk.callbacks import Callbacks
from cursor_gateway.agents.sdk.models import Catalogue, catalogue
from cursor_gateway.agents.sdk.requests import May, agent_options
from cursor_gateway.agents.sdk.run import SdkRun
from cursor_gateway.agents.sdk.texts import (
    INSTALL,
    BridgeFault,
    KeyMissing,
    Refusal,
    error_for,
    fault,
)
from cursor_gateway.agents.sdk.tool_calls import ToolCalls
from cursor_gateway.agents.warm_agents import WarmAgents
from cursor_gateway.background import in_background
from cursor_gateway.findings import Row
from cursor_gateway.processes.children import LastWill, NoWill
from cursor_gateway.settings import Settings, SettingsError

# How long the ends of runs may take when the gateway closes; then the bridge is ended anyway.
CLOSING_SECONDS = 2.0

_OF_THE_CLI = {
    "agent_command": "runs Cursor's CLI elsewhere",
    "isolate": "isolates Cursor's CLI",
}


async def _nobody_waits() -> bool:
    return False


class SdkAgent(Agent):
    by_default = Capabilities(
        calls_back=True,
        resumes=True,
        chats_take_tools=True,
        starts_warm=True,
        reads_images=True,
        reports_usage=True,
        own_tools_off=True,
        names_key_owner=True,
    )

    @classmethod
    def check(cls, settings: Settings, env: Mapping[str, str]) -> None:
        for name, what in _OF_THE_CLI.items():
            if getattr(settings, name):
                raise SettingsError(f"`{name}` {what}, and `agent` is `sdk`: unset one of them.")

    @classmethod
    def find(cls, settings: Settings, env: Mapping[str, str]) -> Located:
        return program.locate(env)

    @classmethod
    def login_command(cls, settings: Settings, env: Mapping[str, str]) -> NoReturn:
        raise KeyMissing("Cursor's SDK knows no sign-in in a browser.")

    @classmethod
    def update_command(cls, settings: Settings, env: Mapping[str, str]) -> str:
        return f"{INSTALL} --upgrade"

    @classmethod
    def checks(cls) -> Sequence[Row[SdkAgent]]:
        from cursor_gateway.agents.sdk.doctor import CHECKS

        return CHECKS

    @classmethod
    def probes(cls, model: str, holds: tuple[float, ...]) -> Sequence[Row[SdkAgent]]:
        """Calls are held for as long as they take, so `holds` are not tried."""
        from cursor_gateway.agents.sdk.probes import probes

        return probes(model)

    def __init__(self, context: AgentContext) -> None:
        self.settings = context.settings
        self.env = context.env
        self.make_room: Callable[[], Awaitable[bool]] = _nobody_waits
        self.callbacks = Callbacks()
        self.bridge = Bridge(context.env, context.children, self.callbacks)
        self.warm = WarmAgents(
            context.settings.warm, self._created, self._delete, failures=(BridgeFault, Refusal)
        )
        self._context = context
        self._located: Located | None = None
        self._catalogue = Catalogue()
        self._endings: set[asyncio.Future[None]] = set()
        self._served = dict.fromkeys(("relay", "text", "native"), 0)

    # What it is

    @property
    def capabilities(self) -> Capabilities:
        return replace(
            self.by_default,
            resumes=self.settings.session_reuse,
            starts_warm=bool(self.settings.warm),
        )

    @property
    def key(self) -> str:
        return self.env.get(program.KEY, "")

    @property
    def key_variable(self) -> str:
        return program.KEY if self.key else ""

    @property
    def last_will(self) -> LastWill:
        """All that the bridge writes is in the scratch directory."""
        return NoWill()

    def locate(self) -> Located:
        """Looked for until it is found, and again when it is gone."""
        if self._located is None or not os.access(self._located.path, os.X_OK):
            self._located = program.locate(self.env)
        return self._located

    async def sign_in(self) -> SignIn:
        if not self.key:
            return SignIn(authenticated=False)
        user = (await self._asked("SdkCursorService/Me")).get("user")
        told = user if isinstance(user, dict) else {}
        name = told.get("userEmail") or told.get("apiKeyName") or program.KEY
        return SignIn(authenticated=True, account=str(name))

    async def models(self) -> ModelList:
        self._catalogue = catalogue(await self._asked("SdkCursorService/ListModels"))
        return ModelList(self._catalogue.models, complete=True)

    async def version(self) -> str:
        return (await self.bridge.ready()).version

    def state(self) -> dict[str, Any]:
        reuses = self.settings.session_reuse
        found = self.bridge.connection
        return {
            "tools": {
                "channel": "text" if self._writes_calls else "relay",
                "reason": f"tool_channel is {self.settings.tool_channel}",
                "served": dict(self._served),
            },
            "warm": self.warm.state(),
            "sessions": {"resume": reuses, "reason": None if reuses else "session_reuse is off"},
            "agent_reads": agent_reads(self.settings),
            "bridge": {
                "pid": found.child.pid if found else None,
                "restarts": self.bridge.restarts,
            },
        }

    async def _asked(self, method: str) -> dict[str, Any]:
        """The answer of Cursor's servers to a question about the account."""
        connection = await self.bridge.ready()
        try:
            return await connection.connect.call(method, {"options": {"apiKey": self.key}})
        except Refusal as refusal:
            raise error_for(refusal) from refusal
        except BridgeFault as error:
            await self.bridge.still_answers(connection)
            raise fault(error) from error

    # Its life

    async def begin(self) -> None:
        self.bridge.begin()

    async def close(self) -> None:
        self.warm.close()
        if self._endings:
            await asyncio.wait(self._endings, timeout=CLOSING_SECONDS)
        await self.bridge.close()
        await self.callbacks.close()

    # Runs

    @property
    def _writes_calls(self) -> bool:
        return self.settings.tool_channel == "text"

    def start(self, spec: RunSpec, observer: RunObserver) -> SdkRun:
        return SdkRun(self._with_channel(spec), observer, self)

    def _with_channel(self, spec: RunSpec) -> RunSpec:
        return replace(spec, writes_calls=True) if self._writes_calls else spec

    def answered(self, run: Run, channel: str) -> None:
        if channel != "none":
            self._served[channel] += 1

    def end(self, run: Run) -> asyncio.Future[None]:
        assert isinstance(run, SdkRun)
        agent, run.agent = run.agent, None
        if agent is not None:
            return self._delete(agent)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def lend(self, spec: RunSpec) -> tuple[BridgeAgent, bool]:
        """An agent of the bridge for a run: the chat's, a warm one, or one that is created now."""
        if isinstance(spec.chat, BridgeAgent):
            await self._take_up(spec.chat, spec)
            return spec.chat, False
        if warm := self.warm.take(spec):
            return warm, True
        creating = in_background(self._created_quietly(spec), "creating an agent")
        try:
            created = await asyncio.shield(creating)
        except asyncio.CancelledError:
            # The bridge may be creating it at this moment.
            creating.add_done_callback(self._delete_created)
            raise
        if isinstance(created, Exception):
            raise created
        return created, False

    async def _take_up(self, chat: BridgeAgent, spec: RunSpec) -> None:
        """Give the chat's agent the tools of this request, where they are others."""
        calls = self._tool_calls(spec)
        if calls.digests == chat.calls.digests:
            return
        try:
            await chat.take_up(self._options(chat, calls, spec), calls)
        except BaseException as error:
            self._delete(chat)
            if isinstance(error, Refusal | BridgeFault):
                raise StartOver("chat") from error
            raise
        self.callbacks.serve(chat.session_id, calls)

    async def _created_quietly(self, spec: RunSpec) -> BridgeAgent | Exception:
        """Whoever asked may be gone by then."""
        try:
            return await self._created(spec)
        except Exception as error:
            return error

    def _delete_created(self, creating: asyncio.Task[BridgeAgent | Exception]) -> None:
        if not creating.cancelled() and isinstance(agent := creating.result(), BridgeAgent):
            self._delete(agent)

    async def _created(self, spec: RunSpec) -> BridgeAgent:
        connection = await self.bridge.ready()
        try:
            return await self._created_by(connection, spec)
        except BridgeFault:
            if await self.bridge.still_answers(connection):
                raise
        return await self._created_by(await self.bridge.ready(), spec)

    async def _created_by(self, connection: Connection, spec: RunSpec) -> BridgeAgent:
        workspace = self._context.workspaces.take(spec.directory)
        calls = self._tool_calls(spec)
        agent = BridgeAgent(str(uuid.uuid4()), connection, workspace, calls)
        self.callbacks.serve(agent.session_id, calls)
        try:
            options = self._options(agent, calls, spec)
            await connection.connect.call(f"{SERVICE}/CreateAgent", {"options": options})
        except BaseException:
            self._delete(agent)
            raise
        return agent

    def _tool_calls(self, spec: RunSpec) -> ToolCalls:
        tools = spec.conversation.callable_tools if spec.calls_back else ()
        return ToolCalls(tools, self._context.new_call_id, self._context.execute)

    def _options(self, agent: BridgeAgent, calls: ToolCalls, spec: RunSpec) -> dict[str, Any]:
        may: May = "nothing"
        if spec.directory is not None:
            may = "act" if self.settings.agent_mode == "agent" else "read"
        return agent_options(
            agent_id=agent.session_id,
            key=self.key,
            model=self._catalogue.selection(spec.model),
            directory=str(agent.workspace.path),
            may=may,
            tools=calls.definitions(),
        )

    def _delete(self, agent: BridgeAgent) -> asyncio.Future[None]:
        """Leave nothing of it, in the background."""
        ending = in_background(self._deleted(agent), "ending an agent")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return ending

    async def _deleted(self, agent: BridgeAgent) -> None:
        try:
            await agent.delete(self.key)
        finally:
            self.callbacks.leave(agent.session_id)
            self._context.workspaces.release(agent.workspace)

    # Warm agents

    def prepare(self, spec: RunSpec) -> None:
        self.warm.want(self._with_channel(spec))

    def give_way(self) -> asyncio.Future[None] | None:
        return self.warm.give_way()

    # Chats: the agents of the bridge that have finished

    def keep(self, run: Run) -> BridgeAgent | None:
        assert isinstance(run, SdkRun)
        if run.agent is None or not run.has_finished or not self.settings.session_reuse:
            self.end(run)
            return None
        chat, run.agent = run.agent, None
        return chat

    def still_has(self, chat: Chat) -> bool:
        assert isinstance(chat, BridgeAgent)
        return chat.is_there

    def forget(self, chat: Chat) -> None:
        assert isinstance(chat, BridgeAgent)
        self._delete(chat)
