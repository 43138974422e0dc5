"""Steps of the fake bridge beside words and calls: odd shapes, waiting, and all that goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from tests.fakes import trees
from tests.fakes.connect import failure
from tests.fakes.steps import HOME, RECORDINGS, setting, shell_words, take_one

if TYPE_CHECKING:
    from tests.fakes.bridge_agents import Agent
    from tests.fakes.bridge_stream import Stream

# What the CLI was recorded to fail with, and the codes that the SDK has for it.
CODES = {
    "fail_auth_required": "api_key_not_found",
    "fail_invalid_key": "unauthorized",
    "fail_unknown_model": "invalid_model",
    "fail_usage_limit": "usage_limit_exceeded",
}


def run_failed(words: str, code: str = "", *, says_it: bool = True) -> Exception:
    from tests.fakes.bridge_run import RunFailed

    return RunFailed(words, code, says_it=says_it)


class Vices:
    """Half of a `Run`."""

    agent: Agent
    stream: Stream
    prompt: str
    answer: list[str]
    usage: bool
    times: int
    is_deaf: bool
    has_result: bool
    has_done: bool

    async def do_text(self, text: str) -> None:
        raise NotImplementedError

    async def do_own(self, argument: str) -> None:
        raise NotImplementedError

    async def do_native(self, argument: str) -> None:
        raise NotImplementedError

    async def do_rejected(self, argument: str) -> None:
        raise NotImplementedError

    # Words of many shapes

    async def do_nth(self, variants: str) -> None:
        """Another text each time the model is asked again."""
        turn = self.prompt.count('<turn from="assistant">')
        await self.do_text(variants.split("|")[turn])

    async def do_many(self, count: str) -> None:
        for number in range(int(count)):
            await self.do_text(f"{number} ")

    async def do_pour(self, megabytes: str) -> None:
        for _ in range(int(megabytes)):
            await self.do_text("x" * 1024 * 1024)

    async def do_burst(self, argument: str) -> None:
        """`[[burst:3000 5000]]`: so many deltas of so many characters."""
        count, _, size = argument.partition(" ")
        for _ in range(int(count)):
            await self.do_text("x" * int(size))

    async def do_slowly(self, count: str) -> None:
        for number in range(int(count)):
            await self.do_text(f"{number} ")
            await asyncio.sleep(0.02)

    async def do_cut(self, text: str) -> None:
        """Text whose emoji is cut between its UTF-16 halves, which JSON writes as escapes."""
        for half in text.encode("utf-16-le", "surrogatepass").hex(" ", 2).split():
            await self.do_text(bytes.fromhex(half).decode("utf-16-le", "surrogatepass"))

    async def do_quote(self, text: str) -> None:
        """Text with tags in it, which no prompt can carry as they are, in small deltas."""
        await self._in_small_deltas(text.replace("<\\", "<"))

    async def do_call(self, argument: str) -> None:
        """A call in the text: `[[call:bash {"command": "ls"}]]`, in small deltas."""
        name, _, arguments = argument.partition(" ")
        await self._begin_line()
        call = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
        await self._in_small_deltas(f"<tool_call>\n{call}\n</tool_call>")

    async def do_shell_call(self, argument: str) -> None:
        await self.do_call(shell_words(argument))

    async def do_garbled(self, text: str) -> None:
        await self._begin_line()
        await self.do_text(f"<tool_call>\n{text}\n</tool_call>")

    async def do_imagine(self, text: str) -> None:
        await self.do_text("\n<tool_result")
        await self.do_text(f' id="1">\n{text}\n</tool_result>')

    async def do_fenced(self, argument: str) -> None:
        """JSON in a code block: `[[fenced:120000 {}]]`, with so many blanks before its end."""
        size, _, document = argument.partition(" ")
        await self.do_text(f"```json\n{document}{' ' * int(size)}\n```")

    async def do_native_shell(self, command: str) -> None:
        await self.do_native(f"shell {json.dumps({'command': command})}")

    async def do_line(self, size: str) -> None:
        """A tool result with a whole file in it: a frame of that size."""
        await self.do_own(f"read {json.dumps({'path': '/big', 'content': 'x' * int(size)})}")

    async def do_tool(self, name: str) -> None:
        await self.do_own(f'{name} {{"path": "/notes.txt"}}')

    async def do_open_tool(self, name: str) -> None:
        await self.do_native(f'{name} {{"command": "make"}}')

    async def do_native_here(self, path: str) -> None:
        await self.do_native(f"read {json.dumps({'path': str(self.agent.cwd / path)})}")

    async def do_try(self, argument: str) -> None:
        """A tool of its own, which none of the agents here has."""
        await self.do_rejected(argument)

    async def do_own_server(self, argument: str) -> None:
        """A tool of a server of the user's, of which none is read here."""
        server, name, arguments = argument.split(" ", 2)
        args = {"providerIdentifier": server, "toolName": name, "args": json.loads(arguments)}
        await self.do_rejected(f"mcp {json.dumps(args)}")

    async def do_look_up(self, _: str) -> None:
        """A model that asks which tools there are, before it calls one."""
        await self.do_own('getMcpTools {"server": "custom-user-tools"}')

    async def do_bytewise(self, text: str) -> None:
        """The switch `split-frames` writes byte by byte."""
        await self.do_text(text)

    async def _begin_line(self) -> None:
        if self.answer and not self.answer[-1].endswith("\n"):
            await self.do_text("\n")

    async def _in_small_deltas(self, text: str) -> None:
        for at in range(0, len(text), 7):
            await self.do_text(text[at : at + 7])

    # Time, and the machine

    async def do_hang(self, _: str) -> None:
        await asyncio.Event().wait()

    async def do_gap(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def do_await(self, name: str) -> None:
        """Until a test puts the file `name` into its home."""
        while not (HOME / name).exists():
            await asyncio.sleep(0.01)

    async def do_touch(self, name: str) -> None:
        (HOME / name).touch()

    async def do_sh(self, command: str) -> None:
        """What a tool of the agent's own does."""
        shell = await asyncio.create_subprocess_shell(command, cwd=self.agent.cwd)
        await shell.wait()

    async def do_act(self, command: str) -> None:
        """The same after a moment, if the run may use the shell."""
        await asyncio.sleep(0.2)
        if "shell" in self.agent.options.get("tools", {}).get("names", ["shell"]):
            await self.do_sh(command)

    async def do_litter(self, _: str) -> None:
        (self.agent.cwd / "litter").write_text("")

    async def do_open_up(self, _: str) -> None:
        self.agent.cwd.chmod(0o777)

    async def do_replace(self, _: str) -> None:
        """Put a link to somewhere else into the place of the working directory."""
        here = self.agent.cwd
        here.rename(here.with_name("moved"))
        here.symlink_to(HOME)

    async def do_grandchild(self, _: str) -> None:
        """A child in a session of its own that holds our pipes open and outlives us."""
        program = "import signal; signal.signal(15, 1); signal.pause()"
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, start_new_session=True)

    async def do_stranger(self, _: str) -> None:
        """As `grandchild`, but with an environment of its own: nothing shows whose it is."""
        marker = f"import signal, sys; signal.signal(15, 1); sys.argv.append({str(HOME)!r})"
        words = (sys.executable, "-c", f"{marker}; signal.pause()")
        child = await asyncio.create_subprocess_exec(*words, start_new_session=True, env={})
        (HOME / "stranger").write_text(str(child.pid))

    async def do_background_shell(self, command: str) -> None:
        """A shell that the agent leaves running, in a session of its own."""
        await asyncio.create_subprocess_exec("sh", "-c", command, start_new_session=True)
        await self.do_own(f"shell {json.dumps({'command': command, 'isBackground': True})}")

    async def do_tree(self, argument: str) -> None:
        kind, _, size = argument.partition(" ")
        trees.grow(kind, size)

    async def do_times(self, count: str) -> None:
        """The tokens of each step of the turn are counted, of which there are so many."""
        self.times = int(count)

    async def do_no_usage(self, _: str) -> None:
        self.usage = False

    # Failures

    async def do_error_event(self, words: str) -> None:
        """The run fails, and its stream ends well; `$NAME` is what the environment holds."""
        raise run_failed(os.path.expandvars(words))

    async def do_fail_as_result(self, words: str) -> None:
        """The same, but only the result says why: `[[fail-as-result:code: words]]`."""
        code, colon, rest = words.partition(": ")
        said = os.path.expandvars(rest if colon else words)
        raise run_failed(said, code if colon else "", says_it=False)

    async def do_play(self, recording: str) -> None:
        """A failure of the CLI's, as the bridge would tell it."""
        words = (RECORDINGS / f"{recording}.stderr").read_text()
        raise run_failed(words, CODES[recording])

    async def do_failed_result(self, argument: str) -> None:
        """`[[failed-result:1000000 words]]`, behind so many blanks."""
        size, _, words = argument.partition(" ")
        raise run_failed(" " * int(size) + words, says_it=False)

    async def do_flaky(self, words: str) -> None:
        """Fails with these words as often as the file `flaky` says, then goes on."""
        if take_one("flaky"):
            raise run_failed(words)

    async def do_error(self, argument: str) -> None:
        """The stream ends with an error: `[[error:RATE_LIMIT_EXCEEDED 30 words]]`."""
        kind, _, rest = argument.partition(" ")
        seconds, _, words = rest.partition(" ")
        raise failure(kind, words, int(seconds) if seconds else None)

    async def do_exit(self, code: str) -> None:
        """The bridge dies, with all of its runs."""
        await asyncio.sleep(0.05)
        os._exit(int(code or "1"))

    async def do_die(self, _: str) -> None:
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

    async def do_deaf(self, _: str) -> None:
        """It does not obey `CancelRun`: its result comes all the same, as if nobody had asked."""
        self.is_deaf = True

    # A stream that is not as it should be

    async def do_no_last_frame(self, _: str) -> None:
        self.stream.last_frame = False

    async def do_cut_off(self, _: str) -> None:
        """The connection breaks where the stream would end, without a result."""
        self.stream.is_cut = True

    async def do_half_line(self, _: str) -> None:
        """A frame that breaks off, and with it the connection."""
        self.stream.raw(b"\x00\x00\x00\x01\x00" + b'{"interactionUp')
        self.stream.is_cut = True

    async def do_half_echo(self, _: str) -> None:
        """The same, with the prompt in it."""
        begun = json.dumps({"user": self.prompt})[:-1].encode()
        self.stream.raw(b"\x00\x00\xff\xff\xff" + begun)
        self.stream.is_cut = True

    async def do_unended_result(self, _: str) -> None:
        """The first bytes of a result, and no end."""
        self.stream.raw(b"\x00\x00\x00\xff\xff" + b'{"result":{"agentId":')
        await self.do_hang("")

    async def do_garbage(self, _: str) -> None:
        """A frame that is no JSON."""
        self.stream.raw(b"\x00\x00\x00\x00\x05" + b"{nope")

    async def do_array(self, _: str) -> None:
        """A frame that is JSON, but no object."""
        self.stream.raw(b"\x00\x00\x00\x00\x03[1]")

    async def do_huge(self, _: str) -> None:
        """A frame that says that it has four gigabytes."""
        self.stream.raw(b"\x00\xff\xff\xff\xff{")

    async def do_no_result(self, _: str) -> None:
        self.has_result = False

    async def do_no_done(self, _: str) -> None:
        self.has_done = False

    async def do_linger(self, _: str) -> None:
        """After its result the stream stays open."""
        self.stream.lingers = True

    async def do_unknown(self, _: str) -> None:
        """Messages, updates, envelopes and fields that no version has today."""
        self.stream.message("hologram", agent_id=self.agent.agent_id, depth=3)
        self.stream.update("mood-changed", mood={"value": 1})
        self.stream.envelope("surprise", {"type": "party", "at": 7})
        self.stream.envelope("sdkMessage", {"type": "status"})
        self.stream.update("text-delta", text="", certainty=0.5)
        self.stream.message("request", agent_id=self.agent.agent_id, request_id="r")

    async def do_noise(self, text: str) -> None:
        self.stream.envelope("noise", {"text": text})

    async def do_stderr(self, text: str) -> None:
        sys.stderr.write(os.path.expandvars(text) + "\n")
        sys.stderr.flush()

    async def do_blanks(self, argument: str) -> None:
        """`[[blanks:64000 newline]]` on stderr."""
        size, _, kind = argument.partition(" ")
        sys.stderr.write(("\n" if kind else " ") * int(size))
        sys.stderr.flush()

    async def do_mirror(self, _: str) -> None:
        """The prompt on stderr, as a verbose log may have it."""
        await self.do_stderr(self.prompt)

    async def do_notify(self, subtype: str) -> None:
        """A notice, which is no words."""
        self.stream.message("task", agent_id=self.agent.agent_id, status=subtype, text="note")

    async def do_nag(self, subtype: str) -> None:
        """The same notice again and again, and never a result."""
        while True:
            await self.do_notify(subtype)
            await asyncio.sleep(0.02)

    async def do_flood(self, size: str) -> None:
        sys.stderr.write("bridge: tracing to nowhere\n" * (int(size) // 27))
        sys.stderr.flush()

    async def do_deep(self, argument: str) -> None:
        """A call of its own whose arguments are nested: `[[deep:1000]]`."""
        depth = int(argument.partition(" ")[0])
        value = '{"a":' * depth + "1" + "}" * depth
        call = f'{{"type":"read","args":{value}}}'
        update = f'"update":{{"type":"tool-call-started","callId":"deep","toolCall":{call}}}'
        frame = f'{{"interactionUpdate":{{"type":"tool-call-started",{update}}}}}'.encode()
        self.stream.raw(b"\x00" + len(frame).to_bytes(4, "big") + frame)


def piece_size() -> int:
    """How many bytes are written at once: frames may be split anywhere."""
    return int(setting("split-frames", "0"))
