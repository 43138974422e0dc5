"""The agent's own tools, as far as ACP shows them: little of what they are asked for, and nothing
of who refused them. The client is asked before a shell or the web is used; before files are read or
changed it is not."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from tests.fakes import permissions
from tests.fakes.acp_wire import Json, Peer
from tests.fakes.async_steps import AsyncSteps

KINDS = {
    "shell": "execute",
    "read": "read",
    "glob": "search",
    "grep": "search",
    "ls": "search",
    "edit": "edit",
    "write": "edit",
    "delete": "edit",
    "webFetch": "fetch",
    "webSearch": "search",
}
TITLES = {
    "read": "Read File",
    "glob": "Find",
    "grep": "Find",
    "ls": "Find",
    "edit": "Edit File",
    "write": "Edit File",
    "delete": "Delete File",
    "webFetch": "Web Fetch",
    "webSearch": "Web Search",
    "task": "Task: Subagent task",
}
ASKED_FOR = {"shell", "webFetch", "webSearch"}


class OwnTools(AsyncSteps):
    """A part of a `Turn`."""

    peer: Peer
    results: list[str]
    is_forced: bool

    def announce(self, call_id: str, title: str, kind: str, raw: Json) -> None:
        raise NotImplementedError

    def progress(self, call_id: str) -> None:
        raise NotImplementedError

    def complete(self, call_id: str, **fields: Any) -> None:
        raise NotImplementedError

    async def permitted(self, call_id: str, title: str, kind: str, words: str) -> bool:
        raise NotImplementedError

    def _begun(self, name: str, args: Json) -> str:
        """A call is announced, and under way."""
        from tests.fakes.acp_turn import new_call_id

        call_id = new_call_id()
        raw = {"command": args["command"]} if name == "shell" else {}
        raw |= {"_toolName": "task"} if name == "task" else {}
        self.announce(call_id, title_of(name, args), KINDS.get(name, "other"), raw)
        self.progress(call_id)
        return call_id

    async def _allowed(self, call_id: str, name: str, args: Json) -> bool:
        """Whether it may be done, as far as the client is asked."""
        if name not in ASKED_FOR or self._is_on_the_list(name, args):
            return True
        word = args.get("command", "").partition(" ")[0]
        words = f"Not in allowlist: {word}" if name == "shell" else ""
        return await self.permitted(call_id, title_of(name, args), KINDS[name], words)

    def _is_on_the_list(self, name: str, args: Json) -> bool:
        if name != "shell":
            return False
        with contextlib.chdir(self.cwd):
            allow = permissions.Permissions().allow
        word = args["command"].partition(" ")[0]
        return self.is_forced or any(permissions.matches(each, "Shell", word) for each in allow)

    async def do_native(self, argument: str) -> None:
        """One of the agent's own tools is announced: `[[native:shell {"command": "ls"}]]`. It does
        nothing; where the client is asked, its answer completes it."""
        name, args = self._parsed(argument)
        call_id = self._begun(name, args)
        if name not in ASKED_FOR:
            return
        if await self._allowed(call_id, name, args):
            self.complete(call_id, rawOutput=output_of(name, {"success": {}}))
        else:
            self.complete(call_id)

    async def do_own(self, argument: str) -> None:
        """One of the agent's own tools, announced and completed."""
        name, args = self._parsed(argument)
        call_id = self._begun(name, args)
        if await self._allowed(call_id, name, args):
            self.complete(call_id, rawOutput=output_of(name, {"success": {"content": "same"}}))
        else:
            self.complete(call_id)

    async def do_rejected(self, argument: str) -> None:
        """One of the agent's own tools that something other than the client refuses."""
        self.complete(self._begun(*self._parsed(argument)))

    async def do_try(self, argument: str) -> None:
        """One of the agent's own tools, which does what it is for, as far as the client and the
        permissions of its directory allow it: `[[try:read {"path": "$PWD/notes"}]]`."""
        name, args = self._parsed(argument.replace("$PWD", str(self.cwd)))
        call_id = self._begun(name, args)
        if not await self._allowed(call_id, name, args):
            self.complete(call_id)
            self.results.append('{"rejected": {}}')
            return
        with contextlib.chdir(self.cwd):
            result, is_refused = permissions.use(name, args, asks=False)
        self.results.append(json.dumps(result))
        if is_refused:
            self.complete(call_id)
        elif name == "edit":
            self.complete(call_id, content=[diff_of(args)])
        else:
            self.complete(call_id, rawOutput=output_of(name, result))

    async def do_act(self, command: str) -> None:
        """Go on and execute a shell command, as far as that is allowed."""
        await self.do_try(f"shell {json.dumps({'command': command})}")

    async def do_query(self, name: str) -> None:
        """What needs an answer of the user's, who is the client here."""
        await self.do_own(f'{name} {{"url": "https://example.com"}}')

    async def do_line(self, size: str) -> None:
        """A line with a whole file in it."""
        call_id = self._begun("read", {})
        self.complete(call_id, rawOutput={"content": "x" * int(size)})

    async def do_look_up(self, _: str) -> None:
        """A model that asks the agent which tools there are, before it calls one."""
        await self.do_own('getMcpTools {"server": "client"}')

    def _parsed(self, argument: str) -> tuple[str, Json]:
        name, _, arguments = argument.partition(" ")
        return name, json.loads(os.path.expandvars(arguments or "{}"))


def title_of(name: str, args: Json) -> str:
    return f"`{args['command']}`" if name == "shell" else TITLES.get(name, "Unknown operation")


def output_of(name: str, result: Json) -> Json:
    """Files and commands come back with their contents, the rest without."""
    done = result.get("success", {})
    if name == "shell":
        return {"exitCode": done.get("exitCode", 0), "stdout": done.get("stdout", ""), "stderr": ""}
    if name == "read":
        return {"content": done.get("content", "")}
    if KINDS.get(name) == "search":
        return {"totalFiles": done.get("totalFiles", 0)}
    return {"success": True}


def diff_of(args: Json) -> Json:
    """Of a new file: pieces of the diff's own header stand where its contents should."""
    path = args["path"]
    new = f"++ b/{Path(path).name}\n{args['streamContent']}"
    return {"type": "diff", "path": path, "oldText": "-- /dev/null", "newText": new}
