"""Announcements and arrivals of calls, in every order: each call once."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.call_ids import CallIds
from cursor_gateway.core.relayed_calls import RelayedCalls


def calls() -> RelayedCalls:
    ids = itertools.count(1)
    return RelayedCalls(lambda: f"call_{next(ids)}")


def taken(book: RelayedCalls, *, one_at_a_time: bool = False) -> list[tuple[str, Any]]:
    found = book.for_client(one_at_a_time=one_at_a_time)
    return [(call.id, call.arguments["n"]) for call in found]


def test_an_announced_call_is_handed_out_when_it_arrives() -> None:
    book = calls()
    book.announce("bash", {"n": 1})
    assert taken(book) == []
    assert book.arrive("bash", {"n": 1}) == "call_1"
    assert taken(book) == [("call_1", 1)]
    assert taken(book) == []


def test_a_call_may_arrive_before_it_is_announced() -> None:
    book = calls()
    book.arrive("bash", {"n": 1})
    assert taken(book) == [("call_1", 1)]
    book.announce("bash", {"n": 1})
    assert taken(book) == []


def test_a_burst_goes_out_when_its_first_call_arrives() -> None:
    book = calls()
    for number in (1, 2, 1):
        book.announce("bash", {"n": number})
    book.arrive("bash", {"n": 1})
    assert taken(book) == [("call_1", 1), ("call_2", 2), ("call_3", 1)]
    assert [book.arrive("bash", {"n": n}) for n in (2, 1)] == ["call_2", "call_3"]


def test_arguments_that_say_nothing_may_be_lost_on_one_of_the_two_ways() -> None:
    book = calls()
    book.announce("bash", {"n": 1.0, "timeout": None, "more": {"all": False}, "of": [0.5]})
    assert book.arrive("bash", {"n": 1, "of": [0.5]}) == "call_1"
    (call,) = book.for_client(one_at_a_time=False)
    assert call.arguments == {"n": 1, "of": [0.5]}


def test_what_never_arrived_is_withdrawn() -> None:
    book = calls()
    book.announce("bash", {"n": 1})
    book.announce("bash", {"n": 2})
    book.withdraw("bash", {"n": 1})
    book.arrive("bash", {"n": 2})
    assert taken(book) == [("call_2", 2)]
    book.answered("call_2")
    book.withdraw("bash", {"n": 2})
    book.withdraw("bash", {"n": 9})
    book.answered("call_9")
    assert book.arrive("bash", {"n": 1}) == "call_3"


def test_one_at_a_time_means_that_the_next_waits_for_the_answer() -> None:
    book = calls()
    book.announce("bash", {"n": 1})
    book.announce("bash", {"n": 2})
    book.arrive("bash", {"n": 1})
    assert taken(book, one_at_a_time=True) == [("call_1", 1)]
    assert taken(book, one_at_a_time=True) == []
    book.answered("call_1")
    assert taken(book, one_at_a_time=True) == []
    book.arrive("bash", {"n": 2})
    assert taken(book, one_at_a_time=True) == [("call_2", 2)]


@given(st.lists(st.integers(0, 2), max_size=8), st.randoms(use_true_random=False))
def test_however_the_two_are_mixed_each_call_is_handed_out_once(
    numbers: list[int], random: Any
) -> None:
    book = calls()
    events = [("announce", n) for n in numbers] + [("arrive", n) for n in numbers]
    random.shuffle(events)
    handed: list[tuple[str, Any]] = []
    arrived: list[str] = []
    for kind, number in events:
        if kind == "announce":
            book.announce("bash", {"n": number})
        else:
            arrived.append(book.arrive("bash", {"n": number}))
        handed += taken(book)
    assert sorted(number for _, number in handed) == sorted(numbers)
    assert sorted(arrived) == sorted(call for call, _ in handed)


def test_only_ids_of_this_gateway_carry_its_seal() -> None:
    nonces = (f"{number:012x}" for number in itertools.count())
    ours, theirs = CallIds(b"secret", lambda: next(nonces)), CallIds(b"other", lambda: "0" * 12)
    call = ours.new()
    assert call.startswith("call_") and len(call) == 29 and ours.new() != call
    assert ours.is_ours(call)
    for other in (theirs.new(), call[:-1], call + "0", call.upper(), "", "call_", "toolu_\ud800"):
        assert not ours.is_ours(other)
