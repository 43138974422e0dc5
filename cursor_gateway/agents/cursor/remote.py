"""A remote agent: one on another machine or in a container, behind a command such as `ssh devbox`.

Only its three pipes reach across. What the gateway puts into the workspace of a local agent is not
there; neither is the relay. So a small script goes along, for the shell on the other side. It makes
an empty directory and puts the CLI's permissions there, without which the agent could use its own
tools, and removes it afterwards. And it watches: nothing over there knows that an `ssh` was stopped
here, and an agent that thinks would think on. A line to stderr that nobody takes is how the script
notices.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cursor_gateway.settings import Settings, SettingsError

# Each is about what is on this machine only.
_LOCAL = ("isolate", "workspace", "workspace_roots", "agent_executable")

# $1 is the directory's name, $2 the permissions or nothing, the rest is the agent's command line. A
# `--workspace` at its end gets the directory. It is not in /tmp, where others could lay one out for
# us. A chat that is taken up comes back to its directory, perhaps before the last one has left; so
# it is removed by the last who came. What runs in the background must not hold stdout, or sshd
# would wait for it, and gets no stdin from a shell unless by another number.
_SCRIPT = r"""
PATH=$PATH:$HOME/.local/bin
umask 077
place=${XDG_CACHE_HOME:-$HOME/.cache}/cursor-gateway/$1
mkdir -p "$place/.cursor" && cd "$place" && echo $$ >.cursor/owner || exit 1
[ -z "$2" ] || printf %s "$2" >.cursor/cli.json || exit 1
shift 2
case "$*" in *--workspace) set -- "$@" "$PWD" ;; esac
clear() { cd /; read -r owner <"$place/.cursor/owner" && [ "$owner" = $$ ] && rm -rf "$place"; }
trap : HUP INT TERM
exec 3<&0 </dev/null
"$@" <&3 3<&- &
agent=$!
exec 3<&-
(
    trap "" PIPE
    while sleep 1 2>/dev/null && echo >&2; do :; done
    trap "" TERM
    kill -TERM 0
    sleep 1
    clear
    kill -KILL 0
) >/dev/null &
watch=$!
wait "$agent"
code=$?
while kill -0 "$agent" 2>/dev/null; do wait "$agent"; code=$?; done
kill -KILL "$watch" 2>/dev/null
clear 2>/dev/null
exit "$code"
"""


def check(settings: Settings) -> None:
    """Whether what is set can be true of a remote agent."""
    if not settings.agent_command:
        return
    if len(words_of(settings.agent_command)) < 2:
        raise SettingsError(
            "agent_command must end with the agent's program on the other side, "
            "such as `ssh devbox cursor-agent`."
        )
    for name in _LOCAL:
        if getattr(settings, name):
            raise SettingsError(f"{name} is not possible together with agent_command.")
    if settings.tool_channel == "relay":
        raise SettingsError("tool_channel cannot be relay together with agent_command.")


def words_of(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise SettingsError(f"agent_command cannot be read: {error}.") from None


def carried(argv: Sequence[str], prefix: int, place: str, permissions: str = "") -> list[str]:
    """The command line that runs `argv` in a directory named `place`; its first `prefix` words are
    what leads there."""
    beyond = ["sh", "-c", _SCRIPT, "sh", place, permissions, *argv[prefix:]]
    # ssh makes one text of its words, which a shell takes apart again.
    if Path(argv[0]).name == "ssh":
        beyond = [shlex.quote(word) for word in beyond]
    return [*argv[:prefix], *beyond]
