"""An MCP server over stdio with one vice. Standard library only, so that it starts in no time.

    python fake_server.py [VICE]

Each tool does what its name says; `home` (the environment's FAKE_MCP_HOME) is where it leaves
notes. A vice changes how the server behaves; without one it behaves.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VICE = sys.argv[1] if len(sys.argv) > 1 else ""
HOME = Path(os.environ.get("FAKE_MCP_HOME", "/nonexistent"))
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
SLEEP = "import signal; signal.pause()"
MODERN = "2026-07-28"

writing = threading.Lock()
listening = threading.Event()
grown = 0
cancelled: list[Any] = []


def send(message: dict[str, Any]) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def tool(name: str, **properties: str) -> dict[str, Any]:
    described = {key: {"type": kind} for key, kind in properties.items()}
    schema = {"type": "object", "properties": described}
    # Some choose words that steer whoever's terminal shows them.
    said = f"Does {name},\n\x1b[2J\u202eand more" if VICE == "describes" else f"Does {name}."
    return {"name": name, "description": said, "inputSchema": schema}


TOOLS = [
    tool("echo", text="string"), tool("wait"), tool("pid"), tool("die"), tool("environment"),
    tool("image"), tool("structured"), tool("fail"), tool("refuse"), tool("progress", n="integer"),
    tool("cancelled"), tool("grow"), tool("directory"), tool("quote", bytes="integer"),
]  # fmt: skip


def call(request_id: Any, name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
    global grown
    if name == "wait":
        (HOME / "waiting").touch()
        return
    if name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "refuse":
        send({"id": request_id, "error": {"code": -32602, "message": "I will not"}})
        return
    if name == "grow":
        grown += 1
        send({"method": "notifications/tools/list_changed"})
    if name == "progress":
        for step in range(arguments["n"]):
            time.sleep(0.1)
            note = {"progressToken": meta["progressToken"], "progress": step}
            send({"method": "notifications/progress", "params": note})
    complete = {"resultType": "complete"} if VICE == "modern" else {}
    send({"id": request_id, "result": result(name, arguments) | complete})


def result(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "image":
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
    if name == "structured":
        return {"content": [], "structuredContent": {"answer": 42}}
    if name in TRAPS:
        structured = {"structuredContent": {"answer": "a" * 24 + "!"}} if name != "bare" else {}
        return text(name) | structured
    if name == "fail":
        return text("it went wrong") | {"isError": True}
    said: dict[str, Callable[[], str]] = {
        "pid": lambda: str(os.getpid()),
        "environment": lambda: json.dumps(dict(os.environ)),
        "cancelled": lambda: json.dumps(cancelled),
        "directory": os.getcwd,
        "quote": lambda: "x" * arguments["bytes"],
    }
    if name in said:
        return text(said[name]())
    return text(f"{VICE} {arguments.get('text', name)}".strip())


# What a client would need for ever to check, or could not check at all.
SLOW = {"type": "object", "properties": {"answer": {"type": "string", "pattern": "^(a+)+$"}}}
DOUBLING: dict[str, Any] = {
    "$ref": "#/$defs/n0",
    "$defs": {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(14)}
    | {"n14": {"required": ["nothing"]}},
}
TRAPS = {"slow": SLOW, "doubling": DOUBLING, "nonsense": {"type": 7}, "no_schema": "x", "bare": {}}


def listed(params: dict[str, Any]) -> dict[str, Any]:
    if VICE == "traps":
        return {"tools": [tool(name) | {"outputSchema": TRAPS[name]} for name in TRAPS]}
    if VICE == "ten-thousand":
        return {"tools": [tool(f"tool_{n}") for n in range(10_000)]}
    if VICE == "wordy":
        long = tool("long") | {"description": "x" * 300_000}
        wide = tool("wide", **{f"field_{n}": "string" for n in range(10_000)})
        return {"tools": [tool("echo"), long, wide]}
    if VICE == "many":
        at = int(params.get("cursor", 0))
        page: dict[str, Any] = {"tools": [tool(f"tool_{n}") for n in range(at, at + 50)]}
        return page | ({"nextCursor": str(at + 50)} if at + 50 < 500 else {})
    if VICE == "endless":
        at = int(params.get("cursor", 0))
        return {
            "tools": [tool(f"tool_{n}") for n in range(at, at + 50)],
            "nextCursor": str(at + 50),
        }
    if VICE == "schemas":
        odd = [tool("huge"), tool("endless")]
        odd[0]["inputSchema"]["enum"] = [0] * 60_000
        odd[1]["inputSchema"]["$ref"] = "#"
        return {"tools": [*TOOLS, *odd, *(tool(f"grown_{n}") for n in range(grown))]}
    if VICE == "toolless":
        raise LookupError
    if VICE == "collide":
        return {"tools": [tool("a.b"), tool("a b"), tool("a_b"), tool("x" * 100), tool("y" * 100)]}
    return {"tools": [*TOOLS, *(tool(f"grown_{n}") for n in range(grown))]}


def answer(message: dict[str, Any]) -> None:
    method, request_id = message.get("method"), message.get("id")
    params = message.get("params", {})
    if method == "notifications/cancelled":
        cancelled.append(params["requestId"])
        (HOME / "cancelled").touch()
    if request_id is None:
        return
    info = {"name": "fake", "version": "1"}
    abilities = {"tools": {"listChanged": True}}
    if method == "initialize" and VICE == "modern":
        data = {"supported": [MODERN], "requested": params["protocolVersion"]}
        send({"id": request_id, "error": {"code": -32022, "message": "too old", "data": data}})
    elif method == "server/discover" and VICE == "modern":
        fields = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
        known = {"supportedVersions": [MODERN], "capabilities": abilities}
        send({"id": request_id, "result": fields | known})
    elif method == "initialize":
        version = params["protocolVersion"]
        known = {"protocolVersion": version, "capabilities": abilities, "serverInfo": info}
        send({"id": request_id, "result": known})
    elif method == "tools/list":
        try:
            fields = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
            extra = fields if VICE == "modern" else {}
            send({"id": request_id, "result": listed(params) | extra})
        except LookupError:
            send({"id": request_id, "error": {"code": -32601, "message": "no such method"}})
    elif method == "tools/call":
        words = (request_id, params["name"], params.get("arguments", {}), params.get("_meta", {}))
        threading.Thread(target=call, args=words, daemon=True).start()
    else:
        send({"id": request_id, "error": {"code": -32601, "message": "no such method"}})


def flood() -> None:
    """As fast as the pipes take it."""
    noise = {"level": "info", "data": "x" * 200}
    while True:
        send({"method": "notifications/message", "params": noise})


def ask() -> None:
    """And read no answer, once there is a session."""
    listening.wait()
    number = 0
    while True:
        number += 1
        send({"id": f"ask {number}", "method": "ping"})


def complain() -> None:
    while True:
        sys.stderr.write("floods canary-secret\n" * 1000)


def begin() -> None:
    if VICE == "crashes":
        sys.exit("boom: no such module, key canary-secret")
    if VICE == "mute":
        signal.pause()
    if VICE == "malformed":
        sys.stdout.write('Welcome!\n{"jsonrpc": "2.0", "id": \n[]\n{"id": 1}\n\xff\n\n"x"\n')
    if VICE == "babbles":
        sys.stdout.write("Welcome to the server!\n")
        sys.stdout.flush()
        signal.pause()
    if VICE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if VICE == "grandchild":
        subprocess.Popen([sys.executable, "-c", SLEEP])
    if VICE == "orphans":
        # Its parent ends at once, so that the gateway inherits it.
        orphan = f"import subprocess; subprocess.Popen([{sys.executable!r}, '-c', {SLEEP!r}])"
        subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.DEVNULL, check=True)
    if VICE == "asks":
        threading.Thread(target=ask, daemon=True).start()
    if VICE == "floods":
        threading.Thread(target=flood, daemon=True).start()
        threading.Thread(target=complain, daemon=True).start()
    if VICE == "long-line":
        while True:
            sys.stdout.write("x" * 65536)


def main() -> None:
    begin()
    for line in sys.stdin:
        answer(json.loads(line))
        if VICE == "asks" and "tools/list" in line:
            listening.set()
            signal.pause()
    if VICE == "deaf":
        signal.pause()


if __name__ == "__main__":
    main()
