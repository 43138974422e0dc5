"""Habits of clients: what they change in a conversation though nobody said anything else.

A client sends its whole history with each request, and some do not send it as it was. Each habit
was seen in the requests of the version that is named. None is a licence: something may be missing
in a history, but what stands there must be what the agent has read.

| client | what it changes | how that is compared |
|---|---|---|
| oh-my-pi 18.2 (Messages) | `cch=` in its system text seals each request | without the seal |
| gptme 0.35, pydantic-ai 2.31 (Responses) | thoughts become text, `<think>...</think>` | without |
| Qwen Code 0.24 | a `<system-reminder>` stands in the last question only | it may be missing |
| gptme 0.35 | makes the first of several calls, and forgets the others | they may be missing |
| smolagents 1.26 | writes calls and results as words, `Calling tools:` | as calls and results |
| several | leave out texts beside calls, blanks | texts may be missing, blanks do not count |
| Claude Code, OpenCode, Qwen Code | write arguments anew | not at all |

And some calls end a task (instructor 1.17, smolagents, pydantic-ai, gptme): a client comes back at
once to complain of one, or never.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult

# Bounded, since it reads what strangers wrote.
_INVOICE = re.compile(r"x-anthropic-billing-header:[^\n]{0,200}?\bcch=(\w{1,32});")
_THOUGHT, _THOUGHT_ENDS = "<think>", "</think>"
_REMINDER, _REMINDER_ENDS = "<system-reminder>", "</system-reminder>"

# How smolagents retells a step: the list is Python's `str` of it.
_CALLING = "Calling tools:\n["
_RETOLD_CALL = re.compile(r"\{'id': '(call_[0-9a-f]{24})', 'type': 'function'")
_OBSERVATION = "Observation:\n"
# A new task of the user is put into the same text, where it cannot be told from a result.
_NEW_TASK = "\nNew task:\n"
TOGETHER = "(The client reports the results of these calls together: see the first of them.)"

# The tools by which clients let a model finish; gptme's name is a common one, so its words count.
_LAST_CALLS = {"final_answer": "", "final_result": "", "complete": "session should end"}


def without_seal(text: str) -> str:
    """The system text of a client that seals each request, in the line of its invoice."""
    seal = _INVOICE.match(text)
    return text[: seal.start(1)] + text[seal.end(1) :] if seal else text


def without_thoughts(text: str) -> str:
    """What is not closed is no thought."""
    said: list[str] = []
    at = 0
    while (start := text.find(_THOUGHT, at)) >= 0 and (end := text.find(_THOUGHT_ENDS, start)) >= 0:
        said.append(text[at:start])
        at = end + len(_THOUGHT_ENDS)
    return "".join((*said, text[at:]))


def is_reminder(part: object) -> bool:
    """Whether all of it stands in one pair of a client's tags, and no word of the user's."""
    if not isinstance(part, Text):
        return False
    text = part.text.strip()
    is_in_tags = text.startswith(_REMINDER) and text.endswith(_REMINDER_ENDS)
    return is_in_tags and text.index(_REMINDER_ENDS) == len(text) - len(_REMINDER_ENDS)


def restored(messages: Sequence[Message]) -> tuple[Message, ...]:
    """`messages`, with the calls and results that a client retells in words. Their arguments are
    left out, so this is for comparing: agents read what the client wrote."""
    out = list(messages)
    for at, (said, heard) in enumerate(pairwise(messages)):
        observed = _observation(heard)
        calls = _retold_calls(said) if observed else ()
        if observed and calls:
            results = zip(calls, (observed, *[Text(TOGETHER)] * len(calls)), strict=False)
            out[at] = _as_calls(said, calls)
            out[at + 1] = Message("user", tuple(ToolResult(c.id, (text,)) for c, text in results))
    return tuple(out)


def _retold_calls(message: Message) -> tuple[ToolCall, ...]:
    match message:
        case Message("assistant", (*_, Text(text))) if text.endswith("]") and _CALLING in text:
            found = _RETOLD_CALL.finditer(text, text.rfind(_CALLING))
            return tuple(ToolCall(each[1], "", "{}") for each in found)
    return ()


def _as_calls(message: Message, calls: tuple[ToolCall, ...]) -> Message:
    *before, last = message.parts
    assert isinstance(last, Text)
    words = Text(last.text[: last.text.rfind(_CALLING)])
    return Message(message.role, (*before, words, *calls))


def _observation(message: Message) -> Text | None:
    """The results in one text, if it holds nothing else."""
    match message:
        case Message("user", (Text(text),)) if text.startswith(_OBSERVATION):
            return None if _NEW_TASK in text else Text(text.removeprefix(_OBSERVATION))
    return None


def ends_the_task(conversation: Conversation, called: Collection[str]) -> bool:
    """Whether a client that has these calls wants no more of this answer: it extracts data, by a
    tool that it demands by name, or one of the calls says that all is done."""
    if conversation.tool_choice.name is not None:
        return True
    tools = {tool.name: tool for tool in conversation.tools}
    ends = (_LAST_CALLS.keys() & tools.keys()) & set(called)
    return any(_LAST_CALLS[name] in tools[name].description for name in ends)
