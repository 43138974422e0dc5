"""The memory of finished responses, which must not grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.web.response_store import ResponseStore


def test_what_was_not_used_for_longest_goes_first() -> None:
    store = ResponseStore(max_bytes=1000, max_count=2).of("me")
    store.put("a", {"n": 1})
    store.put("b", {"n": 2})
    assert store.get("a") == {"n": 1}
    store.put("c", {"n": 3})
    assert [store.get(name) for name in "abc"] == [{"n": 1}, None, {"n": 3}]


def test_bytes_are_counted_and_given_back() -> None:
    store = ResponseStore(max_bytes=100).of("me")
    store.put("a", {"text": "x" * 40})
    store.put("b", {"text": "x" * 40})
    assert store.get("a") is None and store.get("b") is not None
    store.remove("b")
    store.put("c", {"text": "x" * 80})
    assert store.get("c") is not None


def test_many_small_values_cost_more_than_their_bytes() -> None:
    store = ResponseStore(max_bytes=1000).of("me")
    store.put("a", {"text": "x" * 300})
    store.put("b", {"empty": [[]] * 100})
    assert store.get("a") is not None and store.get("b") is None


def test_a_value_that_is_too_large_displaces_nothing() -> None:
    store = ResponseStore(max_bytes=30).of("me")
    store.put("a", {"n": 1})
    store.put("b", {"text": "x" * 100})
    assert store.get("a") == {"n": 1} and store.get("b") is None


def test_what_is_kept_cannot_be_changed_from_outside() -> None:
    store = ResponseStore(max_bytes=1000).of("me")
    value = {"items": [1]}
    store.put("a", value)
    value["items"].append(2)
    store.get("a")["items"].append(3)
    assert store.get("a") == {"items": [1]}


def test_each_caller_has_its_own_and_all_share_the_room() -> None:
    store = ResponseStore(max_bytes=1000, max_count=2)
    mine, yours = store.of("me"), store.of("you")
    mine.put("a", {"n": 1})
    assert yours.get("a") is None
    yours.put("a", {"n": 2})
    yours.put("b", {"n": 3})
    assert mine.get("a") is None and yours.get("a") == {"n": 2}


@given(st.lists(st.text(max_size=50)), st.integers(1, 200), st.integers(1, 5))
def test_the_bounds_hold_and_the_newest_that_fits_is_there(
    texts: list[str], max_bytes: int, max_count: int
) -> None:
    store = ResponseStore(max_bytes, max_count).of("me")
    for at, text in enumerate(texts):
        store.put(str(at), {"text": text})
        found = [value for name in range(at + 1) if (value := store.get(str(name)))]
        assert len(found) <= max_count
        assert sum(len(value["text"].encode()) for value in found) <= max_bytes
