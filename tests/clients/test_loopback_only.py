"""The network of `make clients`: nobody is reached but this machine, and whoever tries is noted."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

RUN = (sys.executable, "-m", "tests.clients.loopback_only")
TRY = """
import os, pathlib, socket, time

def attempt(kind, place):
    with socket.socket(kind) as one:
        one.settimeout(10)
        try:
            one.connect(place)
            return "connected"
        except OSError as error:
            return type(error).__name__

with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    server.listen()
    print(attempt(socket.AF_INET, server.getsockname()))
print(attempt(socket.AF_INET, ("198.51.100.7", 443)))
print(attempt(socket.AF_INET, ("Api.Example.com", 443)))
with socket.socket(type=socket.SOCK_DGRAM) as one:
    one.sendto(b"news", ("203.0.113.9", 4318))
log = pathlib.Path(os.environ["OUTSIDE"])
while len(set(log.read_text().splitlines())) < 3:
    time.sleep(0.01)
print(*sorted(set(log.read_text().splitlines())), sep="|")
raise SystemExit(7)
"""


def namespaces() -> bool:
    if not shutil.which("unshare") or not shutil.which("ip"):
        return False
    kinds = ("--net", "--mount", "--pid", "--fork", "--mount-proc")
    done = subprocess.run(["unshare", "--map-root-user", *kinds, "true"], capture_output=True)
    return done.returncode == 0


@pytest.mark.skipif(not namespaces(), reason="there are no namespaces to be had here")
def test_only_this_machine_is_reached_and_every_attempt_is_noted() -> None:
    done = subprocess.run(
        [*RUN, sys.executable, "-c", TRY], capture_output=True, text=True, timeout=60, check=False
    )
    here, address, name, noted = done.stdout.splitlines()
    assert (here, address, name) == ("connected", "ConnectionRefusedError", "gaierror")
    assert noted == "198.51.100.7 port 443|203.0.113.9 port 4318|api.example.com"
    assert done.returncode == 7


def test_without_namespaces_it_says_so_and_runs_nothing() -> None:
    done = subprocess.run(
        [*RUN, "echo", "never"], env={"PATH": ""}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "needs `unshare`" in done.stderr and done.stdout == ""
