"""Errands: calls of tools that the gateway executes itself, which no client ever sees.

Where a model makes such a call together with one of the client's, the turn ends with the client's
call, and the client comes back with its result only. What we did meanwhile is woven into the
conversation again when it does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from cursor_gateway.core.conversation import Conversation, Message, ToolCall, ToolResult

# So many turns are remembered; results may be long.
_MOST = 500

Done = tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]


class Errands:
    def __init__(self) -> None:
        # By the ids of the client's calls that were made together with them.
        self._done: OrderedDict[str, Done] = OrderedDict()

    def remember(
        self, beside: Sequence[str], calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> None:
        self._done |= dict.fromkeys(beside, (tuple(calls), tuple(results)))
        while len(self._done) > _MOST:
            self._done.popitem(last=False)

    def woven(self, conversation: Conversation) -> Conversation:
        """`conversation` with what was done beside its calls; as many messages as before."""
        messages = list(conversation.messages)
        for at, message in enumerate(conversation.messages[:-1]):
            if done := self._done_beside(message):
                calls, results = done
                answer = messages[at + 1]
                messages[at] = Message(message.role, (*messages[at].parts, *calls))
                messages[at + 1] = Message(answer.role, (*results, *answer.parts))
        return replace(conversation, messages=tuple(messages))

    def _done_beside(self, message: Message) -> Done | None:
        calls = (part.id for part in message.parts if isinstance(part, ToolCall))
        return next((self._done[call] for call in calls if call in self._done), None)
