"""The demo agent: a small program that keeps cursor-agent's contract, with no model behind it.

It exists so that a newcomer without the CLI can try the gateway, and so that the demo and the tests
walk the very path that the real CLI walks: start, stdin, NDJSON, exit. `Emitter` writes the stream
as the CLI does, with its buffer and its four places of repetition (docs/cursor-agent.md); the tests
build their misbehaving agents on it. Standard library only: it starts once per request.
"""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import IO, Any

VERSION = "2026.09.15-demo"
MODELS = (("auto", "Auto (default)"), ("demo-echo", "Demo Echo"), ("demo-fast", "Demo Fast"))
TIP = (
    "Tip: use --model <id> (or /model <id> in interactive mode) to switch. Parameterized models "
    "also accept quoted overrides, e.g. "
    "--model 'claude-opus-4-8[context=1m,effort=high,fast=false]'."
)
ACCOUNT = "demo@localhost"
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"\s*\S+|\s+$")
_RESULT_ENDS = "\n</tool_result>"

# The root flags of the CLI, and whether each takes a value.
_SWITCHES = frozenset(
    "-p --print --stream-partial-output --list-models --plan --continue -f --force --yolo "
    "--auto-review --trust --approve-mcps --skip-worktree-setup -c --cloud -v --version "
    "-h --help".split()
)
_VALUED = frozenset(
    "--output-format --model --mode --sandbox --workspace --add-dir --plugin-dir --worktree-base "
    "--api-key --auth-token -e --endpoint -H --header -n --name --new-session-id --format".split()
)
_OPTIONAL = frozenset("--resume -w --worktree".split())
_CHOICES = {
    "--output-format": ("text", "json", "stream-json"),
    "--mode": ("plan", "ask"),
    "--sandbox": ("enabled", "disabled"),
}


class UsageError(Exception):
    """What the CLI's option parser prints before it exits with 1."""


def parse_arguments(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options by flag, and the words of the prompt or sub-command."""
    options: dict[str, str] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag == "--":
            words += rest
            break
        if not flag.startswith("-") or flag == "-":
            words.append(flag + equals + value)
        elif flag in _SWITCHES:
            options[flag] = ""
        elif flag in _OPTIONAL:
            options[flag] = value if equals else _value_if_any(rest)
        elif flag in _VALUED:
            if not equals and not rest:
                raise UsageError(f"error: option '{flag} <value>' argument missing")
            options[flag] = _checked(flag, value if equals else rest.pop(0))
        else:
            raise UsageError(f"error: unknown option '{flag}'")
    return options, words


def _value_if_any(rest: list[str]) -> str:
    return rest.pop(0) if rest and not rest[0].startswith("-") else ""


def _checked(flag: str, value: str) -> str:
    choices = _CHOICES.get(flag)
    if choices and value not in choices:
        allowed = ", ".join(choices)
        raise UsageError(
            f"error: option '{flag} <value>' argument '{value}' is invalid. "
            f"Allowed choices are {allowed}."
        )
    return value


class Emitter:
    """Writes a run as the CLI does with `--output-format stream-json`."""

    def __init__(
        self, out: IO[str], *, partial: bool, model: str = "Auto", session: str = ""
    ) -> None:
        self._out = out
        self._partial = partial
        self._model = model
        self.session_id = session or str(uuid.uuid4())
        self.request_id = str(uuid.uuid4())
        # Tool calls between which the model said nothing were made at once, in one model call.
        self._model_calls = 0
        # What was said since the last repetition, and all that was said.
        self._buffer: list[str] = []
        self._answer: list[str] = []

    def write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        # JSON.stringify writes half a character as an escape; UTF-8 could not carry it.
        line = _HALF_CHARACTER.sub(lambda half: f"\\u{ord(half[0]):04x}", line)
        self._out.write(line + "\n")
        self._out.flush()

    def init(self, cwd: str, prompt: str) -> None:
        self.write({"type": "system", "subtype": "init", "apiKeySource": "login", "cwd": cwd}
                   | {"session_id": self.session_id, "model": self._model}
                   | {"permissionMode": "default"})  # fmt: skip
        self.write({"type": "user", "message": _message("user", prompt)} | self._session())

    def thinking(self, pieces: Iterable[str]) -> None:
        self._model_calls += 1
        for text in pieces:
            self.write({"type": "thinking", "subtype": "delta", "text": text} | self._stamp())
        self.write({"type": "thinking", "subtype": "completed"} | self._stamp())

    def text(self, piece: str) -> None:
        """A batch of tokens."""
        self._model_calls += 1
        self._buffer.append(piece)
        self._answer.append(piece)
        if self._partial:
            self.write(self._assistant(piece) | self._stamp())

    def tool_call(
        self, tool: str, args: dict[str, Any], result: dict[str, Any] | None = None
    ) -> str:
        """A tool of the agent's own: announced, and completed when there is a `result`."""
        call_id = f"tool_{uuid.uuid4()}"
        call = {"model_call_id": f"{self.request_id}-{self._model_calls}-demo"}
        self._repeat_buffer(call | self._stamp())
        body: dict[str, Any] = {f"{tool}ToolCall": {"args": args}, "toolCallId": call_id}
        event = {"type": "tool_call", "subtype": "started", "call_id": call_id, "tool_call": body}
        self.write(event | call | self._stamp())
        if result is not None:
            done = {f"{tool}ToolCall": {"args": args, "result": result}, "toolCallId": call_id}
            self.write(event | {"subtype": "completed", "tool_call": done} | call | self._stamp())
        return call_id

    def interaction_query(self, query: str, args: dict[str, Any]) -> None:
        """A question to the user, which print mode answers itself in the same moment."""
        self._repeat_buffer(self._stamp())
        event = {"type": "interaction_query", "query_type": f"{query}RequestQuery"}
        asked = {"subtype": "request", "query": {"id": 0, f"{query}RequestQuery": {"args": args}}}
        rejected = {f"{query}RequestResponse": {"rejected": {"reason": "User Rejected"}}}
        self.write(event | asked | self._stamp())
        self.write(
            event | {"subtype": "response", "response": {"id": 0} | rejected} | self._stamp()
        )

    def retry(self) -> None:
        self._repeat_buffer(self._stamp())
        self.write({"type": "retry", "subtype": "starting", "attempt": 1} | self._stamp())

    def end_turn(self) -> None:
        self._repeat_buffer(self._session())

    def result(self, *, usage: bool = True, prompt: str = "", recalled: str = "") -> None:
        """The end; the model has read `prompt`, of which it knew what was `recalled`."""
        self.end_turn()
        answer = "".join(self._answer)
        event: dict[str, Any] = {"type": "result", "subtype": "success", "duration_ms": 10}
        event |= {"duration_api_ms": 10, "is_error": False, "result": answer}
        event |= self._session() | {"request_id": self.request_id}
        if usage:
            event["usage"] = {
                "inputTokens": (len(prompt) - len(recalled)) // 4 + 1,
                "outputTokens": len(answer) // 4 + 1,
                "cacheReadTokens": len(recalled) // 4,
                "cacheWriteTokens": 0,
            }
        self.write(event)

    def _repeat_buffer(self, fields: dict[str, Any]) -> None:
        if self._buffer:
            self.write(self._assistant("".join(self._buffer)) | fields)
            self._buffer.clear()

    def _assistant(self, text: str) -> dict[str, Any]:
        return {"type": "assistant", "message": _message("assistant", text)}

    def _session(self) -> dict[str, Any]:
        return {"session_id": self.session_id}

    def _stamp(self) -> dict[str, Any]:
        return {"session_id": self.session_id, "timestamp_ms": int(time.time() * 1000)}


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def list_models(out: IO[str], models: Iterable[tuple[str, str]] = MODELS) -> None:
    listed = "\n".join(f"{model} - {name}" for model, name in models)
    out.write(f"Available models\n\n{listed}\n\n{TIP}\n")


def write_status(out: IO[str], account: str, output_format: str = "text") -> None:
    """`status`, signed in as `account` or, when that is empty, not at all. Exit code 0 for both."""
    if output_format != "json":
        out.write(f"\n ✓ Logged in as {account}\n\n" if account else "Not logged in\n")
        return
    status: dict[str, Any] = {
        "status": "authenticated" if account else "unauthenticated",
        "isAuthenticated": bool(account),
        "hasAccessToken": bool(account),
        "hasRefreshToken": bool(account),
    }
    status |= {"userInfo": {"email": account}} if account else {"message": "Not logged in"}
    out.write(json.dumps(status, indent=2) + "\n")


def read_prompt() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def utf8_stdout() -> IO[str]:
    """The CLI writes UTF-8 whatever the locale says."""
    return open(1, "w", encoding="utf-8", closefd=False)


def main(argv: Sequence[str]) -> int:
    with utf8_stdout() as out:
        return _main(argv, out)


def _main(argv: Sequence[str], out: IO[str]) -> int:
    try:
        options, words = parse_arguments(argv)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.keys() & {"-v", "--version"}:
        out.write(f"{VERSION}\n")
    elif words[:1] in (["status"], ["whoami"]):
        write_status(out, ACCOUNT, options.get("--format", "text"))
    elif words[:1] == ["models"] or "--list-models" in options:
        list_models(out)
    elif words[:1] == ["login"]:
        out.write("The demo agent needs no sign-in.\n")
    else:
        return _answer(options, words, out)
    return 0


def _answer(options: dict[str, str], words: list[str], out: IO[str]) -> int:
    model = options.get("--model", "auto")
    names = dict(MODELS)
    if model not in names:
        available = ", ".join(names)
        sys.stderr.write(f"Cannot use this model: {model}. Available models: {available}\n")
        return 1
    prompt = " ".join(words) or read_prompt()
    answer = _demo_answer(prompt)
    if options.get("--output-format") != "stream-json":
        out.write(answer + "\n")
        return 0
    partial = "--stream-partial-output" in options
    emitter = Emitter(out, partial=partial, model=names[model].removesuffix(" (default)"))
    emitter.init(options.get("--workspace", "."), prompt)
    emitter.thinking(["This is the demo agent. ", "There is no model to think."])
    pause = 0.0 if model == "demo-fast" else 0.03
    for piece in _WORD.findall(answer):
        emitter.text(piece)
        time.sleep(pause)
    emitter.result(prompt=prompt)
    return 0


def _demo_answer(prompt: str) -> str:
    if prompt.rstrip().endswith(_RESULT_ENDS):
        last = prompt.rpartition("<tool_result")[2].partition(">\n")[2]
        return f"Your client's tool answered: {last.rpartition(_RESULT_ENDS)[0]}"
    turn = prompt.rpartition('<turn from="user">\n')[2]
    said = turn.partition("\n</turn>")[0].strip()
    # Clients put words of their own beside the user's.
    own, *reminders = said.split("<system-reminder>")
    rest = [reminder.partition("</system-reminder>")[2] for reminder in reminders]
    question = "".join((own, *rest)).strip() or said
    # So that a newcomer sees a call go round: the page at `/` offers this tool.
    if "time" in question.lower() and _offers_time(prompt):
        return '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    if "Reply with one JSON document" in prompt:
        return json.dumps({"demo": True, "question": question[:200]})
    return (
        "This is the demo agent of cursor-gateway: your request travelled the whole way, but no "
        f"model has read it. You wrote: “{question[:500]}” For real answers install "
        "cursor-agent and sign in with `cursor-gateway login`; then start `cursor-gateway serve`."
    )


def _offers_time(prompt: str) -> bool:
    return "get_time" in prompt.partition("<tools>")[2].rpartition("</tools>")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
