"""Steps that the fakes have in common whose one process does many runs: words of many shapes, time,
and what happens on the machine. The fake agent, which starts for each run, has its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.fakes import trees
from tests.fakes.steps import HOME, shell_words


class AsyncSteps:
    """A part of a run."""

    prompt: str
    # What it has said so far.
    answer: list[str]
    usage: bool
    times: int

    @property
    def cwd(self) -> Path:
        raise NotImplementedError

    async def do_text(self, text: str) -> None:
        raise NotImplementedError

    async def do_own(self, argument: str) -> None:
        raise NotImplementedError

    async def do_native(self, argument: str) -> None:
        raise NotImplementedError

    async def do_notify(self, subtype: str) -> None:
        raise NotImplementedError

    # Words

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

    async def do_tool(self, name: str) -> None:
        await self.do_own(f'{name} {{"path": "/notes.txt"}}')

    async def do_open_tool(self, name: str) -> None:
        await self.do_native(f'{name} {{"command": "make"}}')

    async def do_native_here(self, path: str) -> None:
        await self.do_native(f"read {json.dumps({'path': str(self.cwd / path)})}")

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
        shell = await asyncio.create_subprocess_shell(command, cwd=self.cwd)
        await shell.wait()

    async def do_litter(self, _: str) -> None:
        (self.cwd / "litter").write_text("")

    async def do_open_up(self, _: str) -> None:
        self.cwd.chmod(0o777)

    async def do_replace(self, _: str) -> None:
        """Put a link to somewhere else into the place of the working directory."""
        here = self.cwd
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

    async def do_exit(self, code: str) -> None:
        """It dies, with all of its runs."""
        await asyncio.sleep(0.05)
        os._exit(int(code or "1"))

    async def do_die(self, _: str) -> None:
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

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

    async def do_nag(self, subtype: str) -> None:
        """The same notice again and again, and never a result."""
        while True:
            await self.do_notify(subtype)
            await asyncio.sleep(0.02)

    async def do_flood(self, size: str) -> None:
        sys.stderr.write("bridge: tracing to nowhere\n" * (int(size) // 27))
        sys.stderr.flush()
