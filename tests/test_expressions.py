"""Every regular expression takes linear time, whatever is written into the text that it sees."""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import cursor_gateway

SOURCE = Path(cursor_gateway.__file__).parent

# Who writes what each expression reads. An expression that stands here belongs to the test below;
# where it is only tried at the beginning of a text, `match` follows.
READS = {
    "agents.demo.program._HALF_CHARACTER": "the demo agent",
    "agents.demo.program._WORD": "the demo agent",
    "agents.cursor.permissions._NOT_PLAIN": "the gateway's directories",
    "agents.cursor.transcripts._DASHES": "the gateway's directories",
    "agents.cursor.transcripts._NO_LETTER_OR_DIGIT": "the gateway's directories",
    "agents.cursor.transcripts._SESSION": "the agent, match",
    "agents.cursor.version_facts.NOT_IN_FILE_NAMES": "the agent",
    "web.body._HALF": "the client",
    "cli.logs._AGO": "the user",
    "config_files.jsonc._GAP": "files of other programs, match",
    "config_files.jsonc._INDENT": "files of other programs",
    "config_files.jsonc._REMARK": "files of other programs, match",
    "config_files.jsonc._REST_OF_LINE": "files of other programs, match",
    "config_files.jsonc._STRING": "files of other programs, match",
    "config_files.jsonc._WORD": "files of other programs, match",
    "config_files.toml_text._UNIX_LINE_END": "files of other programs",
    "agents.cursor.stream._DELTA": "the agent",
    "agents.cursor.stream._ERROR_AS_ANSWER": "the agent",
    "agents.cursor.stream._SESSION": "the agent",
    "agents.cursor.texts._ANSI": "the agent",
    "agents.cursor.texts._CLASSIFIERS": "the agent",
    "agents.cursor.texts._EVENT": "the agent, match",
    "agents.cursor.texts._LEADING_LABEL": "the agent",
    "agents.cursor.texts._LOGGED_IN": "the agent",
    "agents.cursor.texts._LOGGED_IN_AS": "the agent",
    "agents.cursor.texts._LOGGED_OUT": "the agent",
    "agents.cursor.texts._MODEL_LINE": "the agent, match",
    "agents.acp.models._NOT_IN_IDS": "the agent",
    "agents.acp.texts._BEGINNING": "the agent",
    "agents.acp.texts._FAILURE": "the agent, match",
    "agents.sdk.models._NOT_IN_IDS": "the agent",
    "agents.sdk.texts._FELL_BEHIND": "the agent",
    "agents.sdk.texts._UNREACHABLE": "the agent",
    "core.client_habits._INVOICE": "the client, match",
    "core.client_habits._CALL_IN_TEXT": "the client",
    "core.history._SESSION": "the client",
    "core.json_schema.patterns._JAVASCRIPT_ESCAPE": "the client",
    "core.loop_guard._ERROR": "tools, match",
    "core.loop_guard._EXIT_CODE": "tools",
    "core.loop_guard._EXIT_LINE": "tools",
    "core.loop_guard._FRAME": "tools",
    "core.loop_guard._VALIDATION": "tools, match",
    "config_files.jsonc._COMMENT": "files of other programs",
    "config_files.jsonc._NO_NEWLINE": "files of other programs",
    "mcp_bridge.config._PARTS_OF_QUERIES": "files of other programs",
    "mcp_bridge.config._Substitution._OPENCODE": "files of other programs",
    "mcp_bridge.config._Substitution._OTHERS": "files of other programs",
    "config_files.jsonc._TRAILING_COMMA": "files of other programs",
    "mcp_bridge.names._NOT_IN_SERVERS": "files of other programs",
    "mcp_bridge.names._NOT_IN_TOOLS": "MCP servers",
    "mcp_bridge.message_meter._ESCAPE": "MCP servers",
    "mcp_bridge.message_meter._STRING": "MCP servers",
    "core.models._SAFE_ID": "the client",
    "agents.cursor.native_tools._ELISION": "the agent",
    "agents.cursor.native_tools._IMAGE_NAME": "the agent, match",
    "agents.cursor.native_tools._NO_LETTER": "the client",
    "core.prompt._BOUNDARY": "the client",
    "core.relayed_tools._NAME": "the client",
    "core.relayed_tools._NOT_IN_NAMES": "the client",
    "core.text_lines._FENCE": "the model, match",
    "core.tool_text._BRACKETS": "the model",
    "core.tool_text._LEAD": "the model, match",
    "core.tool_text._STRAY": "the model, match",
    "core.tool_text._TAG_SO_FAR": "the model, match",
    "core.tools._ACTS": "the client",
    "core.tools._DESCRIBES_THE_CALL": "the client",
    "core.tools._INTEGER": "the model",
    "core.tools._NAME_PARTS": "the client",
    "core.tools._NUMBER": "the model",
    "core.visible._IN_JSON": "anybody",
    "core.visible._IN_LINE": "anybody",
    "core.visible._IN_TEXT": "anybody",
    "core.written_calls._SILENCE": "the model, match",
    "core.written_calls._SILENCE_SO_FAR": "the model, match",
    "dialects.error_status._PATTERNS": "the client",
    "doctor.checks._DIGITS": "installed packages",
    "doctor.checks._REQUIREMENT": "installed packages, match",
    "doctor.clients._REFERENCE": "files of other programs, match",
    "agents.cursor.doctor.versions._DATE": "the agent",
    "journal.record._PRODUCT": "the client",
    "redaction._SECRET_NAME": "the client",
    "redaction._SHAPES": "anybody",
    "web.middleware._CLIENT_REQUEST_ID": "the client",
}
# Made in a function, of what only a request brings, for the first 300 characters of a result.
MADE_LATER = {"core/loop_guard.py": ["re.compile", "re.escape"]}


def test_every_expression_is_known() -> None:
    assert sorted({name for name, _ in expressions()}) == sorted(READS)


def test_no_expression_hides_in_a_function() -> None:
    hidden = {
        str(path.relative_to(SOURCE)): calls
        for path in SOURCE.rglob("*.py")
        if (calls := calls_in_functions(path))
    }
    assert hidden == MADE_LATER


@pytest.mark.parametrize("name", READS)
def test_an_expression_takes_linear_time(name: str) -> None:
    is_anchored = READS[name].endswith(", match")
    for pattern in (pattern for known, pattern in expressions() if known == name):
        assert list(steep(pattern, is_anchored)) == []


@pytest.mark.parametrize("pattern", [r"\s+x", r"(?:a|b)*.*,\s*$", r'".*?"\s*:'])
def test_one_that_takes_longer_is_found(pattern: str) -> None:
    assert next(steep(re.compile(pattern), is_anchored=False), "")


# Finding them


@cache
def expressions() -> list[tuple[str, re.Pattern[Any]]]:
    names = [each.name for each in pkgutil.walk_packages([str(SOURCE)], "cursor_gateway.")]
    return [
        (f"{module}.{name}".removeprefix("cursor_gateway."), pattern)
        for module in names
        if not module.endswith("__main__")
        for name, pattern in own_expressions(importlib.import_module(module))
    ]


def own_expressions(module: Any) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Those of its own, not those that it imports."""
    source = Path(module.__file__).read_text()
    for name, value in vars(module).items():
        if f"\n{name} = " in source or f"\nclass {name}" in source:
            yield from patterns_in(value, name)


def patterns_in(value: object, name: str) -> Iterator[tuple[str, re.Pattern[Any]]]:
    if isinstance(value, re.Pattern):
        yield name, value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from patterns_in(each, name)
    elif isinstance(value, dict):
        yield from patterns_in(list(value.values()), name)
    elif isinstance(value, type):
        for attribute, each in vars(value).items():
            yield from patterns_in(each, f"{name}.{attribute}")


def calls_in_functions(path: Path) -> list[str]:
    functions = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    calls = {
        ast.unparse(node.func)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    }
    return sorted(call for call in calls if call.startswith("re."))


# Measuring them

SIGNS = [*" \n\t`~{}[]\"'\\<>/*-.,:;=$()_aA0é\x1b", '\\"', "/*", "${", "\x1b[", "\x1b]", "```"]
# From one to the next, four times the time is linear; sixteen times is quadratic.
SIZES = (500, 2_000, 8_000)
LONG_ENOUGH = 0.01


def steep(pattern: re.Pattern[Any], is_anchored: bool) -> Iterator[str]:
    """The texts for which it takes more than linear time, as far as they were thought of."""
    texts = zip(*(hard_texts(pattern, size) for size in SIZES), strict=True)
    for growing in texts:
        for shorter, longer in itertools.pairwise(growing):
            if seconds(pattern, longer, is_anchored) < LONG_ENOUGH:
                continue
            took = min(seconds(pattern, longer, is_anchored) for _ in range(2))
            if took > 9 * min(seconds(pattern, shorter, is_anchored) for _ in range(3)):
                yield longer[:60]
                break


def seconds(pattern: re.Pattern[Any], text: str, is_anchored: bool) -> float:
    subject: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    if is_anchored:
        pattern.match(subject)
    else:
        pattern.sub(subject[:0], subject)
    return time.process_time() - began


def hard_texts(pattern: re.Pattern[Any], size: int) -> Iterator[str]:
    """Much of one sign, behind what the pattern wants and between it, and then what no pattern
    wants."""
    words = words_of(pattern)
    for sign in [*SIGNS, *words[:12]]:
        for word in ["", "```\n", *words[:3]]:
            yield word + sign * (size // len(sign)) + "\0"
            yield (word + sign) * (size // len(word + sign)) + "\0"


@cache
def words_of(pattern: re.Pattern[Any]) -> list[str]:
    """What a pattern asks for letter by letter."""
    source = pattern.pattern
    source = source.decode("latin-1") if isinstance(source, bytes) else source
    return list(dict.fromkeys(filter(None, literals(parser.parse(source, pattern.flags)))))


def literals(tree: Any) -> Iterator[str]:
    word = ""
    for kind, what in tree:
        if kind is parser.LITERAL:
            word += chr(what)
            continue
        yield word
        word = ""
        for inner in what if isinstance(what, tuple) else ():
            for branch in inner if isinstance(inner, list) else [inner]:
                if isinstance(branch, parser.SubPattern):
                    yield from literals(branch)
    yield word
