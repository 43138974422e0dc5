"""CallIds: ids of tool calls that only this gateway can have made."""

from __future__ import annotations

import hmac
from collections.abc import Callable

_PREFIX = "call_"
_NONCE, _SEAL = 12, 12


class CallIds:
    """Clients send ids back, and old or invented ones among them. The seal tells ours at once:
    whatever has none of this life of the gateway is history, and nothing waits for it."""

    def __init__(self, secret: bytes, nonce: Callable[[], str]) -> None:
        self._secret = secret
        # Makes `_NONCE` hexadecimal digits, never the same twice.
        self._nonce = nonce

    def new(self) -> str:
        nonce = self._nonce()
        return f"{_PREFIX}{nonce}{self._seal(nonce)}"

    def is_ours(self, call_id: str) -> bool:
        nonce = call_id.removeprefix(_PREFIX)[:_NONCE]
        return hmac.compare_digest(
            call_id.encode("utf-8", "surrogatepass"),
            f"{_PREFIX}{nonce}{self._seal(nonce)}".encode("utf-8", "surrogatepass"),
        )

    def _seal(self, nonce: str) -> str:
        message = nonce.encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()[:_SEAL]
