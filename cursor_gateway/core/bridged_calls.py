"""BridgedCalls: calls of tools that the gateway executes itself, which no client ever sees.

Where a model makes such a call together with one of the client's, the turn ends with the client's
call, and the client comes back with its own result only. The bridged calls and their results are
then added to the conversation again, so that the next agent reads them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult

# How many of the client's calls are remembered, and how many characters of results.
_MAX_CALLS = 500
_MAX_TEXT = 16_000_000

Done = tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]


class BridgedCalls:
    def __init__(self) -> None:
        # The caller and the id of one of its calls -> what was done beside that call.
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
        while len(self._done) > _MAX_CALLS or sum(map(_size, self._done.values())) > _MAX_TEXT:
            self._done.popitem(last=False)

    def with_bridged_results(self, caller: str, conversation: Conversation) -> Conversation:
        """The caller's `conversation` with what was done beside its calls. The number of messages
        stays the same."""
        if not self._done:
            return conversation
        messages = list(conversation.messages)
        added: list[Done] = []
        for at, message in enumerate(conversation.messages):
            done = self._done_beside(caller, message)
            if done is None or done in added:
                continue
            answers = (n for n in range(at + 1, len(messages)) if messages[n].role != "assistant")
            place = next(answers, None)
            if place is not None:
                calls, results = done
                added.append(done)
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
