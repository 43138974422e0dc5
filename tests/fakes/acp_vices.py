"""Steps of an ACP turn beside words and calls: what is odd, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

from tests.fakes.acp_tools import OwnTools
from tests.fakes.acp_wire import Json, RpcError, internal, line_of
from tests.fakes.steps import take_one

if TYPE_CHECKING:
    from tests.fakes.acp_sessions import Session

# What an unanswered step of the transport writes on stderr.
RETRYING = "Error: T: [canceled] http/2 stream closed with error code CANCEL (0x8)\nRetrying in 1s"


class TurnEnds(Exception):
    """Before its steps have."""


class Vices(OwnTools):
    """A part of a `Turn`."""

    session: Session
    is_deaf: bool
    afterthoughts: list[str]
    answers_twice: bool

    def update(self, what: str, **fields: Any) -> None:
        raise NotImplementedError

    def keep(self, text: str) -> None:
        raise NotImplementedError

    # Failures, which are words like any other

    async def do_error_text(self, words: str) -> None:
        """The backend failed: `[[error-text:T: [resource_exhausted] Error]]`. The turn goes on to
        its end as if that were an answer."""
        said = f"Error: {os.path.expandvars(words).removeprefix('Error: ')}"
        await self.do_text(f"\n\n{said}" if self.answer else said)

    async def do_error_event(self, words: str) -> None:
        await self.do_error_text(words)
        raise TurnEnds

    async def do_flaky(self, words: str) -> None:
        """Fails with these words as often as the file `flaky` says, then goes on."""
        if take_one("flaky"):
            await self.do_error_event(words)

    async def do_fail_as_result(self, words: str) -> None:
        """The prompt is answered with an error."""
        raise internal(os.path.expandvars(words))

    async def do_failed_result(self, argument: str) -> None:
        """The same, behind so many blanks: `[[failed-result:1000000 words]]`."""
        size, _, words = argument.partition(" ")
        raise internal(" " * int(size) + words)

    async def do_rpc_error(self, argument: str) -> None:
        """The same, with its code: `[[rpc-error:-32000 Authentication required]]`. With data that
        are JSON they are those: `[[rpc-error:-32603 [{"code": "invalid_type"}]]]`."""
        code, _, words = argument.partition(" ")
        data: Any = {"message": words}
        if words.startswith(("{", "[")):
            data = json.loads(words)
        raise RpcError(int(code), "Internal error", data)

    async def do_retry(self, _: str) -> None:
        """The connection to the backend broke, and only stderr tells."""
        await self.do_stderr(RETRYING)

    async def do_deaf(self, _: str) -> None:
        """It obeys neither a cancellation nor a signal, nor the end of its stdin."""
        self.is_deaf = True
        self.peer.lingers = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def do_uncancelled(self, _: str) -> None:
        """This turn does not obey a cancellation; the process does what it should."""
        self.is_deaf = True

    # What no version says today, and what the agent asks for

    async def do_update(self, argument: str) -> None:
        """Any update: `[[update:{"sessionUpdate": "state_update", "state": "running"}]]`."""
        fields = json.loads(argument)
        self.update(fields.pop("sessionUpdate"), **fields)

    async def do_unknown(self, _: str) -> None:
        """Updates, notifications and requests that nobody knows."""
        self.update("hologram", depth=3)
        self.update("agent_message_chunk", content={"type": "hologram", "depth": 3})
        self.peer.notify("cursor/mood", {"sessionId": self.session.session_id, "mood": 1})
        self.peer.notify("session/update", {"sessionId": "nobody", "update": {}})
        await self.do_ask_client('cursor/hologram {"depth": 3}')

    async def do_ask_client(self, argument: str) -> None:
        """Any request: `[[ask-client:cursor/ask_question {}]]`; its answer is a result."""
        method, _, params = argument.partition(" ")
        about = {"sessionId": self.session.session_id} | json.loads(params or "{}")
        answer = await self.peer.ask(method, about)
        self.results.append(json.dumps(answer.get("error") or answer.get("result")))

    async def do_question(self, argument: str) -> None:
        """`[[question:Which one?|this|that]]`"""
        words, *answers = argument.split("|")
        options = [{"id": each, "label": each} for each in answers]
        question = {"id": "q1", "prompt": words, "options": options}
        asked = {"toolCallId": "ask-1", "title": words, "questions": [question]}
        await self.do_ask_client(f"cursor/ask_question {json.dumps(asked)}")

    async def do_plan(self, name: str) -> None:
        """A plan comes as an update, and as a request."""
        entry = {"content": name, "priority": "medium", "status": "pending"}
        self.update("plan", entries=[entry])
        todo = {"id": "1", "content": name, "status": "pending"}
        plan: Json = {"toolCallId": "plan-1", "name": name, "overview": name, "plan": name}
        plan |= {"todos": [todo], "isProject": False, "phases": []}
        await self.do_ask_client(f"cursor/create_plan {json.dumps(plan)}")

    async def do_subagent(self, description: str) -> None:
        """A subagent: a call, and a request that is documented as a notification."""
        await self.do_own("task {}")
        task = {"toolCallId": "task-1", "description": description, "prompt": description}
        await self.do_ask_client(f"cursor/task {json.dumps(task | {'model': 'default'})}")

    async def do_notify(self, subtype: str) -> None:
        """A notice, which is no words."""
        self.update("state_update", state="running", reason=subtype)

    # Words that do not come as they should

    async def do_words(self, text: str) -> None:
        """Word by word, as a model says it."""
        for word in re.findall(r"\s*\S+|\s+$", text):
            await self.do_text(word)

    async def do_late_text(self, text: str) -> None:
        """Words that come after the turn has ended."""
        self.afterthoughts.append(text)

    async def do_answers_twice(self, _: str) -> None:
        self.answers_twice = True

    async def do_bytewise(self, text: str) -> None:
        """The line that says `text`, one byte per write."""
        for byte in line_of(chunk(self.session.session_id, text)):
            self.peer.write(bytes([byte]))
        self.keep(text)

    async def do_noise(self, text: str) -> None:
        """A line on stdout that is no JSON."""
        self.peer.write(f"{text}\n".encode())

    async def do_array(self, _: str) -> None:
        """A line that is JSON, but no object."""
        self.peer.write(b"[1]\n")

    async def do_cut_line(self, text: str) -> None:
        """A line that lost its second half, and its text with it."""
        line = line_of(chunk(self.session.session_id, text))
        self.peer.write(line[: len(line) // 2] + b"\n")

    async def do_half_line(self, _: str) -> None:
        """It dies in the middle of a line."""
        self.peer.write(line_of(chunk(self.session.session_id, "so"))[:60])
        await self.do_exit("1")

    async def do_half_echo(self, _: str) -> None:
        """The same, with the prompt in it."""
        self.peer.write(line_of(chunk(self.session.session_id, self.prompt))[:-4])
        await self.do_exit("1")

    async def do_unended_result(self, _: str) -> None:
        """The first bytes of a response, and no end."""
        self.peer.write(b'{"jsonrpc":"2.0","id":')
        await self.do_hang("")

    async def do_close_stdout(self, _: str) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    async def do_linger(self, _: str) -> None:
        """It does not end when its stdin does."""
        self.peer.lingers = True

    async def do_deep(self, argument: str) -> None:
        """A call of its own whose output is nested: `[[deep:1000]]`."""
        depth = int(argument.partition(" ")[0])
        value = '{"a":' * depth + "1" + "}" * depth
        fields = '"sessionUpdate":"tool_call_update","toolCallId":"deep","status":"completed"'
        update = f'"update":{{{fields},"rawOutput":{value}}}'
        params = f'"params":{{"sessionId":"{self.session.session_id}",{update}}}'
        line = f'{{"jsonrpc":"2.0","method":"session/update",{params}}}\n'
        self.peer.write(line.encode())


def chunk(session_id: str, text: str) -> Json:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    params = {"sessionId": session_id, "update": update}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}
