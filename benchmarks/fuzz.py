"""Fuzzing of every parser that reads input from outside: `make fuzz`.

Each target must accept its input or reject it in a known way: by a `GatewayError`, or by a warning
for a configuration file. Any other exception is a finding.
Hypothesis makes values that are nearly right; atheris, where installed, changes bytes by coverage.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import hypothesis
import orjson
from hypothesis import strategies as st

from benchmarks.fuzz_schemas import read_schema, schemas_and_documents
from cursor_gateway.agents import RunSpec
from cursor_gateway.agents.cursor.stream import AgentStream
from cursor_gateway.agents.cursor.texts import classify_failure, is_config_race, parse_status
from cursor_gateway.agents.model_families import MODEL_FAMILIES
from cursor_gateway.core.client_habits import with_calls_from_text
from cursor_gateway.core.conversation import ToolResult, ToolSpec
from cursor_gateway.core.events import AgentEvent, AnswerEvent, Finished
from cursor_gateway.core.history import history_of
from cursor_gateway.core.instructions import Deliver, Done
from cursor_gateway.core.models import Model, resolve
from cursor_gateway.core.prompt import render
from cursor_gateway.core.relayed_tools import RelayedTools
from cursor_gateway.core.structured import extract
from cursor_gateway.core.tool_text import ToolTextParser
from cursor_gateway.core.turn import Turn
from cursor_gateway.dialects import DIALECTS, Exchange, chat
from cursor_gateway.errors import GatewayError
from cursor_gateway.mcp_bridge import config
from cursor_gateway.relay.server import Relay
from cursor_gateway.web.body import parse_body

ROUNDS = 20_000
BASH = ToolSpec("bash", "", {"type": "object", "properties": {"command": {"type": "string"}}})
MODELS = (Model("auto", "Auto"), Model("claude-opus-5", "Claude Opus 5"))


# Values

numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([2**63, 2**64, -(2**63), 10**400, 1e308, float("nan"), float("inf"), -0.0, 0]),
)
texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            *(
                "",
                "\0",
                "\ud83d",
                "\udc4d",
                "é👍",
                "\r\n",
                "a" * 5000,
                "--force",
                "/",
                "<tool_call>",
            ),
            *("</turn>", "{env:HOME}", "${HOME}", "{file:/x}", "http://x", "data:,", "//", "/*"),
        ]
    ),
)


ROUND = 2_000

# These texts stand for deeply nested values, because Hypothesis prints what it finds.
DEEP = {f"@{depth}@": depth for depth in (200, 500, 990, 5000)}
leaves = st.one_of(st.none(), st.booleans(), numbers, texts, st.sampled_from(sorted(DEEP)))


def json_text(value: object) -> str:
    """`value` as bytes of a request, with NaN, infinite numbers and halves of surrogate pairs."""
    text = json.dumps(value)
    for mark, depth in DEEP.items():
        text = text.replace(f'"{mark}"', '{"properties":[' * depth + "1" + "]}" * depth)
    return text


def objects_with(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that are nearly valid: known keys and any values, at every level."""
    names = st.one_of(st.sampled_from(keys), texts)
    values = st.recursive(
        st.one_of(leaves, st.sampled_from(keys)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)
        ),
        max_leaves=12,
    )
    return st.dictionaries(st.sampled_from(keys), values, max_size=8)


WORDS_OF_REQUESTS = (
    *("model", "messages", "input", "prompt", "system", "instructions", "tools", "tool_choice"),
    *("role", "content", "type", "text", "user", "assistant", "tool", "function", "name", "id"),
    *("arguments", "parameters", "input_schema", "tool_calls", "tool_call_id", "tool_use"),
    *("tool_result", "tool_use_id", "image_url", "image", "source", "data", "url", "base64"),
    *("response_format", "json_schema", "schema", "stream", "stream_options", "stop", "max_tokens"),
    *("max_output_tokens", "thinking", "metadata", "auto", "message", "function_call", "call_id"),
    *("function_call_output", "output", "previous_response_id", "item_reference", "reasoning"),
    *("custom_tool_call", "required", "any", "properties", "pattern", "anyOf", "$ref", "format"),
)
WORDS_OF_EVENTS = (
    *("type", "subtype", "assistant", "system", "init", "result", "thinking", "delta", "tool_call"),
    *("started", "completed", "message", "content", "text", "timestamp_ms", "model_call_id"),
    *("session_id", "call_id", "shellToolCall", "mcpToolCall", "readToolCall", "args", "command"),
    *("path", "usage", "inputTokens", "outputTokens", "cacheReadTokens", "is_error", "cwd"),
    *("retry", "interaction_query", "error", "description", "function", "name", "success"),
)
WORDS_OF_CONFIGURATIONS = (
    *("mcp", "mcpServers", "servers", "type", "local", "remote", "sse", "command", "args", "url"),
    *("headers", "environment", "env", "cwd", "enabled", "disabled", "timeout", "request"),
)
WORDS_OF_MCP = (
    *("jsonrpc", "2.0", "id", "method", "params", "name", "arguments", "tools/call", "tools/list"),
    *("initialize", "ping", "notifications/cancelled", "requestId", "protocolVersion", "ticket"),
    *("wait_for_result", "bash", "command"),
)


# Targets


def read_request(body: dict[str, Any]) -> None:
    """All that happens to a request before an agent is started, and the encoding of an answer."""
    for dialect in DIALECTS:
        try:
            exchange = dialect.parse(body)
            answer_to(exchange)
            resolve(exchange.conversation.model, MODELS, {}, MODEL_FAMILIES)
        except GatewayError as error:
            orjson.dumps(dialect.render_error(error, "id"))


def answer_to(exchange: Exchange) -> None:
    conversation = exchange.conversation
    prompt = render(conversation)
    prompt.text.encode()
    hash(RunSpec(conversation, "auto").kind)
    history_of(with_calls_from_text(conversation.messages))
    orjson.dumps([tool["name"] for tool in RelayedTools(conversation.tools).listing()])
    name = conversation.tools[0].name if conversation.tools else "bash"
    call = f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {{"a": 1}}}}</tool_call>'
    stream = AgentStream()
    events = stream.feed(event_line({"type": "assistant", "message": {"content": f"Hi {call}"}}))
    pass_on(exchange, [*events, *stream.feed(event_line({"type": "result", "result": ""}))])


def event_line(event: object) -> bytes:
    return json_text(event).encode() + b"\n"


def pass_on(exchange: Exchange, events: list[AgentEvent]) -> None:
    ids = (f"call_{number}" for number in itertools.count())
    conversation = exchange.conversation
    turn = Turn(conversation, max_repeat=2, new_id=lambda: next(ids), show_activity=True)
    turn.begin(conversation)
    turn.feed(events)
    passed: list[AnswerEvent] = []
    match turn.next():
        case Deliver(delivered) | Done(delivered):
            passed = delivered
    if passed and isinstance(passed[-1], Finished):
        fold = exchange.fold("id", 0)
        fold.feed(passed)
        orjson.dumps(fold.body())
    exchange.encoder("id", 0).feed(passed)


def read_request_bytes(data: bytes) -> None:
    try:
        body = parse_body(data)
    except GatewayError:
        return
    read_request(dict(body))


PLAIN = chat.parse({"model": "auto", "messages": [{"role": "user", "content": "hi"}]})
WITH_TOOLS = chat.parse(
    {
        "model": "auto",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": BASH.schema}}],
    }
)


def read_agent(data: bytes, cut: int = 0) -> None:
    """Parse the output of an agent, whole and in pieces: of `cut` bytes, or else in some
    hundred."""
    for size in (max(1, len(data)), cut or max(7, len(data) // 300)):
        stream = AgentStream()
        events: list[AgentEvent] = []
        try:
            for at in range(0, len(data), size):
                events += stream.feed(data[at : at + size])
            events += stream.close()
        except GatewayError:
            return
        for exchange in (PLAIN, WITH_TOOLS):
            try:
                pass_on(exchange, events)
            except GatewayError as error:
                str(error).encode()


def read_tool_text(text: str, cut: int = 7) -> None:
    """Parse text of a model. The result must not depend on how the text is cut."""
    parser = ToolTextParser()
    for at in range(0, len(text), cut):
        parser.feed(text[at : at + cut])
    parser.close()


def read_failure(words: str) -> None:
    str(classify_failure(words))
    is_config_race(words)
    parse_status(words)


def read_json_answer(answer: str) -> None:
    extract(answer)


def read_configuration(text: str) -> None:
    for is_opencode in (True, False):
        file = config.ConfigFile("/x/opencode.json", text, is_opencode)
        found = config.parse([file, file], {"HOME": "/x"}, _unreadable)
        for server in found.servers:
            assert all(isinstance(secret, str) for secret in server.secrets)


def _unreadable(path: str, named: str) -> str:
    raise FileNotFoundError(2, "No such file")


class FuzzedRelay:
    """A relay on a real socket. It must answer every message, and never with a 5xx."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start())

    async def _start(self) -> None:
        async def execute(call: object) -> ToolResult:
            return ToolResult("", ())

        self.relay = Relay(0.01, execute)
        await self.relay.start()
        deep = ToolSpec("deep", "", orjson.loads(json_text("@200@")))
        ids = (f"call_{number}" for number in itertools.count())
        line = self.relay.open_session([BASH, deep], lambda: next(ids))
        (server,) = self.relay.configuration(line)["mcpServers"].values()
        self._url, self._headers = server["url"], server["headers"]
        self._session = aiohttp.ClientSession()

    def read(self, message: object) -> None:
        self._runner.run(self._send(json_text(message).encode()))

    async def _send(self, data: bytes) -> None:
        async with self._session.post(self._url, data=data, headers=self._headers) as response:
            answer = await response.read()
            assert response.status < 500, (response.status, answer[:200], data[:500])

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.run(self.relay.close())
        self._runner.close()


def delta_line(text: str) -> bytes:
    """The bytes that the CLI writes for `text`."""
    written = json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return DELTA % written


DELTA = (
    b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":%b}]},'
    b'"session_id":"s","timestamp_ms":1}\n'
)
lines_of_agents = st.lists(
    st.one_of(
        texts.map(delta_line),
        objects_with(*WORDS_OF_EVENTS).map(event_line),
        st.builds(
            lambda kind, rest: event_line(rest | {"type": kind}),
            st.sampled_from(["assistant", "tool_call", "result", "system", "thinking", "error"]),
            objects_with(*WORDS_OF_EVENTS),
        ),
        st.binary(max_size=50),
    ),
    max_size=6,
).map(b"".join)
MARKUP = ("<tool_call>", "</tool_call>", '{"name": "bash", ', '"arguments": {', "}", "```json", "[")
texts_of_models = st.lists(st.one_of(texts, st.sampled_from(MARKUP)), max_size=12).map("".join)
texts_of_files = st.one_of(
    objects_with(*WORDS_OF_CONFIGURATIONS).map(json_text),
    objects_with(*WORDS_OF_CONFIGURATIONS).map(
        lambda entry: json_text({"mcp": {"x": entry, "y": {"type": "local"} | entry}})
    ),
    st.text(max_size=100),
)
requests = st.one_of(
    objects_with(*WORDS_OF_REQUESTS),
    st.builds(
        lambda body, message: (
            {"model": "auto", "messages": [message | {"role": "user"}], "input": [message]} | body
        ),
        objects_with(*WORDS_OF_REQUESTS),
        objects_with(*WORDS_OF_REQUESTS),
    ),
)


TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "requests": (requests.map(json_text).map(str.encode), read_request_bytes),
    "agent": (lines_of_agents, read_agent),
    "tool text": (texts_of_models, read_tool_text),
    "configuration": (texts_of_files, read_configuration),
    "schemas": (schemas_and_documents, read_schema),
}
BYTES: dict[str, Callable[[bytes], None]] = {
    "requests": read_request_bytes,
    "agent": read_agent,
    "tool text": lambda data: read_tool_text(data.decode("utf-8", "replace")),
    "configuration": lambda data: read_configuration(data.decode("utf-8", "replace")),
}


def fuzz(name: str, examples: int) -> None:
    values, target = TARGETS[name]
    _given(values, target, examples)


def fuzz_relay(examples: int) -> None:
    relay = FuzzedRelay()
    try:
        _given(objects_with(*WORDS_OF_MCP), relay.read, examples)
    finally:
        relay.close()


def _given(values: st.SearchStrategy[Any], target: Callable[[Any], None], examples: int) -> None:
    """Run in rounds, since Hypothesis stores what it tried: gigabytes for all examples at once."""
    for done in range(0, examples, ROUND):
        _given_at_once(values, target, min(ROUND, examples - done))


def _given_at_once(
    values: st.SearchStrategy[Any], target: Callable[[Any], None], examples: int
) -> None:
    @hypothesis.settings(
        max_examples=examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(values)
    def check(value: Any) -> None:
        target(value)

    check()


# Monsters: single values that are large in one way. Every parser must read them in linear time.


def monsters(size: int) -> Iterator[tuple[str, Callable[[], None]]]:
    def ask(**fields: Any) -> Callable[[], None]:
        body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]} | fields
        return lambda: read_request(body)

    def tool(number: int) -> dict[str, Any]:
        return {"type": "function", "function": {"name": f"t{number}", "parameters": {}}}

    yield "tools", ask(tools=[tool(number) for number in range(size // 20)])
    yield "the same tool", ask(tools=[tool(1)] * (size // 20))
    yield "messages", ask(messages=[{"role": "user", "content": "x"}] * (size // 20))
    yield (
        "parts",
        ask(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}] * (size // 20)}]),
    )
    call = {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}
    yield "items in a row", ask(input=[call] * size)
    yield "a key", ask(**{"k" * size: 1})
    yield "slashes in a model", ask(model="/" * size)
    yield "a model", ask(model="m" * size)
    yield (
        "marks in a prompt",
        ask(messages=[{"role": "user", "content": "<turn" * (size // 5)}] * 2),
    )
    yield "backslashes", ask(messages=[{"role": "user", "content": "<" + "\\" * size}] * 2)
    yield "an agent's line", lambda: read_agent(b'{"type":"' + b"x" * size + b'"}\n', 4096)
    yield "unfinished results", lambda: read_agent(b'{"type":"result"' + b"}" * size, 1)
    yield "agent's small lines", lambda: read_agent(b"{}\n" * (size // 3), 4096)
    delta = {"type": "assistant", "message": {"content": "ab"}, "timestamp_ms": 1}
    yield "deltas of another form", lambda: read_agent(event_line(delta) * (size // 80), 4096)
    yield "deltas", lambda: read_agent(delta_line("ab") * (size // 80), 4096)
    yield "escapes", lambda: read_agent(delta_line("\n" * (size // 2)), 4096)
    yield "a text that never ends", lambda: read_agent(delta_line("x" * size)[:-60] + b"\n", 4096)
    yield "brackets", lambda: read_tool_text("<tool_call>" + "[" * size, 12)
    yield "tags", lambda: read_tool_text("<tool_call " * (size // 11), 12)
    yield "half tags", lambda: read_tool_text("<tool_call" * (size // 10), size * 4)
    quoted = 'x <tool_call>{"name": "bash"}</tool_call>\n'
    yield "quotations", lambda: read_tool_text(quoted * (size // 40), size * 4)
    yield "backticks", lambda: read_tool_text("`" * size + "\n" + "```\n" * (size // 4), 12)
    yield "smaller signs", lambda: read_tool_text("<tool_call>{" + "<" * size, size * 4)
    yield "blanks behind a call", lambda: read_tool_text(quoted[2:-1] + " " * size, 12)
    then_blanks = delta_line(quoted + " \n" * (size // 2))
    yield "blanks behind a quotation", lambda: read_agent(then_blanks, 4096)
    yield "blanks on stderr", lambda: read_failure(" " * size)
    yield "newlines on stderr", lambda: read_failure("\n" * size)
    yield "files that were renamed", lambda: read_failure("enoent cli-config.jso" * (size // 21))
    yield "terminal's signs", lambda: read_failure("\x1b[0\x1b]" * (size // 5))
    fenced = "```json\n{}" + " " * size
    yield "blanks in a code block", lambda: read_json_answer(f"{fenced}x\n```")
    yield "comments", lambda: read_configuration("/* " * (size // 3))
    yield "quotes", lambda: read_configuration('\\"' * (size // 2))
    yield "commas", lambda: read_configuration("[" + ", " * (size // 2))
    yield "spaces", lambda: read_configuration("," + " " * size + "x")


def seconds(work: Callable[[], None]) -> float:
    """CPU seconds of this process, without the garbage collector, whose time varies."""
    gc.collect()
    gc.disable()
    began = time.process_time()
    try:
        work()
    finally:
        gc.enable()
    return time.process_time() - began


def growth(size: int) -> dict[str, tuple[float, float]]:
    """The seconds for each monster at `size` and at four times `size`."""
    small, large = dict(monsters(size)), dict(monsters(4 * size))
    # The collector need not search older objects each time.
    gc.freeze()
    try:
        return {
            name: (
                min(seconds(small[name]) for _ in range(3)),
                min(seconds(large[name]) for _ in range(2)),
            )
            for name in small
        }
    finally:
        gc.unfreeze()


def fuzz_bytes(runs: int) -> None:
    """Fuzz by coverage, for so many runs. atheris ends the process."""
    import atheris

    atheris.instrument_all()

    def one_input(data: bytes) -> None:
        for target in BYTES.values():
            target(data)

    atheris.Setup([sys.argv[0], f"-runs={runs}", "-max_len=4096"], one_input)
    atheris.Fuzz()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=ROUNDS)
    chosen = options.parse_args()
    for name in TARGETS:
        took = seconds(lambda name=name: fuzz(name, chosen.examples))  # type: ignore[misc]
        print(f"{name:16} {chosen.examples} examples, {took:.0f} s", flush=True)
    fuzz_relay(chosen.examples // 10)
    print(f"{'relay':16} {chosen.examples // 10} examples", flush=True)
    print(f"{'seconds at':24}{'250 kB':>10}{'1 MB':>10}")
    for name, (small, large) in growth(250_000).items():
        print(f"{name:24}{small:10.3f}{large:10.3f}", flush=True)
    if importlib.util.find_spec("atheris"):
        fuzz_bytes(chosen.examples)
    else:
        print("atheris is not installed; `pip install atheris` adds fuzzing by coverage")


if __name__ == "__main__":
    main()
