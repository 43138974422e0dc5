"""Axis: who answers. A new agent is a folder here, and one line in `AGENTS`.

An agent gives *runs*: one run reads a conversation and does something, event by event, for one
answer or for several. Whether there is a process behind it, one for each run or one for all, or
none, and how the client's tools reach it, is the run's own affair: nobody outside of this folder
knows it. Three kinds must fit: a process for each run, one process with many sessions, and a bridge
that calls back over HTTP.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from cursor_gateway.core.conversation import Conversation, ToolResult, ToolSpec
    from cursor_gateway.core.events import AgentEvent, Quiet, Usage
    from cursor_gateway.core.models import Model
    from cursor_gateway.findings import Row
    from cursor_gateway.processes.children import Children, LastWill
    from cursor_gateway.relay.server import Relay
    from cursor_gateway.relay.session import Execute
    from cursor_gateway.settings import Settings
    from cursor_gateway.workspaces import Workspaces


# Where each agent is made. They are imported when they are chosen: some need much.
AGENTS: dict[str, str] = {
    "acp": "cursor_gateway.agents.acp.agent:AcpAgent",
    "cli": "cursor_gateway.agents.cursor.cli:CursorCli",
    "demo": "cursor_gateway.agents.demo.agent:DemoAgent",
    "sdk": "cursor_gateway.agents.sdk.agent:SdkAgent",
}


def _can(sentence: str) -> bool:
    """A capability that agents lack unless they say so; docs/agents.md has the sentence."""
    return field(default=False, metadata={"sentence": sentence})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an agent can do. The gateway asks for nothing else."""

    calls_back: bool = _can(
        "It calls the client's tools and waits for their results; else its model writes the calls."
    )
    resumes: bool = _can("A finished run leaves a chat that another run can go on with.")
    chats_take_tools: bool = _can("A chat goes on though the client's tools have changed.")
    starts_warm: bool = _can("It can be made ready before anybody asks.")
    reads_images: bool = _can("It reads images.")
    reports_usage: bool = _can("It counts the tokens that it uses.")
    own_tools_off: bool = _can("Its own tools can be switched off, so that only the client acts.")
    names_key_owner: bool = _can(
        "It says whose its API key is, and so whether the key is valid; else only the list of "
        "models shows that."
    )


@dataclass(frozen=True, slots=True)
class Located:
    """An agent that was found, for people and `/health`."""

    kind: str
    path: str
    # What whoever starts the gateway has to know of it, and a heading for that.
    notice: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class SignIn:
    authenticated: bool
    # Empty when the agent does not say who it is.
    account: str = ""


@dataclass(frozen=True, slots=True)
class ModelList:
    models: tuple[Model, ...]
    # Whether the list was not cut off.
    complete: bool


class Chat(Protocol):
    """A conversation that an agent has finished. Only that agent knows what is in it."""

    @property
    def session_id(self) -> str: ...


@dataclass(frozen=True)
class RunSpec:
    """What a run is started for."""

    conversation: Conversation
    model: str
    directory: Path | None = None
    # Whose request it is; what is prepared for one caller is not for another.
    caller: str = ""
    # Whether the model writes its calls into the text, though the agent could make them: it was
    # asked to make them, and did not.
    writes_calls: bool = False
    # The chat that the run goes on with, and how many messages of the conversation are in it.
    chat: Chat | None = None
    known: int = 0

    @property
    def calls_back(self) -> bool:
        """Whether the agent is to call the client's tools itself, and to wait for the results."""
        return bool(self.conversation.callable_tools) and not self.writes_calls

    @cached_property
    def kind(self) -> Hashable:
        """All but the messages: a run that was prepared for one spec serves those of its kind."""
        tools = tuple(tool.digest for tool in self.conversation.callable_tools)
        looks = self.conversation.has_images
        chat = id(self.chat) if self.chat else None
        return self.model, self.directory, self.caller, self.writes_calls, chat, looks, tools


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """The process that works for a run, as the journal names it."""

    pid: int
    # Every process that the run starts carries this mark.
    mark: str
    exited: asyncio.Future[int]


class RunObserver(Protocol):
    """Who is told of the life of a run."""

    def started(
        self, how: Literal["fresh", "resumed"], process: AgentProcess | None, *, is_warm: bool
    ) -> None: ...

    def spoke(self) -> None:
        """The agent has given its first sign of life."""
        ...


class _Unobserved:
    def started(
        self, how: Literal["fresh", "resumed"], process: AgentProcess | None, *, is_warm: bool
    ) -> None: ...
    def spoke(self) -> None: ...


# For runs that no request asked for.
UNOBSERVED: RunObserver = _Unobserved()


class StartOver(Exception):
    """This run cannot give the answer, of which nothing was passed on yet; another run can.

    `because` says what the next one must do without: the `chat`, the `run` that waited, the `tools`
    that were added to it, or the agent's own calls (`calls`).
    """

    def __init__(self, because: Literal["chat", "run", "tools", "calls"]) -> None:
        super().__init__(because)
        self.because = because


class Run(Protocol):
    """One run at work. It is read, not listened to: while nobody reads, it does not get on."""

    @property
    def spec(self) -> RunSpec: ...

    @property
    def session_id(self) -> str:
        """The agent's own name for the conversation; empty until it is known."""
        ...

    @property
    def reported_usage(self) -> Usage:
        """What its earlier answers reported to the client."""
        ...

    @property
    def process(self) -> AgentProcess | None: ...

    @property
    def channel(self) -> Literal["relay", "text"]:
        """How the client's tools reach it: it calls back, or its model writes."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether a result can still reach it."""
        ...

    async def read(self, *, burst_open: bool) -> Sequence[AgentEvent] | Quiet:
        """What it does next; with an open burst, SILENCE when it does nothing for a moment. Raises
        StartOver, or the error by which it ended."""
        ...

    def deliver(self, results: Sequence[ToolResult]) -> None:
        """Give it results that it waits for, in the same answer."""
        ...

    def park(self, unread: Sequence[AgentEvent], usage: Usage) -> None:
        """The answer is over and the run waits; `unread` belongs to its next answer, and this one
        has reported `usage`."""
        ...

    def resume(
        self, results: Sequence[ToolResult], tools: Sequence[ToolSpec], *, parallel_calls: bool
    ) -> str:
        """Go on with the next answer; why that cannot be, or nothing if it goes on."""
        ...

    def when_over(self, call: Callable[[], object]) -> None:
        """Call back once it has ended by itself."""
        ...


class Agent(Protocol):
    """What `gateway.py`, `sessions.py`, `account.py` and the doctor speak to. A class that inherits
    it need not say what it has no use for."""

    # Has somebody give way who only waits, where there is no room for a start; whether somebody
    # did. Whoever knows them sets it.
    make_room: Callable[[], Awaitable[bool]]

    # What it can do by the default settings.
    by_default: ClassVar[Capabilities] = Capabilities()

    def __init__(self, context: AgentContext) -> None: ...

    # Before anything is started

    @classmethod
    def check(cls, settings: Settings, env: Mapping[str, str]) -> None:
        """Raise SettingsError where the settings cannot be true of this agent, or not here."""
        return

    @classmethod
    def find(cls, settings: Settings, env: Mapping[str, str]) -> Located:
        """Where it is, for commands that serve nobody. Raises AgentNotFound."""
        ...

    @classmethod
    def login_command(cls, settings: Settings, env: Mapping[str, str]) -> Sequence[str]:
        """The command by which a person signs in."""
        ...

    @classmethod
    def update_command(cls, settings: Settings, env: Mapping[str, str]) -> str:
        """What a person types to update it."""
        ...

    @classmethod
    def files(cls, settings: Settings, env: Mapping[str, str]) -> Sequence[Path]:
        """Where it may keep its sign-in. That a file exists does not mean that it is valid."""
        return ()

    @classmethod
    def checks(cls) -> Sequence[Row[Any]]:
        """What the doctor looks at of this agent, besides what it looks at of every agent. One with
        the same name takes the place of the doctor's own."""
        return ()

    @classmethod
    def probes(cls, model: str, holds: tuple[float, ...]) -> Sequence[Row[Any]]:
        """What the doctor has a model of this agent do."""
        return ()

    # What it is

    @property
    def capabilities(self) -> Capabilities:
        """What it can do by its own settings, now."""
        return self.by_default

    @property
    def key_variable(self) -> str:
        """The variable that holds the key it signs in with; empty where it signs in otherwise."""
        return ""

    @property
    def last_will(self) -> LastWill: ...

    def locate(self) -> Located:
        """Raise AgentNotFound where there is none."""
        ...

    async def sign_in(self) -> SignIn: ...
    async def models(self) -> ModelList: ...
    async def version(self) -> str: ...

    def state(self) -> dict[str, Any]:
        """Its part of `/health`: by section, from memory."""
        return {}

    # Its life

    async def begin(self) -> None:
        """The gateway starts."""
        return

    async def close(self) -> None:
        """Start nothing more. Runs are ended by who ends the processes."""
        return

    # Runs

    def start(self, spec: RunSpec, observer: RunObserver) -> Run: ...

    def end(self, run: Run) -> asyncio.Future[None]:
        """Stop the run, and leave nothing of it. Done when it has ended."""
        ...

    def answered(self, run: Run, channel: str) -> None:
        """The run gave an answer, and calls came by `channel` if there were tools."""
        return

    def prepare(self, spec: RunSpec) -> None:
        """Have a run of this kind ready, soon and in the background, if that helps."""
        return

    def give_way(self) -> asyncio.Future[None] | None:
        """End something that is only ready; done when it has ended. None where nothing is."""
        return None

    # Chats

    def keep(self, run: Run) -> Chat | None:
        """The run has finished; its chat until `forget`, if it left one. Else nothing is left."""
        self.end(run)
        return None

    def still_has(self, chat: Chat) -> bool:
        return False

    def forget(self, chat: Chat) -> None:
        return None

    def store_probes(self, version: str, at: str, findings: Sequence[Mapping[str, Any]]) -> None:
        """Remember what the probes found of `version`. Raises OSError."""
        return


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What an agent may use."""

    settings: Settings
    env: Mapping[str, str]
    # Where the gateway keeps what shall outlive it.
    state_folder: Path
    children: Children
    workspaces: Workspaces
    relay: Relay
    new_call_id: Callable[[], str]
    # Executes a call of a bridged tool.
    execute: Execute
    # The same agent by other settings, with everything of its own, for the doctor's probes.
    another: Callable[[Settings], AbstractAsyncContextManager[Agent]]


def chosen(settings: Settings) -> type[Agent]:
    """The agent that the settings name. `demo = "on"` is the short form of `agent = "demo"`."""
    name = "demo" if settings.demo == "on" else settings.agent
    module, _, attribute = AGENTS[name].partition(":")
    found: type[Agent] = getattr(importlib.import_module(module), attribute)
    return found


def are_stand_ins(models: Set[str]) -> bool:
    """Whether these are the models of the built-in agent: no account has them, and they are gone as
    soon as another agent answers."""
    from cursor_gateway.agents.demo.program import MODELS

    return models == dict(MODELS).keys()
