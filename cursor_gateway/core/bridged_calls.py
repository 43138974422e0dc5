"""Errands: calls of tools that the gateway executes itself, which no client ever sees.

Where a model makes such a call together with one of the client's, the turn ends with the client's
call, and the client comes back with its result only. What we did meanwhile is woven into the
conversation again when it does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult

# So many turns are remembered, and so many characters of results.
_MOST = 500
_MOST_TEXT = 16_000_000

Done = tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]


class Errands:
    def __init__(self) -> None:
        # By the caller and the ids of its calls that were made together with them.
        self._done: OrderedDict[tuple[str, str], Done] = OrderedDict()

    def remember(
        self,
        caller: str,
        beside: Sequence[str],
        calls: Sequence[ToolCall],
        results: Sequence[ToolResult],
    ) -> None:
        done = tuple(calls), tuple(results)
        self._done |= {(caller, call_id): done for call_id in beside}
        while len(self._done) > _MOST or sum(map(_size, self._done.values())) > _MOST_TEXT:
            self._done.popitem(last=False)

    def woven(self, caller: str, conversation: Conversation) -> Conversation:
        """The caller's `conversation` with what was done beside its calls; as many messages as
        before."""
        if not self._done:
            return conversation
        messages = list(conversation.messages)
        woven: list[Done] = []
        for at, message in enumerate(conversation.messages):
            done = self._done_beside(caller, message)
            if done is None or done in woven:
                continue
            answers = (n for n in range(at + 1, len(messages)) if messages[n].role != "assistant")
            place = next(answers, None)
            if place is not None:
                calls, results = done
                woven.append(done)
                messages[at] = Message(message.role, (*message.parts, *calls))
                messages[place] = Message(messages[place].role, (*results, *messages[place].parts))
        return replace(conversation, messages=tuple(messages))

    def _done_beside(self, caller: str, message: Message) -> Done | None:
        calls = ((caller, part.id) for part in message.parts if isinstance(part, ToolCall))
        return next((self._done[call] for call in calls if call in self._done), None)


def _size(done: Done) -> int:
    return sum(
        len(part.text) for result in done[1] for part in result.content if isinstance(part, Text)
    )
