"""How the guests of `make chaos` ask, and what they make of the bytes that they get, in any
dialect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

BASH = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def function(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def chat(prompt: str, stream: bool) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": prompt}]
    return "/chat/completions", {"model": "auto", "messages": messages, "stream": stream}


def messages(prompt: str, stream: bool) -> tuple[str, dict[str, Any]]:
    return "/messages", chat(prompt, stream)[1] | {"max_tokens": 100_000}


def responses(prompt: str, stream: bool) -> tuple[str, dict[str, Any]]:
    return "/responses", {"model": "auto", "input": prompt, "stream": stream}


DIALECTS: tuple[Callable[[str, bool], tuple[str, dict[str, Any]]], ...] = (
    chat,
    messages,
    responses,
)


@dataclass(slots=True)
class Ending:
    """How a request ended: `complete`, `error <code>`, `left`, or after a signal `refused` or
    `cut`."""

    kind: str
    words: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Reading:
    """The part of an answer that a client has received, in any dialect."""

    path: str
    stream: bool
    body: bytearray = field(default_factory=bytearray)

    def end(self, status: int) -> Ending:
        if not self.stream or status >= 400:
            return self._whole(status)
        frames = self.frames()
        failed = [frame for frame in frames if _error_of(frame)]
        done = b"[DONE]" in self.body or any(frame.get("type") in _LAST for frame in frames)
        if failed and done:
            return Ending("both an end and an error")
        if failed:
            return Ending(f"error {_error_of(failed[-1])}", self.words())
        return Ending("complete" if done else "cut", self.words())

    def _whole(self, status: int) -> Ending:
        try:
            answer = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return Ending("cut")
        if status >= 400:
            return Ending(f"error {_error_of(answer)}")
        message = (answer.get("choices") or [{}])[0].get("message", {})
        return Ending("complete", _whole_words(answer), message.get("tool_calls") or [])

    def frames(self) -> list[dict[str, Any]]:
        """The complete frames; the last one may be cut off."""
        whole = self.body[: self.body.rfind(b"\n\n") + 1]
        lines = (line for line in whole.split(b"\n") if line.startswith(b"data: {"))
        return [orjson.loads(line[6:]) for line in lines]

    def words(self) -> str:
        return "".join(map(_words_of_frame, self.frames())) if self.stream else ""


_LAST = ("message_stop", "response.completed", "response.incomplete")


def _error_of(frame: dict[str, Any]) -> str:
    error = frame.get("error") or (frame.get("response") or {}).get("error")
    return str(error.get("code") or error["type"]) if error else ""


def _words_of_frame(frame: dict[str, Any]) -> str:
    delta = frame.get("delta")
    if frame.get("type") == "response.output_text.delta":
        return str(delta)
    if isinstance(delta, dict):
        return str(delta.get("text") or "")
    choices = frame.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


def _whole_words(answer: dict[str, Any]) -> str:
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"] or "")
    blocks = answer.get("content") or [
        part for item in answer.get("output", ()) for part in item.get("content") or ()
    ]
    return "".join(block.get("text") or "" for block in blocks if "text" in block.get("type", ""))
