"""How the CLI is started for a run: its flags, its permissions, its prompt."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from cursor_gateway.agents import RunSpec
from cursor_gateway.agents.cursor import remote
from cursor_gateway.agents.cursor.files import PERMISSIONS
from cursor_gateway.agents.cursor.isolation import isolated
from cursor_gateway.agents.cursor.permissions import permissions
from cursor_gateway.agents.cursor.program import Program
from cursor_gateway.agents.cursor.transcripts import Transcripts
from cursor_gateway.core.prompt import Reading, render
from cursor_gateway.core.relayed_tools import SERVER
from cursor_gateway.errors import ContextTooLong
from cursor_gateway.processes.child import Child, Command, encoded
from cursor_gateway.processes.children import Children
from cursor_gateway.relay.server import Relay
from cursor_gateway.relay.session import RelaySession
from cursor_gateway.settings import Settings
from cursor_gateway.workspaces import Workspace

log = logging.getLogger(__name__)

# Not for the agent: the gateway's own key, options for a node that is not the CLI's, and what
# would tell the CLI that it runs inside itself.
_WITHHELD = frozenset(
    {"CURSOR_GATEWAY_API_KEY", "NODE_OPTIONS", "CURSOR_AGENT", "CURSOR_INVOKED_AS"}
)


class CommandLine:
    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        children: Children,
        relay: Relay,
        transcripts: Transcripts,
    ) -> None:
        self._settings = settings
        self.env = {name: value for name, value in env.items() if name not in _WITHHELD}
        self.encoded_env = encoded(self.env)
        self._children = children
        self._relay = relay
        self._transcripts = transcripts
        self._home = Path(env.get("HOME", "~")).expanduser().resolve()

    def launch(
        self,
        program: Program,
        spec: RunSpec,
        workspace: Workspace,
        session: RelaySession | None,
        prompt: bytes | None,
    ) -> Child:
        """A process that has everything, but perhaps its prompt."""
        workspace.make_sure()
        flags = self._flags(spec, workspace, is_remote=bool(program.prefix))
        log.debug("starting %s", [*program.argv, *flags])
        # A real workspace is the user's, also in what an agent may do there.
        denials = permissions(spec, workspace, self._home) if workspace.is_scratch else b""
        if program.prefix:
            argv = self.carried(program, flags, workspace.scratch.name, denials.decode())
        else:
            self._furnish(workspace, session, denials)
            argv = self._isolated(program, [*program.argv, *flags], workspace)
        return self._children.spawn(Command(argv, self.encoded_env, workspace.path, prompt))

    def _furnish(self, workspace: Workspace, session: RelaySession | None, denials: bytes) -> None:
        if denials:
            workspace.put_standing(PERMISSIONS, denials)
            self._transcripts.note(workspace.path)
        if session is not None:
            servers = self._relay.configuration(session)
            workspace.put(".cursor/mcp.json", orjson.dumps(servers))

    def _isolated(self, program: Program, argv: list[str], workspace: Workspace) -> list[str]:
        if not self._settings.isolate or program.is_built_in:
            return argv
        may_edit = self._settings.agent_mode == "agent"
        return isolated(argv, self.env, workspace, may_edit=may_edit)

    def carried(
        self, program: Program, words: Sequence[str], place: str, permissions: str = ""
    ) -> list[str]:
        """The command line of a remote agent; `place` is unique in this gateway."""
        place = f"{self._children.scratch.name}-{place}"
        return remote.carried([*program.argv, *words], program.prefix, place, permissions)

    def _flags(self, spec: RunSpec, workspace: Workspace, *, is_remote: bool) -> list[str]:
        flags = ["--print", "--output-format", "stream-json", "--stream-partial-output", "--trust"]
        flags += [] if is_remote else ["--workspace", str(workspace.path)]
        flags += ["--model", spec.model]
        # In `ask` a model is told that it cannot act, and would not call the client's tools either.
        has_tools = bool(spec.conversation.callable_tools)
        acts = has_tools or (self._settings.agent_mode == "agent" and not workspace.is_scratch)
        if not acts:
            flags += ["--mode", "ask"]
        if spec.conversation.has_images and not workspace.is_scratch:
            flags += ["--add-dir", str(workspace.scratch)]
        if spec.calls_back:
            flags.append("--approve-mcps")
        if spec.chat is not None:
            flags += ["--resume", spec.chat.session_id]
        # At the end, where the script that goes along adds the directory over there.
        return [*flags, "--workspace"] if is_remote else flags

    def prompt(self, spec: RunSpec, workspace: Workspace, session: RelaySession | None) -> bytes:
        """The prompt; its images are put where it says they are."""
        prompt = render(spec.conversation, _reading(spec, workspace, session))
        text = prompt.text.encode()
        if len(text) > self._settings.max_prompt_mb * 1024 * 1024:
            raise ContextTooLong(f"The conversation has {len(text)} bytes.")
        for name, data in prompt.files:
            workspace.put(name, data)
        return text


def _reading(spec: RunSpec, workspace: Workspace, session: RelaySession | None) -> Reading:
    image_folder = "" if workspace.is_scratch else str(workspace.scratch)
    if session is None:
        return Reading(image_folder, spec.known)
    tools = session.tools
    return Reading(image_folder, spec.known, SERVER, tools.wait_tool, tools.aliases)
