"""`make fuzz` in short: what strangers write is accepted, or refused by name, in linear time."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks import fuzz, fuzz_schemas
from cursor_gateway.core.json_schema.checks import CHECKS
from cursor_gateway.dialects import DIALECTS, Dialect, completions
from cursor_gateway.errors import InvalidRequest


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_whatever_comes_is_read_or_refused_by_name(name: str) -> None:
    fuzz.fuzz(name, 100)


def test_whatever_an_agents_mcp_client_says_is_answered() -> None:
    fuzz.fuzz_relay(100)


def test_what_is_large_in_one_way_takes_linear_time() -> None:
    """Four times the size may take four times as long; sixteen times would be quadratic."""
    slow = {
        name: times
        for name, times in fuzz.growth(20_000).items()
        if times[1] > 0.05 and times[1] > 9 * times[0]
    }
    assert slow == {}


@pytest.mark.parametrize("reference", fuzz_schemas.REFERENCES)
@pytest.mark.parametrize("keyword", fuzz_schemas.DOUBLING_KEYWORDS)
def test_a_schema_that_doubles_at_every_level_takes_only_so_many_steps(
    keyword: str, reference: str
) -> None:
    schema = fuzz_schemas.doubling(keyword, reference)
    for document in ({"a": 1, "b": [1]}, [1], fuzz_schemas.nested()):
        fuzz_schemas.hold_against(schema, document)


@pytest.mark.parametrize("keyword", CHECKS)
def test_a_keyword_that_holds_much_costs_its_steps_for_every_value(keyword: str) -> None:
    for schema in fuzz_schemas.wide(keyword):
        for value in fuzz_schemas.WIDE_VALUES:
            fuzz_schemas.hold_against(schema, [value] * fuzz_schemas.MANY)


@cache
def a_million_tools() -> list[dict[str, str]]:
    return [{"name": f"t{number}", "type": "function"} for number in range(1_000_000)]


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each is not completions])
def test_a_million_tools_are_refused(dialect: Dialect) -> None:
    body = {"model": "auto", "max_tokens": 1, "input": "hi", "tools": a_million_tools()}
    with pytest.raises(InvalidRequest, match="may hold 5000"):
        dialect.parse(body | {"messages": [{"role": "user", "content": "hi"}]})


@pytest.mark.parametrize("message", ["@200@", [], {"a": 1}])
def test_an_id_that_is_no_id_is_refused(message: object) -> None:
    relay = fuzz.FuzzedRelay()
    relay.read({"id": message, "method": "tools/call", "params": {"name": "bash"}})
    relay.read({"id": 1, "method": "tools/list"})
    relay.close()
