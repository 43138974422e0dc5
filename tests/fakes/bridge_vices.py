"""Steps of the fake bridge beside words and calls: odd shapes, and all that goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes.async_steps import AsyncSteps
from tests.fakes.connect import failure
from tests.fakes.steps import RECORDINGS, setting, take_one

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


class Vices(AsyncSteps):
    """Half of a `Run`."""

    agent: Agent
    stream: Stream
    is_deaf: bool
    has_result: bool
    has_done: bool

    @property
    def cwd(self) -> Path:
        return self.agent.cwd

    async def do_rejected(self, argument: str) -> None:
        raise NotImplementedError

    # Calls

    async def do_line(self, size: str) -> None:
        """A tool result with a whole file in it: a frame of that size."""
        await self.do_own(f"read {json.dumps({'path': '/big', 'content': 'x' * int(size)})}")

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

    async def do_act(self, command: str) -> None:
        """Go on with a shell command after a moment, if the run may use the shell."""
        await asyncio.sleep(0.2)
        if "shell" in self.agent.options.get("tools", {}).get("names", ["shell"]):
            await self.do_sh(command)

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

    async def do_notify(self, subtype: str) -> None:
        """A notice, which is no words."""
        self.stream.message("task", agent_id=self.agent.agent_id, status=subtype, text="note")

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
