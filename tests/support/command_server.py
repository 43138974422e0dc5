"""The command `cursor-gateway` without the half second that Python takes to load it.

A server has loaded all of the package and forks for each command. A small client, which the tests
run in the command's place, hands over its words, environment, folder, stdin, stdout and stderr, and
leaves with the command's exit code; if the client is killed, so is the command.

    python -I -S command_server.py ADDRESS words of the command
    python -m tests.support.command_server ADDRESS
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import NoReturn


def ask(address: str, words: list[str]) -> int:
    """Let the server run the command; its exit code."""
    request = {"words": words, "env": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"\n"], [0, 1, 2])
        server.sendall(json.dumps(request).encode() + b"\n")
        return int(server.recv(16) or b"1")


def serve(address: str) -> None:
    """Return only in the processes that are to be commands. The server ends with its stdin."""
    import gc
    import select

    load_all()
    # Else each command would look at all that was loaded before it leaves.
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        # Nobody asks for the exit codes of the processes that wait for the commands.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print("ready", flush=True)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    become_command(connection)
                    return
    sys.exit()


def load_all() -> None:
    import importlib
    import pkgutil

    import cursor_gateway

    for module in pkgutil.walk_packages(cursor_gateway.__path__, "cursor_gateway."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for library in ("mcp", "rich.console", "rich.status", "rich.table"):
        importlib.import_module(library)


def become_command(connection: socket.socket) -> None:
    """Take over what the client sent, in a process of its own."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as lines:
        request = json.loads(lines.readline())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command:
        for descriptor in descriptors:
            os.close(descriptor)
        wait_for(command, connection)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.argv[1:] = request["words"]


def run() -> NoReturn:
    """Be the command, and leave without tidying up what was loaded: that would take longer."""
    import atexit
    import runpy

    code = 0
    try:
        runpy.run_module("cursor_gateway", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        # As Python itself does it: words are an error, and are printed.
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def wait_for(command: int, connection: socket.socket) -> NoReturn:
    import contextlib
    import threading

    def end_with_client() -> None:
        connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(command, signal.SIGKILL)

    threading.Thread(target=end_with_client, daemon=True).start()
    _, status = os.waitpid(command, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


if __name__ == "__main__" and sys.flags.isolated:
    sys.exit(ask(sys.argv[1], sys.argv[2:]))
elif __name__ == "__main__":
    serve(sys.argv[1])
    run()
