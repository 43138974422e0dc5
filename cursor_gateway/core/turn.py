"""Turn: the state machine of one answer. The agent's events in, the client's events out.

It cuts what the client did not want (`stop`, `max_tokens`), keeps a structured answer back until it
is known to be one, and puts an estimate where the agent counted no tokens. `over` says that nothing
more will come, so the agent can be stopped; `retry` holds the messages that ask it to mend its
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cursor_gateway.core import structured
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult
from cursor_gateway.core.events import (
    Event,
    Finished,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.errors import OutputInvalid

# No tokenizer is ours to ship for a model we do not know; four bytes of UTF-8 per token is near
# enough for a limit, and every figure that rests on it says so.
BYTES_PER_TOKEN = 4


def estimate_tokens(size: int) -> int:
    """Tokens in `size` bytes of text."""
    return -(-size // BYTES_PER_TOKEN)


class Turn:
    def __init__(self, conversation: Conversation) -> None:
        self._output = conversation.output
        self._earlier = Usage(0, 0)
        self._corrections = 0
        self.over = False
        self.begin(conversation)

    def begin(self, conversation: Conversation) -> None:
        """A run of the agent starts. It reads `conversation`, which may have grown by `retry`."""
        limit = conversation.max_tokens
        self._budget = None if limit is None else limit * BYTES_PER_TOKEN
        self._stop = _StopScanner(conversation.stop)
        self._asked = conversation
        self._output_bytes = 0
        # The answer so far, where it is kept back; text that was passed on is not kept.
        self._answer: list[str] = []
        self.retry: tuple[Message, ...] = ()

    def feed(self, events: Iterable[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if self.over:
                break
            if isinstance(event, TextDelta):
                self._text(event.text, out)
            elif isinstance(event, Finished):
                self._finish(event.usage, out)
            else:
                if isinstance(event, ThinkingDelta):
                    self._output_bytes += _size(event.text)
                out.append(event)
        return out

    def _text(self, text: str, out: list[Event]) -> None:
        self._output_bytes += _size(text)
        text, stopped = self._stop.feed(text)
        self._pass_on(text, out)
        if stopped and not self.over:
            self._end("stop", None, out)

    def _pass_on(self, text: str, out: list[Event]) -> None:
        text, cut = self._within_budget(text)
        if text and self._output is None:
            out.append(TextDelta(text))
        elif text:
            self._answer.append(text)
        if cut:
            self._end("length", None, out)

    def _within_budget(self, text: str) -> tuple[str, bool]:
        """As much of `text` as `max_tokens` leaves room for, and whether that was not all."""
        if self._budget is None:
            return text, False
        encoded = text.encode()
        room, self._budget = self._budget, max(0, self._budget - len(encoded))
        if len(encoded) <= room:
            return text, False
        # "ignore" drops the character that the limit falls into.
        return encoded[:room].decode(errors="ignore"), True

    def _finish(self, usage: Usage | None, out: list[Event]) -> None:
        self._pass_on(self._stop.close(), out)
        if self.over:
            return
        if self._output is not None and not self._accepts(usage):
            return
        self._end("stop", usage, out)

    def _accepts(self, usage: Usage | None) -> bool:
        """Whether the structured answer is one; if not, ask once for a better one."""
        assert self._output is not None
        answer = "".join(self._answer)
        document = structured.extract(answer)
        problem = structured.problem_with(document, self._output)
        if not problem:
            self._answer[:] = [document]
            return True
        if self._corrections:
            raise OutputInvalid(f"The model's answer does not fit response_format: {problem}")
        self._corrections += 1
        self._earlier += self._counted(usage)
        self.retry = (
            Message("assistant", (Text(answer),)),
            Message("user", (Text(structured.correction(problem)),)),
        )
        return False

    def _end(self, reason: FinishReason, usage: Usage | None, out: list[Event]) -> None:
        if self._output is not None and self._answer:
            out.append(TextDelta("".join(self._answer)))
        out.append(Finished(reason, self._earlier + self._counted(usage)))
        self.over = True

    def _counted(self, usage: Usage | None) -> Usage:
        if usage is not None:
            return usage
        given = sum(map(_size, _texts(self._asked)))
        made = self._output_bytes
        return Usage(estimate_tokens(given), estimate_tokens(made), estimated=True)


def _texts(conversation: Conversation) -> Iterator[str]:
    for message in conversation.messages:
        for part in message.parts:
            match part:
                case Text(text):
                    yield text
                case ToolCall(arguments=arguments):
                    yield arguments
                case ToolResult(content=content):
                    yield from (inner.text for inner in content if isinstance(inner, Text))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class _StopScanner:
    """Finds stop sequences across deltas; keeps back only what may still become one."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = stop
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """The text before the first stop sequence, and whether there was one."""
        if not self._stop:
            return text, False
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        safe = len(text) - max(_overlap(text, stop) for stop in self._stop)
        self._held = text[safe:]
        return text[:safe], False

    def close(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are a beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
