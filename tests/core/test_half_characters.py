"""Characters that come in two halves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.half_characters import HalfCharacters


@given(st.text())
def test_text_that_is_cut_anywhere_in_utf_16_comes_whole(text: str) -> None:
    halves = HalfCharacters()
    data = text.encode("utf-16-le", "surrogatepass")
    pieces = [
        data[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(data), 2)
    ]
    whole = "".join(map(halves.feed, pieces)) + halves.close()
    assert whole == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def test_a_half_that_stays_alone_is_replaced() -> None:
    halves = HalfCharacters()
    assert (halves.feed("a\ud83d"), halves.close(), halves.close()) == ("a", "\ufffd", "")
    assert halves.feed("\ud83db") == "\ufffdb"
