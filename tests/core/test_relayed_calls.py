"""Announcements and arrivals of calls, in every order: each call once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
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
    return [(call.id, call.arguments.get("n")) for call in found]


def announce(book: RelayedCalls, *numbers: int) -> None:
    """Calls of the same tool, whose ids in the stream are a, b, c ..."""
    for stream_id, number in zip("abcdefgh", numbers, strict=False):
        book.announce(stream_id, "bash", {"n": number})


def test_an_announced_call_is_handed_out_when_it_arrives() -> None:
    book = calls()
    announce(book, 1)
    assert taken(book) == []
    assert book.arrive("bash", {"n": 1}) == "call_1"
    assert taken(book) == [("call_1", 1)]
    assert taken(book) == []


def test_a_call_may_arrive_before_it_is_announced() -> None:
    book = calls()
    book.arrive("bash", {"n": 1})
    assert taken(book) == [("call_1", 1)]
    announce(book, 1)
    assert taken(book) == []


def test_a_burst_goes_out_when_its_first_call_arrives() -> None:
    book = calls()
    announce(book, 1, 2, 1)
    book.arrive("bash", {"n": 1})
    assert taken(book) == [("call_1", 1), ("call_2", 2), ("call_3", 1)]
    assert [book.arrive("bash", {"n": n}) for n in (2, 1)] == ["call_2", "call_3"]


def test_a_burst_of_which_nothing_shall_go_out_as_announced_goes_out_as_it_arrives() -> None:
    book = calls()
    announce(book, 1, 2)
    book.arrive("bash", {"n": 1})
    (call,) = book.for_client(one_at_a_time=False, as_announced=False)
    assert call.id == "call_1"


def test_arguments_that_say_nothing_may_be_lost_on_one_of_the_two_ways() -> None:
    book = calls()
    told = {"n": 1.0, "timeout": None, "more": {"all": False}, "of": [0.5]}
    book.announce("a", "bash", told)
    assert book.arrive("bash", {"n": 1, "of": [0.5]}) == "call_1"
    (call,) = book.for_client(one_at_a_time=False)
    assert call.arguments == {"n": 1, "of": [0.5]} and not book.were_rewritten


def test_a_rewritten_call_is_the_announced_one_as_it_arrived() -> None:
    book = calls()
    announce(book, 1)
    assert book.arrive("bash", {"n": 10}) == "call_1"
    assert taken(book) == [("call_1", 10)]
    assert book.were_rewritten


def test_a_rewritten_call_may_arrive_before_it_is_announced() -> None:
    book = calls()
    book.arrive("bash", {"n": 10})
    announce(book, 1, 2)
    assert taken(book) == [("call_1", 10)]
    book.answered("call_1")
    book.came_back("a")
    assert taken(book) == []
    assert book.arrive("bash", {"n": 20}) == "call_2"
    assert taken(book) == [("call_2", 20)]


def test_a_call_of_another_tool_is_no_rewritten_one() -> None:
    book = calls()
    announce(book, 1)
    assert book.arrive("read", {"n": 1}) == "call_2"
    assert not book.were_rewritten


def test_once_a_call_was_rewritten_only_what_has_arrived_is_handed_out() -> None:
    book = calls()
    announce(book, 1, 2, 3)
    book.arrive("bash", {"n": 10})
    assert taken(book) == [("call_1", 10)]
    book.answered("call_1")
    assert book.arrive("bash", {"n": 2}) == "call_2"
    assert taken(book) == [("call_2", 2)]
    book.answered("call_2")
    assert book.arrive("bash", {"n": 30}) == "call_3"
    assert taken(book) == [("call_3", 30)]


def test_a_call_that_was_handed_out_before_it_arrived_rewritten_is_not_made_again() -> None:
    book = calls()
    announce(book, 1, 2)
    book.arrive("bash", {"n": 1})
    assert taken(book) == [("call_1", 1), ("call_2", 2)]
    book.answered("call_1")
    book.answered("call_2")
    assert book.arrive("bash", {"n": 20}) == "call_2"
    assert taken(book) == []


def test_an_announcement_without_arguments_waits_for_its_call() -> None:
    book = calls()
    announce(book, 1)
    book.announce("z", "bash", None)
    book.arrive("bash", {"n": 1})
    assert taken(book) == [("call_1", 1)]
    assert book.arrive("bash", {"n": 2}) == "call_2"
    assert taken(book) == [("call_2", 2)] and not book.were_rewritten
    book.arrive("bash", {"n": 3})
    book.announce("y", "bash", None)
    assert taken(book) == [("call_3", 3)] and not book.were_rewritten


def test_what_is_announced_twice_is_one_call() -> None:
    book = calls()
    announce(book, 1)
    announce(book, 1)
    book.arrive("bash", {"n": 1})
    assert taken(book) == [("call_1", 1)]


def test_what_never_arrived_is_withdrawn() -> None:
    book = calls()
    announce(book, 1, 2)
    book.came_back("a")
    book.arrive("bash", {"n": 2})
    assert taken(book) == [("call_2", 2)]
    book.answered("call_2")
    book.came_back("b")
    book.came_back("z")
    book.answered("call_9")
    assert book.arrive("bash", {"n": 1}) == "call_3"


def test_a_refused_call_beside_one_that_looks_like_it_is_no_second_call() -> None:
    book = calls()
    announce(book, 1, 2, 1)
    book.arrive("bash", {"n": 1})
    # The first was refused, so what has arrived is the third.
    book.came_back("a")
    assert taken(book) == [("call_1", 1), ("call_2", 2)]
    book.answered("call_1")
    book.came_back("c")
    assert book.arrive("bash", {"n": 2}) == "call_2"
    book.came_back("b")
    assert book.arrive("bash", {"n": 1}) == "call_4"


def test_a_call_that_comes_back_with_a_ticket_was_not_refused() -> None:
    book = calls()
    announce(book, 1, 1)
    book.arrive("bash", {"n": 1})
    book.replied("call_1")
    book.came_back("a")
    assert taken(book) == [("call_1", 1), ("call_2", 1)]


def test_one_at_a_time_means_that_the_next_waits_for_the_answer() -> None:
    book = calls()
    announce(book, 1, 2)
    book.arrive("bash", {"n": 1})
    assert taken(book, one_at_a_time=True) == [("call_1", 1)]
    assert taken(book, one_at_a_time=True) == []
    book.answered("call_1")
    assert taken(book, one_at_a_time=True) == []
    book.arrive("bash", {"n": 2})
    assert taken(book, one_at_a_time=True) == [("call_2", 2)]


def test_one_at_a_time_is_one_of_those_that_have_arrived() -> None:
    book = calls()
    announce(book, 1, 2)
    book.arrive("bash", {"n": 2})
    assert taken(book, one_at_a_time=True) == [("call_2", 2)]
    book.arrive("bash", {"n": 1})
    assert taken(book, one_at_a_time=True) == []


@given(st.lists(st.integers(0, 2), max_size=8), st.randoms(use_true_random=False))
def test_however_the_two_are_mixed_each_call_is_handed_out_once(
    numbers: list[int], random: Any
) -> None:
    """Calls that arrive as they were announced, in any order and at any time."""
    book = calls()
    ids = map(str, itertools.count())
    events = [("announce", n) for n in numbers] + [("arrive", n) for n in numbers]
    random.shuffle(events)
    handed: list[str] = []
    arrived: list[str] = []
    for kind, number in events:
        if kind == "announce":
            book.announce(next(ids), "bash", {"n": number})
        else:
            arrived.append(book.arrive("bash", {"n": number}))
        handed += [call for call, _ in taken(book)]
    assert len(set(arrived)) == len(arrived) == len(numbers)
    # What was handed out before it arrived may never arrive: nobody knows that here.
    assert set(arrived) <= set(handed) and len(set(handed)) == len(handed)


@dataclass(frozen=True)
class Made:
    """A call as the model made it, and what became of it on its way."""

    number: int
    arrives_as: int
    is_refused: bool = False


@dataclass
class Play:
    """The agent as it was seen: a step announces its calls, and they arrive one after the other,
    each when the one before was answered. Its stream may be read later than a call arrives, but
    not later than the next one does."""

    draw: Any
    # What a version of it announces: a call with its arguments, without them, or nothing.
    announces: str = "whole"
    book: RelayedCalls = field(default_factory=calls)
    unread: list[Any] = field(default_factory=list)
    ids: Any = field(default_factory=itertools.count)
    handed: dict[str, Any] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)

    def step(self, made: list[Made]) -> None:
        names = [f"{next(self.ids)}" for _ in made]
        for stream_id, call in zip(names, made, strict=True):
            if self.announces:
                told = {"n": call.number} if self.announces == "whole" else None
                self.unread.append(("announce", stream_id, told))
        for stream_id, call in zip(names, made, strict=True):
            if not call.is_refused:
                self.call(call)
            self.unread.append(("came back", stream_id, None))
            if self.handed:
                self.read()
        self.read()

    def read(self) -> None:
        for kind, stream_id, told in self.unread:
            if kind == "announce":
                self.book.announce(stream_id, "bash", told)
            else:
                self.book.came_back(stream_id)
        self.unread.clear()

    def call(self, call: Made) -> None:
        if self.draw(st.booleans()):
            self.read()
        call_id = self.book.arrive("bash", {"n": call.arrives_as})
        assert call_id not in self.executed
        self.executed.append(call_id)
        self.read()
        for out in self.book.for_client(one_at_a_time=False):
            assert out.id not in self.handed
            self.handed[out.id] = out.arguments["n"]
        assert call_id in self.handed
        # As it arrived or, where it was handed out before that, as it was announced.
        assert self.handed[call_id] in (call.arrives_as, call.number)
        for each in self.handed:
            self.book.answered(each)


versions = st.sampled_from(["whole", "name", ""])
made = st.builds(
    lambda n, other, refused: Made(n, n + other, refused),
    st.integers(0, 2),
    st.sampled_from([0, 0, 100]),
    st.sampled_from([False, False, True]),
)


@given(st.lists(st.lists(made, max_size=5), max_size=4), versions, st.data())
def test_each_call_that_is_made_is_one_call_whatever_becomes_of_it_on_its_way(
    steps: list[list[Made]], announces: str, data: Any
) -> None:
    play = Play(data.draw, announces)
    for step in steps:
        play.step(step)
    arrived = [call for step in steps for call in step if not call.is_refused]
    assert len(play.executed) == len(arrived)
    for_nobody = play.handed.keys() - set(play.executed)
    # Only the bet that what is announced will arrive can be lost.
    refused = sum(call.is_refused for step in steps for call in step)
    assert len(for_nobody) <= refused


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(3, 5)), min_size=1, max_size=6), st.data())
def test_where_each_call_is_rewritten_each_is_executed_as_it_arrived(
    numbers: list[tuple[int, int]], data: Any
) -> None:
    play = Play(data.draw)
    play.step([Made(n, other) for n, other in numbers])
    assert [play.handed[each] for each in play.executed] == [other for _, other in numbers]
    assert play.handed.keys() == set(play.executed)


def test_only_ids_of_this_gateway_carry_its_seal() -> None:
    nonces = (f"{number:012x}" for number in itertools.count())
    ours, theirs = CallIds(b"secret", lambda: next(nonces)), CallIds(b"other", lambda: "0" * 12)
    call = ours.new()
    assert call.startswith("call_") and len(call) == 29 and ours.new() != call
    assert ours.is_ours(call)
    for other in (theirs.new(), call[:-1], call + "0", call.upper(), "", "call_", "toolu_\ud800"):
        assert not ours.is_ours(other)
