"""A cursor-agent for the tests: a real process, steered by steps in the prompt.

It keeps the CLI's contract through the demo agent's `Emitter` and adds the vices of
docs/cursor-agent.md. A prompt is a small program of steps in double brackets, run in order:

    [[deaf]] [[text:Hello ]] [[text:world]] [[hang]]

`[[then]]` separates what it does when it is asked again, with results. Without steps it repeats the
prompt's last line. It uses the MCP server of its workspace as the CLI does (`[[relay:...]]`), keeps
its chats and transcripts where the CLI does (traces.py), runs tools of its own as far as the
permissions allow (`[[try:...]]`, permissions.py), and works only in a directory that is trusted.
It starts for each request, so what few steps need is imported there. Every start is recorded in
`calls/` of `$FAKE_AGENT_DIR`, and files there are its switches (`update` fixes what it does wrong):

    account        the signed-in address (none: signed out)
    key            the only API key that is valid
    models.txt     replaces the list of models
    version        its version
    habits.json    what the model does where there are no steps: patterns of prompts, and steps
    always         what it does whatever it is asked, as steps
    no-mcp         a CLI without MCP
    notes-questions   `status` and `models` are recorded, too (command.py)
    no-waiting     it leaves where there is no prompt
    status-takes   the seconds that `status` takes
    ignores-deny   it obeys nobody
    forgets        it takes up a chat without its history; `frozen`: and writes nothing down
    xdg            it keeps its files below `XDG_CONFIG_HOME`

    ignores-list-changed   it fetches the list of tools once
    new-model-call-ids     each call has a `model_call_id` of its own
    many-in-flight         it does not wait for a call before it makes the next
    rewrites.json          what a hook of the user's makes of the arguments of calls after they
                           were announced: patterns, and what is written instead
    boots-before-prompt    the seconds that it takes to boot before it reads its stdin,
    boots-after-prompt     or once that has ended; then `booted` names its process
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.fakes import VERSION, permissions, traces, trees
from tests.fakes.steps import (
    HOME,
    RECORDINGS,
    account,
    as_turn,
    note,
    shell_words,
    take_one,
    wanted,
)

if TYPE_CHECKING:
    from cursor_gateway.agents.demo import program as demo
    from tests.fakes.mcp import McpClient
else:
    # By its path, as the demo agent runs it: all that its package imports would triple the start.
    sys.path.append(str(Path(__file__).parents[2] / "cursor_gateway" / "agents" / "demo"))
    demo = importlib.import_module("program")

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NO_AUTH = (
    "Error: Authentication required. Please run 'agent login' first, "
    "or set CURSOR_API_KEY environment variable.\n"
)
MODELS_NO_AUTH = (
    "Error: Authentication required. Run 'agent login', pass --api-key/--auth-token, "
    "or set CURSOR_API_KEY/CURSOR_AUTH_TOKEN.\n"
)
CONFIG_RACE = (
    "Error: ENOENT: no such file or directory, rename "
    "'/home/dev/.cursor/cli-config.json.tmp' -> '/home/dev/.cursor/cli-config.json'\n"
)
# What makes it work in a directory that nobody has trusted yet.
TRUSTING = {"--trust", "--force", "-f", "--yolo"}


def record(argv: Sequence[str], prompt: str | None) -> None:
    """Leave a note of this start."""
    note({"argv": list(argv), "prompt": prompt}, Path.cwd())


def fail(words: str) -> int:
    sys.stderr.write(words)
    return 1


def main(argv: Sequence[str]) -> int:
    try:
        options, words = demo.parse_arguments(argv)
    except demo.UsageError as error:
        return fail(f"{error}\n")
    with demo.utf8_stdout() as out:
        if options.keys() & {"-v", "--version"}:
            file = HOME / "version"
            out.write(f"{file.read_text() if file.exists() else VERSION}\n")
            return 0
        if words[:1] == ["status"]:
            return status(argv, options, out)
        if words[:1] == ["acp"]:
            from tests.fakes import acp

            return acp.main(argv, options)
        if words[:1] == ["models"] or "--list-models" in options:
            return models(argv, out)
        if words[:1] == ["login"]:
            (HOME / "account").write_text("dev@example.com")
            out.write("Signed in.\n")
            return 0
        if words[:1] == ["update"]:
            for vice in ("version", "no-mcp", "ignores-deny", "forgets"):
                (HOME / vice).unlink(missing_ok=True)
            return 0
        if (HOME / "no-waiting").exists() and not select.select([0], [], [], 0.2)[0]:
            return fail("Error: no prompt\n")
        prompt = " ".join(words)
        if prompt:
            record(argv, prompt)
        return Run(options, prompt or booted_prompt(), out).go()


def process_age() -> float:
    """Seconds since this process was started; starting Python is a part of every boot."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def boot(switch: str, already: float) -> None:
    """The real CLI was seen to take 6 to 8 seconds; nobody knows on which side of its stdin."""
    file = HOME / switch
    if file.exists():
        time.sleep(max(0.0, float(file.read_text()) - already))
        with (HOME / "booted").open("a") as booted:
            booted.write(f"{os.getpid()}\n")


def booted_prompt() -> str:
    boot("boots-before-prompt", process_age())
    began = time.monotonic()
    prompt = demo.read_prompt()
    had_to_wait = time.monotonic() - began > 0.02
    record(sys.argv[1:], prompt)
    boot("boots-after-prompt", 0.0 if had_to_wait else process_age())
    return prompt


def status(argv: Sequence[str], options: dict[str, str], out: IO[str]) -> int:
    record(argv, None)
    if (HOME / "status-hangs").exists():
        signal.pause()
    if (HOME / "status-takes").exists():
        time.sleep(float((HOME / "status-takes").read_text()))
    if (HOME / "old").exists() and "--format" in options:
        return fail("error: unknown option '--format'\n")
    demo.write_status(out, account(), options.get("--format", "text"))
    return 0  # signed in or not


def models(argv: Sequence[str], out: IO[str]) -> int:
    record(argv, None)
    if (HOME / "acp-processes").exists():
        from tests.fakes import acp

        acp.disturb()
    if not account() and not os.environ.get("CURSOR_API_KEY"):
        return fail(MODELS_NO_AUTH)
    key = HOME / "key"
    if key.exists() and os.environ.get("CURSOR_API_KEY", key.read_text()) != key.read_text():
        return fail((RECORDINGS / "fail_invalid_key.stderr").read_text())
    if (HOME / "offline").exists() or os.environ.get("CURSOR_API_ENDPOINT"):
        return fail("Failed to load models: getaddrinfo ENOTFOUND api2.cursor.sh\n")
    listing = (HOME / "models.txt").read_text()
    if take_one("truncate-models"):
        listing = listing[: len(listing) // 2]
    out.write(listing)
    return 0


def recalled(session: str) -> str:
    """A chat's transcript so far; none at all for an id that is unknown here."""
    file = traces.store_of(session)
    forgets = (HOME / "forgets").exists()
    return file.read_text() if file.exists() and not forgets else ""


def remember(session: str, transcript: str, answer: str) -> None:
    vice = HOME / "forgets"
    if vice.exists() and vice.read_text() == "frozen":
        return
    file = traces.store_of(session)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f'{transcript}\n\n<turn from="assistant">\n{answer}\n</turn>\n\n'
    with file.open("ab" if vice.exists() else "wb") as store:
        store.write(text.encode("utf-8", "replace"))
    traces.write_down(session, "assistant", answer)


def rewritten(value: Any) -> Any:
    """What the user's hooks make of the arguments of a call."""
    file = HOME / "rewrites.json"
    if not file.exists():
        return value
    if isinstance(value, dict):
        return {key: rewritten(entry) for key, entry in value.items()}
    for pattern, instead in json.loads(file.read_text()) if isinstance(value, str) else ():
        value = re.sub(pattern, instead, value)
    return value


def relay_args(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    server = {"providerIdentifier": "client", "serverIdentifier": "client", "toolName": name}
    return {"name": f"client-{name}", "args": arguments, **server}


def takes_ticket(tool: dict[str, Any]) -> bool:
    return "wait" in tool["name"] and tool["inputSchema"].get("required") == ["ticket"]


def ticket_in(result: dict[str, Any]) -> str | None:
    content = result.get("success", {}).get("content", [])
    found = re.match(r"ticket (\S+)", content[0]["text"]["text"]) if content else None
    return found[1] if found else None


class Call:
    """A call of the client's tools: announced, and perhaps on its way."""

    def __init__(self, call_id: str, name: str, args: dict[str, Any]) -> None:
        self.call_id, self.name, self.args = call_id, name, args
        self.task: threading.Thread | None = None
        self.result: dict[str, Any] = {}


class Run:
    def __init__(self, options: dict[str, str], prompt: str, out: IO[str]) -> None:
        partial = "--stream-partial-output" in options
        self.options = options
        session = options.get("--resume", "")
        if session and take_one("other-session"):
            session = ""
        # What the model reads: all of its chat.
        self.recalled = recalled(session) if session else ""
        self.prompt = f"{self.recalled}{as_turn(prompt)}" if session else prompt
        self.out = out
        self.emitter = demo.Emitter(out, partial=partial, session=session)
        # Some connect their MCP servers only when they have begun to speak.
        self.mcp = self.connected() if "[[late-mcp" not in prompt else None
        # The real CLI has one call at a time on its way to a server.
        self.is_serial = not (HOME / "many-in-flight").exists()
        self.in_flight = threading.Semaphore(1 if self.is_serial else 99)
        self.announced: list[Call] = []
        self.results: list[str] = []
        self.waits = True
        self.begun = False
        self.usage = True
        self.times = 1
        self.lingers = False

    def go(self) -> int:
        if not account() and not os.environ.get("CURSOR_API_KEY"):
            return fail(NO_AUTH)
        if take_one("config-race"):
            return fail(CONFIG_RACE)
        if not self.options.keys() & TRUSTING and not traces.is_trusted():
            return fail((RECORDINGS / "fail_trust.stderr").read_text())
        if "--trust" in self.options:
            traces.trust()
        session = self.options.get("--resume", "")
        if session and (not UUID.fullmatch(session) or take_one("no-resume")):
            return fail((RECORDINGS / "fail_bad_resume_id.stderr").read_text())
        for name, argument in wanted(self.prompt):
            step: Callable[[str], int | None] = getattr(self, "do_" + name.replace("-", "_"))
            code = step(argument)
            if code is not None:
                self.out.flush()
                return code
        self.do_init("")
        remember(self.emitter.session_id, as_turn(self.prompt), "".join(self.emitter._answer))
        self.emitter.result(
            usage=self.usage, prompt=self.prompt * self.times, recalled=self.recalled
        )
        if self.lingers:
            self.do_hang("")
        return 0

    # The relay

    def connected(self) -> McpClient | None:
        if "--approve-mcps" not in self.options or (HOME / "no-mcp").exists():
            return None
        from tests.fakes.mcp import configured

        mcp = configured()
        if mcp is not None:
            mcp.heeds_changes = not (HOME / "ignores-list-changed").exists()
            mcp.connect(lists="[[late-list]]" not in self.prompt)
        return mcp

    def tool_call(
        self, tool: str, args: dict[str, Any], result: dict[str, Any] | None = None
    ) -> str:
        """Announce a call; with its `result` it is also completed, and the model's step over."""
        self.do_init("")
        call_id = self.emitter.tool_call(tool, args, result)
        if result is not None or (HOME / "new-model-call-ids").exists():
            self.emitter._model_calls += 1
        return call_id

    def do_announce(self, argument: str) -> None:
        """A call that the model makes together with the next `relay`."""
        name, _, arguments = argument.partition(" ")
        args = relay_args(name, json.loads(arguments))
        self.announced.append(Call(self.tool_call("mcp", args), name, args))

    def do_begin(self, argument: str) -> None:
        """The same, but the call is on its way before the next one is announced."""
        self.do_announce(argument)
        self.begin(self.announced[-1])

    def begin(self, call: Call) -> None:
        def make() -> None:
            call.result = self.call_until_done(call.name, call.args["args"])

        if call.task is None:
            call.task = threading.Thread(target=make)
            call.task.start()

    def do_relay(self, argument: str) -> None:
        """A call of the client's tool over MCP: `[[relay:bash {"command": "ls"}]]`."""
        self.do_announce(argument)
        calls, self.announced = self.announced, []
        for call in () if self.is_serial else calls:
            self.begin(call)
        for call in calls:
            self.begin(call)
            assert call.task is not None
            call.task.join()
            self.complete(call.call_id, call.args, call.result)
        self.emitter._model_calls += 1

    def do_shell_relay(self, argument: str) -> None:
        """`[[shell-relay:bash command ls]]`, for clients that put backslashes before quotes."""
        self.do_relay(shell_words(argument))

    def do_shell_announce(self, argument: str) -> None:
        self.do_announce(shell_words(argument))

    def do_relay_unannounced(self, argument: str) -> None:
        """Some versions leave the arguments out of the announcement."""
        name, _, arguments = argument.partition(" ")
        args = relay_args(name, json.loads(arguments))
        call_id = self.tool_call("mcp", {**args, "args": {}})
        self.complete(call_id, args, self.call_until_done(name, args["args"]))

    def do_relay_silently(self, argument: str) -> None:
        """Some versions tell of no call at all; it only arrives."""
        self.do_init("")
        name, _, arguments = argument.partition(" ")
        result = self.call_until_done(name, json.loads(arguments))
        content = result.get("success", {}).get("content", [])
        self.results.append("".join(block["text"]["text"] for block in content))

    def do_relay_refused(self, argument: str) -> None:
        """A call that the CLI's own permissions refuse: announced, and never made."""
        self.do_announce(argument)
        call = self.announced.pop()
        self.complete(call.call_id, call.args, {"rejected": {"reason": "", "isReadonly": False}})

    def do_look_up(self, _: str) -> None:
        """A model that asks the CLI which tools there are, before it calls one."""
        found = {"success": {"content": "client: bash, read"}}
        self.tool_call("getMcpTools", {"server": "client"}, found)

    def do_own_server(self, argument: str) -> None:
        """A call of a tool of a server that is not the relay's: `[[own-server:notes find {}]]`."""
        self.do_init("")
        server, name, arguments = argument.split(" ", 2)
        about = {"providerIdentifier": server, "serverIdentifier": server, "toolName": name}
        args = {"name": f"{server}-{name}", "args": json.loads(arguments), **about}
        call_id = self.emitter.tool_call("mcp", args)
        result: dict[str, Any] = {"rejected": {"reason": "", "isReadonly": False}}
        if permissions.Permissions().lets_call(server, name):
            from tests.fakes.mcp import configured

            mcp = configured(server)
            assert mcp is not None
            mcp.connect()
            result = mcp.call(name, args["args"])
        self.complete(call_id, args, result)

    def call_until_done(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        while "[[late-mcp" in self.prompt and self.mcp is None:
            time.sleep(0.01)
        allowed = permissions.Permissions().lets_call("client", name)
        if self.mcp is None or not allowed:
            return {"rejected": {"reason": "", "isReadonly": False}}
        if name not in {tool["name"] for tool in self.mcp.tools}:
            return {"error": {"error": f"Tool {name} not found on server client"}}
        with (HOME / "mcp-calls").open("a") as calls:
            calls.write(".")
        try:
            with self.in_flight:
                result = self.mcp.call(name, rewritten(arguments))
            while self.waits and (ticket := ticket_in(result)):
                wait_tool = next(t["name"] for t in self.mcp.tools if takes_ticket(t))
                with (HOME / "waits").open("a") as waits:
                    waits.write(".")
                with self.in_flight:
                    result = self.mcp.call(wait_tool, {"ticket": ticket})
        except TimeoutError:
            return {"error": {"error": "MCP error -32001: Request timed out"}}
        return result

    def complete(self, call_id: str, args: dict[str, Any], result: dict[str, Any]) -> None:
        call = {"result": result} if "rejected" in result else {"args": args, "result": result}
        body = {"mcpToolCall": call, "toolCallId": call_id}
        event = {"type": "tool_call", "subtype": "completed", "call_id": call_id, "tool_call": body}
        self.emitter.write(event)
        content = result.get("success", {}).get("content", [])
        text = "".join(block["text"]["text"] for block in content)
        self.results.append(text or json.dumps(result))

    def do_patience(self, seconds: str) -> None:
        assert self.mcp is not None
        self.mcp.patience = float(seconds)

    def do_late_mcp(self, seconds: str) -> None:
        def connect() -> None:
            time.sleep(float(seconds or 0.3))
            self.mcp = self.connected()

        threading.Thread(target=connect).start()

    def do_late_list(self, _: str) -> None:
        """It connects when it starts, but does not fetch the list of tools before `list`."""

    def do_list(self, _: str) -> None:
        assert self.mcp is not None
        self.mcp.list_tools()

    def do_gap(self, seconds: str) -> None:
        """Time passes between two calls that were made at once."""
        time.sleep(float(seconds))

    def do_impatient(self, _: str) -> None:
        """A model that does not wait for a ticket."""
        self.waits = False

    def do_say_result(self, _: str) -> None:
        self.do_text(self.results[-1])

    def do_say_results(self, _: str) -> None:
        self.do_text(" ".join(self.results))

    def do_say_tools(self, _: str) -> None:
        assert self.mcp is not None
        self.do_text(",".join(tool["name"] for tool in self.mcp.tools))

    # Words

    def do_init(self, _: str) -> None:
        if not self.begun:
            self.begun = True
            traces.write_down(self.emitter.session_id, "user", self.prompt)
            self.emitter.init(str(Path.cwd()), self.prompt)

    def do_text(self, text: str) -> None:
        self.do_init("")
        self.emitter.text(text)

    def do_cut(self, text: str) -> None:
        """Text whose emoji is cut between its UTF-16 halves."""
        for half in text.encode("utf-16-le", "surrogatepass").hex(" ", 2).split():
            self.do_text(bytes.fromhex(half).decode("utf-16-le", "surrogatepass"))

    def do_nth(self, variants: str) -> None:
        """Another text each time the model is asked again."""
        turn = self.prompt.count('<turn from="assistant">')
        self.do_text(variants.split("|")[turn])

    def do_many(self, count: str) -> None:
        for number in range(int(count)):
            self.do_text(f"{number} ")

    def do_pour(self, megabytes: str) -> None:
        for _ in range(int(megabytes)):
            self.do_text("x" * 1024 * 1024)

    def do_slowly(self, count: str) -> None:
        for number in range(int(count)):
            self.do_text(f"{number} ")
            time.sleep(0.02)

    def do_think(self, text: str) -> None:
        self.do_init("")
        self.emitter.thinking([text])

    def do_tool(self, name: str) -> None:
        self.do_init("")
        self.tool_call(name, {"path": "/notes.txt"}, {"success": {"content": "x"}})

    def do_open_tool(self, name: str) -> None:
        self.do_init("")
        self.tool_call(name, {"command": "make"})

    def do_query(self, name: str) -> None:
        self.do_init("")
        self.emitter.interaction_query(name, {"url": "https://example.com"})

    def do_retry(self, _: str) -> None:
        self.do_init("")
        self.emitter.retry()

    def do_line(self, size: str) -> None:
        """A tool result with a whole file in it."""
        self.do_init("")
        content = {"success": {"content": "x" * int(size)}}
        self.tool_call("read", {"path": "/big"}, content)

    def do_call(self, argument: str) -> None:
        """A call in the text: `[[call:bash {"command": "ls"}]]`, in small deltas."""
        name, _, arguments = argument.partition(" ")
        self.begin_line()
        text = (
            f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'
        )
        for at in range(0, len(text), 7):
            self.do_text(text[at : at + 7])

    def do_shell_call(self, argument: str) -> None:
        """`[[shell-call:bash command ls]]`, for clients that put backslashes before quotes."""
        self.do_call(shell_words(argument))

    def do_native_shell(self, command: str) -> None:
        self.do_native(f"shell {json.dumps({'command': command})}")

    def do_imagine(self, text: str) -> None:
        self.do_text("\n<tool_result")
        self.do_text(f' id="1">\n{text}\n</tool_result>')

    def begin_line(self) -> None:
        """A call stands alone on its lines."""
        if self.emitter._answer and not self.emitter._answer[-1].endswith("\n"):
            self.do_text("\n")

    def do_garbled(self, text: str) -> None:
        self.begin_line()
        self.do_text(f"<tool_call>\n{text}\n</tool_call>")

    def do_quote(self, text: str) -> None:
        """Text with tags in it, which no prompt can carry as they are, in small deltas."""
        text = text.replace("<\\", "<")
        for at in range(0, len(text), 7):
            self.do_text(text[at : at + 7])

    def do_native(self, argument: str) -> None:
        """One of the agent's own tools is announced: `[[native:shell {"command": "ls"}]]`."""
        self.do_init("")
        name, _, arguments = argument.partition(" ")
        self.tool_call(name, json.loads(arguments))

    def do_native_here(self, path: str) -> None:
        self.do_init("")
        self.tool_call("read", {"path": str(Path.cwd() / path)})

    def do_own(self, argument: str) -> None:
        """One of the agent's own tools, announced and completed."""
        self.do_init("")
        name, _, arguments = argument.partition(" ")
        self.tool_call(name, json.loads(arguments), {"success": {"content": "same"}})

    def do_own_image(self, _: str) -> None:
        self.do_init("")
        path = str(next(Path.cwd().glob("image-*")))
        self.tool_call("read", {"path": path}, {"success": {"content": "cat"}})

    def do_try(self, argument: str) -> None:
        """One of the agent's own tools, which does what it is for as far as the permissions allow
        it: `[[try:read {"path": "$PWD/notes"}]]`."""
        self.do_init("")
        name, _, words = argument.partition(" ")
        args = json.loads(words.replace("$PWD", str(Path.cwd())))
        call_id = self.emitter.tool_call(name, args)
        result, is_refused = permissions.use(name, args, asks=self.options.get("--mode") == "ask")
        self.complete_own(name, call_id, {} if is_refused else {"args": args}, result)
        self.results.append(json.dumps(result))

    def do_rejected(self, argument: str) -> None:
        """One of the agent's own tools that is refused: it comes back without its `args`."""
        self.do_init("")
        name, _, arguments = argument.partition(" ")
        call_id = self.tool_call(name, json.loads(arguments))
        self.complete_own(name, call_id, {}, {"rejected": {"reason": ""}})

    def complete_own(
        self, name: str, call_id: str, args: dict[str, Any], result: dict[str, Any]
    ) -> None:
        body = {f"{name}ToolCall": {**args, "result": result}, "toolCallId": call_id}
        event = {"type": "tool_call", "subtype": "completed", "call_id": call_id, "tool_call": body}
        self.emitter.write(event)

    def do_act(self, command: str) -> None:
        """Go on and execute a shell command, as far as the permissions allow it."""
        time.sleep(0.2)
        permissions.use("shell", {"command": command}, asks=False)

    def do_sh(self, command: str) -> None:
        """What a tool of the agent's own does, whatever the permissions say."""
        import subprocess

        subprocess.run(command, shell=True, check=False)

    def do_session(self, name: str) -> None:
        self.emitter.session_id = name

    def do_touch(self, name: str) -> None:
        (HOME / name).touch()

    def do_times(self, count: str) -> None:
        """The CLI counts the tokens of each step of the turn, of which there are so many."""
        self.times = int(count)

    def do_no_usage(self, _: str) -> None:
        self.usage = False

    # Vices

    def do_deaf(self, _: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def do_grandchild(self, _: str) -> None:
        """A child in a session of its own that holds our pipes open and outlives us."""
        import subprocess

        subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.signal(15, 1); signal.pause()"],
            start_new_session=True,
        )

    def do_stranger(self, _: str) -> None:
        """As `grandchild`, but with an environment of its own: nothing shows whose it is."""
        import subprocess

        marker = f"import signal, sys; signal.signal(15, 1); sys.argv.append({str(HOME)!r})"
        child = subprocess.Popen(
            [sys.executable, "-c", f"{marker}; signal.pause()"], start_new_session=True, env={}
        )
        (HOME / "stranger").write_text(str(child.pid))

    def do_tree(self, argument: str) -> None:
        """Processes in numbers: `deep 1500`, or another kind of trees.py."""
        kind, _, size = argument.partition(" ")
        trees.grow(kind, size)

    def do_background_shell(self, command: str) -> None:
        """A shell that the agent leaves running, in a process group of its own."""
        import subprocess

        args = {"command": command, "isBackground": True}
        self.do_init("")
        subprocess.Popen(["sh", "-c", command], start_new_session=True)
        self.emitter.tool_call("shell", args, {"success": {"command": command, "exitCode": 0}})

    def do_notify(self, subtype: str) -> None:
        """`task_notification` or `background_shell_timeout`: notices, which are no words."""
        self.do_init("")
        self.emitter.write({"type": "system", "subtype": subtype} | self.emitter._stamp())

    def do_nag(self, subtype: str) -> None:
        """The same notice again and again, and never a `result`."""
        while True:
            self.do_notify(subtype)
            time.sleep(0.02)

    def do_litter(self, _: str) -> None:
        Path("litter").write_text("")

    def do_replace(self, _: str) -> None:
        """Put a link to somewhere else into the place of the working directory."""
        here = Path.cwd()
        here.rename(here.with_name("moved"))
        here.symlink_to(HOME)

    def do_open_up(self, _: str) -> None:
        Path.cwd().chmod(0o777)

    def do_hang(self, _: str) -> None:
        self.out.flush()
        while True:
            signal.pause()

    def do_await(self, name: str) -> None:
        """Until a test puts the file `name` into its home."""
        while not (HOME / name).exists():
            time.sleep(0.01)

    def do_linger(self, _: str) -> None:
        self.lingers = True

    def do_bytewise(self, text: str) -> None:
        """The line that says `text`, one byte per write."""
        self.do_init("")
        read, write = os.pipe()
        with os.fdopen(write, "w", encoding="utf-8") as pipe:
            saved, self.emitter._out = self.emitter._out, pipe
            self.emitter.text(text)
            self.emitter._out = saved
        for byte in os.fdopen(read, "rb").read():
            os.write(1, bytes([byte]))

    def do_noise(self, text: str) -> None:
        self.out.write(text + "\n")

    def do_flood(self, size: str) -> None:
        sys.stderr.write("cursor-retrieval: tracing to nowhere\n" * (int(size) // 37))
        sys.stderr.flush()

    def do_blanks(self, argument: str) -> None:
        """`[[blanks:64000 newline]]` on stderr."""
        size, _, kind = argument.partition(" ")
        sys.stderr.write(("\n" if kind else " ") * int(size))
        sys.stderr.flush()

    def do_failed_result(self, argument: str) -> None:
        """A result that is an error: `[[failed-result:1000000 words]]`, behind so many blanks."""
        size, _, words = argument.partition(" ")
        self.do_init("")
        result = {"result": " " * int(size) + words}
        self.emitter.write({"type": "result", "subtype": "error", "is_error": True} | result)

    def do_fenced(self, argument: str) -> None:
        """JSON in a code block: `[[fenced:120000 {}]]`, with so many blanks before its end."""
        size, _, document = argument.partition(" ")
        self.do_text(f"```json\n{document}{' ' * int(size)}\n```")

    def do_deep(self, argument: str) -> None:
        """A call of its own whose arguments, or result, are nested: `[[deep:1000 result]]`."""
        depth, _, place = argument.partition(" ")
        value = '{"a":' * int(depth) + "1" + "}" * int(depth)
        call = f'"args":{{}},"result":{value}' if place == "result" else f'"args":{value}'
        kind = "completed" if place == "result" else "started"
        self.do_init("")
        self.out.write(f'{{"type":"tool_call","subtype":"{kind}","call_id":"deep",')
        self.out.write(f'"tool_call":{{"readToolCall":{{{call}}}}}}}\n')

    def do_stderr(self, text: str) -> None:
        sys.stderr.write(os.path.expandvars(text) + "\n")

    def do_error_event(self, words: str) -> int:
        """A failure as an event; `$NAME` in the words is what its environment holds."""
        self.do_init("")
        event = {"type": "error", "message": os.path.expandvars(words)}
        self.out.write(f"{json.dumps(event)}\n")
        return 1

    def do_fail_as_result(self, words: str) -> int:
        self.do_init("")
        said = os.path.expandvars(words)
        event = {"type": "result", "subtype": "error", "is_error": True, "result": said}
        self.out.write(f"{json.dumps(event)}\n")
        return 1

    def do_flaky(self, words: str) -> int | None:
        """Fails with these words as often as the file `flaky` says, then goes on."""
        return fail(words) if take_one("flaky") else None

    def do_half_line(self, _: str) -> int:
        self.out.write('{"type":"assistant","message":{"role":"assi')
        return 1

    def do_half_echo(self, _: str) -> int:
        self.out.write('{"type":"user","message":{"content":[{"text":' + json.dumps(self.prompt))
        return 1

    def do_mirror(self, _: str) -> None:
        """An early version wrote its events to stderr, too, the prompt among them."""
        event = {"type": "user", "message": {"content": [{"text": self.prompt}]}}
        sys.stderr.write(f"{json.dumps(event)}\n")

    def do_unended_result(self, _: str) -> None:
        """The result without its newline, and no end."""
        self.out.flush()
        out, self.emitter._out = self.emitter._out, io.StringIO()
        self.emitter.result()
        *lines, result = self.emitter._out.getvalue().splitlines()
        out.write("\n".join([*lines, result[:40]]))
        out.flush()
        out.write(result[40:])
        self.do_hang("")

    def do_end_turn(self, _: str) -> None:
        self.emitter.end_turn()

    def do_close_stdout(self, _: str) -> None:
        self.out.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def do_exit(self, code: str) -> int:
        return int(code)

    def do_play(self, name: str) -> int:
        """A recording, with what the process wrote to stderr and its exit code."""
        self.out.flush()
        os.write(1, (RECORDINGS / f"{name}.ndjson").read_bytes())
        expected = json.loads((RECORDINGS / "manifest.json").read_text())[name]
        if expected["stderr"]:
            sys.stderr.write((RECORDINGS / expected["stderr"]).read_text())
        if expected["exit"] is None:
            self.do_hang("")
        return int(expected["exit"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
