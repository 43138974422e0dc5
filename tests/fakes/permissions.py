"""The CLI's permissions, as the fake agent keeps them.

What `.cursor/cli.json` denies is refused, in `--mode ask` as well, and the answers to refused calls
have the shapes that were seen (CLI 2026.10.01): `read` an error, `shell` a `permissionDenied`,
`glob` a success without files.
"""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TOKEN = re.compile(r"(\w+)\((.*)\)")
WILD = {"**": ".*", "*": "[^/]*", "?": "[^/]"}

Result = dict[str, Any]


class Permissions:
    def __init__(self) -> None:
        file = Path(".cursor/cli.json")
        found = json.loads(file.read_text())["permissions"] if file.exists() else {}
        self.allow: list[str] = found.get("allow", [])
        self.deny: list[str] = found.get("deny", [])
        self.obeys = not Path(os.environ["FAKE_AGENT_DIR"], "ignores-deny").exists()
        if not self.obeys:
            self.deny = []

    def denies(self, kind: str, what: str) -> bool:
        return any(matches(token, kind, what) for token in self.deny)

    def lets_call(self, server: str, tool: str) -> bool:
        """Nobody can be asked: what is not allowed is refused, unless the user has said
        `unrestricted`, which allows all that is not denied."""
        what = f"{server}:{tool}"
        allowed = any(matches(token, "Mcp", what) for token in self.allow)
        allowed |= not self.obeys or is_unrestricted()
        return allowed and not self.denies("Mcp", what)


def is_unrestricted() -> bool:
    file = Path("~/.cursor/cli-config.json").expanduser()
    return file.exists() and json.loads(file.read_text()).get("approvalMode") == "unrestricted"


def matches(token: str, kind: str, what: str) -> bool:
    found = TOKEN.fullmatch(token)
    if found is None or found[1] != kind:
        return False
    if kind in ("Read", "Write"):
        return path_matches(found[2], what)
    return fnmatchcase(what, found[2])


def path_matches(pattern: str, path: str) -> bool:
    """A relative pattern is about the workspace; one with `/` or `~/` about everything."""
    words = re.split(r"(\*\*|\*|\?)", absolute(pattern))
    expression = "".join(WILD.get(word) or re.escape(word) for word in words)
    return re.fullmatch(expression, absolute(path), re.DOTALL) is not None


def absolute(path: str) -> str:
    return os.path.normpath(Path.cwd() / Path(path).expanduser())


def use(name: str, args: dict[str, Any], *, asks: bool) -> tuple[Result, bool]:
    """What the CLI's own tool `name` gives back, and whether it was refused."""
    return {"read": read, "glob": find, "shell": shell, "edit": edit, "webFetch": fetch}[name](
        Permissions(), args, asks
    )


def read(permissions: Permissions, args: dict[str, Any], _: bool) -> tuple[Result, bool]:
    path = args["path"]
    if permissions.denies("Read", path):
        return {"error": {"errorMessage": f"Permission denied: {path}"}}, True
    try:
        return {"success": {"content": Path(absolute(path)).read_text("utf-8", "replace")}}, False
    except OSError as error:
        return {"error": {"errorMessage": f"{error.strerror}: {path}"}}, False


def find(permissions: Permissions, args: dict[str, Any], _: bool) -> tuple[Result, bool]:
    folder = absolute(args.get("targetDirectory", "."))
    found = map(str, Path(folder).glob(args["globPattern"]))
    files = sorted(file for file in found if not permissions.denies("Read", file))
    success = {"pattern": args["globPattern"], "path": folder}
    # It says nothing of a refusal.
    return {"success": success | {"files": files, "totalFiles": len(files)}}, not files


def shell(permissions: Permissions, args: dict[str, Any], _: bool) -> tuple[Result, bool]:
    """The mode does not matter: a shell call was seen in `ask`."""
    command = args["command"]
    about = {"command": command, "workingDirectory": str(Path.cwd())}
    if permissions.denies("Shell", command.split()[0]) or permissions.denies("Shell", command):
        error = "Command denied by permissions"
        return {"permissionDenied": about | {"error": error, "isReadonly": False}}, True
    import subprocess

    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return {"success": about | {"exitCode": done.returncode, "stdout": done.stdout}}, False


def edit(permissions: Permissions, args: dict[str, Any], asks: bool) -> tuple[Result, bool]:
    path = args["path"]
    if asks or permissions.denies("Write", path):
        refusal = {"path": path, "error": "Permission denied", "isReadonly": asks}
        return {"writePermissionDenied": refusal}, True
    Path(absolute(path)).write_text(args["streamContent"])
    return {"success": {"path": path, "afterFullFileContent": args["streamContent"]}}, False


def fetch(permissions: Permissions, args: dict[str, Any], _: bool) -> tuple[Result, bool]:
    if permissions.denies("WebFetch", urlsplit(args["url"]).hostname or ""):
        return {"rejected": {"reason": "Permission denied"}}, True
    # Without `--force` nobody approves it.
    return {"rejected": {"reason": "User Rejected"}}, True
