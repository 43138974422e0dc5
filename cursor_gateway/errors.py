"""Everything that can go wrong, on one screen.

    GatewayError
    ├── InvalidRequest            400  the request cannot be served as it stands
    │   ├── InvalidJson           400
    │   ├── MissingMessages       400
    │   ├── InvalidImage          400
    │   ├── UnsupportedParameter  400
    │   ├── ModelNotFound         400
    │   ├── ContextTooLong        400
    │   ├── OutputInvalid         422  the model broke response_format twice
    │   ├── UnsupportedMediaType  415
    │   ├── BodyTooLarge          413
    │   ├── BodyTooSlow           408
    │   ├── RouteNotFound         404
    │   ├── RequestNotFound       404
    │   ├── ResponseNotFound      404
    │   │   └── PreviousResponseNotFound
    │   ├── ToolNotFound          404
    │   ├── MethodNotAllowed      405
    │   ├── ExpectationFailed     417
    │   ├── WebSocketRefused      426
    │   ├── WebSocketExpected     426
    │   ├── InvalidMessage        400  on a WebSocket
    │   └── AnswerInProgress      409  on a WebSocket
    ├── AccessDenied              403  who is asking, or from where
    │   ├── HostNotAllowed        403
    │   ├── OriginNotAllowed      403
    │   ├── WorkspaceNotAllowed   403
    │   ├── ToolCallsNotAllowed   403
    │   └── InvalidApiKey         401
    ├── AgentRefused                   Cursor or its CLI says no, and will say no again
    │   ├── NotAuthenticated      401
    │   ├── AgentKeyInvalid       401
    │   ├── PlanRequired          402
    │   ├── ModelBlocked          403
    │   ├── WorkspaceNotTrusted   403
    │   ├── AgentOutdated         400
    │   └── QuotaExceeded         429
    └── Unavailable               503  the same request may pass later
        ├── RateLimited           429
        ├── TooManyRequests       429
        │   └── TooManyListeners  429  `/v1/events`
        ├── NoMemory              503
        ├── AgentNotFound         503
        │   └── NoWayToAgent      503  `agent_command`
        ├── ScratchUnusable       503  a disk that is full, or cannot be written to
        ├── CursorUnreachable     503
        ├── OutOfResources        503  no descriptor, process or memory for another agent
        ├── ShuttingDown          503
        ├── AgentFailed           502
        └── AgentTimedOut         504

A class carries its HTTP status, wire type, code and a hint that says what to do; dialects only
render these attributes. Real clients repeat a 5xx for minutes without showing it and show a 4xx at
once, so what would fail again is a 4xx, and what may pass later carries `Retry-After`.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Self

from cursor_gateway.redaction import OUTGOING


class GatewayError(Exception):
    """Something unexpected. The message is safe to show, without secrets, whatever the agent said;
    the cause goes to the log."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal_error"
    code: ClassVar[str] = "server_error"
    hint: ClassVar[str] = ""
    # Seconds after which the same request is worth another try; None where it is not.
    retry_after: int | None = None
    # What the gateway adds: how often it met the same error, and whether it started an agent.
    remark = ""
    # How often the client got the same error before and still asked again.
    repeats = 0

    def __init__(
        self, message: str, *, param: str | None = None, quotes_agent: bool = False
    ) -> None:
        super().__init__(OUTGOING(message))
        self.param = param
        # The message holds the agent's own words, which may repeat a prompt.
        self.quotes_agent = quotes_agent

    @property
    def message(self) -> str:
        """What a person reads: clients show the message and nothing else, so the hint is in it."""
        return " ".join(filter(None, (str(self), self.remark, self.hint)))

    @property
    def is_final(self) -> bool:
        """Whether clients must not retry the request. A bug of the gateway (500) may pass."""
        return self.retry_after is None and self.status != GatewayError.status

    def again(self, remark: str, repeats: int) -> Self:
        """The same failure once more, and this time for good."""
        error = copy(self)
        error.remark, error.repeats, error.retry_after = remark, repeats, None
        return error


class InvalidRequest(GatewayError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class InvalidJson(InvalidRequest):
    code = "invalid_json"


class MissingMessages(InvalidRequest):
    code = "missing_messages"


class InvalidImage(InvalidRequest):
    code = "invalid_image"


class UnsupportedParameter(InvalidRequest):
    code = "unsupported_parameter"


class ModelNotFound(InvalidRequest):
    code = "model_not_found"
    hint = "`GET /v1/models` or `cursor-gateway models` lists what this account can use."


class ContextTooLong(InvalidRequest):
    code = "context_length_exceeded"
    hint = "Shorten the conversation or start a new one. Nothing was cut."


class OutputInvalid(InvalidRequest):
    status = 422
    code = "output_invalid"
    hint = "Simplify the schema, or ask a stronger model."


class UnsupportedMediaType(InvalidRequest):
    status = 415
    code = "unsupported_media_type"
    hint = "Send the header `Content-Type: application/json`."


class BodyTooLarge(InvalidRequest):
    status = 413
    code = "body_too_large"
    hint = "Raise the setting `max_body_mb` if this is intended."


class BodyTooSlow(InvalidRequest):
    status = 408
    code = "body_too_slow"


class RouteNotFound(InvalidRequest):
    status = 404
    code = "route_not_found"


class RequestNotFound(InvalidRequest):
    status = 404
    code = "request_not_found"
    hint = "Older requests are in the journal's file: `cursor-gateway logs ID`."


class ResponseNotFound(InvalidRequest):
    status = 404
    code = "response_not_found"
    hint = "The gateway stores responses in memory and drops the oldest: see `kept_responses_mb`."


class PreviousResponseNotFound(ResponseNotFound):
    code = "previous_response_not_found"
    hint = (
        "The gateway stores responses in memory and drops the oldest: "
        "send the whole conversation as `input`."
    )


class ToolNotFound(InvalidRequest):
    status = 404
    code = "tool_not_found"
    hint = "`GET /v1/tools` or `cursor-gateway mcp list` lists the tools."


class MethodNotAllowed(InvalidRequest):
    status = 405
    code = "method_not_allowed"


class ExpectationFailed(InvalidRequest):
    status = 417
    code = "expectation_failed"
    hint = "Leave the header `Expect` out, or send `100-continue`."


class WebSocketRefused(InvalidRequest):
    # At this status Codex goes on over HTTP at once; after any other it retries first.
    status = 426
    code = "websocket_refused"
    hint = "Send the same as `POST` over HTTP."


class WebSocketExpected(InvalidRequest):
    status = 426
    code = "websocket_expected"
    hint = "Open it with a WebSocket client, or `POST` to the path without `/ws`."


class InvalidMessage(InvalidRequest):
    code = "invalid_message"
    hint = 'Send a request as for `POST /v1/chat/completions`, or `{"type": "cancel"}`.'


class AnswerInProgress(InvalidRequest):
    status = 409
    code = "answer_in_progress"
    hint = "Wait until that answer ends, cancel it, or open another connection."


class AccessDenied(GatewayError):
    status = 403
    type = "permission_error"
    code = "access_denied"


class HostNotAllowed(AccessDenied):
    code = "host_not_allowed"
    hint = "Use http://127.0.0.1, or add the name to the setting `allowed_hosts`."


class OriginNotAllowed(AccessDenied):
    code = "origin_not_allowed"
    hint = "Add the origin to the setting `cors_origins` if you trust that page."


class WorkspaceNotAllowed(AccessDenied):
    code = "workspace_not_allowed"
    hint = "Name its parent in the setting `workspace_roots` to allow it."


class ToolCallsNotAllowed(AccessDenied):
    code = "tool_calls_not_allowed"
    hint = "Set `mcp_call_endpoint` to let clients call MCP tools directly."


class InvalidApiKey(AccessDenied):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    hint = (
        "Send the gateway's own key as `Authorization: Bearer KEY` or `x-api-key: KEY`; "
        "with a WebSocket of a page, as the subprotocol `openai-insecure-api-key.KEY`."
    )


class AgentRefused(GatewayError):
    status = 400
    type = "invalid_request_error"
    code = "agent_refused"


class NotAuthenticated(AgentRefused):
    status = 401
    type = "authentication_error"
    code = "not_authenticated"
    hint = "Run `cursor-gateway login`, or set CURSOR_API_KEY for the gateway."


class AgentKeyInvalid(AgentRefused):
    status = 401
    type = "authentication_error"
    code = "agent_key_invalid"
    hint = "Correct CURSOR_API_KEY, or unset it and run `cursor-gateway login`."


class PlanRequired(AgentRefused):
    status = 402
    type = "permission_error"
    code = "plan_required"
    hint = "Use the model `auto`, or change the plan at cursor.com/settings."


class ModelBlocked(AgentRefused):
    status = 403
    type = "permission_error"
    code = "model_blocked"
    hint = "Choose another model: `cursor-gateway models`."


class WorkspaceNotTrusted(AgentRefused):
    status = 403
    type = "permission_error"
    code = "workspace_not_trusted"
    hint = "Run `cursor-agent` once in that directory and trust it, or update the CLI."


class AgentOutdated(AgentRefused):
    code = "agent_outdated"
    hint = "Run `cursor-agent update`; see docs/cursor-agent.md for the versions that are known."


class QuotaExceeded(AgentRefused):
    status = 429
    type = "rate_limit_error"
    code = "quota_exceeded"
    hint = "See cursor.com/dashboard for your usage; the model `auto` may still answer."


class Unavailable(GatewayError):
    status = 503
    type = "server_error"
    code = "unavailable"
    retry_after = 5


class RateLimited(Unavailable):
    status = 429
    type = "rate_limit_error"
    code = "rate_limited"
    # A client that waits this long and fails once more still shows the error within 30 s.
    retry_after = 8


class TooManyRequests(Unavailable):
    status = 429
    type = "rate_limit_error"
    code = "too_many_requests"
    hint = "Raise the setting `slots` or `queue` if this machine can run more agents."


class TooManyListeners(TooManyRequests):
    code = "too_many_listeners"
    hint = "Close some pages of the gateway, or whatever else reads `/v1/events`."


class NoMemory(Unavailable):
    code = "no_memory"
    hint = "Send it again later, or send fewer large requests at once."


class AgentNotFound(Unavailable):
    code = "agent_not_found"
    hint = (
        "Install it with `curl https://cursor.com/install -fsS | bash`, "
        "or name it in CURSOR_AGENT_EXECUTABLE."
    )
    retry_after = 30


class NoWayToAgent(AgentNotFound):
    code = "no_way_to_agent"
    hint = "Correct the setting `agent_command`; it begins with a program of this machine."


class ScratchUnusable(Unavailable):
    code = "scratch_unusable"
    hint = (
        "Make room there (`df -h` and `df -i` show what is left) or let the gateway write there; "
        "or restart it with TMPDIR set to another directory."
    )


class CursorUnreachable(Unavailable):
    code = "cursor_unreachable"
    hint = "Check the network and status.cursor.com."


class OutOfResources(Unavailable):
    code = "out_of_resources"
    hint = (
        "Lower `slots` or `parked_per_slot`, or let the gateway have more: memory, processes, or "
        "open files (`ulimit -n`)."
    )


class ShuttingDown(Unavailable):
    code = "shutting_down"


class AgentFailed(Unavailable):
    status = 502
    code = "agent_failed"


class AgentTimedOut(Unavailable):
    status = 504
    type = "timeout_error"
    code = "agent_timed_out"
