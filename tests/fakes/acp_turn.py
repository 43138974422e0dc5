"""One turn of a session: what the model says, and its calls of the client's tools, step by step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from pathlib import Path
from typing import Any

from tests.fakes.acp_sessions import Session, in_thread, note_call, soon
from tests.fakes.acp_vices import TurnEnds, Vices
from tests.fakes.acp_wire import Json, Peer, internal
from tests.fakes.agent import rewritten, takes_ticket, ticket_in
from tests.fakes.steps import HOME, as_turn, setting, shell_words, switched_on, wanted

OPTIONS = (
    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "allow-always", "name": "Allow always", "kind": "allow_always"},
    {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
)
NOT_ALLOWED: Json = {"rejected": {"reason": "", "isReadonly": False}}
# Habits of the CLI's, or of its MCP client, that switches stand for here; and some for which there
# is no place: it counts no tokens, and it is given its images.
OF_THE_CLI = set("late-mcp late-list own-image session end-turn init times no-usage".split())


class Call:
    def __init__(self, server: str, name: str, args: Json) -> None:
        self.call_id = new_call_id()
        self.server, self.name, self.args = server, name, args
        self.task: asyncio.Task[Json] | None = None


def new_call_id() -> str:
    """There is a newline in it, as with the models of one vendor."""
    return f"call-{uuid.uuid4()}-0\nfc_{uuid.uuid4().hex}_0"


class Turn(Vices):
    def __init__(self, session: Session, text: str, peer: Peer, *, is_forced: bool) -> None:
        self.session, self.peer, self.is_forced = session, peer, is_forced
        self.text = text
        # Whose words its own are said to be.
        self.shown_id = session.session_id
        self.prompt = f"{session.transcript}{as_turn(text)}" if session.history else text
        self.answer: list[str] = []
        # The same, in the pieces between which it did something else.
        self.messages: list[str] = []
        self.thoughts: list[str] = []
        self.results: list[str] = []
        self.usage, self.times = True, 1
        self.waits, self.is_deaf = True, False
        # What it says only after it has ended.
        self.afterthoughts: list[str] = []
        self.answers_twice = False
        self._speaks = False
        self._calls: list[Call] = []
        self._cancelled = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def cwd(self) -> Path:
        return self.session.cwd

    # Its life

    async def go(self) -> str:
        """The reason why it stopped. Raises RpcError."""
        self.model_step()
        work = asyncio.ensure_future(self._work())
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({work, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return self._stopped()
            with contextlib.suppress(TurnEnds):
                work.result()
            return "end_turn"
        finally:
            for task in (work, cancelled, *(call.task for call in self._calls if call.task)):
                task.cancel()

    def _stopped(self) -> str:
        """A cancelled turn stops at once; the switch `cancel` knows other manners."""
        if switched_on("cancel-tells-servers"):
            for server in self.session.servers.values():
                soon(server.client.give_up)
        manner = setting("cancel")
        if manner == "as-error":
            raise internal("Error: Aborted")
        if manner == "late":
            self.afterthoughts.append("And another thing.")
        return "end_turn" if manner == "as-end" else "cancelled"

    def cancel(self) -> None:
        if not self.is_deaf and setting("cancel") != "ignored":
            self._cancelled.set()

    async def _work(self) -> None:
        for name, argument in wanted(self.prompt) if self.text else ():
            if name not in OF_THE_CLI:
                step = getattr(self, "do_" + name.replace("-", "_"))
                await step(argument)
                # A burst of words leaves room for a cancellation.
                await asyncio.sleep(0)

    def model_step(self) -> None:
        """The model is asked: a test counts how often."""
        with (HOME / "model-steps").open("a") as steps:
            steps.write(f"{self.session.session_id}\n")

    # What it tells

    def update(self, what: str, **fields: Any) -> None:
        params = {"sessionId": self.shown_id, "update": {"sessionUpdate": what, **fields}}
        self.peer.notify("session/update", params)

    def _begin(self) -> None:
        if not self.session.title:
            self.session.title = " ".join(self.text.split()[:4])[:40] or "New session"
            self.update("session_info_update", title=self.session.title)

    async def do_text(self, text: str) -> None:
        self._begin()
        self.keep(text)
        self.update("agent_message_chunk", content={"type": "text", "text": text})
        await asyncio.sleep(0)

    def keep(self, text: str) -> None:
        """It is said."""
        self.answer.append(text)
        if self._speaks:
            self.messages[-1] += text
        else:
            self.messages.append(text)
        self._speaks = True

    async def do_think(self, text: str) -> None:
        self._begin()
        self.thoughts.append(text)
        self._speaks = False
        self.update("agent_thought_chunk", content={"type": "text", "text": text})

    async def do_say_result(self, _: str) -> None:
        await self.do_text(self.results[-1])

    async def do_say_results(self, _: str) -> None:
        await self.do_text(" ".join(self.results))

    async def do_say_tools(self, _: str) -> None:
        servers = self.session.servers.values()
        names = [tool["name"] for server in servers for tool in server.client.tools]
        await self.do_text(",".join(names))

    def announce(self, call_id: str, title: str, kind: str, raw: Json) -> None:
        self._begin()
        self._speaks = False
        about = {"title": title, "kind": kind, "status": "pending", "rawInput": raw}
        self.update("tool_call", toolCallId=call_id, **about)

    def progress(self, call_id: str) -> None:
        self.update("tool_call_update", toolCallId=call_id, status="in_progress")

    def complete(self, call_id: str, **fields: Any) -> None:
        """Refused calls and those that failed are completed as well; the refused without output."""
        self.update("tool_call_update", toolCallId=call_id, status="completed", **fields)

    async def permitted(self, call_id: str, title: str, kind: str, words: str) -> bool:
        """Whether the client lets it happen; until it answers nothing does."""
        content = [{"type": "content", "content": {"type": "text", "text": words}}]
        about = {"toolCallId": call_id, "title": title, "kind": kind, "status": "pending"}
        call = about | {"content": content}
        params = {"sessionId": self.shown_id, "toolCall": call, "options": OPTIONS}
        answer = await self.peer.ask("session/request_permission", params)
        outcome = answer.get("result", {}).get("outcome", {})
        if outcome.get("optionId") == "allow-always":
            remember_for_ever(title)
        return outcome.get("optionId") in ("allow-once", "allow-always")

    # Calls of the client's tools

    def _announced(self, argument: str) -> Call:
        name, _, arguments = argument.partition(" ")
        return Call(self._server_of(name), name, json.loads(arguments or "{}"))

    def _server_of(self, tool: str) -> str:
        servers = self.session.servers
        offering = [
            name
            for name, server in servers.items()
            if tool in {each["name"] for each in server.client.tools}
        ]
        return next(iter([*offering, *servers]), "client")

    async def do_announce(self, argument: str) -> None:
        """A call that the model makes together with the next `relay`."""
        call = self._announced(argument)
        self._calls.append(call)
        self.announce(call.call_id, f"MCP: {call.name}", "other", {})

    async def do_begin(self, argument: str) -> None:
        """The same, but the call is on its way before the next one is announced."""
        await self.do_announce(argument)
        self._start(self._calls[-1])

    def _start(self, call: Call) -> asyncio.Task[Json]:
        if call.task is None:
            call.task = asyncio.ensure_future(self._made(call))
        return call.task

    async def do_relay(self, argument: str) -> None:
        """A call of the client's tool: `[[relay:bash {"command": "ls"}]]`. The client is asked for
        permission first; its arguments are there and in the call, and in no update."""
        await self.do_announce(argument)
        for call in self._calls:
            if switched_on("permissions-one-by-one"):
                await self._start(call)
            self._start(call)
        for call in self._calls:
            self.results.append(said(await self._start(call)))
        self._calls.clear()
        self.model_step()

    async def _made(self, call: Call) -> Json:
        """What came of it, up to its completion."""
        self.progress(call.call_id)
        if not await self._permits(call):
            self.complete(call.call_id)
            return NOT_ALLOWED
        result = await self._called(call)
        failed = result.get("error")
        output = {"error": failed["error"]} if failed else {"success": True}
        self.complete(call.call_id, rawOutput=output)
        return result

    async def _permits(self, call: Call) -> bool:
        if switched_on("asks-nothing"):
            return True
        words = f"```json\n{json.dumps(call.args, ensure_ascii=False)}\n```"
        title = f"{call.server}-{call.name}: {call.name}"
        return await self.permitted(call.call_id, title, "other", words)

    async def _called(self, call: Call) -> Json:
        server = self.session.servers.get(call.server)
        if server is None:
            return {"error": {"error": f"MCP server {call.server} does not exist"}}
        await server.listed()
        if call.name not in {tool["name"] for tool in server.client.tools}:
            return {"error": {"error": f"MCP error -32601: Tool {call.name} not found"}}
        note_call()
        try:
            result = await self._sent(call, call.name, rewritten(call.args))
            while self.waits and (ticket := ticket_in(result)):
                tool = next(each for each in server.client.tools if takes_ticket(each))
                with (HOME / "waits").open("a") as waits:
                    waits.write(".")
                result = await self._sent(call, tool["name"], {"ticket": ticket})
        except TimeoutError:
            return {"error": {"error": "MCP error -32001: Request timed out"}}
        except OSError as error:
            return {"error": {"error": f"MCP error -32000: Connection closed: {error}"}}
        return result

    async def _sent(self, call: Call, tool: str, args: Json) -> Json:
        server = self.session.servers[call.server]
        async with server.in_flight:
            return await in_thread(lambda: server.client.call(tool, args))

    async def do_shell_relay(self, argument: str) -> None:
        """`[[shell-relay:bash command ls]]`, for clients that put backslashes before quotes."""
        await self.do_relay(shell_words(argument))

    async def do_shell_announce(self, argument: str) -> None:
        await self.do_announce(shell_words(argument))

    async def do_relay_unannounced(self, argument: str) -> None:
        """An announcement without arguments, which is what it is here anyway."""
        await self.do_relay(argument)

    async def do_relay_silently(self, argument: str) -> None:
        """A call that no update tells of, and for which nobody is asked; it only arrives."""
        self.results.append(said(await self._called(self._announced(argument))))
        self.model_step()

    async def do_relay_twice(self, argument: str) -> None:
        """The same call arrives twice, as after a connection that broke; one result is read."""
        call = self._announced(argument)
        self.announce(call.call_id, f"MCP: {call.name}", "other", {})
        if await self._permits(call):
            await self._called(call)
            self.results.append(said(await self._called(call)))
        self.complete(call.call_id, rawOutput={"success": True})
        self.model_step()

    async def do_relay_refused(self, argument: str) -> None:
        """A call that is announced, and that something other than the client refuses."""
        await self.do_announce(argument)
        self.complete(self._calls.pop().call_id)
        self.results.append(json.dumps(NOT_ALLOWED))

    async def do_own_server(self, argument: str) -> None:
        """A call of a tool of a server of the user's own: `[[own-server:notes find {}]]`."""
        server, name, arguments = argument.split(" ", 2)
        call = Call(server, name, json.loads(arguments))
        self.announce(call.call_id, f"MCP: {name}", "other", {})
        self.results.append(said(await self._made(call)))

    async def do_patience(self, seconds: str) -> None:
        """How long its calls wait, instead of 60 seconds."""
        for server in self.session.servers.values():
            server.client.patience = float(seconds)

    async def do_impatient(self, _: str) -> None:
        """A model that does not wait for a ticket."""
        self.waits = False

    async def do_list(self, _: str) -> None:
        for server in self.session.servers.values():
            await in_thread(server.client.list_tools)

    def entry(self) -> Json:
        """What the session remembers of it."""
        return {"user": self.text, "thought": "".join(self.thoughts), "messages": self.messages}


def said(result: Json) -> str:
    content = result.get("success", {}).get("content", [])
    return "".join(block["text"]["text"] for block in content) or json.dumps(result)


def remember_for_ever(title: str) -> None:
    """`allow-always` changes the settings of the user, for every program and every project."""
    file = Path("~/.cursor/cli-config.json").expanduser()
    file.parent.mkdir(exist_ok=True)
    config: Json = {}
    with contextlib.suppress(FileNotFoundError):
        config = json.loads(file.read_text())
    word = title.strip("`").partition(" ")[0]
    config.setdefault("permissions", {}).setdefault("allow", []).append(f"Shell({word})")
    file.write_text(json.dumps(config))
