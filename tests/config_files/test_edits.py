"""Values are set and taken out again; everything else in the text stays where it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomlkit
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cursor_gateway.config_files import Unreadable, format_of
from cursor_gateway.config_files.edits import IfMissing, identity, merges_with

NAMES = st.sampled_from(["a", "b", "c", "model", "two words", "ü"])
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.text("ab#:'\" {}[],\\ü-", max_size=6))
ENTRIES = st.lists(
    st.fixed_dictionaries({"id": st.sampled_from(["x", "y", "z"])}, optional={"v": SCALARS}),
    max_size=2,
    unique_by=lambda entry: entry["id"],
)
VALUES = st.recursive(
    SCALARS | ENTRIES | st.lists(SCALARS, max_size=2),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def merged(before: Any, wanted: Any) -> Any:
    """What setting `wanted` means, on plain values."""
    if not merges_with(before, wanted):
        return wanted
    if isinstance(wanted, dict):
        return before | {
            name: merged(before[name], value) if name in before else value
            for name, value in wanted.items()
        }
    new = {entry["id"]: entry for entry in wanted}
    old = [merged(item, new.pop(identity(item), {})) if identity(item) else item for item in before]
    return [*old, *new.values()]


def written(name: str, value: Any, compact: bool) -> str:
    if name == "x.json":
        return json.dumps(value, indent=None if compact else 3)
    if name == "x.yaml":
        return str(yaml.safe_dump(value, default_flow_style=compact or None, allow_unicode=True))
    return tomlkit.dumps(value)


@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
@settings(deadline=None)
@given(before=OBJECTS, wanted=OBJECTS, compact=st.booleans())
def test_what_is_set_can_be_read_and_taken_out(
    name: str, before: Any, wanted: Any, compact: bool
) -> None:
    form = format_of(name)
    text = written(name, before, compact)
    after = form.merged(text, wanted)
    assert form.read(after) == merged(before, wanted)
    assert form.merged(after, wanted) == after
    assert form.read(form.restored(after, before, form.read(after))) == before


TABLES = st.dictionaries(NAMES, SCALARS | st.dictionaries(NAMES, SCALARS, max_size=3), max_size=4)


@settings(deadline=None)
@given(before=TABLES, wanted=TABLES)
def test_toml_is_set_and_taken_out_too(before: Any, wanted: Any) -> None:
    form = format_of("x.toml")
    after = form.merged(written("x.toml", before, False), wanted)
    assert form.read(after) == merged(before, wanted)
    assert form.merged(after, wanted) == after
    assert form.read(form.restored(after, before, form.read(after))) == before


def test_a_value_that_is_only_wanted_where_there_is_none() -> None:
    wanted = {"name": IfMissing("Local"), "version": IfMissing("1")}
    for name, text in [("x.json", '{"name": "Mine"}'), ("x.yaml", "name: Mine\n"),
                       ("x.toml", 'name = "Mine"\n')]:  # fmt: skip
        form = format_of(name)
        assert form.read(form.merged(text, wanted)) == {"name": "Mine", "version": "1"}


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        # A remark stays behind the value it was written for.
        ("x.json", '{\n  "a": 1 // one\n}', '{\n  "a": 1, // one\n  "b": 2\n}'),
        ("x.json", '{\n  "a": 1, /* one */\n}', '{\n  "a": 1, /* one */\n  "b": 2,\n}'),
        ("x.json", '{"a":1,}', '{"a":1, "b": 2,}'),
        ("x.json", "// nothing yet\n", '// nothing yet\n{\n  "b": 2\n}\n'),
        ("x.json", '{\r\n\t"a": 1\r\n}', '{\r\n\t"a": 1,\r\n\t"b": 2\r\n}'),
        ("x.json", '{ /* empty */ }', '{ /* empty */\n  "b": 2\n}'),
        ("x.json", '{\n // empty\n}', '{\n // empty\n "b": 2\n}'),
        ("x.yaml", "a: 1 # one", "a: 1 # one\nb: 2\n"),
        ("x.yaml", "a: |\n  text\n\n# end\n", "a: |\n  text\n\nb: 2\n# end\n"),
        ("x.yaml", "{a: 1}\n", "{a: 1, b: 2}\n"),
        ("x.yaml", "{}\n", "{b: 2}\n"),
        ("x.yaml", "# nothing yet\n", "# nothing yet\nb: 2\n"),
        ("x.yaml", "---\na: 1\n", "---\na: 1\nb: 2\n"),
        ("x.yaml", "", "b: 2\n"),
        ("x.toml", "a = 1\r\n", "a = 1\r\nb = 2\r\n"),
        ("x.toml", "[t]\na = 1 # one\n", "b = 2\n\n[t]\na = 1 # one\n"),
    ],
)  # fmt: skip
def test_a_new_value_stands_where_one_would_write_it(name: str, text: str, after: str) -> None:
    assert format_of(name).merged(text, {"b": 2}) == after


def test_an_empty_name_in_yaml_keeps_its_remark() -> None:
    after = format_of("x.yaml").merged("a: # mine\nb: 1\n", {"a": {"c": [1]}})
    assert after == "a: # mine\n  c:\n    - 1\nb: 1\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("x.json", text) for text in ("[]", "{", '{"a" 1}', '{"a": }', '{"a": 1 "b": 2}')),
        *(("x.json", text) for text in ('{"a": truth}', "{} {}", '{"a": [1', "null")),
        *(("x.yaml", text) for text in ("- a", "a: [", "a: 1\n b: 2", "a: 2024-99-99", "word")),
        ("x.toml", "a ="),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, text: str) -> None:
    with pytest.raises(Unreadable):
        format_of(name).merged(text, {"b": 2})


@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
def test_what_others_changed_meanwhile_stays(name: str) -> None:
    form = format_of(name)
    before = {"model": "old", "list": [{"id": "theirs"}]}
    ours = merged(before, {"model": "new", "small": "new", "list": [{"id": "ours", "v": 1}],
                           "provider": {"cursor": {"url": "x"}}, "env": {"a": 1}})  # fmt: skip
    now = {"model": "chosen", "small": "new", "list": [{"id": "theirs"}, {"id": "ours", "v": 2},
           {"id": "added"}], "provider": {"cursor": {"url": "x"}, "mine": 1}, "env": {"a": 2},
           "new": True}  # fmt: skip
    text = written(name, now, compact=False)
    assert form.read(form.restored(text, before, ours)) == {
        "model": "chosen", "list": [{"id": "theirs"}, {"id": "added"}], "provider": {"mine": 1},
        "new": True,
    }  # fmt: skip


def test_what_others_changed_in_toml_stays() -> None:
    form = format_of("x.toml")
    text = 'model = "chosen"\nsmall = "new"\n[p.cursor]\nurl = "x"\n[p.mine]\na = 1\n'
    ours = {"model": "new", "small": "new", "p": {"cursor": {"url": "x"}}}
    assert form.read(form.restored(text, {"model": "old"}, ours)) == {
        "model": "chosen",
        "p": {"mine": {"a": 1}},
    }
