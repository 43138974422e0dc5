"""CallIds: ids of tool calls that only this gateway can have made."""

from __future__ import annotations

import hmac
from collections.abc import Callable

_PREFIX = "call_"
_NONCE, _SEAL = 12, 12


class CallIds:
    """Clients send ids back, among them old and invented ones. The seal is made with a secret of
    this process, so an id without it belongs to no call that still waits for a result."""

    def __init__(self, secret: bytes, nonce: Callable[[], str]) -> None:
        self._secret = secret
        # Returns `_NONCE` hexadecimal digits, never the same ones twice.
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
