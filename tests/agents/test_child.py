"""The real Child against small programs with one vice each. State is read from the OS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cursor_gateway.agents.cursor.transcripts import Transcripts
from cursor_gateway.errors import AgentFailed
from cursor_gateway.processes import guardian, tree
from cursor_gateway.processes.child import Child, Command
from cursor_gateway.processes.children import Children
from cursor_gateway.scratch import Scratch
from tests.conftest import children_of, command_line, eventually
from tests.fakes import trees

pytestmark = pytest.mark.processes

NO_WILL = Transcripts({}, Path("/nonexistent"), keep=True)


def guarded() -> Children:
    children = Children(Scratch(), owns_process=False)
    children.guard(NO_WILL)
    return children


@pytest.fixture
async def children() -> AsyncIterator[Children]:
    children = guarded()
    yield children
    await children.close(0.0)
    assert not children.scratch.exists()


def python(children: Children, program: str, prompt: bytes | None = None) -> Child:
    command = [sys.executable, "-c", program]
    return children.spawn(Command(command, os.environb, children.scratch, prompt))


async def output(child: Child) -> bytes:
    data = await child.read()
    assert isinstance(data, bytes)
    return data


async def read_all(child: Child) -> bytes:
    read = b""
    while isinstance(data := await child.read(), bytes):
        read += data
    return read


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def alive(pid: int) -> bool:
    return tree.is_alive(pid)


async def test_what_it_writes_is_read_and_its_exit_is_known(children: Children) -> None:
    child = python(children, "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)")
    assert await read_all(child) == b"out\n"
    assert await child.exit_code(5) == 3
    assert child.stderr == "err"


@pytest.mark.parametrize("at_its_start", [True, False])
@pytest.mark.parametrize("size", [0, 5, 8_000_000], ids="{} bytes".format)
async def test_a_prompt_of_any_size_passes_through(
    children: Children, size: int, at_its_start: bool
) -> None:
    prompt = (b"0123456789abcdef" * 500_000)[:size]
    program = "import sys, shutil; shutil.copyfileobj(sys.stdin, sys.stdout)"
    child = python(children, program, prompt if at_its_start else None)
    if not at_its_start:
        child.feed(prompt)
    assert await read_all(child) == prompt


async def test_an_agent_that_never_reads_its_prompt_is_no_problem(children: Children) -> None:
    child = python(children, "import os; os.close(0); print('refused')")
    child.feed(b"x" * 5_000_000)
    assert await read_all(child) == b"refused\n"


async def test_stderr_is_drained_and_its_end_kept(children: Children) -> None:
    child = python(children, "import sys; sys.stderr.write('x' * 5_000_000 + 'the reason')")
    assert await read_all(child) == b""
    assert await child.exit_code(5) == 0
    assert child.stderr.endswith("the reason")
    assert len(child.stderr) <= 64 * 1024


async def test_all_output_is_read_after_the_exit(children: Children) -> None:
    child = python(children, "print('x' * 60_000)")
    assert await child.exit_code(5) == 0
    assert len(await read_all(child)) == 60_001


async def test_the_end_comes_with_the_process_though_a_grandchild_holds_the_pipe(
    children: Children,
) -> None:
    child = python(
        children,
        "import subprocess, sys\n"
        "subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print('done')",
    )
    assert await read_all(child) == b"done\n"
    await child.stop()
    assert list(tree.members(child.pid, child.mark)) == []


async def test_a_process_blocked_on_its_full_pipe_can_be_stopped(children: Children) -> None:
    child = python(children, "while True: print('x' * 100_000)")
    await child.read()
    await child.stop()
    assert not alive(child.pid)


async def test_an_obedient_process_may_clean_up_on_sigterm(children: Children) -> None:
    note = children.scratch / "note"
    child = python(
        children,
        "import signal, sys, pathlib\n"
        f"def end(*_): pathlib.Path({str(note)!r}).write_text('bye'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True); signal.pause()",
    )
    await child.read()
    await child.stop()
    assert note.read_text() == "bye"


async def test_a_whole_family_in_sessions_of_their_own_is_ended(children: Children) -> None:
    program = (
        "import subprocess, sys, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "depth, me = int(sys.argv[1]), sys.argv[2]\n"
        "argv = [sys.executable, '-c', me, str(depth - 1), me]\n"
        "if depth: subprocess.Popen(argv, start_new_session=True)\n"
        "print('up', flush=True)\n"
        "if depth == 1: sys.exit()  # its own child becomes an orphan\n"
        "signal.pause()"
    )
    argv = [sys.executable, "-c", program, "3", program]
    child = children.spawn(Command(argv, os.environb, children.scratch))
    seen = b""
    while seen.count(b"up") < 4:
        seen += await output(child)
    await eventually(lambda: len(tree.marked(child.mark)) == 3)
    await child.stop()
    assert tree.marked(child.mark) == []


@pytest.mark.parametrize("kind", ["wide 300", "stubborn 30", "fleeing 10"])
async def test_a_tree_of_any_shape_is_ended_whole(
    children: Children, kind: str, tmp_path: Path
) -> None:
    name, size = kind.split()
    argv = trees.command(name, size, tmp_path)
    env = {**os.environb, b"FAKE_AGENT_DIR": os.fsencode(tmp_path)}
    child = children.spawn(Command(argv, env, children.scratch))
    await eventually((tmp_path / "grown").exists)
    await child.stop()
    # Who is on the run may be missed by one look.
    assert [tree.marked(child.mark) for _ in range(3)] == [[], [], []]


async def test_a_group_is_ended_though_nothing_can_be_looked_at(children: Children) -> None:
    child = python(
        children, "import os, signal; os.fork(); print(os.getpid(), flush=True); signal.pause()"
    )
    told = b""
    while told.count(b"\n") < 2:
        told += await output(child)
    family = list(map(int, told.split()))
    with no_more_descriptors():
        await child.stop(grace=0.0)
    await eventually(lambda: not any(map(alive, family)))


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


async def test_a_guardian_that_dies_at_once_is_replaced_more_and_more_slowly(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardian, "LONGEST_PAUSE", 0.15)
    seen: set[int] = set()
    for _ in range(3):
        pid = await eventually(lambda: (found := _guardian_of(children)) not in seen and found)
        seen.add(pid)
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: _guardian_of(children) not in {None, *seen})


def _guardian_of(children: Children) -> int | None:
    scratch = os.fsencode(children.scratch)
    own = children_of(os.getpid())
    return next((pid for pid in own if scratch in command_line(pid).split(b"\0")), None)


async def test_a_guardian_that_hangs_does_not_hold_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guardian, "DISMISSAL_SECONDS", 0.1)
    children = guarded()
    pid = await eventually(lambda: _guardian_of(children))
    os.kill(pid, signal.SIGSTOP)
    await children.close(0.0)
    assert not alive(pid)


async def test_stopping_twice_and_after_the_end_is_harmless(children: Children) -> None:
    child = python(children, "pass")
    await child.exit_code(5)
    await child.stop()
    await child.stop()


async def test_an_exit_code_may_not_come_in_time(children: Children) -> None:
    child = python(children, "import signal; signal.pause()")
    assert await child.exit_code(0.01) is None


async def test_a_program_that_cannot_be_started_says_why(children: Children) -> None:
    nothing = [str(children.scratch / "nothing")]
    open_before = descriptors()
    for prompt in (None, b"", b"x" * 1_000_000):
        with pytest.raises(AgentFailed, match="No such file"):
            children.spawn(Command(nothing, {}, children.scratch, prompt))
    await asyncio.sleep(0)  # whoever still fed it would fail now, and a warning is an error
    assert descriptors() == open_before


async def test_closing_ends_everybody(tmp_path: Path) -> None:
    children = guarded()
    running = [
        python(
            children, "import signal; signal.signal(15, 1); print(1, flush=True); signal.pause()"
        )
        for _ in range(3)
    ]
    await asyncio.gather(*(child.read() for child in running))
    children.retire(running[0], patience=600)
    await children.close(0.0)
    assert not any(alive(child.pid) for child in running)


async def test_closing_interrupts_a_prompt_that_nobody_reads(children: Children) -> None:
    child = python(children, "import signal; signal.pause()")
    child.feed(b"x" * 1_000_000)
    await asyncio.sleep(0)
    await child.stop()
    assert not alive(child.pid)
