"""LineBuffer: bytes in, whole lines out.

Lines end at the byte `\\n` and nowhere else: U+2028, U+0085 and `\\r` are legal inside JSON strings
(so `splitlines` is wrong), and a multi-byte character may be cut by any read (so decoding waits for
the whole line). The pieces of an unfinished line are joined once, when its end arrives, so a 16 MB
line costs as much per byte as a short one.
"""

from __future__ import annotations

from cursor_gateway.errors import AgentFailed

# Tool results carry whole files, so lines of many megabytes are normal. The limit is far above any
# line that was seen, and far below what would hurt the machine.
MAX_LINE_BYTES = 256 * 1024 * 1024


class LineBuffer:
    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes, each with its newline; empty if it completes none."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._add(data)
            return b""
        lines = b"".join((*self._pieces, data[:end])) if self._pieces else data[:end]
        self._pieces.clear()
        self._size = 0
        self._add(data[end:])
        return lines

    @property
    def unfinished(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the line that has not ended yet."""
        return (self._pieces[0], self._pieces[-1]) if self._pieces else (b"", b"")

    def close(self) -> bytes:
        """The last line, when the stream ended without a newline; else empty."""
        last = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return last

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size > self._limit:
            raise AgentFailed(f"The agent sent a line of more than {self._limit} bytes.")
        self._pieces.append(piece)
