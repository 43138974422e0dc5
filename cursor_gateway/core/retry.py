"""Retry: the messages with which the agent is asked again, in the same answer.

The agent reads what it was asked before, what it has said and called since, and what was wrong with
that or what the calls returned. It is asked again at most once for each reason.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult


class Retry:
    def __init__(self, conversation: Conversation) -> None:
        # How many messages are the client's; earlier retries added the others.
        self._own = len(conversation.messages)
        self._reasons: set[str] = set()

    def begin(self, asked: Conversation) -> None:
        """A run of the agent starts; the agent has read `asked`."""
        self._asked = asked
        self._words = io.StringIO()
        # What is added to the client's messages; empty unless the agent has to be asked again.
        self.messages: tuple[Message, ...] = ()

    def may(self, reason: str) -> bool:
        is_new = reason not in self._reasons
        self._reasons.add(reason)
        return is_new

    def sent(self, words: str) -> None:
        """The client has got `words` of this run. The next run reads them, so that it does not say
        them again."""
        self._words.write(words)

    def correct(self, answer: str, correction: str) -> None:
        """Ask for another answer instead of `answer`, of which the client got nothing."""
        self._ask(Message("assistant", (Text(answer),)), Message("user", (Text(correction),)))

    def bring(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
        """Give the agent the results of calls that the client never sees."""
        words = self._words.getvalue()
        said = (*((Text(words),) if words else ()), *calls)
        self._ask(Message("assistant", said), Message("user", tuple(results)))

    def _ask(self, *words: Message) -> None:
        self.messages = (*self._asked.messages[self._own :], *words)
