"""Isolation: an agent that sees its workspace, Cursor's own files, and nothing else of the user's.

bubblewrap builds a file system for one process: the operating system's own directories to read, an
empty home with Cursor's directories in it, the workspace, an empty /tmp. Of the transcripts that
the CLI keeps there, it has those of the workspace alone. The network is shared, because the relay
is on it and Cursor behind it. Processes are not: the agent cannot look at the gateway's, nor leave
any behind.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cursor_gateway.agents.cursor.files import config_folders, default_folder
from cursor_gateway.agents.cursor.transcripts import chats_name, project_names
from cursor_gateway.settings import SettingsError
from cursor_gateway.workspaces import Workspace

PROBE_SECONDS = 15.0
# Programs, libraries, certificates, and where names are looked up. None of it is the user's.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/nix")
_NAME_SERVICE = ("/run/systemd/resolve", "/run/resolvconf")


def check(env: Mapping[str, str]) -> None:
    """Whether agents can be isolated here at all."""
    if sys.platform != "linux":
        raise SettingsError("isolate: agents can be isolated on Linux only.")
    if shutil.which("bwrap", path=env.get("PATH")) is None:
        raise SettingsError(
            "isolate: there is no `bwrap` on PATH. Install bubblewrap "
            "(`apt install bubblewrap`, `dnf install bubblewrap`)."
        )
    try:
        probe = subprocess.run(
            [*_empty_system(), "true"],
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SettingsError("isolate: `bwrap` does not answer.") from None
    if probe.returncode:
        raise SettingsError(f"isolate: bubblewrap does not work here: {probe.stderr.strip()}")


def isolated(
    argv: Sequence[str],
    env: Mapping[str, str],
    workspace: Workspace,
    *,
    may_edit: bool,
    hidden: Sequence[str] = (),
) -> list[str]:
    """The command line that runs `argv` so. `may_edit` is about a workspace that the user named;
    `hidden` are other folders of the CLI's with what it keeps of all directories."""
    program = Path(argv[0]).resolve()
    home = Path(env.get("HOME", "~")).expanduser()
    command = [*_empty_system(), "--tmpfs", str(home), *_read_only([_install_of(program)])]
    for directory in config_folders(env):
        command += ["--bind-try", str(directory), str(directory)]
    command += _own_transcripts(workspace.path, env)
    command += _covered(hidden, env)
    if not workspace.is_scratch:
        bind = "--bind" if may_edit else "--ro-bind"
        command += [bind, str(workspace.path), str(workspace.path)]
    command += ["--bind", str(workspace.scratch), str(workspace.scratch)]
    command += ["--setenv", "TMPDIR", "/tmp", "--chdir", str(workspace.path)]  # noqa: S108
    return [*command, "--", str(program), *argv[1:]]


def _empty_system() -> list[str]:
    # Shared: the network. Without `--die-with-parent` nothing would change, but for a gateway that
    # is killed together with its guardian.
    command = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    command += _read_only([*map(Path, _SYSTEM), *map(Path, _NAME_SERVICE)])
    return [*command, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108


def _read_only(paths: Sequence[Path]) -> list[str]:
    return [word for path in paths for word in ("--ro-bind-try", str(path), str(path))]


def _install_of(program: Path) -> Path:
    """The directory of the CLI's version; the program alone where it stands among others."""
    return program.parent if "cursor-agent" in str(program.parent) else program


def _covered(names: Sequence[str], env: Mapping[str, str]) -> Iterator[str]:
    """Made where they are missing: what another agent makes later would be seen."""
    for folder in filter(Path.is_dir, config_folders(env)):
        for name in names:
            (folder / name).mkdir(mode=0o700, exist_ok=True)
            yield from ("--tmpfs", str(folder / name))


def _own_transcripts(directory: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Cover what the CLI keeps of all directories, and uncover what it keeps of this one, without
    which a chat could not be taken up again."""
    own = (("projects", project_names(str(directory))), ("chats", (chats_name(str(directory)),)))
    for folder in filter(Path.is_dir, config_folders(env)):
        for kind, (name, *variants) in own:
            place = folder / kind
            if not place.is_dir() and folder != default_folder(env):
                continue
            (place / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            yield from ("--tmpfs", str(place), "--bind", str(place / name), str(place / name))
            for other in (place / variant for variant in variants):
                yield from ("--bind-try", str(other), str(other))
