"""Habits of clients: what they change in a conversation though nobody has said anything else.

A client sends its whole history with each request, and some do not send it as it was. Which client
and version has which habit: docs/decisions/0011-sessions.md. A part of the history may be missing,
but what is there must be what the agent has read.

| what a client changes | how that is compared |
|---|---|
| `cch=` in its system text, a new seal for each request | without the seal |
| thoughts become text, `<think>...</think>` | without them |
| a `<system-reminder>` stands in the last question only | it may be missing |
| it makes the first of several calls, and forgets the others | they may be missing |
| it writes calls and results as text, `Calling tools:` | as calls and results |
| it leaves out texts beside calls, or blanks | texts may be missing, blanks do not count |
| it writes arguments anew | not at all |

And some calls end a task: the client comes back at once to complain of one, or never.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult

# All repetitions are bounded, since anybody may have written the text.
_INVOICE = re.compile(r"x-\w{1,40}-billing-header:[^\n]{0,200}?\bcch=(\w{1,32});")
_THOUGHT, _THOUGHT_ENDS = "<think>", "</think>"
_REMINDER, _REMINDER_ENDS = "<system-reminder>", "</system-reminder>"

# A step that a client writes as text; the list of calls is Python's `str` of it.
_CALLING = "Calling tools:\n["
_CALL_IN_TEXT = re.compile(r"\{'id': '(call_[0-9a-f]{24})', 'type': 'function'")
_OBSERVATION = "Observation:\n"
# The client puts a new task of the user into the same text, where nothing separates it from
# results.
_NEW_TASK = "\nNew task:\n"
TOGETHER = "(The client reports the results of these calls together: see the first of them.)"

# Tools with which a model ends its task, and words of their descriptions: `complete` alone may be
# the name of any tool.
_LAST_CALLS = {"final_answer": "", "final_result": "", "complete": "session should end"}


def without_seal(text: str) -> str:
    """`text` without the seal that a client puts into the billing line of its system text."""
    seal = _INVOICE.match(text)
    return text[: seal.start(1)] + text[seal.end(1) :] if seal else text


def without_thoughts(text: str) -> str:
    """`text` without its `<think>` blocks. One that is not closed stays."""
    said: list[str] = []
    at = 0
    while (start := text.find(_THOUGHT, at)) >= 0 and (end := text.find(_THOUGHT_ENDS, start)) >= 0:
        said.append(text[at:start])
        at = end + len(_THOUGHT_ENDS)
    return "".join((*said, text[at:]))


def is_reminder(part: object) -> bool:
    """Whether all of `part` stands in one pair of reminder tags, so that none of it is the
    user's."""
    if not isinstance(part, Text):
        return False
    text = part.text.strip()
    is_in_tags = text.startswith(_REMINDER) and text.endswith(_REMINDER_ENDS)
    return is_in_tags and text.index(_REMINDER_ENDS) == len(text) - len(_REMINDER_ENDS)


def with_calls_from_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """`messages`, with calls and results in place of the text that a client makes of them. The
    arguments are left out, so this is for comparing only: agents read what the client wrote."""
    out = list(messages)
    for at, (said, following) in enumerate(pairwise(messages)):
        observed = _observation(following)
        calls = _calls_in_text(said) if observed else ()
        if observed and calls:
            results = zip(calls, (observed, *[Text(TOGETHER)] * len(calls)), strict=False)
            out[at] = _as_calls(said, calls)
            out[at + 1] = Message("user", tuple(ToolResult(c.id, (text,)) for c, text in results))
    return tuple(out)


def _calls_in_text(message: Message) -> tuple[ToolCall, ...]:
    match message:
        case Message("assistant", (*_, Text(text))) if text.endswith("]") and _CALLING in text:
            found = _CALL_IN_TEXT.finditer(text, text.rfind(_CALLING))
            return tuple(ToolCall(each[1], "", "{}") for each in found)
    return ()


def _as_calls(message: Message, calls: tuple[ToolCall, ...]) -> Message:
    *before, last = message.parts
    assert isinstance(last, Text)
    words = Text(last.text[: last.text.rfind(_CALLING)])
    return Message(message.role, (*before, words, *calls))


def _observation(message: Message) -> Text | None:
    """The results, if the message holds nothing else."""
    match message:
        case Message("user", (Text(text),)) if text.startswith(_OBSERVATION):
            return None if _NEW_TASK in text else Text(text.removeprefix(_OBSERVATION))
    return None


def ends_the_task(conversation: Conversation, called: Collection[str]) -> bool:
    """Whether the client needs nothing more after these calls: it demanded a tool by name, to
    extract data, or one of the calls says that the task is done."""
    if conversation.tool_choice.name is not None:
        return True
    tools = {tool.name: tool for tool in conversation.tools}
    ends = (_LAST_CALLS.keys() & tools.keys()) & set(called)
    return any(_LAST_CALLS[name] in tools[name].description for name in ends)
