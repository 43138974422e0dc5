"""BridgeAgent: an agent in the bridge, for as long as a conversation lasts.

It has its own directory and the client's tools, which cannot be changed later, and works on one
message at a time (`Sending`). When it has finished it is the conversation's chat, which the next
message goes on with. Whatever becomes of it, it is closed and deleted in the end.
"""

from __future__ import annotations

import logging
from typing import Any

from cursor_gateway.agents.sdk.bridge import Connection
from cursor_gateway.agents.sdk.connect import LOCAL_SECONDS
from cursor_gateway.agents.sdk.sending import Sending
from cursor_gateway.agents.sdk.texts import BridgeFault, Refusal
from cursor_gateway.agents.sdk.tool_calls import ToolCalls
from cursor_gateway.workspaces import Workspace

log = logging.getLogger(__name__)

SERVICE = "SdkAgentService"


class BridgeAgent:
    def __init__(
        self, session_id: str, connection: Connection, workspace: Workspace, calls: ToolCalls
    ) -> None:
        self.session_id = session_id
        self.workspace = workspace
        self.calls = calls
        self._connection = connection
        self._sending: Sending | None = None

    @property
    def is_there(self) -> bool:
        """Whether it can be sent another message. Those of a bridge that died are gone."""
        return self._connection.is_alive

    async def send(self, message: dict[str, Any]) -> Sending:
        """Send it a message, once it has done with the one before."""
        await self._until_idle()
        request = {
            "agentId": self.session_id,
            "message": message,
            "options": {"enableDeltas": True},
        }
        self.calls.begin()
        stream = self._connection.connect.stream(f"{SERVICE}/Send", request)
        self._sending = Sending(stream, self.calls)
        self.calls.on_arrival = self._sending.wake
        self._connection.tell_end(self._sending)
        return self._sending

    async def take_up(self, options: dict[str, Any], calls: ToolCalls) -> None:
        """Go on with the tools of `calls`. They are fixed with an agent, but not with its
        conversation: it is closed, and resumed with others. Raises Refusal or BridgeFault."""
        await self._until_idle()
        await self._ask("CloseAgent", {"agentId": self.session_id})
        request = {"agentId": self.session_id, "options": options}
        await self._connection.connect.call(f"{SERVICE}/ResumeAgent", request)
        self.calls = calls

    async def _until_idle(self) -> None:
        if self._sending is not None:
            await self._sending.close()

    async def stop(self) -> None:
        """Cancel what it works on, if anything. To leave its stream would not stop it."""
        sending = self._sending
        if sending is None or sending.over.done():
            return
        if self.is_there and (run_id := await sending.run_id()):
            await self._ask("CancelRun", {"runId": run_id, "agentId": self.session_id})
        # Only now: the model shall not hear that its calls have failed.
        self.calls.close()
        await sending.close()

    async def delete(self, key: str) -> None:
        """Leave nothing of it. One that has never run can be closed, but not deleted."""
        await self.stop()
        if self.is_there:
            await self._ask("CloseAgent", {"agentId": self.session_id})
            options = {"cwd": str(self.workspace.path), "apiKey": key}
            await self._ask("DeleteAgent", {"agentId": self.session_id, "options": options})

    async def _ask(self, method: str, message: dict[str, Any]) -> None:
        try:
            await self._connection.connect.call(f"{SERVICE}/{method}", message, LOCAL_SECONDS)
        except (Refusal, BridgeFault) as error:
            log.debug("%s: %s", method, error)
