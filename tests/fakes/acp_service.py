"""The methods of ACP, by their names."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.fakes import acp_models
from tests.fakes.acp_models import Choices
from tests.fakes.acp_sessions import McpServer, Session, Store, in_thread
from tests.fakes.acp_turn import Turn
from tests.fakes.acp_wire import Json, Peer, RpcError, internal, invalid
from tests.fakes.agent import boot, process_age
from tests.fakes.steps import HOME, account, note, setting, switched_on, take_one

SIGNED_OUT = (
    "Authentication required. Please run 'agent login' first, "
    "then call authenticate() with methodId 'cursor_login'."
)
LOGIN = {"id": "cursor_login", "name": "Cursor Login", "description": "Sign in with Cursor"}
NO_BROWSER = (
    "Failed to open browser for login. Please visit: "
    "https://cursor.com/loginDeepControl?challenge=x"
)
COMMANDS = ({"name": "copy-request-id", "description": "Copy the id of the last request"},)
FOR_MEMBERS = {"session/new", "session/load", "session/list", "cursor/list_available_models"}
CAPABILITIES = {
    "loadSession": True,
    "mcpCapabilities": {"http": True, "sse": True},
    "promptCapabilities": {"audio": False, "embeddedContext": False, "image": True},
    "sessionCapabilities": {"list": {}},
}


class Service:
    def __init__(self, peer: Peer, argv: list[str], options: dict[str, str]) -> None:
        self._peer, self._argv = peer, argv
        self._is_forced = bool(options.keys() & {"-f", "--force", "--yolo"})
        self._model = options.get("--model", "")
        self._with_options = False
        self._store = Store()
        self._sessions: dict[str, Session] = {}
        # By the switch `overlap` there is one turn at a time.
        self._one_by_one = asyncio.Lock()
        self._booted: set[str] = set()
        # What a task that nobody waits for is held by.
        self._going: set[asyncio.Task[None]] = set()
        self._methods: dict[str, Callable[[Json], Awaitable[Json]]] = {
            "initialize": self.initialize,
            "authenticate": self.authenticate,
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/list": self.list_sessions,
            "session/prompt": self.prompt,
            "session/set_mode": self.set_mode,
            "session/set_model": self.set_model,
            "session/set_config_option": self.set_config_option,
            "cursor/list_available_models": self.list_models,
        }

    async def answer(self, method: str, params: Json) -> Json:
        if method not in self._methods:
            raise RpcError(-32601, f'"Method not found": {method}', {"method": method})
        if method in FOR_MEMBERS:
            check_account()
        return await self._methods[method](params)

    def leave(self) -> None:
        for session in self._sessions.values():
            at_work(session).unlink(missing_ok=True)

    # The process

    async def initialize(self, params: Json) -> Json:
        """Whatever version is asked for, this one is spoken. A second time it answers again."""
        await self._boot("boots-before-prompt", process_age())
        meta = params.get("clientCapabilities", {}).get("_meta", {})
        self._with_options = bool(meta.get("parameterizedModelPicker"))
        return {"protocolVersion": 1, "agentCapabilities": CAPABILITIES, "authMethods": [LOGIN]}

    async def authenticate(self, params: Json) -> Json:
        if params.get("methodId") != LOGIN["id"]:
            raise invalid(f"Unknown authentication method: {params.get('methodId')}")
        if account() or os.environ.get("CURSOR_API_KEY"):
            return {}
        if os.environ.get("NO_OPEN_BROWSER") or os.environ.get("BROWSER", "").endswith("true"):
            raise invalid(NO_BROWSER)
        (HOME / "browser-opened").touch()
        await asyncio.Event().wait()
        return {}

    async def list_models(self, _: Json) -> Json:
        return acp_models.listing()

    # Sessions

    async def new_session(self, params: Json) -> Json:
        self._check_place(params)
        choices = Choices(self._model, with_options=self._with_options)
        session = Session(str(uuid.uuid4()), Path(params["cwd"]), choices)
        await self._enter(session, params)
        self._store.write(session)
        return {"sessionId": session.session_id} | session.choices.shown()

    async def load_session(self, params: Json) -> Json:
        """Everything that was said comes again, and then the answer. Whatever directory is named
        is the session's from now on."""
        self._check_place(params)
        session_id = params.get("sessionId", "")
        found = self._store.read(session_id)
        if found is None or take_one("no-resume"):
            raise invalid(f'Session "{session_id}" not found')
        choices = Choices(self._model, with_options=self._with_options)
        title, history = found
        session = Session(session_id, Path(params["cwd"]), choices, history=history, title=title)
        await self._enter(session, params)
        self._store.write(session)
        for entry in history:
            self._replay(session_id, entry)
        return session.choices.shown()

    def _check_place(self, params: Json) -> None:
        missing = [name for name in ("cwd", "mcpServers") if name not in params]
        if missing:
            issues = [{"path": [name], "message": "Required"} for name in missing]
            raise RpcError(-32603, "Internal error", issues)

    async def _enter(self, session: Session, params: Json) -> None:
        self._sessions[session.session_id] = session
        described = [] if switched_on("no-mcp") else params["mcpServers"]
        session.servers = {
            each["name"]: McpServer(each) for each in described if each.get("type") == "http"
        }
        await asyncio.gather(*(self._connect(each) for each in session.servers.values()))
        self._soon(self._tell_commands(session.session_id))

    async def _connect(self, server: McpServer) -> None:
        """A server that cannot be reached is a session without its tools, and nobody says so."""
        if switched_on("late-mcp"):
            self._soon(server.connect_and_list())
        elif await server.connect():
            self._soon(server.list_in_time())

    async def _tell_commands(self, session_id: str) -> None:
        await asyncio.sleep(float(setting("commands-take", "0.7")))
        self._update(session_id, "available_commands_update", availableCommands=COMMANDS)

    def _replay(self, session_id: str, entry: Json) -> None:
        """What was told in pieces is told in one."""
        self._say(session_id, "user_message_chunk", entry["user"])
        if entry["thought"]:
            self._say(session_id, "agent_thought_chunk", entry["thought"])
        for message in entry["messages"]:
            self._say(session_id, "agent_message_chunk", message)

    def _say(self, session_id: str, kind: str, text: str) -> None:
        self._update(session_id, kind, content={"type": "text", "text": text})

    def _update(self, session_id: str, kind: str, **fields: Any) -> None:
        params = {"sessionId": session_id, "update": {"sessionUpdate": kind, **fields}}
        self._peer.notify("session/update", params)

    async def list_sessions(self, _: Json) -> Json:
        return {"sessions": self._store.listed()}

    async def set_mode(self, params: Json) -> Json:
        session = self._session(params)
        session.choices.choose_mode(params.get("modeId", ""))
        self._update(session.session_id, "current_mode_update", currentModeId=session.choices.mode)
        return {}

    async def set_model(self, params: Json) -> Json:
        self._session(params).choices.choose("model", params.get("modelId"))
        return {}

    async def set_config_option(self, params: Json) -> Json:
        choices = self._session(params).choices
        choices.choose(params.get("configId", ""), params.get("value"))
        return {"configOptions": choices.options()}

    def _session(self, params: Json) -> Session:
        session_id = params.get("sessionId", "")
        if session_id not in self._sessions:
            raise invalid(f'Session "{session_id}" not found')
        return self._sessions[session_id]

    # Turns

    async def prompt(self, params: Json) -> Json:
        session = self._session(params)
        text, images = read(params.get("prompt", []))
        note(self._about(session, text, images), session.cwd)
        if setting("overlap") == "waits":
            async with self._one_by_one:
                return await self._turn(session, text)
        if setting("overlap") == "fails" and any(each.turn for each in self._sessions.values()):
            raise RpcError(-32603, "Internal error", {"details": "Another prompt is running"})
        if session.turn:
            # Its words flow into the turn that is on, with which it ends.
            await session.turn.ended.wait()
            return {"stopReason": "end_turn"}
        return await self._turn(session, text)

    async def _turn(self, session: Session, text: str) -> Json:
        turn = Turn(session, text, self._peer, is_forced=self._is_forced)
        turn.shown_id = self._shown_id(session)
        session.turn = turn
        at_work(session).parent.mkdir(exist_ok=True)
        at_work(session).touch()
        try:
            await self._boot("boots-after-prompt", 0.0)
            reason = await turn.go()
        finally:
            at_work(session).unlink(missing_ok=True)
            session.last, session.turn = turn, None
            turn.ended.set()
        if reason != "cancelled":
            # A prompt that was cancelled was never there.
            session.history.append(turn.entry())
            self._store.write(session)
        return {"stopReason": reason}

    async def _boot(self, switch: str, already: float) -> None:
        """Once for the process, as far as a test wants that."""
        if switch not in self._booted:
            self._booted.add(switch)
            await in_thread(lambda: boot(switch, already))

    def _shown_id(self, session: Session) -> str:
        """By the switch `overlap` the words of one session are told as those of another."""
        others = [key for key, each in self._sessions.items() if each.turn and each is not session]
        return others[0] if others and setting("overlap") == "crosses" else session.session_id

    def _about(self, session: Session, text: str, images: list[Json]) -> Json:
        return {
            "argv": self._argv,
            "prompt": text,
            "session": session.session_id,
            "chosen": session.choices.summary(),
            "servers": list(session.servers),
            "images": images,
        }

    def answered(self, params: Json, again: Callable[[], None]) -> None:
        """What a turn still does once it has ended."""
        session = self._sessions.get(params.get("sessionId", ""))
        if session is None or session.last is None:
            return
        turn, session.last = session.last, None
        for text in turn.afterthoughts:
            self._say(session.session_id, "agent_message_chunk", text)
        if turn.answers_twice:
            again()

    def cancel(self, params: Json) -> None:
        session = self._sessions.get(params.get("sessionId", ""))
        if session and session.turn:
            session.turn.cancel()

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._going.add(task)
        task.add_done_callback(self._going.discard)


def check_account() -> None:
    key = os.environ.get("CURSOR_API_KEY", "")
    if not account() and not key:
        raise RpcError(-32000, "Authentication required", {"message": SIGNED_OUT})
    is_bad = switched_on("key") and key and key != setting("key")
    if is_bad or switched_on("offline"):
        raise internal("Failed to initialize session services")


def read(blocks: list[Json]) -> tuple[str, list[Json]]:
    """The words of a prompt, with what was given along, and its images."""
    words = [block["text"] for block in blocks if block["type"] == "text"]
    for block in blocks:
        if block["type"] == "resource":
            resource = block["resource"]
            head = f"Additional ACP context:\n[ACP embedded_resource] {resource['uri']}"
            words.append(f"\n\n{head}\n{resource.get('text', '')}")
    images = [block for block in blocks if block["type"] == "image"]
    return "".join(words), images


def at_work(session: Session) -> Path:
    return HOME / "at-work" / f"{os.getpid()}.{session.session_id}"
