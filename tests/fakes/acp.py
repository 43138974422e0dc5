"""`cursor-agent acp` for the tests: one process, many sessions, JSON-RPC on stdin and stdout.

A prompt is a program of steps: those of the fake agent as far as they mean anything here, and those
of acp_turn.py (words, calls of the client's tools), acp_tools.py (its own tools) and acp_vices.py.
Files in `$FAKE_AGENT_DIR` are switches. Those of the fake agent that it heeds: `account`, `key`,
`models.txt`, `habits.json`, `always`, `forgets`, `flaky`, `offline`, `no-resume`, `no-mcp`,
`ignores-deny`, `rewrites.json`, `many-in-flight`, `boots-before-prompt`, `boots-after-prompt`.
In the names of its own a method's slash is a hyphen, as in `takes-session-new`:

    banner            a line on stdout before everything else; `noise`: what it writes to stderr
    dies-at-start     it exits with 1 at once, with these words on stderr, or without any
    dies-in           it dies as it receives this method, once
    takes-<method>    the seconds before it answers
    fails-<method>    `CODE times words`: it answers with an error, for ever where times is 0
    ignores           it never answers this method
    cuts              its answer to this method breaks off, and the next line follows
    repeats           it answers this method twice
    late-mcp          the seconds before it looks at a session's MCP servers
    late-list         the seconds after a session was made in which it asks for the list of tools;
    never-lists       it never does
    commands-take     the seconds after which it tells of its commands
    asks-nothing      it asks for no permission for MCP calls
    permissions-one-by-one   it asks for the next when the last call is complete
    cancel            `ignored`, `late` (words follow), `as-end`, or `as-error`
    cancel-tells-servers     MCP servers are told that nobody waits for their answers any more;
                             otherwise they are left alone with them
    overlap           what becomes of a prompt while there is another: `fails`, `waits` for its
                      end, or `crosses` (its words are told as the other session's)
    lingers           it does not end when its stdin does
    models-kill-acp   `cursor-agent models` ends every such process
    acp-models.json   what `cursor/list_available_models` answers

It leaves a note in `calls/` for its start and for each prompt, a line in `rpcs` for each message
and one in `answers` for each answer, and a line in `model-steps` whenever its model is asked.
`at-work/` has a file for each turn that has not ended, `acp-processes/` one for each process;
`models-beside-acp` says that `models` was asked for beside one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.fakes.acp_models import is_usable, models
from tests.fakes.acp_service import Service
from tests.fakes.acp_wire import Json, Peer, RpcError, internal, line_of
from tests.fakes.steps import HOME, note, setting, switched_on

PROCESSES = HOME / "acp-processes"
WORKTREE = "Using worktree: /home/dev/.cursor/worktrees/here\n"


def main(argv: Sequence[str], options: dict[str, str]) -> int:
    behind = argv[list(argv).index("acp") + 1 :]
    if "--help" in behind or "-h" in behind:
        sys.stdout.write("Usage: agent acp [options]\n\nOptions:\n  -h, --help  display help\n")
        return 0
    if mistake := mistake_in(behind, options.get("--model", "default")):
        return failed(mistake)
    note({"argv": list(argv), "prompt": None}, Path.cwd())
    sys.stderr.write(setting("noise"))
    sys.stderr.flush()
    if switched_on("dies-at-start"):
        return failed(setting("dies-at-start"))
    asyncio.run(Process(list(argv), options).serve())
    return 0


def mistake_in(behind: Sequence[str], model: str) -> str:
    """Options stand before the command, and the model has to be one."""
    for word in behind:
        if word.startswith("-"):
            return f"error: unknown option '{word.partition('=')[0]}'\n"
    if is_usable(model):
        return ""
    listed = ", ".join(each["value"] for each in models())
    return f"Cannot use this model: {model}. Available models: {listed}\n"


def failed(words: str) -> int:
    sys.stderr.write(words)
    return 1


class Process:
    def __init__(self, argv: list[str], options: dict[str, str]) -> None:
        self._peer = Peer()
        self._service = Service(self._peer, argv, options)
        self._mark = PROCESSES / str(os.getpid())
        # What a task that nobody waits for is held by.
        self._going: set[asyncio.Task[None]] = set()
        if "-w" in options or "--worktree" in options:
            self._peer.write(WORKTREE.encode())
        if switched_on("banner"):
            self._peer.write(setting("banner").encode() + b"\n")

    async def serve(self) -> NoReturn:
        PROCESSES.mkdir(exist_ok=True)
        self._mark.touch()
        signal.signal(signal.SIGTERM, lambda *_: self._end(143))
        async for message in self._peer.messages():
            self._take(message)
        if self._peer.lingers or switched_on("lingers"):
            await asyncio.Event().wait()
        self._end(0)

    def _end(self, code: int) -> NoReturn:
        """At once, whatever is going on, and whoever is waited for."""
        self._mark.unlink(missing_ok=True)
        self._service.leave()
        os._exit(code)

    def _take(self, message: Json) -> None:
        if "method" in message:
            noted(message)
        if "method" in message and "id" in message:
            task = asyncio.ensure_future(self._answer(message))
            self._going.add(task)
            task.add_done_callback(self._going.discard)
        elif message.get("method") == "session/cancel":
            self._service.cancel(message.get("params", {}))
        elif "id" in message:
            self._peer.heard(message)

    async def _answer(self, message: Json) -> None:
        method, number = message["method"], message["id"]
        try:
            await vices_of(method)
            result = await self._service.answer(method, message.get("params") or {})
            answer = {"jsonrpc": "2.0", "id": number, "result": result}
        except RpcError as error:
            answer = {"jsonrpc": "2.0", "id": number, "error": error.body}
        except Exception as error:
            words = f"The fake agent failed: {error!r}"
            answer = {"jsonrpc": "2.0", "id": number, "error": internal(words).body}
        self._write(method, line_of(answer))
        if method == "session/prompt":
            self._service.answered(message["params"], lambda: self._peer.send(answer))

    def _write(self, method: str, line: bytes) -> None:
        if takes_place_in(setting("cuts"), method):
            line = line[: len(line) // 2] + b"\n"
        self._peer.write(line * 2 if takes_place_in(setting("repeats"), method) else line)


def takes_place_in(name: str, method: str) -> bool:
    return name == method.replace("/", "-")


async def vices_of(method: str) -> None:
    """What the test wants of this method before it does anything."""
    name = method.replace("/", "-")
    if setting("dies-in") == name:
        (HOME / "dies-in").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if setting("ignores") == name:
        await asyncio.Event().wait()
    await asyncio.sleep(float(setting(f"takes-{name}", "0")))
    fail_as_wanted(HOME / f"fails-{name}")


def fail_as_wanted(switch: Path) -> None:
    if not switch.exists():
        return
    code, times, words = [*switch.read_text().strip().split(" ", 2), "", ""][:3]
    if times == "1":
        switch.unlink()
    elif times not in ("", "0"):
        switch.write_text(f"{code} {int(times) - 1} {words}")
    raise RpcError(int(code), "Internal error", {"message": words})


def noted(message: Json) -> None:
    about = {"method": message["method"], "body": message.get("params"), "pid": os.getpid()}
    with (HOME / "rpcs").open("a") as rpcs:
        rpcs.write(json.dumps(about) + "\n")


def others() -> list[int]:
    """The processes of this kind that live now."""
    return [pid for mark in PROCESSES.glob("*") if lives(pid := int(mark.name))]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def disturb() -> None:
    """`models` is asked for beside living processes, which may end them."""
    living = others()
    if living:
        (HOME / "models-beside-acp").touch()
    if switched_on("models-kill-acp"):
        for pid in living:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while others() and time.monotonic() < deadline:
            time.sleep(0.01)
