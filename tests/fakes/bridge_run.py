"""One run of the fake bridge: what its model says and calls, step by step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from tests.fakes.bridge_agents import Agent
from tests.fakes.bridge_stream import Stream
from tests.fakes.bridge_vices import Vices
from tests.fakes.connect import Failure
from tests.fakes.steps import HOME, as_turn, setting, shell_words, switched_on, wanted

Json = dict[str, Any]
# Makes a call of a custom tool of the host's: agent, tool, arguments, id.
CallBack = Callable[[str, str, Json, str | None], Awaitable[Json]]
SERVER = "custom-user-tools"
NO_EXCHANGE = "[unknown] The API key exchange cannot be reached"
# Habits of the CLI's, for which there is no place here: its MCP client, its images, its stdout.
OF_THE_CLI = set(
    "late-mcp late-list list patience impatient own-image session end-turn retry query init "
    "close-stdout".split()
)


class RunFailed(Exception):
    """The run ends with an error, and its stream as if all were well."""

    def __init__(self, words: str, code: str = "", *, says_it: bool = True) -> None:
        super().__init__(words)
        self.words, self.code, self.says_it = words, code, says_it


class Call:
    def __init__(self, name: str, args: Json) -> None:
        self.call_id, self.name, self.args = f"toolu_{uuid.uuid4().hex[:20]}", name, args
        self.task: asyncio.Task[Json] | None = None

    def shown(self, result: Json | None = None) -> Json:
        args = {"providerIdentifier": SERVER, "toolName": self.name, "args": self.args}
        call: Json = {"type": "mcp", "args": args}
        return call if result is None else call | {"result": result}


class Run(Vices):
    def __init__(self, agent: Agent, text: str, stream: Stream, call_back: CallBack) -> None:
        self.run_id = agent.first_run or f"run-{uuid.uuid4()}"
        self.agent, self.stream = agent, stream
        self.recalled = agent.transcript
        # What the model reads: all of its conversation.
        self.prompt = f"{self.recalled}{as_turn(text)}" if self.recalled else text
        self._call_back = call_back
        self._created = datetime.now(UTC)
        self._began = time.monotonic()
        self._calls: list[Call] = []
        self._model_calls = 0
        self._cancelled = asyncio.Event()
        self.ended = asyncio.Event()
        self.result: Json = {}
        self.answer: list[str] = []
        self.thoughts: list[str] = []
        self.results: list[str] = []
        self.usage, self.times, self.is_deaf = True, 1, False
        self.has_result, self.has_done = True, True

    @property
    def _ids(self) -> Json:
        return {"agent_id": self.agent.agent_id, "run_id": self.run_id}

    def cancel(self) -> None:
        if not self.is_deaf:
            self._cancelled.set()

    async def go(self) -> None:
        """Until it has ended, one way or another; nothing but its stream tells how."""
        self._status("RUNNING")
        self.model_step()
        work = asyncio.ensure_future(self._work())
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        await asyncio.wait({work, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        cancelled.cancel()
        if work.done():
            self._end_with(work.exception())
        else:
            work.cancel()
            await asyncio.wait({work})
            self._finish("CANCELLED")
        self.ended.set()
        self.stream.close()

    def _end_with(self, error: BaseException | None) -> None:
        if error is None:
            self._finish("FINISHED")
        elif isinstance(error, Failure):
            self._finish("ERROR", RunFailed(error.words))
            self.stream.fail(error)
        elif isinstance(error, RunFailed):
            self._finish("ERROR", error)
        else:
            self._finish("ERROR", RunFailed(f"The fake bridge failed: {error!r}"))

    async def _work(self) -> None:
        if not self.agent.key or switched_on("offline"):
            await asyncio.sleep(float(setting("offline-takes", "0")))
            raise RunFailed(NO_EXCHANGE)
        for name, argument in wanted(self.prompt):
            if name not in OF_THE_CLI:
                step = getattr(self, "do_" + name.replace("-", "_"))
                await step(argument)

    # What its stream tells

    def _status(self, status: str, words: str = "") -> None:
        said = {"message": words} if words else {}
        self.stream.message("status", **self._ids, status=status, **said)

    def _finish(self, status: str, error: RunFailed | None = None) -> None:
        if status == "FINISHED" and self.usage:
            self.stream.update("turn-ended", usage=self._counted())
            self.stream.message("usage", **self._ids, usage=self._counted(total=True))
        self._status(status, error.words if error and error.says_it else "")
        self.result = self._result(status, error)
        ids = {"agentId": self.agent.agent_id, "runId": self.run_id}
        outer = ids | {"status": self.result["status"], "result": self.result}
        if error and error.code:
            outer["errorCode"] = error.code
        if self.has_result:
            self.stream.envelope("result", outer)
        if self.has_done:
            self.stream.envelope("done", ids)

    def _result(self, status: str, error: RunFailed | None) -> Json:
        result: Json = {"runId": self.run_id, "agentId": self.agent.agent_id}
        result["status"] = f"RUN_LIFECYCLE_STATUS_{status}"
        if self.answer:
            result["result"] = "".join(self.answer)
        result["model"] = self.agent.model
        result["durationMs"] = str(int((time.monotonic() - self._began) * 1000))
        result["createdAt"] = self._created.isoformat(timespec="milliseconds")[:-6] + "Z"
        if self.usage and status == "FINISHED":
            # 64-bit numbers are strings in proto3's JSON.
            counted = self._counted(total=True)
            result["usage"] = {name: str(count) for name, count in counted.items() if count}
        if error:
            result |= {"errorCode": error.code} if error.code else {}
            result["errorMessage"] = error.words
        return result

    def _counted(self, *, total: bool = False) -> Json:
        answer, thought = "".join(self.answer), "".join(self.thoughts)
        reasoning = len(thought) // 4 + 1 if thought else 0
        read = len(self.prompt) * self.times - len(self.recalled)
        usage = {
            "inputTokens": read // 4 + 1,
            "outputTokens": len(answer) // 4 + 1 + reasoning,
            "cacheReadTokens": len(self.recalled) // 4,
            "cacheWriteTokens": 0,
        }
        if total:
            usage["totalTokens"] = usage["inputTokens"] + usage["outputTokens"]
        return usage | ({"reasoningTokens": reasoning} if reasoning else {})

    def model_step(self) -> None:
        """The model is asked: a test counts how often."""
        self._model_calls += 1
        with (HOME / "model-steps").open("a") as steps:
            steps.write(f"{self.agent.agent_id}\n")

    # Words

    async def do_text(self, text: str) -> None:
        self.answer.append(text)
        self.stream.update("text-delta", text=text)
        content = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        self.stream.message("assistant", **self._ids, message=content)
        await asyncio.sleep(0)

    async def do_think(self, text: str) -> None:
        self.thoughts.append(text)
        self.stream.update("thinking-delta", text=text)
        self.stream.message("thinking", **self._ids, text=text)
        self.stream.update("thinking-completed", thinkingDurationMs=10)
        self.stream.message("thinking", **self._ids, text="", thinking_duration_ms=10)

    async def do_say_result(self, _: str) -> None:
        await self.do_text(self.results[-1])

    async def do_say_results(self, _: str) -> None:
        await self.do_text(" ".join(self.results))

    async def do_say_tools(self, _: str) -> None:
        await self.do_text(",".join(self.agent.tools))

    # Calls of the client's tools

    def _announced(self, argument: str) -> Call:
        name, _, arguments = argument.partition(" ")
        return Call(name, json.loads(arguments or "{}"))

    def _tell(self, what: str, call_id: str, call: Json) -> None:
        """An update, and the message that repeats it."""
        ids = {"callId": call_id, "modelCallId": f"{self.run_id}-{self._model_calls}"}
        self.stream.update(f"tool-call-{what}", **ids, toolCall=call)
        status = "running" if what == "started" else "completed"
        told = {key: call[key] for key in ("args", "result") if key in call}
        about = {"call_id": call_id, "name": call["type"], "status": status}
        self.stream.message("tool_call", **self._ids, **about, **told)

    async def do_announce(self, argument: str) -> None:
        """A call that the model makes together with the next `relay`."""
        call = self._announced(argument)
        self._calls.append(call)
        self._tell("started", call.call_id, call.shown())

    async def do_begin(self, argument: str) -> None:
        """The same, but the call is on its way before the next one is announced."""
        await self.do_announce(argument)
        self._begin(self._calls[-1])

    def _begin(self, call: Call) -> asyncio.Task[Json]:
        if call.task is None:
            # Not a part of the run: the bridge was not seen to take back what it has asked.
            call.task = asyncio.ensure_future(self._made(call.name, call.args, call.call_id))
        return call.task

    async def _made(self, name: str, args: Json, call_id: str | None) -> Json:
        with (HOME / "mcp-calls").open("a") as calls:
            calls.write(".")
        if name not in self.agent.tools:
            return {"status": "error", "error": {"message": f"Tool {name} not found"}}
        try:
            answer = await self._call_back(self.agent.agent_id, name, args, call_id)
        except (Failure, OSError, ValueError, EOFError) as error:
            return {"status": "error", "error": {"message": str(error)}}
        return result_of(answer)

    async def do_relay(self, argument: str) -> None:
        """A call of the client's tool, back to the host: `[[relay:bash {"command": "ls"}]]`."""
        await self.do_announce(argument)
        calls, self._calls = self._calls, []
        tasks = [self._begin(call) for call in calls]
        for call, task in zip(calls, tasks, strict=True):
            result = await asyncio.shield(task)
            self._tell("completed", call.call_id, call.shown(result))
            self.results.append(said(result))
        self.model_step()

    async def do_shell_relay(self, argument: str) -> None:
        """`[[shell-relay:bash command ls]]`, for clients that put backslashes before quotes."""
        await self.do_relay(shell_words(argument))

    async def do_shell_announce(self, argument: str) -> None:
        await self.do_announce(shell_words(argument))

    async def do_relay_silently(self, argument: str) -> None:
        """A call that no update tells of; it only arrives."""
        call = self._announced(argument)
        self.results.append(said(await asyncio.shield(self._begin(call))))
        self.model_step()

    async def do_relay_unannounced(self, argument: str) -> None:
        """The announcement leaves the arguments out."""
        call = self._announced(argument)
        self._tell("started", call.call_id, Call(call.name, {}).shown())
        result = await asyncio.shield(self._begin(call))
        self._tell("completed", call.call_id, call.shown(result))
        self.results.append(said(result))
        self.model_step()

    async def do_relay_refused(self, argument: str) -> None:
        """A call that is announced, and never made."""
        await self.do_announce(argument)
        call = self._calls.pop()
        result = {"status": "error", "error": {"message": "rejected"}}
        self._tell("completed", call.call_id, call.shown(result))
        self.results.append(said(result))

    async def do_relay_twice(self, argument: str) -> None:
        """The same call arrives twice, as after a connection that broke; one result is read."""
        call = self._announced(argument)
        self._tell("started", call.call_id, call.shown())
        again = asyncio.ensure_future(self._made(call.name, call.args, call.call_id))
        result = await asyncio.shield(self._begin(call))
        with contextlib.suppress(Failure):
            await again
        self._tell("completed", call.call_id, call.shown(result))
        self.results.append(said(result))
        self.model_step()

    async def do_relay_without_id(self, argument: str) -> None:
        """The id of the call is optional."""
        call = self._announced(argument)
        self._tell("started", call.call_id, call.shown())
        result = await self._made(call.name, call.args, None)
        self._tell("completed", call.call_id, call.shown(result))
        self.results.append(said(result))
        self.model_step()

    # Calls of its own tools

    async def do_native(self, argument: str) -> None:
        """One of the agent's own tools is announced: `[[native:shell {"command": "ls"}]]`."""
        name, _, arguments = argument.partition(" ")
        args = json.loads(os.path.expandvars(arguments or "{}"))
        self._tell("started", f"call-{uuid.uuid4()}", {"type": name, "args": args})

    async def do_rejected(self, argument: str) -> None:
        """One of the agent's own tools, which it may not use."""
        name, _, arguments = argument.partition(" ")
        call: Json = {"type": name, "args": json.loads(os.path.expandvars(arguments or "{}"))}
        call_id = f"call-{uuid.uuid4()}"
        self._tell("started", call_id, call)
        refused = {"status": "error", "error": {"message": "The tool is not available"}}
        self._tell("completed", call_id, call | {"result": refused})
        self.results.append(said(refused))

    async def do_own(self, argument: str) -> None:
        """One of the agent's own tools, announced and completed."""
        name, _, arguments = argument.partition(" ")
        call: Json = {"type": name, "args": json.loads(arguments or "{}")}
        call_id = f"call-{uuid.uuid4()}"
        self._tell("started", call_id, call)
        success = {"status": "success", "value": {"content": "same"}}
        self._tell("completed", call_id, call | {"result": success})
        self.model_step()


def result_of(answer: Json) -> Json:
    """What the model is told of the host's answer."""
    found = answer.get("result")
    if not isinstance(found, dict):
        return {"status": "error", "error": {"message": "Host custom tool returned no result"}}
    content = [shown(block) for block in found.get("content", [])]
    value = {"content": content, "isError": bool(found.get("isError", False))}
    return {"status": "success", "value": value}


def shown(block: Json) -> Json:
    if block.get("type") == "image":
        return {"image": {"data": block.get("data", ""), "mimeType": block.get("mimeType", "")}}
    return {"text": {"text": str(block.get("text", ""))}}


def said(result: Json) -> str:
    content = result.get("value", {}).get("content", [])
    text = "".join(block.get("text", {}).get("text", "") for block in content)
    return text or json.dumps(result)
