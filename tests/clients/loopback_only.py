"""Runs a command where no other machine exists, and notes whom it tried to reach.

    python -m tests.clients.loopback_only COMMAND ...

In a network namespace of its own, every address of the world leads to this machine's loopback: what
is sent to another one is refused at once and goes nowhere, but is seen on the way. Names are asked
of a server here that knows none. Each attempt is a line in the file that `OUTSIDE` names for the
command: the name that was looked up, or the address. Needs Linux, `unshare` and `ip`; an ordinary
user also needs user namespaces.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

# Of the addresses that are kept for documentation: nobody's.
NAMESERVER = "192.0.2.53"
LOG = "OUTSIDE"
_INSIDE = "--inside"
_IPV4, _IPV6 = 0x0800, 0x86DD
_TCP, _UDP = 6, 17
_SYN, _ACK = 0x02, 0x10
_NO_SUCH_NAME = 0x8183


def main(argv: Sequence[str]) -> int:
    if argv[:1] == [_INSIDE]:
        return inside(argv[1:])
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            sys.exit(f"This needs `{program}`: without it nobody can be kept from the network.")
    own = () if os.geteuid() == 0 else ("--map-root-user",)
    kinds = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    here = (sys.executable, "-m", "tests.clients.loopback_only", _INSIDE)
    if subprocess.run(["unshare", *own, *kinds, "true"], check=False).returncode:
        sys.exit("This needs namespaces, and there are none to be had here.")
    return subprocess.run(["unshare", *own, *kinds, *here, *argv], check=False).returncode


def inside(command: Sequence[str]) -> int:
    lead_everything_home()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "outside")
        log.touch()
        resolver = Path(folder, "resolv.conf")
        resolver.write_text(f"nameserver {NAMESERVER}\n")
        subprocess.run(["mount", "--bind", str(resolver), "/etc/resolv.conf"], check=True)
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
        names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        names.bind((NAMESERVER, 53))
        threading.Thread(target=note_packets, args=(sniffer, log), daemon=True).start()
        threading.Thread(target=know_no_names, args=(names, log), daemon=True).start()
        return subprocess.run(command, env={**os.environ, LOG: str(log)}, check=False).returncode


def lead_everything_home() -> None:
    for words in (
        "link set lo up",
        "route add local 0.0.0.0/0 dev lo",
        "-6 route add local ::/0 dev lo",
    ):
        # Not every machine has IPv6.
        subprocess.run(["ip", *words.split()], check="-6" not in words)


def note(log: Path, what: str) -> None:
    with log.open("a") as file:
        file.write(f"{what}\n")


def note_packets(sniffer: socket.socket, log: Path) -> None:
    while True:
        packet, (_, protocol, kind, *_) = sniffer.recvfrom(256)
        # Each packet is seen twice: as it leaves, and as it comes back.
        if kind == socket.PACKET_OUTGOING and (goal := destination(packet, protocol)):
            note(log, goal)


def destination(packet: bytes, protocol: int) -> str:
    """Where a packet wants to begin something outside; empty for all others."""
    if protocol == _IPV4 and len(packet) >= 20:
        header, kind, address = (packet[0] & 15) * 4, packet[9], packet[16:20]
    elif protocol == _IPV6 and len(packet) >= 40:
        header, kind, address = 40, packet[6], packet[24:40]
    else:
        return ""
    goal, body = ipaddress.ip_address(address), packet[header:]
    is_here = goal.is_loopback or goal.is_multicast or str(goal) == NAMESERVER
    if is_here or not begins(kind, body):
        return ""
    port = struct.unpack_from("!H", body, 2)[0]
    return f"{goal} port {port}"


def begins(kind: int, body: bytes) -> bool:
    if kind == _TCP and len(body) >= 14:
        return body[13] & (_SYN | _ACK) == _SYN
    return kind == _UDP and len(body) >= 4


def know_no_names(server: socket.socket, log: Path) -> None:
    while True:
        question, client = server.recvfrom(4096)
        name = ".".join(labels(question))
        if name:
            note(log, name)
        head = question[:2] + struct.pack("!HHHHH", _NO_SUCH_NAME, 1, 0, 0, 0)
        server.sendto(head + asked(question), client)


def labels(question: bytes) -> Iterator[str]:
    at = 12
    while at < len(question) and (size := question[at]):
        yield question[at + 1 : at + 1 + size].decode("ascii", "replace").lower()
        at += 1 + size


def asked(question: bytes) -> bytes:
    """The question as it stands in the query: its name, its type and its class."""
    length = sum(len(label) + 1 for label in labels(question)) + 1
    return question[12 : 12 + length + 4]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
