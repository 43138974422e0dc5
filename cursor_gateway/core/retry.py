"""SecondAsk: with what the agent is asked again, in the same answer.

It reads what it was asked before, what it has said and called since, and what was wrong with that
or came of it. Nobody is asked twice for the same reason.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult


class SecondAsk:
    def __init__(self, conversation: Conversation) -> None:
        # The client's own messages; what follows them was asked again before.
        self._own = len(conversation.messages)
        self._reasons: set[str] = set()

    def begin(self, asked: Conversation) -> None:
        """A run of the agent starts, which has read `asked`."""
        self._asked = asked
        self._words = io.StringIO()
        # What is to be added to the client's messages; nothing as long as nobody is asked again.
        self.messages: tuple[Message, ...] = ()

    def may(self, reason: str) -> bool:
        is_new = reason not in self._reasons
        self._reasons.add(reason)
        return is_new

    def told(self, words: str) -> None:
        """The client has got `words` of this run. It shall not get them again, from one that does
        not know of them."""
        self._words.write(words)

    def correct(self, answer: str, correction: str) -> None:
        """The client got nothing of `answer`, which has to be another one."""
        self._ask(Message("assistant", (Text(answer),)), Message("user", (Text(correction),)))

    def bring(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
        """What came of calls that the client does not hear of."""
        words = self._words.getvalue()
        said = (*((Text(words),) if words else ()), *calls)
        self._ask(Message("assistant", said), Message("user", tuple(results)))

    def _ask(self, *words: Message) -> None:
        self.messages = (*self._asked.messages[self._own :], *words)
