"""Who may use the gateway: checked before a request's body is read.

A gateway on loopback is within reach of every web page the user opens. Three checks keep them out:
the `Host` header (a page whose name was rebound to 127.0.0.1 still sends its own name), the
`Origin` header (browsers send it with every request a page makes across origins), and the content
type (a form cannot send JSON without asking first).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from cursor_gateway.errors import (
    HostNotAllowed,
    InvalidApiKey,
    OriginNotAllowed,
    UnsupportedMediaType,
)
from cursor_gateway.settings import Settings, is_loopback

# A page that opens a WebSocket sends its key behind this, as one of the protocols that it offers.
# OpenAI's clients use this prefix.
KEY_PROTOCOL = "openai-insecure-api-key."


class Admission:
    def __init__(self, settings: Settings) -> None:
        self.adopt(settings)

    def adopt(self, settings: Settings) -> None:
        self._key = settings.api_key.encode()
        self._origins = {origin.lower().rstrip("/") for origin in settings.cors_origins}
        self._hosts = {host.lower() for host in (*settings.allowed_hosts, settings.host)}
        # An attacker can rebind a name, but no address: so a gateway that other machines may reach
        # answers to any address.
        self._any_address = not settings.is_loopback
        # Nearly all requests name the same host, so the last few verdicts are cached.
        self._is_our_name = lru_cache(maxsize=16)(self._names_us)

    def check_host(self, host: str | None) -> None:
        """Browsers always send `Host`, and only browsers are the danger here, so a request without
        one passes."""
        if host is not None and not self._is_our_name(host):
            raise HostNotAllowed("This gateway does not answer to that host name.")

    def _names_us(self, host: str) -> bool:
        name = _host_of(f"//{host}").rstrip(".")
        if is_loopback(name) or name in self._hosts:
            return True
        return self._any_address and _is_address(name)

    def check_origin(self, origin: str | None) -> str | None:
        """The origin to name in the CORS headers, if any."""
        if origin is None:
            return None
        known = origin.lower().rstrip("/")
        is_web = known.startswith(("http://", "https://"))
        if known in self._origins or (is_web and is_loopback(_host_of(known))):
            return origin
        raise OriginNotAllowed("Pages of that origin may not use this gateway.")

    @property
    def needs_key(self) -> bool:
        return bool(self._key)

    def has_key(self, headers: Mapping[str, str]) -> bool:
        if not self._key:
            return True
        return any([_same(self._key, key) for key in _offered(headers)])  # noqa: C419 - all, always

    def check_key(self, headers: Mapping[str, str]) -> None:
        if not self.has_key(headers):
            raise InvalidApiKey("The gateway's API key is missing or wrong.")


def caller_of(headers: Mapping[str, str]) -> str:
    """A digest of the request's key, the same in whichever header the key came. All requests
    without a key belong to one caller."""
    keys = sorted(set(filter(None, _offered(headers))))
    offered = "\0".join(keys) or _authorization(headers)
    return hashlib.blake2b(offered.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _offered(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that a request offers."""
    scheme, _, value = _authorization(headers).partition(" ")
    named = headers.get("x-api-key", "")
    if scheme.lower() == "bearer":
        return named, value.strip()
    return (named, _password(value)) if scheme.lower() == "basic" else (named,)


def _authorization(headers: Mapping[str, str]) -> str:
    """A page cannot set this header on a WebSocket; the protocols it offers are all it can set."""
    if (named := headers.get("Authorization")) is not None:
        return named
    for protocol in headers.get("Sec-WebSocket-Protocol", "").split(","):
        if (key := protocol.strip()).startswith(KEY_PROTOCOL):
            return f"Bearer {key.removeprefix(KEY_PROTOCOL)}"
    return ""


def check_content_type(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and "+json" in kind):
        raise UnsupportedMediaType("The body must be JSON.")


def _host_of(url: str) -> str:
    """The host of `url`; empty if `url` has more than scheme, host and port."""
    try:
        split = urlsplit(url)
        is_plain = split.port != 0 and not (split.path or split.query or "@" in split.netloc)
    except ValueError:
        return ""
    return (split.hostname or "") if is_plain else ""


def _password(encoded: str) -> str:
    """The password of HTTP Basic, the only way in which a browser itself asks its user for a key.
    The user's name does not matter."""
    try:
        pair = base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return ""
    return pair.partition(":")[2]


def _same(key: bytes, offered: str) -> bool:
    return hmac.compare_digest(key, offered.encode("utf-8", "surrogateescape"))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
