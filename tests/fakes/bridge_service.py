"""The RPCs of the fake bridge, by their names."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.fakes import bridge_models
from tests.fakes.bridge_agents import Agent, Store
from tests.fakes.bridge_run import Run
from tests.fakes.bridge_stream import Stream
from tests.fakes.connect import Failure, Reply, Request, call
from tests.fakes.steps import HOME, account, as_turn, note, setting, switched_on, take_one

Json = dict[str, Any]
CALL_BACK = "sdk.v1.SdkCustomToolCallbackService/CallCustomTool"
CAPABILITIES = (
    "agent.create agent.resume agent.send run.observe run.wait run.cancel agent.management "
    "cursor.catalog artifacts.chunked agent.usage"
).split()
# Some of those that it can have.
OWN_TOOLS = set("shell read edit grep glob ls task mcp webSearch webFetch delete".split())
NO_MODEL = "Whoever works here needs a `model`, of its agent or of this message"
NO_HOST = "There is no tool callback server for custom tools: --tool-callback-url names none"


class Service:
    def __init__(self, options: dict[str, str], shut_down: Callable[[float], None]) -> None:
        self._host = {
            "url": options.get("--tool-callback-url", ""),
            "authToken": options.get("--tool-callback-auth-token", ""),
        }
        self._workspace = Path(options.get("--workspace", ".")).resolve()
        hashed = hashlib.sha256(str(self._workspace).encode()).hexdigest()[:24]
        usual = Path.home() / ".cursor" / "sdk-agent-store" / hashed
        self.state_root = options.get("--state-root", str(usual))
        store = json.loads(options.get("--local-store", "{}"))
        self._store = Store(store.get("rootDir", "") if store.get("type") == "jsonl" else "")
        self._shut_down = shut_down
        self._agents: dict[str, Agent] = {}
        self._runs: dict[str, Run] = {}
        # What a task that nobody waits for is held by.
        self._going: set[asyncio.Task[None]] = set()
        self._unary: dict[str, Callable[[Json], Awaitable[Json]]] = {
            "SdkBridgeControlService/Ping": self.ping,
            "SdkBridgeControlService/GetVersion": self.get_version,
            "SdkBridgeControlService/Shutdown": self.shutdown,
            "SdkBridgeControlService/SetToolCallback": self.set_tool_callback,
            "SdkCursorService/Me": self.me,
            "SdkCursorService/ListModels": self.list_models,
            "SdkAgentService/CreateAgent": self.create_agent,
            "SdkAgentService/ResumeAgent": self.resume_agent,
            "SdkAgentService/CloseAgent": self.close_agent,
            "SdkAgentService/DeleteAgent": self.delete_agent,
            "SdkAgentService/CancelRun": self.cancel_run,
            "SdkAgentService/WaitLiveRun": self.wait_live_run,
        }
        self._streams: dict[str, Callable[[Json], Awaitable[Stream]]] = {
            "SdkAgentService/Send": self.send,
            "SdkAgentService/ObserveRun": self.observe_run,
        }

    async def answer(self, request: Request, reply: Reply) -> None:
        name = f"{request.service}/{request.method}"
        if name in self._unary:
            message = noted(request)
            reply.whole(200, await self._unary[name](message))
        elif name in self._streams:
            stream = await self._streams[name](noted(request))
            reply.begin()
            await stream.send_to(reply)
        else:
            reply.whole(404, None)

    # The bridge

    async def ping(self, _: Json) -> Json:
        return {"message": "pong"}

    async def get_version(self, _: Json) -> Json:
        version = setting("server-version", "1.0.0")
        about = {"bridgeVersion": version, "protocolVersion": "sdk.v1"}
        return {**about, "capabilities": CAPABILITIES}

    async def shutdown(self, message: Json) -> Json:
        self._shut_down(float(message.get("graceSeconds", 0)))
        return {}

    async def set_tool_callback(self, message: Json) -> Json:
        url, token = message.get("url", "").strip(), message.get("authToken", "").strip()
        if url and not token:
            words = "This callback has no token"
            raise Failure("invalid_argument", words)
        self._host = {"url": url, "authToken": token}
        return {}

    # The account

    async def me(self, message: Json) -> Json:
        ask_backend(catalogue_key(message))
        user = {"apiKeyName": "dev", "userId": "7", "userEmail": account()}
        return {"user": user | {"createdAt": "2026-01-01T00:00:00.000Z"}}

    async def list_models(self, message: Json) -> Json:
        ask_backend(catalogue_key(message))
        return {"items": bridge_models.listed()}

    # Agents

    async def create_agent(self, message: Json) -> Json:
        options = message.get("options", {})
        self._check_tools(options)
        if unknown := set(options.get("tools", {}).get("names", [])) - OWN_TOOLS:
            raise Failure("invalid_argument", f"Unknown tools: {', '.join(sorted(unknown))}", "")
        agent_id = options.get("agentId") or f"agent-{uuid.uuid4()}"
        agent = Agent(agent_id, options, self._cwd_of(options))
        if agent.key:
            ask_backend(agent.key)
            check_model(agent)
        if self._store.read(agent_id, options, agent.cwd):
            raise Failure("internal", f"Agent {agent_id} already exists", "")
        agent.active_run = agent.first_run = f"run-{uuid.uuid4()}"
        self._store.write(agent)
        return self._known(agent)

    async def resume_agent(self, message: Json) -> Json:
        agent_id, options = message.get("agentId", ""), message.get("options", {})
        self._check_tools(options)
        agent = self._store.read(agent_id, options, self._cwd_of(options))
        if agent is None or take_one("no-resume"):
            raise Failure("not_found", f"Agent {agent_id} not found", "AGENT_NOT_FOUND")
        return self._known(agent)

    def _known(self, agent: Agent) -> Json:
        self._agents[agent.agent_id] = agent
        chosen = {"model": agent.model} if agent.model else {}
        return {"agentId": agent.agent_id, **chosen}

    def _check_tools(self, options: Json) -> None:
        if options.get("local", {}).get("customTools") and not self._host["url"]:
            raise Failure("failed_precondition", NO_HOST)

    def _cwd_of(self, options: Json) -> Path:
        cwd = options.get("local", {}).get("cwd") or [str(self._workspace)]
        return Path(cwd[0])

    async def close_agent(self, message: Json) -> Json:
        """A run that is on goes on, and nobody can cancel it any more."""
        agent = self._agent(message)
        del self._agents[agent.agent_id]
        self._runs = {key: run for key, run in self._runs.items() if run.agent is not agent}
        return {}

    async def delete_agent(self, message: Json) -> Json:
        agent_id = message.get("agentId", "")
        cwd = Path(message.get("options", {}).get("cwd") or self._workspace)
        agent = self._store.read(agent_id, {}, cwd)
        if agent is None:
            raise Failure("internal", f"Agent {agent_id} not found", "")
        if agent.active_run:
            words = f"The active run {agent.active_run} of {agent_id} is not terminal"
            raise Failure("internal", words, "")
        self._store.delete(agent_id, cwd)
        return {}

    def _agent(self, message: Json) -> Agent:
        agent_id = message.get("agentId", "")
        if agent_id not in self._agents:
            raise Failure("not_found", f"Unknown agent: {agent_id}")
        return self._agents[agent_id]

    # Runs

    async def send(self, message: Json) -> Stream:
        agent, options = self._agent(message), message.get("options", {})
        images = message.get("message", {}).get("images", [])
        if any("url" in image for image in images):
            words = "Links to images are for agents in the cloud"
            raise Failure("invalid_argument", words)
        if options.get("model"):
            agent.options["model"] = options["model"]
        self._check_ready(agent, is_forced=options.get("local", {}).get("force", False))
        text = message.get("message", {}).get("text", "")
        stream = Stream(deltas=options.get("enableDeltas", False))
        run = Run(agent, text, stream, self._call_back)
        note(about_send(run, text, images), agent.cwd)
        self._runs[run.run_id] = run
        task = asyncio.ensure_future(self._go(run))
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        return stream

    def _check_ready(self, agent: Agent, *, is_forced: bool) -> None:
        if not agent.model:
            raise Failure("invalid_argument", NO_MODEL, "")
        if self._store.read(agent.agent_id, {}, agent.cwd) is None:
            raise Failure("internal", f"Agent {agent.agent_id} not found", "")
        is_free = is_forced or agent.active_run == agent.first_run
        if is_free and not take_one("busy"):
            return
        words = f"Agent {agent.agent_id} already has active run"
        if switched_on("busy-typed"):
            raise Failure("failed_precondition", words, "AGENT_BUSY")
        raise Failure("internal", words, "")

    async def _go(self, run: Run) -> None:
        agent, at_work = run.agent, HOME / "at-work" / f"{os.getpid()}.{run.run_id}"
        agent.active_run, agent.first_run = run.run_id, ""
        self._store.write(agent)
        at_work.parent.mkdir(exist_ok=True)
        at_work.touch()
        await run.go()
        at_work.unlink(missing_ok=True)
        agent.active_run = ""
        if run.result["status"] != "RUN_LIFECYCLE_STATUS_ERROR":
            self._remember(run)
        self._store.write(agent)

    def _remember(self, run: Run) -> None:
        """What was said before it was cancelled is said, too."""
        said = f'\n\n<turn from="assistant">\n{"".join(run.answer)}\n</turn>\n\n'
        run.agent.transcript = f"{as_turn(run.prompt)}{said}"

    async def _call_back(self, agent_id: str, tool: str, args: Json, call_id: str | None) -> Json:
        body: Json = {"toolName": tool, "args": args, "agentId": agent_id}
        body |= {"toolCallId": call_id} if call_id else {}
        return await call(self._host["url"], CALL_BACK, self._host["authToken"], body)

    async def observe_run(self, message: Json) -> Stream:
        """Of a run that has ended: its result, for whoever has lost the stream."""
        run = self._run(message, "invalid_argument", "Run {} not found", "")
        await run.ended.wait()
        stream = Stream(deltas=False, after=int(message.get("afterOffset") or 0))
        ids = {"agentId": run.agent.agent_id, "runId": run.run_id}
        outer = ids | {"status": run.result["status"], "result": run.result}
        stream.envelope("result", outer)
        stream.envelope("done", ids)
        stream.close()
        return stream

    async def wait_live_run(self, message: Json) -> Json:
        run = self._run(message, "not_found", "Unknown run: {}")
        await run.ended.wait()
        return {"result": run.result}

    async def cancel_run(self, message: Json) -> Json:
        self._run(message, "invalid_argument", "Run {} not found", "").cancel()
        return {}

    def _run(self, message: Json, code: str, words: str, sdk: str | None = None) -> Run:
        run_id = message.get("runId", "")
        if run_id not in self._runs:
            raise Failure(code, words.format(run_id), sdk)
        return self._runs[run_id]


def noted(request: Request) -> Json:
    message = request.message
    with (HOME / "rpcs").open("a") as rpcs:
        rpcs.write(json.dumps({"method": request.method, "body": message}) + "\n")
    return message


def about_send(run: Run, text: str, images: list[Json]) -> Json:
    options = run.agent.options
    shown = [image.get("data", {}) for image in images]
    return {
        "argv": sys.argv[1:],
        "prompt": text,
        "agent": run.agent.agent_id,
        "run": run.run_id,
        "model": run.agent.model,
        "tools": options.get("tools", {}).get("names"),
        "custom_tools": options.get("local", {}).get("customTools", {}),
        "images": shown,
        "options": options,
    }


def catalogue_key(message: Json) -> str:
    """It does not look into its environment for this one."""
    key = str(message.get("options", {}).get("apiKey", ""))
    if not key:
        raise Failure("unauthenticated", "An API key is required here")
    return key


def ask_backend(key: str) -> None:
    if switched_on("offline"):
        raise Failure("internal", "Network request failed", "")
    if not account() or (switched_on("key") and setting("key") != key):
        raise Failure("unauthenticated", "Invalid API key", "UNAUTHORIZED")


def check_model(agent: Agent) -> None:
    known = {model["id"] for model in bridge_models.listed()}
    if agent.model and agent.model["id"] not in known:
        words = f"Cannot use this model: {agent.model['id']}"
        raise Failure("invalid_argument", words, "INVALID_MODEL")
