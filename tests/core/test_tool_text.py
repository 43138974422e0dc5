"""Calls in text: exactly the calls, exactly the rest, however the stream is cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.core.call_block import Asked, Garbled
from cursor_gateway.core.tool_text import Imagined, Piece, Quoted, Said, ToolTextParser


def parse(chunks: list[str]) -> list[Piece]:
    parser = ToolTextParser()
    pieces = [piece for chunk in chunks for piece in parser.feed(chunk)]
    return pieces + parser.close()


def said(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Said))


def shown(pieces: list[Piece]) -> str:
    """All that is no call, as it was written."""
    texts = (p.text if isinstance(p, Said) else getattr(p, "raw", "") for p in pieces)
    return "".join(
        text for p, text in zip(pieces, texts, strict=True) if isinstance(p, Said | Quoted)
    )


def joined(pieces: list[Piece]) -> list[Piece]:
    """With one text where several stand in a row."""
    out: list[Piece] = []
    for kind, group in itertools.groupby(pieces, type):
        texts = list(group)
        out += [Said(said(texts))] if kind is Said else texts
    return out


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
    text = "".join(f"{prose}\n{written(*call)}\n" for prose, call in turns) + end
    places = sorted(cuts.draw(st.sets(st.integers(0, len(text)), max_size=12)) | {0, len(text)})
    chunks = [text[a:b] for a, b in itertools.pairwise(places)]
    for pieces in (parse([text]), parse(list(text)), parse(chunks)):
        assert calls(pieces) == [call for _, call in turns]
        assert said(pieces) == "".join(f"{prose}\n" for prose, _ in turns) + end
        assert not any(isinstance(piece, Garbled) for piece in pieces)


MARKUP = [*'<t>{}["\\ \n.`', "<tool_call", "</tool_call", "<tool_call>\n{", "\n```", "<tool_result"]


@given(st.lists(st.sampled_from(MARKUP), max_size=30), st.data())
def test_nothing_is_lost_and_nothing_depends_on_how_the_stream_is_cut(
    parts: list[str], cuts: st.DataObject
) -> None:
    text = "".join(parts)
    places = sorted(cuts.draw(st.sets(st.integers(0, len(text)), max_size=6)) | {0, len(text)})
    whole = joined(parse([text]))
    assert joined(parse(list(text))) == whole
    assert joined(parse([text[a:b] for a, b in itertools.pairwise(places)])) == whole
    if Imagined() not in whole:
        kept = "".join(p.text if isinstance(p, Said) else getattr(p, "raw", "") for p in whole)
        # What was added is a tag; what is missing is white space behind a call, and half a tag.
        assert letters(kept).startswith(letters(text)[:-11])


def letters(text: str) -> str:
    return "".join(text.replace("</tool_call", "").replace("<tool_call>", "").split())


# A document, as it is written and what is to become of it: the text, and the calls in it.
SENTENCES = st.sampled_from(["So.", "Use `<tool_call>`.", "a ~~~ b", "``` x ```", "<b>", ""])
BARE = CALL.map(lambda call: json.dumps({"name": call[0], "arguments": call[1]}))
FENCES = st.sampled_from(
    [("```", "```"), ("```xml", "```"), ("~~~~ x", "~~~~~"), (" ```", "  ````")]
)
MADE = st.lists(CALL, min_size=1, max_size=3).map(
    lambda made: (
        "<tool_call>\n"
        + "\n".join(json.dumps({"name": name, "arguments": args}) for name, args in made)
        + "\n</tool_call>\n",
        "",
        made,
    )
)
PART = st.one_of(
    SENTENCES.map(lambda line: (f"{line}\n", f"{line}\n", [])),
    BARE.map(lambda body: f"Write <tool_call>{body}</tool_call> here.\n").map(lambda t: (t, t, [])),
    BARE.map(lambda body: f"- `<tool_call>{body}</tool_call>`\n").map(lambda t: (t, t, [])),
    BARE.map(lambda body: f"    <tool_call>{body}</tool_call>\n").map(lambda t: (t, t, [])),
    BARE.map(lambda body: f"<tool_call>{body}</tool_call> does it.\n").map(lambda t: (t, t, [])),
    st.tuples(FENCES, BARE)
    .map(lambda it: f"{it[0][0]}\n<tool_call>\n{it[1]}\n</tool_call>\n{it[0][1]}\n")
    .map(lambda t: (t, t, [])),
    MADE,
)


@given(st.lists(PART, max_size=5), st.data())
def test_a_call_stands_alone_on_its_lines_and_all_else_is_text(
    parts: list[Any], cuts: st.DataObject
) -> None:
    text = "".join(part[0] for part in parts)
    places = sorted(cuts.draw(st.sets(st.integers(0, len(text)), max_size=6)) | {0, len(text)})
    for chunks in ([text], list(text), [text[a:b] for a, b in itertools.pairwise(places)]):
        pieces = parse(chunks)
        assert calls(pieces) == [call for part in parts for call in part[2]]
        # White space behind a call belongs to it.
        assert shown(pieces).split() == "".join(part[1] for part in parts).split()


@pytest.mark.parametrize("text", ["<tool_cal", "a <", "x <", "</tool_call"])
def test_half_a_tag_at_the_end_is_text(text: str) -> None:
    assert said(parse(list(text))) == text


@pytest.mark.parametrize("text", ["<tool_call", "<tool_call>", "<tool_call>  ", '<tool_call id="c'])
def test_a_tag_at_the_end_is_a_call_that_never_came(text: str) -> None:
    for pieces in (parse(["x\n" + text]), parse(list("x\n" + text))):
        assert said(pieces) == "x\n"
        assert pieces[-1] == Garbled(text, "the call does not end.")
    assert said(parse(list("Write " + text))) == "Write " + text


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
        "<tool_call>\n" + fence.replace("{}", '{"name": "ls", "arguments": {}}') + "</tool_call>\n."
    )
    for pieces in (parse([text]), parse(list(text))):
        assert (calls(pieces), said(pieces)) == ([("ls", {})], ".")


def test_a_broken_call_does_not_swallow_the_next_one() -> None:
    broken = '<tool_call>\n{"name": "x", "arguments": {"a": 1}\n</tool_call>\nmiddle\n'
    text = broken + written("ls", {}) + "\ntail"
    for pieces in (parse([text]), parse(list(text))):
        assert calls(pieces) == [("ls", {})]
        assert said(pieces) == "middle\ntail"
        assert sum(isinstance(piece, Garbled) for piece in pieces) == 1


def test_a_smaller_than_sign_in_a_broken_call_is_no_end() -> None:
    (piece,) = parse(['<tool_call>{"name": x < 5}</tool_call>'])
    assert isinstance(piece, Garbled) and piece.raw.endswith("x < 5}</tool_call>")


def test_a_forgotten_closing_tag_is_understood() -> None:
    text = '<tool_call>{"name": "ls", "arguments": {}}'
    assert calls(parse([text])) == [("ls", {})]
    pieces = parse([text + "\nand then"])
    assert (calls(pieces), said(pieces)) == ([("ls", {})], "and then")
    assert len(calls(parse([text + "\n" + text]))) == len(calls(parse([text + text]))) == 2


@pytest.mark.parametrize(
    "ends", ["}\n</tool_call>", "}]}\n</tool_call>", "</tool_call >", "}", ",\n"]
)
def test_a_bracket_too_many_and_a_blank_in_the_tag_are_no_text(ends: str) -> None:
    text = f'<tool_call>\n{{"name": "ls", "arguments": {{}}}}{ends}\nSo.'
    for pieces in (parse([text]), parse(list(text))):
        assert (calls(pieces), said(pieces)) == ([("ls", {})], "So.")


def test_several_calls_in_one_block_are_all_made() -> None:
    bodies = [f'{{"name": "ls", "arguments": {{"n": {n}}}}}' for n in range(3)]
    text = "<tool_call>\n" + "\n".join(bodies) + "\n</tool_call>\nSo."
    for pieces in (parse([text]), parse(list(text))):
        assert calls(pieces) == [("ls", {"n": n}) for n in range(3)]
        assert said(pieces) == "So."
        assert [p.raw for p in pieces if isinstance(p, Asked)] == [
            f"<tool_call>\n{body}\n</tool_call>" for body in bodies
        ]
    cut = parse(["<tool_call>\n", bodies[0], '\n{"na'])
    assert calls(cut) == [("ls", {"n": 0})]
    assert cut[-1] == Garbled('<tool_call>\n{"na', "the call does not end.")


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        ("Let me look. ", "does not stand alone"),
        ("\t", "does not stand alone"),
        ("> ", "does not stand alone"),
        ("So:\n```xml\n", "in a code block"),
        ("~~~\n```\n", "in a code block"),
        ("````\n```\n", "in a code block"),
    ],
)
def test_a_quotation_says_where_it_stands(before: str, problem: str) -> None:
    call = written("rm", {})
    for pieces in (parse([before + call]), parse(list(before + call))):
        assert said(pieces) == before
        assert isinstance(pieces[-1], Quoted) and problem in pieces[-1].problem
        assert pieces[-1].raw == call


@pytest.mark.parametrize(
    "end", ["", "\n{", '\n{"name": "x', "</tool_c", "</tool_call", "</tool_call >"]
)
def test_half_a_quotation_at_the_end_is_whole_as_it_is(end: str) -> None:
    text = "Write " + '<tool_call>{"name": "rm"}' + end
    assert shown(parse(list(text))) == text == shown(parse([text]))


@pytest.mark.parametrize("end", [" <", " is", "x"])
def test_words_behind_a_call_on_its_line_make_it_a_quotation(end: str) -> None:
    text = f'<tool_call>{{"name": "rm"}}</tool_call>{end}'
    for pieces in (parse([text]), parse(list(text))):
        assert calls(pieces) == [] and shown(pieces) == text


def test_a_code_block_that_has_ended_is_over() -> None:
    call = written("ls", {})
    for before in ("```\nx\n```\n", "``` x ```\n", "~~~\n```\n~~~\n", "```" + "x" * 300 + "`\n"):
        assert calls(parse(list(before + call))) == [("ls", {})], before


def test_a_model_that_answers_its_quotation_meant_it() -> None:
    text = f"So: {written('ls', {})}\n<tool_result>"
    assert parse(list(text))[-1] == Imagined() == parse([text])[-1]
    text = f"So: {written('ls', {})} gives a <tool_result> then."
    assert shown(parse(list(text))) == text == shown(parse([text]))


def test_what_follows_an_act_begins_a_line() -> None:
    parser = ToolTextParser()
    parser.feed("Hm.")
    parser.begin_line()
    pieces = parser.feed(written("ls", {})) + parser.close()
    assert calls(pieces) == [("ls", {})]
    parser.feed("<")
    parser.begin_line()
    assert shown(parser.feed("b>")) == "<b>"


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
        ('{"name": "x", "arguments": {"a": ' + "[" * 200 + "]" * 200 + "}}", "levels deep"),
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
    (piece,) = parse(['a\n<tool_call>{"name": "x', "yz"])[1:]
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
