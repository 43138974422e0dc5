"""History: does this conversation go on from what an agent has already read and said?

Theory of operation
-------------------
Compared is what the *client* says (its system and user messages, its tool results) and the ids of
the calls, which are ours. Arguments of calls are not compared: clients write them anew, and some
rewrite them. The assistant's texts are compared without their blanks; a client may leave some
of them out, but it may not have other ones.

Nothing is kept but digests: a history of a megabyte costs as much as one of a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cursor_gateway.core.conversation import (
    Conversation,
    ImageFile,
    ImageLink,
    Message,
    Text,
    ToolCall,
    ToolResult,
)
from cursor_gateway.core.events import Event, TextDelta
from cursor_gateway.core.loop_guard import is_the_user_speaking

_SESSION = re.compile(r"^Session: (session-[A-Za-z0-9-]{1,100})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class History:
    # What the client said and which calls were made, as a chain of digests.
    said: bytes = b""
    # What the assistant said, each answer a digest.
    texts: tuple[bytes, ...] = ()

    def goes_on_from(self, seen: History) -> bool:
        return self.said == seen.said and set(self.texts) <= set(seen.texts)


NONE = History()


def history_of(messages: Iterable[Message], before: History = NONE) -> History:
    """What was said in `messages`, after a history that ended with a whole turn."""
    said, texts = before.said, list(before.texts)
    words: list[str] = []
    for message in messages:
        if message.role != "assistant":
            texts += _texts(words)
            said = _chain(said, message.role, _spoken(message.parts))
        for part in message.parts:
            if isinstance(part, Text) and message.role == "assistant":
                words.append(part.text)
            elif isinstance(part, ToolCall):
                said = _chain(said, "call", part.id)
            elif isinstance(part, ToolResult):
                said = _chain(said, "result", f"{part.id}\0{_spoken(part.content)}")
    return History(said, (*texts, *_texts(words)))


class Answer:
    """What the client is told in one answer, as its next request should repeat it."""

    def __init__(self) -> None:
        self._text = hashlib.blake2b(digest_size=16)
        self._has_text = False
        self.calls: list[str] = []

    def feed(self, events: Sequence[Event]) -> None:
        if text := "".join([event.text for event in events if isinstance(event, TextDelta)]):
            bare = _bare(text)
            self._has_text |= bool(bare)
            self._text.update(bare)
        self.calls += [event.id for event in events if isinstance(event, ToolCall)]

    def after(self, asked: History) -> History:
        said = asked.said
        for call in self.calls:
            said = _chain(said, "call", call)
        texts = (*asked.texts, self._text.digest()) if self._has_text else asked.texts
        return History(said, texts)


def split(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """What came up to the assistant's last turn, and what is new since."""
    spoke = [at for at, message in enumerate(messages) if message.role == "assistant"]
    cut = spoke[-1] + 1 if spoke else 0
    return tuple(messages[:cut]), tuple(messages[cut:])


def reminders(news: Iterable[Message]) -> tuple[Text, ...] | None:
    """What a client says beside results, in tags of its own; None where it is the user's word."""
    beside: list[Text] = []
    for message in news:
        if is_the_user_speaking(message):
            return None
        beside += [part for part in message.parts if isinstance(part, Text)]
    return tuple(beside)


def session_name(conversation: Conversation) -> str:
    """The name that a client gives its session, in a system message of its own."""
    for message in conversation.messages:
        if message.role == "system" and (found := _SESSION.search(_spoken(message.parts))):
            return found[1]
    return ""


def _texts(words: list[str]) -> list[bytes]:
    """The digest of an answer's words, if there were any; empties the list."""
    bare = _bare("".join(words))
    words.clear()
    return [_digest(bare)] if bare else []


def _spoken(parts: Iterable[object]) -> str:
    """Text in one piece, however a client cuts it, and then the images."""
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
