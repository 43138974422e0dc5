"""Calls in text: exactly the calls, exactly the rest, however the stream is cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.tool_text import Asked, Garbled, Imagined, Piece, Said, ToolTextParser


def parse(chunks: list[str]) -> list[Piece]:
    parser = ToolTextParser()
    pieces = [piece for chunk in chunks for piece in parser.feed(chunk)]
    return pieces + parser.close()


def said(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Said))


def calls(pieces: list[Piece]) -> list[tuple[str, dict[str, Any]]]:
    return [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, Asked)]


def written(name: str, arguments: Any, tag: str = "<tool_call>") -> str:
    return f"{tag}\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["</tool_call>", "<tool_call>{", '"}', "\\", "{[", "\u2028\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CALL = st.tuples(st.text("abc_", min_size=1), st.dictionaries(st.text(), JSON, max_size=3))
# Prose may hold anything but a whole tag; halves of tags are welcome. It does not begin with white
# space, because that after a call belongs to the call.
PROSE = (
    st.lists(
        st.sampled_from(["<", "<tool", "_call", "</tool_call", "{", "}", ">", "x", " ", "\n", "é"]),
        max_size=8,
    )
    .map("".join)
    .filter(lambda text: "<tool_call" not in text and "<tool_call" not in "<" + text)
    .map(lambda text: "." + text + ".")
)


@given(st.lists(st.tuples(PROSE, CALL), max_size=4), PROSE, st.data())
def test_any_text_with_any_calls_is_taken_apart_exactly(
    turns: list[tuple[str, tuple[str, dict[str, Any]]]], end: str, cuts: st.DataObject
) -> None:
    text = "".join(prose + written(*call) + "\n" for prose, call in turns) + end
    places = sorted(cuts.draw(st.sets(st.integers(0, len(text)), max_size=12)) | {0, len(text)})
    chunks = [text[a:b] for a, b in itertools.pairwise(places)]
    for pieces in (parse([text]), parse(list(text)), parse(chunks)):
        assert calls(pieces) == [call for _, call in turns]
        assert said(pieces) == "".join(prose for prose, _ in turns) + end
        assert not any(isinstance(piece, Garbled) for piece in pieces)


@given(
    st.lists(
        st.sampled_from(["<", "t", "<tool_call", ">", "{", "}", '"', "\\", "\n", "</tool_call>"])
    )
)
def test_nothing_is_lost_and_nothing_breaks(parts: list[str]) -> None:
    text = "".join(parts)
    whole, bytewise = parse([text]), parse(list(text))
    assert said(whole) == said(bytewise)
    kept = "".join(p.text if isinstance(p, Said) else getattr(p, "raw", "") for p in whole)
    without = str.maketrans("", "", "\n ")
    assert kept.replace("</tool_call>", "").translate(without) == (
        text.replace("</tool_call>", "").translate(without)
    )


@pytest.mark.parametrize("text", ["<tool_cal", "a <", "x <", "</tool_call"])
def test_half_a_tag_at_the_end_is_text(text: str) -> None:
    assert said(parse(list(text))) == text


@pytest.mark.parametrize("text", ["<tool_call", "<tool_call>", "<tool_call>  ", '<tool_call id="c'])
def test_a_tag_at_the_end_is_a_call_that_never_came(text: str) -> None:
    for pieces in (parse(["x " + text]), parse(list("x " + text))):
        assert said(pieces) == "x "
        assert pieces[-1] == Garbled(text, "the call does not end.")


@pytest.mark.parametrize(
    "text",
    [
        "Use `<tool_call>` to call.",
        "<tool_callback>{}</tool_callback>",
        "<tool_call is what you write",
        "<tool_call " + "x" * 500,
        "<tool_call\n>{}",
    ],
)
def test_prose_about_tags_is_prose(text: str) -> None:
    assert parse(list(text)) and said(parse(list(text))) == text == said(parse([text]))


def test_text_is_never_later_than_the_tag_is_long() -> None:
    parser = ToolTextParser()
    sent, given = "", ""
    for sign in "plain <text> with < and <to and <tool_ and 1 < 2 " * 20:
        sent += sign
        given += said(parser.feed(sign))
        assert len(sent) - len(given) < len("<tool_result")


def test_a_tag_may_carry_the_id_that_the_model_saw_in_the_history() -> None:
    assert calls(parse([written("ls", {}, '<tool_call id="call_1">')])) == [("ls", {})]


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}```", "```json {}\n```\n"])
def test_a_code_block_around_the_json_is_looked_through(fence: str) -> None:
    text = (
        "<tool_call>\n" + fence.replace("{}", '{"name": "ls", "arguments": {}}') + "</tool_call>."
    )
    for pieces in (parse([text]), parse(list(text))):
        assert (calls(pieces), said(pieces)) == ([("ls", {})], ".")


def test_a_broken_call_does_not_swallow_the_next_one() -> None:
    broken = '<tool_call>\n{"name": "x", "arguments": {"a": 1}\n</tool_call>\nmiddle '
    text = broken + written("ls", {}) + " tail"
    for pieces in (parse([text]), parse(list(text))):
        assert calls(pieces) == [("ls", {})]
        assert said(pieces) == "middle tail"
        assert sum(isinstance(piece, Garbled) for piece in pieces) == 1


def test_a_smaller_than_sign_in_a_broken_call_is_no_end() -> None:
    (piece,) = parse(['<tool_call>{"name": x < 5}</tool_call>'])
    assert isinstance(piece, Garbled) and piece.raw.endswith("x < 5}")


def test_a_forgotten_closing_tag_is_understood() -> None:
    text = '<tool_call>{"name": "ls", "arguments": {}}'
    assert calls(parse([text])) == [("ls", {})]
    pieces = parse([text + " and then"])
    assert (calls(pieces), said(pieces)) == ([("ls", {})], "and then")
    assert len(calls(parse([text + "\n" + text]))) == 2


def test_newlines_in_strings_and_arguments_as_text_are_understood() -> None:
    assert calls(parse(['<tool_call>{"name":"w","arguments":{"t":"a\nb"}}'])) == [
        ("w", {"t": "a\nb"})
    ]
    assert calls(parse(['<tool_call>{"name":"w","arguments":"{\\"a\\":1}"}'])) == [("w", {"a": 1})]
    assert calls(parse(['<tool_call>{"name":"w"}</tool_call>'])) == [("w", {})]
    assert calls(parse(['<tool_call>{"name":"w","arguments":""}</tool_call>'])) == [("w", {})]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('{"name": "x", "arguments": {,}}', "not JSON"),
        ('{"arguments": {}}', 'with a "name"'),
        ('{"name": 5}', 'with a "name"'),
        ('[{"name": "x"}]', 'not one object'),
        ('{"name": "x", "parameters": {"a": 1}}', "['parameters'] beside"),
        ('{"name": "x", "path": "/"}', "['path'] beside"),
        ('{"name": "x", "arguments": {"a": 1e999}}', "too large"),
        ('{"name": "x", "arguments": [1]}', "must be an object"),
        ('{"name": "x", "arguments": "no"}', "must be an object"),
        ('{"name": "x", "arguments": {"a": NaN}}', "not JSON"),
        ('{"name": "x"', "not JSON"),
        ("{" * 5000, "does not end"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "not JSON"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(body: str, problem: str) -> None:
    closing = "" if "does not end" in problem else "</tool_call>"
    (piece,) = (p for p in parse([f"<tool_call>{body}{closing}"]) if not isinstance(p, Said))
    assert isinstance(piece, Garbled)
    assert problem in piece.problem
    assert body in piece.raw


def test_a_call_that_never_ends_is_kept_whole() -> None:
    (piece,) = parse(['a<tool_call>{"name": "x', "yz"])[1:]
    assert piece == Garbled('<tool_call>{"name": "xyz', "the call does not end.")


@pytest.mark.parametrize("imagined", ["<tool_result id=", '<turn from="user">'])
def test_a_model_that_answers_itself_is_stopped(imagined: str) -> None:
    pieces = parse(list(written("ls", {}) + f"\n{imagined}"))
    assert pieces[-1] == Imagined()
    assert said(parse([f"about {imagined} tags"])) == f"about {imagined} tags"


def test_a_megabyte_of_arguments_in_small_pieces_is_no_trouble() -> None:
    text = written("write", {"content": 'x\\"{}<' * 170_000})
    chunks = [text[at : at + 40] for at in range(0, len(text), 40)]
    ((name, arguments),) = calls(parse(chunks))
    assert (name, len(arguments["content"])) == ("write", 6 * 170_000)


def test_a_backslash_at_the_end_of_a_delta_belongs_to_the_next() -> None:
    text = written("bash", {"command": 'say "hi"', "factor": 1.5})
    cut = text.index("\\") + 1
    expected = [("bash", {"command": 'say "hi"', "factor": 1.5})]
    assert calls(parse([text[:cut], text[cut:]])) == expected
