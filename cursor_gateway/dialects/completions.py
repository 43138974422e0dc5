"""The legacy OpenAI Completions dialect, for scripts that are older than chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cursor_gateway.core.conversation import Conversation, Message, Text
from cursor_gateway.core.events import AnswerEvent, Finished, TextDelta
from cursor_gateway.dialects.content import parse_model
from cursor_gateway.dialects.fields import expect_object, optional_bool, optional_count, string_list
from cursor_gateway.dialects.openai_errors import render_error
from cursor_gateway.dialects.openai_usage import render_usage
from cursor_gateway.errors import GatewayError, MissingMessages, UnsupportedParameter

__all__ = ["EXAMPLE", "PATH", "parse", "render_error"]

PATH = "/completions"
EXAMPLE: Mapping[str, Any] = {"prompt": "Hello"}

# Fields that cannot be honoured, and whose loss would change the answer.
_CANNOT = ("echo", "suffix", "logprobs")


def parse(body: Mapping[str, Any]) -> CompletionsExchange:
    for name in _CANNOT:
        if body.get(name):
            raise UnsupportedParameter(f"Cursor's agent knows no `{name}`.", param=name)
    for name in ("n", "best_of"):
        if body.get(name) not in (None, 1):
            raise UnsupportedParameter(f"Only one choice is possible: `{name}`.", param=name)
    prompt = _prompt(body.get("prompt"))
    options = expect_object(body.get("stream_options") or {}, "stream_options")
    return CompletionsExchange(
        conversation=Conversation(
            model=parse_model(body),
            messages=(Message("user", (Text(prompt),)),),
            max_tokens=optional_count(body, "max_tokens"),
            stop=string_list(body.get("stop"), "stop"),
        ),
        stream=optional_bool(body, "stream"),
        include_usage=optional_bool(options, "include_usage"),
    )


def _prompt(prompt: object) -> str:
    """One text, alone or in an array of one. Token ids would need the model's tokenizer."""
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not prompt:
        raise MissingMessages("`prompt` must hold a text.", param="prompt")
    if not isinstance(prompt, str):
        raise UnsupportedParameter("`prompt` must be one text.", param="prompt")
    return prompt


@dataclass(frozen=True, slots=True)
class CompletionsExchange:
    conversation: Conversation
    stream: bool
    include_usage: bool

    def encoder(self, answer_id: str, created: int) -> CompletionsEncoder:
        return CompletionsEncoder(self._fields(answer_id, created), self.include_usage)

    def fold(self, answer_id: str, created: int) -> CompletionsFold:
        return CompletionsFold(self._fields(answer_id, created))

    def _fields(self, answer_id: str, created: int) -> dict[str, Any]:
        return {
            "id": f"cmpl-{answer_id}",
            "object": "text_completion",
            "created": created,
            "model": self.conversation.model,
        }


class CompletionsEncoder:
    def __init__(self, fields: dict[str, Any], include_usage: bool) -> None:
        self._fields = fields
        self._include_usage = include_usage

    def feed(self, events: Iterable[AnswerEvent]) -> bytes:
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, TextDelta):
                frames.append(self._frame({"choices": [_choice(event.text, None)]}))
            elif isinstance(event, Finished):
                choice = _choice("", event.reason)
                frames.append(self._frame({"choices": [choice]} | event.extension))
                if self._include_usage:
                    usage = render_usage(event.usage)
                    frames.append(self._frame({"choices": [], "usage": usage}))
                frames.append(b"data: [DONE]\n\n")
        return b"".join(frames)

    def fail(self, error: GatewayError, request_id: str) -> bytes:
        return b"data: " + orjson.dumps(render_error(error, request_id)) + b"\n\n"

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def heartbeat(self) -> bytes:
        return self._frame({"choices": [_choice("", None)]})

    def _frame(self, body: dict[str, Any]) -> bytes:
        return b"data: " + orjson.dumps(self._fields | body) + b"\n\n"


class CompletionsFold:
    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._text: list[str] = []
        self._finished: Finished | None = None

    def feed(self, events: Iterable[AnswerEvent]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._text.append(event.text)
            elif isinstance(event, Finished):
                self._finished = event

    def body(self) -> dict[str, Any]:
        assert self._finished is not None, "an answer without an end is a failure, not a body"
        choice = _choice("".join(self._text), self._finished.reason)
        usage = render_usage(self._finished.usage)
        return self._fields | {"choices": [choice], "usage": usage} | self._finished.extension


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
