"""AcpSession: a conversation in the CLI, and the process in which it lives.

It has its own directory and the client's tools, which cannot be changed later (the CLI takes no
notice of `tools/list_changed`, 2026.09.18), and works on one prompt at a time. When it has finished
it is the conversation's chat. Its process may end then: what was said is in the CLI's own store,
from where another process loads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from cursor_gateway import __version__
from cursor_gateway.agents.acp.models import (
    Option,
    model_for,
    model_option,
    options_of,
    settings_for,
)
from cursor_gateway.agents.acp.peer import Peer
from cursor_gateway.agents.acp.requests import initialize, new_session
from cursor_gateway.agents.acp.stream import AcpStream
from cursor_gateway.agents.acp.wire import Answer, Json, text_of
from cursor_gateway.core.models import AUTO
from cursor_gateway.errors import AgentFailed, GatewayError
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.workspaces import Workspace

# It answers after 0.6 s, and then makes a session in 2.5 s (2026.08.11); to load one was seen never
# to end.
INITIALIZE_SECONDS = 10.0
SESSION_SECONDS = 30.0
LOAD_SECONDS = 30.0
OPTION_SECONDS = 10.0
# It fetches the list of tools while it makes the session.
LIST_SECONDS = 5.0
# After a turn has ended nothing of it follows, but with other agents some words did.
LATE_SECONDS = 0.1
# A prompt that was cancelled is answered after 4 ms.
CANCEL_SECONDS = 2.0


class AcpSession:
    def __init__(self, workspace: Workspace) -> None:
        self.session_id = ""
        self.workspace = workspace
        # Once it has a process.
        self.peer: Peer | None = None
        self.relay: RelaySession | None = None
        # Done when the process that it had before has ended.
        self.ending: asyncio.Future[None] | None = None
        self._options: tuple[Option, ...] = ()
        self._stream: AcpStream | None = None
        self._rests_since = 0.0

    @property
    def is_there(self) -> bool:
        """Whether its process lives."""
        return self.peer is not None and self.peer.is_alive

    @property
    def is_at_work(self) -> bool:
        return self.is_there and self._stream is not None and not self._stream.is_over

    # Its start

    async def open(self, peer: Peer, servers: Mapping[str, Any]) -> None:
        """In a process that was just started: a new session, or the one that it is. Raises RpcError
        or a GatewayError."""
        self.peer = peer
        await peer.call("initialize", initialize(__version__), INITIALIZE_SECONDS)
        params = new_session(str(self.workspace.path), servers)
        if self.session_id:
            params["sessionId"] = self.session_id
            result = await peer.call("session/load", params, LOAD_SECONDS)
        else:
            result = await peer.insist("session/new", params, SESSION_SECONDS)
            self.session_id = text_of(result.get("sessionId"))
        if not self.session_id:
            raise AgentFailed("Cursor's agent has made a session without an id.")
        self._options = options_of(result)

    async def choose(self, model_id: str, mode: str) -> None:
        """Which model answers, and whether it may act. Raises RpcError or a GatewayError."""
        await self._choose_mode(mode)
        models = model_option(self._options)
        if models is None:
            if model_id != AUTO:
                raise AgentFailed("Cursor's agent does not say which models it has.")
            return
        value, words = model_for(model_id, models.choices)
        if value != models.current:
            await self._set(models, value)
        for option, chosen in settings_for(words, self._options, model_id):
            await self._set(option, chosen)

    async def _choose_mode(self, mode: str) -> None:
        """It decides what the agent may do, so nothing goes on without it."""
        current = next((option.current for option in self._options if option.id == "mode"), "")
        if mode != current:
            await self._ask("session/set_mode", {"modeId": mode})

    async def _set(self, option: Option, chosen: str) -> None:
        params = {"configId": option.id, "value": option.value(chosen)}
        # What else can be chosen may be different now.
        self._options = options_of(await self._ask("session/set_config_option", params))

    async def _ask(self, method: str, params: Json) -> Json:
        assert self.peer is not None
        whole = {"sessionId": self.session_id, **params}
        return await self.peer.call(method, whole, OPTION_SECONDS)

    async def has_tools(self) -> bool:
        """Whether it has fetched the client's tools, for which it gets a moment."""
        assert self.peer is not None and self.relay is not None
        until = asyncio.get_running_loop().time() + LIST_SECONDS
        try:
            while not self.relay.is_listed:
                await self.peer.read(until)
        except TimeoutError:
            return False
        return True

    # Its prompts

    async def prompt(self, blocks: Sequence[Mapping[str, Any]]) -> AcpStream:
        """Raises a GatewayError."""
        assert self.peer is not None
        await self._pass_over()
        params = {"sessionId": self.session_id, "prompt": list(blocks)}
        prompt_id = await self.peer.begin("session/prompt", params)
        tools = self.relay.tools if self.relay else None
        self._stream = AcpStream(prompt_id, self.session_id, tools)
        return self._stream

    def rest(self) -> None:
        """Its turn has ended, and it is to wait for the next one."""
        self._rests_since = asyncio.get_running_loop().time()

    async def _pass_over(self) -> None:
        """It tells of itself when nobody asks; and words that come too late are of the turn
        before."""
        assert self.peer is not None
        until = self._rests_since + LATE_SECONDS
        with suppress(TimeoutError):
            while True:
                await self.peer.read(until)

    async def cancel(self) -> None:
        """Stop what it works on. It would leave this prompt out of what it remembers (2026.09), so
        it is not asked again."""
        if not self.is_at_work:
            return
        assert self.peer is not None and self._stream is not None
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.peer.tell("session/cancel", {"sessionId": self.session_id})
                while not self._stream.is_over:
                    for message in await self.peer.read(float("inf")):
                        if isinstance(message, Answer):
                            self._stream.feed(message)
        except (TimeoutError, GatewayError):
            return
