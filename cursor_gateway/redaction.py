"""Redaction: keys and tokens do not leave the gateway in its logs, errors and output.

The process has one list of secrets, as it has one log and one terminal. The loader of the settings
and the MCP bridge add to it. Secrets are removed from each error, each line of the log and each
line that a command prints. The words of a model and the results of tools are not searched: the
client asked for them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, urlsplit

MASK = "***"
# A shorter secret may be a common word, which would be removed everywhere. In the environment of
# other programs even longer values are common words, such as `postgres`.
LEAST = 6
LEAST_OF_OTHERS = 8

_SECRET_NAME = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|authorization|cookie)$", re.IGNORECASE
)
# Tokens that are in no list: those of Cursor and of the vendors of models, JWTs of any sign-in by
# the browser, and what follows `Bearer`. Each begins where a word begins, so that no text is
# searched twice.
_SHAPES = re.compile(
    r"(?<![\w-])(?:crsr_|key_|sk-)(?=[A-Za-z_-]*\d)[\w-]{20,}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|(?<=[Bb]earer )(?=[A-Za-z.~+/=_-]*\d)[\w.~+/=-]{8,}"
)
# A text without any of these has no such token. Each request has a line in the log, so this check
# must be quick.
_MARKS = ("crsr_", "key_", "sk-", "eyJ", "earer ")


class Redaction:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        long = {secret for secret in secrets if len(secret) >= LEAST}
        known = {form for secret in long for form in _forms(secret)}.union(self._secrets)
        # One secret may begin with another.
        self._secrets = tuple(sorted(known, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        if any(mark in text for mark in _MARKS):
            text = _SHAPES.sub(MASK, text)
        return self._without_half(text)

    def _without_half(self, text: str) -> str:
        """The text may have been cut off in the middle of a secret."""
        words = text.rstrip("….")
        for secret in self._secrets:
            at = words.rfind(secret[:LEAST])
            if at >= 0 and secret.startswith(words[at:]):
                return words[:at] + MASK + text[len(words) :]
        return text


def _forms(secret: str) -> tuple[str, ...]:
    """The secret as it is, as in an address and as in JSON."""
    return secret, quote(secret, safe=""), json.dumps(secret)[1:-1]


OUTGOING = Redaction()


def masked(text: str, secret: str) -> str:
    """`text` without a secret that the process has not learnt, or that is too short for it."""
    return text.replace(secret, MASK) if secret else text


def masked_address(address: str) -> str:
    """Enough for its owner to know it, and no more: people show to others what a doctor says."""
    name, at, domain = address.partition("@")
    return f"{name[:2]}…{at}{domain}" if at else address


def named_secrets(values: Mapping[str, str]) -> Iterator[str]:
    """The values whose names say that they are secret, such as those of variables and headers."""
    for name, value in values.items():
        if _SECRET_NAME.search(name):
            # The secret may follow a word such as `Bearer`.
            forms = (value, value.rpartition(" ")[2])
            yield from (form for form in forms if len(form) >= LEAST_OF_OTHERS)


def secrets_in_command(command: str) -> Iterator[str]:
    """Secrets in a command such as `docker exec -e CURSOR_API_KEY=… box cursor-agent`."""
    try:
        words = shlex.split(command)
    except ValueError:  # the settings reject such a command
        return
    yield from named_secrets(dict(_pair(word) for word in words if "=" in word))


def secrets_in_address(url: str) -> Iterator[str]:
    try:
        split = urlsplit(url)
    except ValueError:
        return
    yield split.password or ""
    yield from named_secrets(dict(parse_qsl(split.query)))


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value
