"""Troubleshooting: what a person sees, why, and the command that fixes it.

The page is made of this table, of the error tree and of the doctor's checks; tests/test_docs.py
checks that every error and every check has its symptom, and that the program says what is quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cursor_gateway import errors
from cursor_gateway.agents.sdk.texts import (
    INSTALL,
    BridgeNotFound,
    BridgeOutdated,
    KeyInvalid,
    KeyMissing,
)
from cursor_gateway.errors import GatewayError


@dataclass(frozen=True, slots=True)
class Symptom:
    # What is on the screen. In quotes: words of the gateway, of the CLI or of a client.
    seen: str
    why: str
    # The command that fixes it, or shows more.
    command: str = ""
    # The errors behind it; their hints and codes go onto the page.
    kinds: tuple[type[GatewayError], ...] = ()
    # The doctor's check that finds it.
    check: str = ""


LAST_ERRORS = "cursor-gateway logs --outcome error --since 10m"

GROUPS: dict[str, Sequence[Symptom]] = {
    "Installing": (
        Symptom(
            "“externally-managed-environment”",
            "The system's own Python lets nobody install into it. This command makes a separate "
            "environment for the gateway; so do `pipx install .` and `uv tool install .`.",
            "make install",
        ),
        Symptom(
            "“cursor-gateway: command not found”",
            "`make install` puts the command into `~/.local/bin`, which may not be on PATH. After "
            "`make serve` alone there is only `.venv/bin/cursor-gateway`.",
            'make install; export PATH="$HOME/.local/bin:$PATH"',
        ),
    ),
    "Nothing answers": (
        Symptom(
            "“Connection refused”, “fetch failed”, “APIConnectionError”",
            "No gateway listens there: it is not running, or it uses another port than the client.",
            "cursor-gateway serve",
            check="clients",
        ),
        Symptom(
            "The client only spins",
            "Most clients retry a failure that may pass, and show nothing meanwhile. After two "
            "or three agents the gateway makes a lasting failure final, and the client shows it. "
            "Until then the journal has the reason; it has the agent's own last words only with "
            "`record_prompts`.",
            LAST_ERRORS,
        ),
        Symptom(
            "It worked, and now every request goes to a proxy",
            "`HTTP_PROXY` is set, and the client also sends requests for this machine to the "
            "proxy.",
            "export NO_PROXY=127.0.0.1,localhost",
            check="clients",
        ),
        Symptom(
            "“is in use by”",
            "Another program or another gateway uses the port. `--port 0` takes a free one.",
            "cursor-gateway serve --port 0",
            check="port",
        ),
        Symptom(
            "“There is nothing at this path.”",
            "The base URL is too long: Anthropic's clients add `/v1` themselves, other clients add "
            "what follows `/v1`. `setup` shows the right base URL for your client.",
            "cursor-gateway setup claude-code",
            (errors.RouteNotFound, errors.MethodNotAllowed),
        ),
        Symptom(
            "“does not know what the request expects”",
            "A client, or a proxy in front of the gateway, sends the header `Expect` with another "
            "value than `100-continue`. Requests without the header work.",
            "curl -H 'Expect:' http://127.0.0.1:32124/health",
            (errors.ExpectationFailed,),
        ),
        Symptom(
            "“The gateway is shutting down.”",
            "Somebody stopped the gateway when the request came.",
            "cursor-gateway service status",
            (errors.ShuttingDown,),
        ),
    ),
    "Sign-in and plan": (
        Symptom(
            "“is not signed in”, “Authentication required”",
            "Nobody has signed in with the CLI, or the sign-in has expired.",
            "cursor-gateway login",
            (errors.NotAuthenticated,),
            check="sign-in",
        ),
        Symptom(
            "“SecItemCopyMatching failed”",
            "On macOS the CLI stores the sign-in in the keychain. A process with another `HOME`, "
            "or outside your session, cannot open it. A CLI of July 2026 or later can store the "
            "sign-in in a file.",
            "export AGENT_CLI_CREDENTIAL_STORE=file; cursor-gateway login",
        ),
        Symptom(
            "“The provided API key is invalid.”",
            "`CURSOR_API_KEY` is set for the gateway, and Cursor does not know that key. The CLI "
            "can use the browser sign-in instead; the SDK bridge needs a valid key.",
            "unset CURSOR_API_KEY; cursor-gateway login",
            (errors.AgentKeyInvalid, KeyInvalid),
            check="sign-in",
        ),
        Symptom(
            "“You've hit your usage limit”",
            "The plan's usage is spent until its cycle ends. The gateway tells clients not to "
            "retry, and for 15 s it gives the same answer for that model without asking Cursor.",
            "cursor-gateway ask --model auto Hello",
            (errors.QuotaExceeded,),
        ),
        Symptom(
            "“named models unavailable”, “free plans can only”",
            "The plan does not include the model.",
            "cursor-gateway ask --model auto Hello",
            (errors.PlanRequired,),
        ),
        Symptom(
            "“rate limit”, “too many requests”",
            "Cursor limits the pace of requests. The same request may pass later; fewer `slots` "
            "keep a busy client below the limit.",
            "cursor-gateway serve --slots 2",
            (errors.RateLimited,),
        ),
    ),
    "Models": (
        Symptom(
            "“There is no model”, “Cannot use this model”",
            "The account does not have it under that name. The message names the nearest three; "
            "an [alias](configuration.md#aliases) gives a model the name that a client insists on.",
            "cursor-gateway models",
            (errors.ModelNotFound,),
            check="models",
        ),
        Symptom(
            "“model_blocked”, “unsupported_region”",
            "The team, the region or the mode of the account forbids the model.",
            "cursor-gateway models",
            (errors.ModelBlocked,),
        ),
        Symptom(
            "The client shows an old list of models, or only `auto`",
            "OpenCode, Droid, Continue and pi have the list in their own file. This command "
            "updates it.",
            "cursor-gateway setup opencode --write",
            check="clients",
        ),
        Symptom(
            "“This is the demo agent of cursor-gateway”",
            "No model answers: the gateway was started with `--demo`, or by `make serve` where no "
            "`cursor-agent` was found.",
            "cursor-gateway serve",
            check="agent",
        ),
    ),
    "The agent": (
        Symptom(
            "“is neither on PATH nor in ~/.local/bin”",
            "Cursor's CLI is not installed, or not for the user or service that runs the gateway.",
            "curl https://cursor.com/install -fsS | bash",
            (errors.AgentNotFound,),
            check="agent",
        ),
        Symptom(
            "“agent_command begins with”",
            "The program that starts the remote agent, such as `ssh`, is not on this machine's "
            "PATH.",
            "cursor-gateway config",
            (errors.NoWayToAgent,),
            check="agent",
        ),
        Symptom(
            "“error: unknown option”",
            "The CLI is too old for the options that the gateway passes.",
            "cursor-agent update",
            (errors.AgentOutdated,),
            check="agent-version",
        ),
        Symptom(
            "“Workspace Trust Required”",
            "An older CLI asks whether it may work in the directory, and nobody can answer it.",
            "cursor-agent update",
            (errors.WorkspaceNotTrusted,),
            check="agent-version",
        ),
        Symptom(
            "“ended without a result”, “Cursor's agent failed”",
            "The CLI crashed, or failed with words that the gateway does not know. The message "
            "holds its last words.",
            "cursor-gateway doctor --live",
            (errors.AgentFailed,),
            check="probed",
        ),
        Symptom(
            "“cli-config.json”",
            "Agents that started at the same moment broke the CLI's own file. The gateway retries "
            "such a start; the doctor finds what is left of a broken one.",
            "cursor-gateway doctor",
            check="config-race",
        ),
        Symptom(
            "“ENOTFOUND”, “RetriableError”, “http/2 stream closed”",
            "The CLI does not reach Cursor: network, proxy, firewall, or Cursor itself.",
            "cursor-agent models",
            (errors.CursorUnreachable,),
            check="models",
        ),
        Symptom(
            "“(first_event_timeout)”, “(idle_timeout)”, “(total_timeout)”",
            "The agent was silent, or worked, longer than the setting in the message allows. "
            "See [configuration.md](configuration.md#first_event_timeout).",
            "cursor-gateway serve --idle-timeout 900",
            (errors.AgentTimedOut,),
        ),
        Symptom(
            "“agents are running and”",
            "All slots and the queue are full: a client has started many requests at once.",
            "cursor-gateway serve --slots 20",
            (errors.TooManyRequests,),
        ),
        Symptom(
            "“Too much is being read and answered at once”, “no memory left”",
            "The gateway serves several large requests (mostly with images or whole files) at the "
            "same time, or it may use only little memory.",
            "cursor-gateway serve --max-body-mb 128",
            (errors.NoMemory,),
        ),
        Symptom(
            "“new connections must wait”",
            "The gateway has as many files and connections open as the system allows. It closes "
            "unused connections to make room; a higher limit allows more.",
            "ulimit -n 4096; cursor-gateway serve",
        ),
        Symptom(
            "“others listen already”",
            "Each open page of the gateway, and whatever else reads `/v1/events`, holds a "
            "connection for as long as it is open.",
            "curl http://127.0.0.1:32124/v1/requests",
            (errors.TooManyListeners,),
        ),
        Symptom(
            "“cannot be started: ” too many open files, or no memory",
            "The machine, or the gateway's share of it, has no room for another agent, and the "
            "gateway has no waiting agent left that it could end.",
            "cursor-gateway serve --slots 4 --parked-per-slot 1",
            (errors.OutOfResources,),
        ),
        Symptom(
            "“No agent can work in”, “No directory for agents can be made”, “no temporary file can "
            "be written”",
            "Each request needs its own directory, and the gateway cannot make it: the disk is "
            "full or read-only, or another user has put something in its place. The gateway "
            "recovers as soon as it can make the directory.",
            "df -h /tmp; df -i /tmp; cursor-gateway doctor",
            (errors.ScratchUnusable,),
            check="scratch",
        ),
        Symptom(
            "“isolate: ”",
            "The setting `isolate` is on, but bubblewrap is missing or may not run here. The "
            "gateway does not start without the isolation that the setting asks for.",
            "sudo apt install bubblewrap",
            check="isolation",
        ),
        Symptom(
            "“this version of the CLI disobeys the deny list”",
            "A probe saw an agent use a tool, read a file or call an MCP server that the deny list "
            "forbids. An update of the CLI may fix it; until then `--isolate` keeps agents away "
            "from your files.",
            "cursor-agent update; cursor-gateway doctor --live",
            check="obedience",
        ),
        Symptom(
            "The command that ran is not the one that the agent asked for",
            "Your hooks for Cursor or Claude Code also run in the gateway's runs and may rewrite "
            "commands and calls. The doctor names the files.",
            "cursor-gateway doctor",
            check="hooks",
        ),
        Symptom(
            "A model calls tools of your own MCP servers that no client offered",
            "`approvalMode` is `unrestricted` in the CLI's `cli-config.json`, so the CLI approves "
            "whatever no list names. `allowlist` stops that.",
            "cursor-gateway doctor",
            check="approval",
        ),
        Symptom(
            "“cannot be written”, no records in `cursor-gateway logs`",
            "The gateway's state directory, or a client's file, belongs to another user; often to "
            "root, after a `sudo`.",
            "cursor-gateway doctor",
            check="state",
        ),
        Symptom(
            "Processes named `cursor-agent` though no gateway runs",
            "They are leftover processes of a gateway that was killed together with its guardian.",
            "cursor-gateway doctor",
            check="strays",
        ),
        Symptom(
            "“internal_error”, status 500",
            "The gateway has a bug. Its log has the traceback under the request id. Please report "
            "it together with the output of `doctor --json`.",
            "cursor-gateway doctor --json",
            (errors.GatewayError,),
            check="versions",
        ),
    ),
    "The SDK bridge": (
        Symptom(
            "“Cursor's SDK works with an API key only”, “knows no sign-in in a browser”",
            "`agent` is `sdk`, and `CURSOR_API_KEY` is not set where the gateway runs. The CLI's "
            "sign-in does not count there. A service reads the key from "
            "[its own file](running.md#as-a-service).",
            "export CURSOR_API_KEY=…; cursor-gateway doctor",
            (KeyMissing,),
            check="agent-key",
        ),
        Symptom(
            "“is neither beside this Python nor on PATH”, “which is not an executable program”",
            "`agent` is `sdk`, and the gateway does not find Cursor's program `cursor-sdk-bridge`, "
            "or `CURSOR_SDK_BRIDGE_BIN` names something else. The package must be in the Python "
            "environment that the gateway runs in: [agents.md](agents.md#what-each-needs).",
            INSTALL,
            (BridgeNotFound,),
            check="agent",
        ),
        Symptom(
            "“Cursor's SDK bridge speaks”, “Cursor's SDK bridge has”",
            "The bridge that was found speaks another protocol than `sdk.v1`, or reports its start "
            "in another form than the gateway knows.",
            f"{INSTALL} --upgrade",
            (BridgeOutdated,),
            check="agent-version",
        ),
        Symptom(
            "“Cursor's SDK bridge failed”, “Cursor's SDK bridge has ended”",
            "The bridge did not start, ended by itself, or broke off an answer. The gateway starts "
            "it again; if it ends again and again, each start waits longer, up to a minute. The "
            "doctor shows its last words.",
            "cursor-gateway doctor",
            check="agent-version",
        ),
        Symptom(
            "`plan_required` for every model",
            "Cursor does not let this plan use the SDK; free plans were refused. The print CLI "
            "works with the browser sign-in.",
            "unset CURSOR_API_KEY CURSOR_GATEWAY_AGENT; cursor-gateway login",
        ),
        Symptom(
            "Cursor's bill shows requests that the plan should include",
            "Requests with an API key are billed by Cursor as such. The tokens of each request are "
            "in the journal; its price is only in Cursor's dashboard. With the browser sign-in the "
            "CLI uses the plan.",
            "cursor-gateway logs --since 1d",
        ),
        Symptom(
            "“and `agent` is `sdk`: unset one of them”",
            "`isolate` and `agent_command` are settings of the print CLI. The gateway does not "
            "start without what they ask for.",
            "cursor-gateway config",
        ),
    ),
    "The client is refused": (
        Symptom(
            "“The gateway's API key is missing or wrong.”",
            "The gateway has an `api_key`, and the client sends none or another one. Claude Code "
            "shows “Invalid API key” or “Not logged in”.",
            "cursor-gateway setup claude-code --write",
            (errors.InvalidApiKey,),
        ),
        Symptom(
            "“This gateway does not answer to that host name.”",
            "The client uses a host name that is not loopback: a container's "
            "`host.docker.internal`, a name in `/etc/hosts`, a tunnel.",
            "cursor-gateway serve --allowed-hosts host.docker.internal",
            (errors.HostNotAllowed,),
        ),
        Symptom(
            "“Pages of that origin may not use this gateway.”, a CORS error in the browser",
            "The request comes from a web page of another machine.",
            "cursor-gateway serve --cors-origins https://chat.example.com",
            (errors.OriginNotAllowed,),
        ),
        Symptom(
            "“The body must be JSON.”, “The body is not valid JSON”",
            "Often `curl` without its header, or quotes that the shell has removed.",
            kinds=(
                *(errors.UnsupportedMediaType, errors.InvalidJson, errors.MissingMessages),
                errors.InvalidRequest,
            ),
        ),
        Symptom(
            "“The request body is too large.”",
            "The conversation mostly holds images or whole files.",
            "cursor-gateway serve --max-body-mb 128",
            (errors.BodyTooLarge,),
        ),
        Symptom(
            "“The body did not come within”",
            "The client began a request and did not send the rest.",
            LAST_ERRORS,
            (errors.BodyTooSlow,),
        ),
        Symptom(
            "“The conversation has”, “conversation is too long”",
            "The conversation is longer than `max_prompt_mb`, or than the model's context. Most "
            "clients can compact it.",
            kinds=(errors.ContextTooLong,),
        ),
        Symptom(
            "“The image at”, “is not a PNG, JPEG, GIF or WebP image”",
            "The image is broken, too large, or of a kind that models do not read.",
            kinds=(errors.InvalidImage,),
        ),
        Symptom(
            "“Only one choice is possible”, “cannot be given to Cursor's agent”",
            "The gateway cannot do what the parameter asks for, so it refuses the request: "
            "[limits.md](limits.md).",
            kinds=(errors.UnsupportedParameter,),
        ),
        Symptom(
            "“X-Cursor-Workspace names no directory that is allowed.”",
            "The directory does not exist, or is not below any of the `workspace_roots`.",
            "cursor-gateway serve --workspace-roots ~/projects",
            (errors.WorkspaceNotAllowed,),
        ),
        Symptom(
            "“There are no WebSockets here.”",
            "The client tried a WebSocket first; it continues over HTTP on its own.",
            kinds=(errors.WebSocketRefused,),
        ),
        Symptom(
            "“This path is for WebSockets.”",
            "The path ends in `/ws`, but the client sent a plain HTTP request.",
            kinds=(errors.WebSocketExpected,),
        ),
        Symptom(
            "“The previous answer is still in progress.”, “There is no message of that type.”",
            "The client sent a message on the WebSocket that the gateway does not know, or cannot "
            "take during an answer.",
            kinds=(errors.AnswerInProgress, errors.InvalidMessage),
        ),
        Symptom(
            "“Previous response with id”, “Response with id”",
            "The response is older than the running gateway, or the gateway dropped it to make "
            "room.",
            "cursor-gateway serve --kept-responses-mb 256",
            (errors.PreviousResponseNotFound, errors.ResponseNotFound),
        ),
        Symptom(
            "“Not among the running and the last”",
            "The request is older than those that the gateway has in memory.",
            "cursor-gateway logs --since 1d",
            (errors.RequestNotFound,),
        ),
    ),
    "Answers and tools": (
        Symptom(
            "“cursor-gateway stopped a loop”",
            "The model made the same call with the same result again and again. The gateway told "
            "it so, and it went on. [How the loop guard decides](tools.md#the-loop-guard).",
            "cursor-gateway serve --tool-loop-max-repeat 5",
        ),
        Symptom(
            "The model says that it cannot read or edit files or run commands",
            "The client sent no tools, and the agent may not use its own in an empty directory. "
            "Use a client that has tools, or name a workspace: [tools.md](tools.md).",
            "cursor-gateway serve --workspace . --agent-mode agent",
        ),
        Symptom(
            "Chats of the gateway are not in `cursor-agent ls`",
            "The gateway removes the CLI's transcripts of them: "
            "[security.md](security.md#what-the-cli-keeps).",
            "cursor-gateway serve --transcripts keep",
        ),
        Symptom(
            "Tools of an MCP server are missing",
            "The server is not connected, or the gateway cannot read its entry.",
            "cursor-gateway mcp list",
            check="mcp",
        ),
        Symptom(
            "“There is no tool”, “Tools may not be called directly.”",
            "A script calls tools over HTTP, and the tool does not exist or the setting is off.",
            "cursor-gateway serve --mcp-call-endpoint",
            (errors.ToolNotFound, errors.ToolCallsNotAllowed),
        ),
        Symptom(
            "“does not fit response_format”",
            "The gateway asked the model twice for JSON of that schema, and it wrote something "
            "else.",
            kinds=(errors.OutputInvalid,),
        ),
        Symptom(
            "The log says “chats are not resumed”, or `resume` is false in `/health`",
            "This version of the CLI resumed a chat without its history, so the model knew nothing "
            "of the conversation. The gateway sends whole conversations until another version is "
            "installed.",
            "cursor-agent update",
        ),
        Symptom(
            "The first word takes long",
            "Each new conversation starts a process. The `timeline` of the record shows where the "
            "time went; `doctor --live` measures the CLI alone.",
            "cursor-gateway logs --json --lines 1",
            check="probed",
        ),
        Symptom(
            "“warm starts do not help with this version of the CLI and are not made”",
            "The CLI boots only when it has its prompt, so a warm agent would be as slow as any "
            "other. An update may change that; `--live` measures it again.",
            "cursor-gateway doctor --live",
            check="warm",
        ),
    ),
    "Words of the clients": (
        Symptom(
            "Droid: “Exec failed”",
            "Droid shows no more in text mode. With `-o stream-json` it prints the message.",
            'droid exec -o stream-json "Hello"',
        ),
        Symptom(
            "Codex: “We're currently experiencing high demand”",
            "Codex shows any 5xx like that, wherever it comes from.",
            LAST_ERRORS,
        ),
        Symptom(
            "Codex: “stream closed before response.completed”",
            "The answer broke off. The journal says why.",
            LAST_ERRORS,
        ),
        Symptom(
            "aider: a warning about unknown context window and costs",
            "aider does not know the models of your account. Nothing is wrong.",
            "aider --no-show-model-warnings",
        ),
    ),
}


def symptoms() -> list[Symptom]:
    return [symptom for group in GROUPS.values() for symptom in group]
