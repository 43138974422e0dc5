"""Troubleshooting: what a person sees, why, and the command that mends it.

The page is made of this table, of the error tree and of the doctor's checks; tests/test_docs.py
holds it to them: every error and every check has its symptom, and what is quoted is really said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cursor_gateway import errors
from cursor_gateway.errors import GatewayError


@dataclass(frozen=True, slots=True)
class Symptom:
    # What is on the screen. In quotes: words of the gateway, of the CLI or of a client.
    seen: str
    why: str
    # What mends it, or shows more.
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
            "The system's own Python lets nobody install into it. This makes an environment of its "
            "own for the gateway; so do `pipx install .` and `uv tool install .`.",
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
            "No gateway listens there: it is not running, or on another port than the client asks.",
            "cursor-gateway serve",
            check="clients",
        ),
        Symptom(
            "The client only spins",
            "Most clients repeat a failure that may pass by themselves, and say nothing meanwhile. "
            "One that stays is final after two or three agents and is shown then; until that, the "
            "journal has the reason, the agent's own last words only with `record_prompts`.",
            LAST_ERRORS,
        ),
        Symptom(
            "It worked, and now every request goes to a proxy",
            "`HTTP_PROXY` is set, and the client sends requests to this machine there, too.",
            "export NO_PROXY=127.0.0.1,localhost",
            check="clients",
        ),
        Symptom(
            "“is in use by”",
            "Another program, or another gateway, has the port. `--port 0` takes a free one.",
            "cursor-gateway serve --port 0",
            check="port",
        ),
        Symptom(
            "“There is nothing at this path.”",
            "The base URL has a part too many: Anthropic's clients add `/v1` by themselves, the "
            "others what follows it. `setup` shows the right one for your client.",
            "cursor-gateway setup claude-code",
            (errors.RouteNotFound, errors.MethodNotAllowed),
        ),
        Symptom(
            "“does not know what the request expects”",
            "A client, or a proxy before the gateway, sends the header `Expect` with something "
            "else than `100-continue`. Without it all is well.",
            "curl -H 'Expect:' http://127.0.0.1:32124/health",
            (errors.ExpectationFailed,),
        ),
        Symptom(
            "“The gateway is shutting down.”",
            "Somebody stopped it while the request came.",
            "cursor-gateway service status",
            (errors.ShuttingDown,),
        ),
    ),
    "Sign-in and plan": (
        Symptom(
            "“is not signed in”, “Authentication required”",
            "The CLI holds no sign-in, or it has expired.",
            "cursor-gateway login",
            (errors.NotAuthenticated,),
            check="sign-in",
        ),
        Symptom(
            "“SecItemCopyMatching failed”",
            "On macOS the sign-in lies in the keychain, which a process with another `HOME` or "
            "without your session cannot open. A CLI of July 2026 or later can keep it in a file.",
            "export AGENT_CLI_CREDENTIAL_STORE=file; cursor-gateway login",
        ),
        Symptom(
            "“The provided API key is invalid.”",
            "`CURSOR_API_KEY` is set for the gateway, and Cursor does not know that key.",
            "unset CURSOR_API_KEY; cursor-gateway login",
            (errors.AgentKeyInvalid,),
            check="sign-in",
        ),
        Symptom(
            "“You've hit your usage limit”",
            "The plan's usage is spent until its cycle ends. Clients are told not to repeat it, "
            "and for 15 s the gateway itself repeats it for that model without asking Cursor.",
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
            "Cursor asks for a slower pace. The same request may pass in a while; fewer `slots` "
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
            "OpenCode, Droid, Continue and pi have the list in their file. Write it anew.",
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
            "The program that leads to the agent, such as `ssh`, is not on this machine's PATH.",
            "cursor-gateway config",
            (errors.NoWayToAgent,),
            check="agent",
        ),
        Symptom(
            "“error: unknown option”",
            "The CLI is older than what the gateway passes to it.",
            "cursor-agent update",
            (errors.AgentOutdated,),
            check="agent-version",
        ),
        Symptom(
            "“Workspace Trust Required”",
            "An older CLI asks whether it may work in the directory, and nobody can answer.",
            "cursor-agent update",
            (errors.WorkspaceNotTrusted,),
            check="agent-version",
        ),
        Symptom(
            "“ended without a result”, “Cursor's agent failed”",
            "The CLI died, or said something that is not known. Its last words are in the message.",
            "cursor-gateway doctor --live",
            (errors.AgentFailed,),
            check="probed",
        ),
        Symptom(
            "“cli-config.json”",
            "Agents that started at the same moment broke the CLI's own file. The gateway repeats "
            "such a start; traces that stay are found by the doctor.",
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
            "The agent was silent, or worked, for longer than the setting that the message names. "
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
            "Large requests, mostly with images or whole files, are served at the same time, or "
            "the gateway may use only little memory.",
            "cursor-gateway serve --max-body-mb 128",
            (errors.NoMemory,),
        ),
        Symptom(
            "“new connections must wait”",
            "The gateway has as many files and connections open as it may have. Connections that "
            "nobody uses make room; more are possible with a higher limit.",
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
            "The machine, or what the gateway may have of it, has no room for another agent, and "
            "none is left that only waits and could give way.",
            "cursor-gateway serve --slots 4 --parked-per-slot 1",
            (errors.OutOfResources,),
        ),
        Symptom(
            "“No agent can work in”, “No directory for agents can be made”, “no temporary file can "
            "be written”",
            "Each request works in a directory of its own, which cannot be made: the disk is full "
            "or read-only, or another user has put something in its place. The gateway goes on by "
            "itself as soon as it can be made.",
            "df -h /tmp; df -i /tmp; cursor-gateway doctor",
            (errors.ScratchUnusable,),
            check="scratch",
        ),
        Symptom(
            "“isolate: ”",
            "The setting `isolate` is on, and bubblewrap is missing or may not be used here. The "
            "gateway does not start without what it promised.",
            "sudo apt install bubblewrap",
            check="isolation",
        ),
        Symptom(
            "“this version of the CLI disobeys the deny list”",
            "A probe saw an agent use a tool, read a file or call an MCP server that it must not. "
            "An update may end it; until then `--isolate` keeps agents from your files.",
            "cursor-agent update; cursor-gateway doctor --live",
            check="obedience",
        ),
        Symptom(
            "A command or a call that the agent made is not the one that was run",
            "Your hooks for Cursor or Claude Code run in the gateway's runs, too, and may rewrite "
            "what an agent does. The doctor names the files.",
            "cursor-gateway doctor",
            check="hooks",
        ),
        Symptom(
            "A model calls tools of your own MCP servers that no client offered",
            "`approvalMode` is `unrestricted` in the CLI's `cli-config.json`: what no list names "
            "is approved. `allowlist` ends it.",
            "cursor-gateway doctor",
            check="approval",
        ),
        Symptom(
            "“cannot be written”, no records in `cursor-gateway logs`",
            "The gateway's state directory, or a client's file, belongs to somebody else; often "
            "to root, after a `sudo`.",
            "cursor-gateway doctor",
            check="state",
        ),
        Symptom(
            "Processes named `cursor-agent` though no gateway runs",
            "They were left by a gateway that was killed together with its guardian.",
            "cursor-gateway doctor",
            check="strays",
        ),
        Symptom(
            "“internal_error”, status 500",
            "A fault of the gateway. Its log has the traceback under the request id; please report "
            "it, with what `doctor --json` says.",
            "cursor-gateway doctor --json",
            (errors.GatewayError,),
            check="versions",
        ),
    ),
    "The client is refused": (
        Symptom(
            "“The gateway's API key is missing or wrong.”",
            "The gateway has an `api_key`, and the client sends none or another. In Claude Code it "
            "looks like “Invalid API key” or “Not logged in”.",
            "cursor-gateway setup claude-code --write",
            (errors.InvalidApiKey,),
        ),
        Symptom(
            "“This gateway does not answer to that host name.”",
            "The client uses a name that is not this machine's loopback: a container's "
            "`host.docker.internal`, a name in `/etc/hosts`, a tunnel.",
            "cursor-gateway serve --allowed-hosts host.docker.internal",
            (errors.HostNotAllowed,),
        ),
        Symptom(
            "“Pages of that origin may not use this gateway.”, a CORS error in the browser",
            "A web page that does not come from this machine asks.",
            "cursor-gateway serve --cors-origins https://chat.example.com",
            (errors.OriginNotAllowed,),
        ),
        Symptom(
            "“The body must be JSON.”, “The body is not valid JSON”",
            "Seen with `curl` without its header, or with quotes that the shell has taken away.",
            kinds=(
                *(errors.UnsupportedMediaType, errors.InvalidJson, errors.MissingMessages),
                errors.InvalidRequest,
            ),
        ),
        Symptom(
            "“The request body is too large.”",
            "Mostly images or whole files in the conversation.",
            "cursor-gateway serve --max-body-mb 128",
            (errors.BodyTooLarge,),
        ),
        Symptom(
            "“The body did not come within”",
            "The client began a request and did not send all of it.",
            LAST_ERRORS,
            (errors.BodyTooSlow,),
        ),
        Symptom(
            "“The conversation has”, “conversation is too long”",
            "It is longer than `max_prompt_mb`, or than the model's context. Most clients can "
            "compact it.",
            kinds=(errors.ContextTooLong,),
        ),
        Symptom(
            "“The image at”, “is not a PNG, JPEG, GIF or WebP image”",
            "The image is broken, too large, or of a kind that models do not read.",
            kinds=(errors.InvalidImage,),
        ),
        Symptom(
            "“Only one choice is possible”, “cannot be given to Cursor's agent”",
            "The answer would not be what was asked for, so it is refused: [limits.md](limits.md).",
            kinds=(errors.UnsupportedParameter,),
        ),
        Symptom(
            "“X-Cursor-Workspace names no directory that is allowed.”",
            "The directory does not exist, or lies below none of the `workspace_roots`.",
            "cursor-gateway serve --workspace-roots ~/projects",
            (errors.WorkspaceNotAllowed,),
        ),
        Symptom(
            "“There are no WebSockets here.”",
            "The client tried a WebSocket first; it goes on over HTTP by itself.",
            kinds=(errors.WebSocketRefused,),
        ),
        Symptom(
            "“This path is for WebSockets.”",
            "The path ends in `/ws`, and what came was a plain request.",
            kinds=(errors.WebSocketExpected,),
        ),
        Symptom(
            "“The answer before is still under way.”, “There is no message of that type.”",
            "On the chat's WebSocket a message came that cannot be taken now, or not at all.",
            kinds=(errors.AnswerInProgress, errors.InvalidMessage),
        ),
        Symptom(
            "“Previous response with id”, “Response with id”",
            "It was made before the gateway started, or was the oldest of too many.",
            "cursor-gateway serve --kept-responses-mb 256",
            (errors.PreviousResponseNotFound, errors.ResponseNotFound),
        ),
        Symptom(
            "“Not among the running and the last”",
            "The request is older than what the gateway has in memory.",
            "cursor-gateway logs --since 1d",
            (errors.RequestNotFound,),
        ),
    ),
    "Answers and tools": (
        Symptom(
            "“cursor-gateway stopped a loop”",
            "The model made the same call with the same result again and again, was told so, and "
            "went on. [How that is decided](tools.md#the-loop-guard).",
            "cursor-gateway serve --tool-loop-max-repeat 5",
        ),
        Symptom(
            "The model says that it cannot read or edit files or run commands",
            "The client sent no tools, and the agent is denied its own, in an empty directory. Ask "
            "from a client that has tools, or name a workspace: [tools.md](tools.md).",
            "cursor-gateway serve --workspace . --agent-mode agent",
        ),
        Symptom(
            "Chats of the gateway are not in `cursor-agent ls`",
            "The gateway removes what the CLI keeps of them: "
            "[security.md](security.md#what-the-cli-keeps).",
            "cursor-gateway serve --transcripts keep",
        ),
        Symptom(
            "Tools of an MCP server are missing",
            "The server is not connected, or its entry cannot be read.",
            "cursor-gateway mcp list",
            check="mcp",
        ),
        Symptom(
            "“There is no tool”, “Tools may not be called directly.”",
            "A script calls tools over HTTP.",
            "cursor-gateway serve --mcp-call-endpoint",
            (errors.ToolNotFound, errors.ToolCallsNotAllowed),
        ),
        Symptom(
            "“does not fit response_format”",
            "The model was asked twice for JSON of that schema, and wrote something else.",
            kinds=(errors.OutputInvalid,),
        ),
        Symptom(
            "The log says “chats are not resumed”, or `resume` is false in `/health`",
            "This version of the CLI took up a chat without its history, so that the model knew "
            "nothing of the conversation. Whole conversations are sent until it is another one.",
            "cursor-agent update",
        ),
        Symptom(
            "The first word takes long",
            "Each new conversation starts a process. `timeline` of the record shows where the time "
            "went; `--live` measures the CLI alone.",
            "cursor-gateway logs --json --lines 1",
            check="probed",
        ),
        Symptom(
            "“warm starts do not help with this version of the CLI and are not made”",
            "The CLI boots only once it has its prompt, so that an agent that was started ahead "
            "would be as slow as another. An update may change it; `--live` measures it anew.",
            "cursor-gateway doctor --live",
            check="warm",
        ),
    ),
    "Words of the clients": (
        Symptom(
            "Droid: “Exec failed”",
            "It shows no more in text mode. With `-o stream-json` it prints the message.",
            'droid exec -o stream-json "Hello"',
        ),
        Symptom(
            "Codex: “We're currently experiencing high demand”",
            "That is how Codex shows any 5xx, whoever it comes from.",
            LAST_ERRORS,
        ),
        Symptom(
            "Codex: “stream closed before response.completed”",
            "The answer broke off. The journal says why.",
            LAST_ERRORS,
        ),
        Symptom(
            "aider: a warning about unknown context window and costs",
            "It does not know the models of your account. Nothing is wrong.",
            "aider --no-show-model-warnings",
        ),
    ),
}


def symptoms() -> list[Symptom]:
    return [symptom for group in GROUPS.values() for symptom in group]
