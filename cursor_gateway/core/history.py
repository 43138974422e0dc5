"""History: does this conversation go on from what an agent has already read and said?

Theory of operation
-------------------
What the *client* says is compared (its system and user messages, its tool results), and the ids of
the calls, which are ours. Arguments of calls are not compared, because clients write their JSON
anew, and some rewrite them. The assistant's texts are compared without their blanks.
`client_habits` knows what clients change by habit. A client may leave out some texts, reminders and
last calls, but it may not have other ones.

Only digests are stored: a history of a megabyte takes as much memory as one of a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cursor_gateway.core.client_habits import is_reminder, without_seal, without_thoughts
from cursor_gateway.core.conversation import (
    Conversation,
    ImageFile,
    ImageLink,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from cursor_gateway.core.events import AnswerEvent, TextDelta
from cursor_gateway.core.loop_guard import is_the_user_speaking

_SESSION = re.compile(r"^Session: (session-[A-Za-z0-9-]{1,100})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class History:
    # A chain of digests: what the client said, and the calls that were made before it.
    said: bytes = b""
    # The calls since the client last said something.
    calls: tuple[str, ...] = ()
    # A digest of each answer of the assistant, and of each reminder of the client.
    texts: tuple[bytes, ...] = ()
    reminders: tuple[bytes, ...] = ()

    def goes_on_from(self, seen: History) -> bool:
        return (
            self.said == seen.said
            and set(self.calls) <= set(seen.calls)
            and set(self.texts) <= set(seen.texts)
            and set(self.reminders) <= set(seen.reminders)
        )

    @property
    def key(self) -> tuple[bytes, tuple[bytes, ...]]:
        """The same for two histories of which one goes on from the other, after an answer."""
        return self.said, self.texts[-1:]


NONE = History()


def history_of(messages: Iterable[Message], before: History = NONE) -> History:
    """The history of `messages` that follow `before`, which ended with a whole turn."""
    said, calls = before.said, list(before.calls)
    texts, reminded = list(before.texts), list(before.reminders)
    words: list[str] = []
    for message in messages:
        if message.role == "assistant":
            words += [part.text for part in message.parts if isinstance(part, Text)]
            calls += [part.id for part in message.parts if isinstance(part, ToolCall)]
            continue
        texts += _texts(words)
        aside, own = _set_apart(message)
        reminded += [_digest(_bare(_spoken([part]))) for part in aside]
        if own or not aside:
            said = _client_says(_with_calls(said, calls), message.role, own)
            calls.clear()
    return History(said, tuple(calls), (*texts, *_texts(words)), tuple(reminded))


def _set_apart(message: Message) -> tuple[list[Part], list[Part]]:
    """The client's reminders, and all the rest."""
    kinds: tuple[list[Part], list[Part]] = [], []
    for part in message.parts:
        kinds[message.role != "user" or not is_reminder(part)].append(part)
    return kinds


def _with_calls(said: bytes, calls: Iterable[str]) -> bytes:
    for call in calls:
        said = _chain(said, "call", call)
    return said


def _client_says(said: bytes, role: str, parts: Sequence[Part]) -> bytes:
    words = _spoken(parts)
    said = _chain(said, role, without_seal(words) if role == "system" else words)
    for part in parts:
        if isinstance(part, ToolCall):
            said = _chain(said, "call", part.id)
        elif isinstance(part, ToolResult):
            said = _chain(said, "result", f"{part.id}\0{_spoken(part.content)}")
    return said


class Answer:
    """What the client gets in one answer, as its next request should repeat it."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self.calls: list[ToolCall] = []

    def feed(self, events: Sequence[AnswerEvent]) -> None:
        self._words += [event.text for event in events if isinstance(event, TextDelta)]
        self.calls += [event for event in events if isinstance(event, ToolCall)]

    def after(self, asked: History) -> History:
        calls = (*asked.calls, *(call.id for call in self.calls))
        texts = (*asked.texts, *_texts(list(self._words)))
        return History(asked.said, calls, texts, asked.reminders)


def split(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The messages up to the assistant's last turn, and the new messages since."""
    spoke = [at for at, message in enumerate(messages) if message.role == "assistant"]
    cut = spoke[-1] + 1 if spoke else 0
    return tuple(messages[:cut]), tuple(messages[cut:])


def reminders(new_messages: Iterable[Message]) -> tuple[Text, ...] | None:
    """The client's own texts beside results, which stand in tags; None if the user has spoken."""
    beside: list[Text] = []
    for message in new_messages:
        if is_the_user_speaking(message):
            return None
        beside += [part for part in message.parts if isinstance(part, Text)]
    return tuple(beside)


def session_name(conversation: Conversation) -> str:
    """The name that a system message of the form `Session: session-...` gives the session."""
    for message in conversation.messages:
        if message.role == "system" and (found := _SESSION.search(_spoken(message.parts))):
            return found[1]
    return ""


def _texts(words: list[str]) -> list[bytes]:
    """The digest of an answer's words, if there were any; empties the list."""
    bare = _bare(without_thoughts("".join(words)))
    words.clear()
    return [_digest(bare)] if bare else []


def _spoken(parts: Iterable[object]) -> str:
    """The text in one piece, however a client cuts it, and then digests of the images."""
    text, images = "", ""
    for part in parts:
        match part:
            case Text(words):
                text += words
            case ImageFile(data):
                images += f"\0{_digest(data).hex()}"
            case ImageLink(url):
                images += f"\0{url}"
    return text + images


def _bare(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, b" \t\n\r\v\f")


def _chain(before: bytes, kind: str, value: str) -> bytes:
    return _digest(before + f"{kind}\0{value}".encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
