"""One MCP server of the user: connected, watched, connected again, called.

One task owns the connection; calls come from any task. A failure of the server shows in the result
of a call, or in the server's state, and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursor_gateway.background import in_background
from cursor_gateway.mcp_bridge.config import LocalServer, Server
from cursor_gateway.mcp_bridge.files import project_directory
from cursor_gateway.mcp_bridge.intake import RemoteTool, ToolList
from cursor_gateway.mcp_bridge.results import failure
from cursor_gateway.processes.child import Child, Command, encoded
from cursor_gateway.processes.children import Children
from cursor_gateway.redaction import OUTGOING, Redaction
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.mcp_bridge.connection import Connection

log = logging.getLogger(__name__)

# The gateway restarts a server that was killed at once, and one that keeps failing ever less often.
RETRY_FIRST = 0.5
RETRY_LOCAL = 15.0
# A remote server does not report that it is back, and asking costs little.
RETRY_REMOTE = 15.0
# The limit for a server that was connected before, so that the next attempt may succeed.
RETRY_AFTER_CRASH = 8.0
# After a connection that lasted this long, the pauses begin anew with the shortest.
STEADY = 10.0
# How long a call waits for a server that is being connected again.
RECONNECT_SECONDS = 10.0
# The tools of a lost server stay listed for so long: it will probably be back before it is called.
TOOLS_STAY = 30.0
# The pause before the tools of a server are listed again that reports changes all the time. It is
# at least RELIST_SHARE times as long as the last listing took, because a long list is much work.
RELIST_PAUSE = 1.0
RELIST_SHARE = 10.0
RELIST_LONGEST = 30.0
ERROR_CHARS = 500
STDERR_LINES_PER_MINUTE = 120
STDERR_LINE_CHARS = 300

# The variables that a program needs to run, to find its files and to reach the network. It gets no
# others: the environment of the gateway may hold keys.
_INHERITED = frozenset(
    "HOME LOGNAME PATH SHELL TERM USER TMPDIR TZ LANG LC_ALL LC_CTYPE DISPLAY WAYLAND_DISPLAY "
    "XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR "
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS".split()
)


class McpServer:
    def __init__(
        self,
        config: Server,
        settings: Settings,
        env: Mapping[str, str],
        children: Children,
        on_tools: Callable[[], None],
    ) -> None:
        self.config = config
        self._settings = settings
        self._env = {name: value for name, value in env.items() if name in _INHERITED}
        self._children = children
        self._on_tools = on_tools
        # All values of its configuration are removed from the server's own texts, even common
        # words.
        self._without_secrets = Redaction(config.secrets)
        self._stderr = _StderrLog(config.name, self._redacted)
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._seen_at = float("-inf")
        self._calls = 0
        self._failures = 0
        self._listed = ToolList()
        # Why the last attempt to connect failed, or the last connection ended.
        self.error = ""
        # Set once the first attempt to connect has succeeded or failed.
        self.tried = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = in_background(
            self._stay_connected(), f"the watch on MCP server {self.config.name!r}"
        )

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def tools(self) -> tuple[RemoteTool, ...]:
        return self._listed.tools

    def as_json(self) -> dict[str, Any]:
        is_local = isinstance(self.config, LocalServer)
        state: dict[str, Any] = {
            "name": self.config.name,
            "type": "local" if is_local else "remote",
            "file": self.config.origin,
            "state": "connected" if self.is_connected else "failed" if self.error else "connecting",
            "tools": len(self.tools),
            "error": self.error or None,
            "left_out": self._listed.left_out or None,
        }
        if self._connection is not None:
            state["server"] = self._connection.server_info
            state["protocol"] = self._connection.protocol_version
        return state

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result in MCP's own shape. A failure is a result, too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RECONNECT_SECONDS):
                await self._connected.wait()
        if self._connection is None:
            return self._failure(f"is not connected: {self.error or 'it is still starting'}")
        self._calls += 1
        try:
            return await self._call(self._connection, tool, arguments)
        finally:
            self._calls -= 1

    async def _call(
        self, connection: Connection, tool: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        from cursor_gateway.mcp_bridge.connection import reason

        loop, quiet = asyncio.get_running_loop(), self._request_timeout
        try:
            async with (
                asyncio.timeout(self._settings.total_timeout),
                asyncio.timeout(quiet) as silence,
            ):

                def progressed() -> None:
                    with suppress(RuntimeError):  # the call is just over
                        silence.reschedule(loop.time() + quiet)

                return await connection.call(tool, arguments, progressed)
        except TimeoutError:
            return self._failure(f"did not answer within {quiet:g} s")
        except Exception as error:
            connection.check_soon()
            return self._failure(f"failed: {reason(error)}")

    def _failure(self, what: str) -> dict[str, Any]:
        return failure(self._redacted(f"The MCP server {self.config.name!r} {what}"))

    @property
    def _request_timeout(self) -> float:
        return self.config.timeout or self._settings.mcp_call_timeout

    async def _stay_connected(self) -> None:
        """Connect, and connect again whenever the connection ends."""
        from cursor_gateway.mcp_bridge.connection import reason

        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._hold_connection()
            except Exception as error:
                self._note(self._redacted(reason(error))[:ERROR_CHARS])
            self.tried.set()
            was_connected = self._seen_at > began
            if not was_connected and loop.time() - self._seen_at > TOOLS_STAY:
                self._publish(ToolList())
            await asyncio.sleep(self._pause(was_connected, lasted=loop.time() - began))

    def _note(self, error: str) -> None:
        level = logging.DEBUG if error == self.error else logging.WARNING
        log.log(level, "MCP server %s: %s", self.config.name, error)
        self.error = error

    def _pause(self, was_connected: bool, lasted: float) -> float:
        """How long to wait before the next attempt."""
        self._failures = 1 if was_connected and lasted > STEADY else self._failures + 1
        longest = RETRY_LOCAL if isinstance(self.config, LocalServer) else RETRY_REMOTE
        if was_connected:
            longest = RETRY_AFTER_CRASH
        return min(RETRY_FIRST * 2.0 ** min(self._failures - 1, 10), longest)

    async def _hold_connection(self) -> None:
        """Hold one connection until it ends, which raises."""
        from cursor_gateway.mcp_bridge.connection import connected

        limit = self._settings.mcp_connect_timeout
        async with connected(self.config, self._launch, self._children, limit) as connection:
            async with asyncio.timeout(limit):
                self._publish(await connection.tools())
            self._connection = connection
            self._connected.set()
            self.tried.set()
            log.info("MCP server %s: connected, %d tools", self.config.name, len(self.tools))
            try:
                while True:
                    await self._watch(connection)
            finally:
                self._connection = None
                self._connected.clear()
                self._seen_at = asyncio.get_running_loop().time()

    async def _watch(self, connection: Connection) -> None:
        if await connection.changes():
            loop = asyncio.get_running_loop()
            began = loop.time()
            # A server that handles one request at a time does not answer during a call.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._request_timeout):
                    self._publish(await connection.tools())
            taken = loop.time() - began
            await connection.rest(min(max(RELIST_PAUSE, RELIST_SHARE * taken), RELIST_LONGEST))
        elif not self._calls:
            await connection.check()

    def _publish(self, listed: ToolList) -> None:
        if listed.left_out and listed.left_out != self._listed.left_out:
            log.warning("MCP server %s: tools are left out: %s", self.config.name, listed.left_out)
        if listed != self._listed:
            self._listed = listed
            self._on_tools()

    def _launch(self, config: LocalServer) -> Child:
        directory = project_directory(self._settings) / Path(config.directory).expanduser()
        environment = encoded(self._env | dict(config.environment))
        command = Command(config.command, environment, directory)
        return self._children.spawn_resident(command, self._stderr.write)

    def _redacted(self, text: str) -> str:
        return OUTGOING(self._without_secrets(text))


class _StderrLog:
    """Writes a server's stderr to our debug log: short lines, and a limited number in a minute."""

    def __init__(self, name: str, redacted: Callable[[str], str]) -> None:
        self._name = name
        self._redacted = redacted
        self._minute = 0
        self._lines = 0

    def write(self, data: bytes) -> None:
        if not log.isEnabledFor(logging.DEBUG):
            return
        minute = int(asyncio.get_running_loop().time() // 60)
        if minute != self._minute:
            self._minute, self._lines = minute, 0
        room = STDERR_LINES_PER_MINUTE - self._lines
        if room <= 0:
            return
        lines = data.decode("utf-8", "replace").splitlines()[:room]
        self._lines += len(lines)
        for line in lines:
            log.debug("MCP server %s: %s", self._name, self._redacted(line)[:STDERR_LINE_CHARS])
