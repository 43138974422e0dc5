"""The client's schemas and arguments, with the tools that real clients send."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.fuzz_schemas import doubling
from cursor_gateway.agents.cursor.native_tools import TABLE, translate
from cursor_gateway.core.conversation import ToolSpec
from cursor_gateway.core.json_text import to_json
from cursor_gateway.core.tools import find, fit, plain_schema
from cursor_gateway.errors import InvalidRequest


def tool(name: str, required: str = "", closed: bool = False, **properties: Any) -> ToolSpec:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            key: {"type": kind} if isinstance(kind, str) else kind
            for key, kind in properties.items()
        },
        "required": required.split(),
    }
    if closed:
        schema["additionalProperties"] = False
    return ToolSpec(name, "", schema)


OPENCODE = (
    tool("bash", "command", command="string", timeout="integer", workdir="string"),
    tool("edit", "filePath oldString newString", filePath="string", oldString="string",
         newString="string", replaceAll="boolean"),
    tool("glob", "pattern", pattern="string", path="string"),
    tool("grep", "pattern", pattern="string", path="string", include="string"),
    tool("read", "filePath", filePath="string", offset="integer", limit="integer"),
    tool("list", "path", path="string"),
    tool("todowrite", "todos", todos="array"),
    tool("webfetch", "url", url="string", format="string"),
    tool("write", "content filePath", content="string", filePath="string"),
)  # fmt: skip
DROID = (
    tool("Read", "file_path", True, file_path="string", offset="number", limit="number"),
    tool("LS", "", True, directory_path="string"),
    tool("Execute", "summary command", True, summary="string", command="string", timeout="number"),
    tool("Edit", "file_path old_str new_str", True, file_path="string", old_str="string",
         new_str="string", change_all="boolean"),
    tool("Grep", "pattern", True, pattern="string", path="string", glob_pattern="string"),
    tool("Glob", "patterns", True, patterns={"type": "array"}, folder="string"),
    tool("Create", "file_path content", True, file_path="string", content="string"),
)  # fmt: skip
OMP = (
    tool("read", "path i", True, i="string", path="string"),
    tool("bash", "command i", True, i="string", command="string", cwd="string"),
    tool("edit", "input i", True, i="string", input="string"),
    tool("write", "path content i", True, i="string", path="string", content="string"),
)
PI = (
    tool(
        "edit",
        "path edits",
        True,
        path="string",
        edits={
            "type": "array",
            "items": {"properties": {"oldText": {"type": "string"}, "newText": {"type": "string"}}},
        },
    ),
)
CODEX = (tool("exec_command", "cmd", True, cmd="string", workdir="string"),)
WS = "/tmp/cursor-gateway-x/run-1"


def native(tool: str, tools: tuple[ToolSpec, ...], arguments: Any, description: str = "") -> Any:
    return translate(tool, arguments, description, tools, WS)


@pytest.mark.parametrize(
    ("name", "tools", "arguments", "expected"),
    [
        ("shell", OPENCODE, {"command": "ls", "workingDirectory": ""}, ("bash", {"command": "ls"})),
        ("shell", OPENCODE, {"command": "ls", "workingDirectory": "/src", "timeout": 5},
         ("bash", {"command": "ls", "workdir": "/src"})),
        ("bash", CODEX, {"command": "ls"}, ("exec_command", {"cmd": "ls"})),
        ("shell", DROID, {"command": "ls"}, ("Execute", {"command": "ls", "summary": "ls"})),
        ("shell", OMP, {"command": "ls"}, ("bash", {"command": "ls", "i": "ls"})),
        ("read", OPENCODE, {"path": "/a", "offset": 5}, ("read", {"filePath": "/a", "offset": 5})),
        ("readFile", DROID, {"path": "/a"}, ("Read", {"file_path": "/a"})),
        ("read", OPENCODE, {"path": f"{WS}/src/a.py"}, ("read", {"filePath": "src/a.py"})),
        ("edit", OPENCODE,
         {"path": "/a", "strReplace": {"oldText": "x", "newText": "y", "replaceAll": True}},
         ("edit", {"filePath": "/a", "oldString": "x", "newString": "y", "replaceAll": True})),
        ("edit", DROID, {"path": "/a", "strReplace": {"oldText": "x", "newText": ""}},
         ("Edit", {"file_path": "/a", "old_str": "x", "new_str": ""})),
        ("edit", OPENCODE, {"path": "/a", "streamContent": "new"},
         ("write", {"filePath": "/a", "content": "new"})),
        ("WriteFile", DROID, {"path": "/a", "fileText": ""},
         ("Create", {"file_path": "/a", "content": ""})),
        ("edit", PI, {"path": "/a", "strReplace": {"oldText": "x", "newText": "y"}},
         ("edit", {"path": "/a", "edits": [{"oldText": "x", "newText": "y"}]})),
        ("shell", OPENCODE, {"command": "ls", "workingDirectory": WS}, ("bash", {"command": "ls"})),
        ("shell", (tool("b_a_s_h", "command", command="string", isBackground="boolean"),),
         {"command": "x", "isBackground": True},
         ("b_a_s_h", {"command": "x", "isBackground": True})),
        ("mcp", (tool("mcp__ctx7__resolve"),), {"name": "ctx7-resolve", "args": {}},
         ("mcp__ctx7__resolve", {})),
        ("updateTodos", (tool("todowrite", "todos", todos={"type": "array", "items": {
            "properties": {"content": {}, "status": {}}, "additionalProperties": False}}),),
         {"todos": [{"content": "b"}]},
         ("todowrite", {"todos": [{"content": "b", "status": "pending"}]})),
        ("write", OMP, {"path": "/a", "fileText": "x"},
         ("write", {"path": "/a", "content": "x", "i": "/a"})),
        ("grep", OPENCODE, {"pattern": "x", "path": WS, "glob": "*.py"},
         ("grep", {"pattern": "x", "path": ".", "include": "*.py"})),
        ("grep", DROID, {"pattern": "x", "glob": "*.py"},
         ("Grep", {"pattern": "x", "glob_pattern": "*.py"})),
        ("glob", OPENCODE, {"globPattern": "**/*.py", "targetDirectory": "/s"},
         ("glob", {"pattern": "**/*.py", "path": "/s"})),
        ("glob", DROID, {"globPattern": "*.py", "targetDirectory": "/s"},
         ("Glob", {"patterns": ["*.py"], "folder": "/s"})),
        ("ls", OPENCODE, {"path": "/s", "ignore": []}, ("list", {"path": "/s"})),
        ("ls", DROID, {"path": "/s"}, ("LS", {"directory_path": "/s"})),
        ("webFetch", OPENCODE, {"url": "https://x"}, ("webfetch", {"url": "https://x"})),
        ("delete", (tool("delete_file", "path", path="string"),), {"path": "/a"},
         ("delete_file", {"path": "/a"})),
        ("updateTodos", OPENCODE,
         {"todos": [{"id": "7", "content": "a", "status": "TODO_STATUS_IN_PROGRESS"},
                    {"content": "b"}]},
         ("todowrite", {"todos": [
             {"id": "7", "content": "a", "status": "in_progress", "priority": "medium"},
             {"id": "2", "content": "b", "status": "pending", "priority": "medium"}]})),
        ("mcp", OPENCODE, {"name": "client-bash", "toolName": "bash", "args": {"command": "ls"}},
         ("bash", {"command": "ls"})),
        ("mcp", OPENCODE, {"name": "bash", "args": {"command": "ls"}}, ("bash", {"command": "ls"})),
    ],
)  # fmt: skip
def test_a_call_of_the_agents_own_becomes_the_clients(
    name: str, tools: tuple[ToolSpec, ...], arguments: dict[str, Any], expected: Any
) -> None:
    assert native(name, tools, arguments) == expected


@pytest.mark.parametrize(
    ("name", "tools", "arguments"),
    [
        ("shell", (), {"command": "ls"}),
        ("shell", OPENCODE, {}),
        ("shell", OPENCODE, {"command": ""}),
        ("read", OPENCODE, {"path": ""}),
        ("edit", OPENCODE, {"path": "/a", "strReplace": {"oldText": "", "newText": "y"}}),
        ("edit", OPENCODE, {"path": "/a", "strReplace": {"newText": "y"}}),
        ("edit", OPENCODE, {"path": "/a", "strReplace": {"oldText": "x"}}),
        ("edit", PI, {"path": "/a", "strReplace": {"oldText": "x"}}),
        ("edit", OPENCODE, {"path": "/a", "strReplace": 5}),
        ("edit", OPENCODE, {"path": "/a", "streamContent": "a\n// ... existing code ...\nb"}),
        ("edit", OPENCODE, {"streamContent": "a"}),
        ("edit", OPENCODE, {"path": "/a", "streamContent": ""}),
        ("edit", OPENCODE, {"path": "/a", "streamContent": "// … existing code …"}),
        ("edit", PI, {"path": "/a", "strReplace": {"oldText": "x", "replaceAll": True}}),
        ("shell", DROID, {"command": "rm -rf build", "workingDirectory": "/home/u/sub"}),
        ("shell", OPENCODE, {"command": "serve", "isBackground": True}),
        ("grep", OMP, {"pattern": "x"}),
        ("grep", (tool("search", "query", query="string"),), {"pattern": "x"}),
        ("updateTodos", OPENCODE, {"todos": [{"content": "b"}], "merge": True}),
        ("read", OPENCODE, {"path": f"{WS}/image-1.png"}),
        ("edit", OPENCODE, {"path": "/a", "applyPatch": {"patchContent": "x"}}),
        ("edit", OMP, {"path": "/a", "strReplace": {"oldText": "x", "newText": "y"}}),
        ("delete", OPENCODE, {"path": "/a"}),
        ("updateTodos", OPENCODE, {"todos": "x"}),
        ("updateTodos", OPENCODE, {"todos": [5]}),
        ("semSearch", OPENCODE, {"query": "x"}),
        ("mcp", OPENCODE, {"toolName": "other", "args": {}}),
        ("mcp", OPENCODE, {"toolName": "bash"}),
        ("mcp", OPENCODE, {"toolName": "bash", "args": {}}),
        ("mcp", OPENCODE, {"toolName": 5, "args": {}}),
        ("shell", (ToolSpec("bash", "", {"type": "object"}),), {"command": "ls"}),
        (
            "shell",
            (tool("bash", "command token", command="string", token="string"),),
            {"command": "x"},
        ),
    ],
)
def test_what_cannot_be_said_with_certainty_stays_the_agents_own(
    name: str, tools: tuple[ToolSpec, ...], arguments: dict[str, Any]
) -> None:
    assert native(name, tools, arguments) is None


def test_the_agents_own_description_describes_the_call() -> None:
    assert native("shell", DROID, {"command": "ls"}, "List files")[1]["summary"] == "List files"


def test_every_key_of_the_table_is_in_small_letters() -> None:
    assert all(name == name.lower() for name in TABLE)


def test_a_tool_is_found_by_its_name_and_by_its_letters_where_that_is_certain() -> None:
    tools = (tool("Bash"), tool("read"), tool("Read"))
    assert find("Bash", tools) is find("bash", tools) is tools[0]
    assert find("Read", tools) is tools[2]
    assert find("READ", tools) is None
    assert find("nothing", tools) is None


TYPED = tool(
    "t", "n", n="integer", f="number", b="boolean", s="string", o="object", a="array",
    maybe={"type": ["string", "null"]}, either={"anyOf": [{"type": "integer"}, {"type": "null"}]},
    free={}, choice={"enum": ["a", None]},
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        ({"n": "5"}, {"n": 5}),
        ({"n": 1, "f": "2.5"}, {"n": 1, "f": 2.5}),
        ({"n": 1, "b": "True"}, {"n": 1, "b": True}),
        ({"n": 1, "o": '{"x": 1}', "a": "[1]"}, {"n": 1, "o": {"x": 1}, "a": [1]}),
        ({"n": 1, "s": 5}, {"n": 1, "s": "5"}),
        ({"n": 1, "s": None}, {"n": 1}),
        ({"n": 1, "maybe": None}, {"n": 1, "maybe": None}),
        ({"n": 1, "either": "7"}, {"n": 1, "either": 7}),
        ({"n": 1, "free": "5"}, {"n": 1, "free": "5"}),
        ({"n": 1, "free": None}, {"n": 1, "free": None}),
        ({"n": 1, "choice": None}, {"n": 1, "choice": None}),
        ({"n": 1, "extra": "5"}, {"n": 1, "extra": "5"}),
    ],
)
def test_arguments_are_repaired_where_the_meaning_is_certain(given: Any, fitted: Any) -> None:
    assert fit(TYPED, given) == (fitted, "")


@pytest.mark.parametrize(
    "given",
    [{}, {"n": "five"}, {"n": None}, {"n": 1, "o": "text"}, {"n": 1, "a": "5"}, {"n": 1, "s": True},
     {"n": 1, "b": "maybe"}, {"n": 1, "f": "2,5"}, {"n": 1, "s": 1.10}],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_named_to_whom_they_matter(given: dict[str, Any]) -> None:
    assert fit(TYPED, given, exactly=True)[1]
    assert fit(TYPED, given)[1] == ""
    acting = ToolSpec("write_t", "", TYPED.schema)
    assert fit(acting, given)[1]


# Droid 0.215.0
SUMMARY = {
    "type": "string",
    "pattern": r"^[A-Z]\S*(?:\s+\S+){2,7}$",
    "description": "REQUIRED: A Sentence cased summary of what the command is about",
}
EXECUTE = tool("Execute", "summary command", True, summary=SUMMARY, command="string",
               timeout={"type": "number", "maximum": 600})  # fmt: skip


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("summary", ["List files", "list all the files", "ls"])
def test_words_that_only_describe_a_call_pass_as_the_model_wrote_them(
    summary: str, exactly: bool
) -> None:
    call = {"command": "ls", "summary": summary}
    assert fit(EXECUTE, call, exactly=exactly) == (call, "")


@pytest.mark.parametrize("nothing", [None, True, ["List"], {}])
def test_what_is_no_description_is_replaced_by_one(nothing: Any) -> None:
    fitted, problem = fit(EXECUTE, {"command": "ls", "summary": nothing}, "List all the files")
    assert (fitted["summary"], problem) == ("List all the files", "")


def test_a_value_beyond_a_limit_is_the_clients_to_reject() -> None:
    call = {"command": "make", "summary": "Build", "timeout": 900}
    assert fit(EXECUTE, call) == (call, "")
    assert "900" in fit(EXECUTE, call, exactly=True)[1]


ACTING = (
    tool("Edit", "path", path="string", old={"type": "string", "minLength": 1}),
    tool("apply", "path", path="string", mode={"enum": ["add"]}),
    tool("notes", "path", path="string", content="string"),
    tool("deleteFile", "path", True, path="string"),
    tool("deletefile", "path", path="string"),
    tool("rmDir", "path", path="string"),
)


@pytest.mark.parametrize(
    ("spec", "arguments"),
    [
        (EXECUTE, {"summary": "List files"}),
        (EXECUTE, {"summary": "List files", "command": ["ls"]}),
        (EXECUTE, {"summary": "List files", "command": "rm x", "dryRun": True}),
        (ACTING[0], {"path": "a", "old": ""}),
        (ACTING[1], {"path": "a", "mode": "overwrite"}),
        (ACTING[2], {"content": "x"}),
        (ACTING[3], {}),
        (ACTING[4], {}),
        (ACTING[5], {}),
        (ACTING[3], {"path": "a", "permanently": False}),
    ],
)
def test_a_call_that_could_destroy_something_must_be_whole(
    spec: ToolSpec, arguments: dict[str, Any]
) -> None:
    assert fit(spec, arguments)[1]


@pytest.mark.parametrize(
    ("spec", "arguments"),
    [
        (DROID[0], {}),
        (DROID[0], {"file_path": "/a", "encoding": "utf-8"}),
        (DROID[4], {"pattern": ["x"]}),
        (tool("get_weather", "city", city={"enum": ["Rome"]}), {"city": "Paris"}),
        (ToolSpec("Read", "", {"required": ["path"]}), {}),
        (tool("retrieval_format", "query", query="string"), {}),
    ],
)
def test_any_other_call_is_the_clients_to_reject(spec: ToolSpec, arguments: dict[str, Any]) -> None:
    assert fit(spec, arguments) == (arguments, "")


def test_a_call_with_no_end_of_faults_is_refused() -> None:
    """To look through a million of them would hold up everybody else."""
    words = {"type": "array", "items": {"type": "string", "pattern": "^a"}}
    spec = tool("bash", "command", words=words, command="string")
    assert fit(spec, {"command": "ls", "words": ["b"] * 5})[1] == ""
    assert fit(spec, {"command": "ls", "words": ["b"] * 500})[1]


def test_only_what_describes_a_call_is_filled_in_and_only_where_it_is_required() -> None:
    execute = DROID[2]
    assert fit(execute, {"command": "ls"}, "List") == ({"command": "ls", "summary": "List"}, "")
    assert fit(execute, {"command": "ls"})[0]["summary"] == "Call the Execute tool"
    pattern = {"type": "string", "pattern": r"^[A-Z]\S*(?:\s+\S+){2,7}$"}
    strict = tool("X", "summary", command="string", summary=pattern)
    assert fit(strict, {}, "ls") == ({"summary": "Call the X tool"}, "")
    said = {"type": "string", "description": "A short (3-5 word) description of the task"}
    assert fit(tool("task", "description", description=said), {})[1] == ""
    assert fit(tool("save", "title", title="string"), {})[1]
    assert "title" not in fit(tool("show", "title", title="string"), {})[0]
    assert fit(OMP[1], {"command": "ls", "description": "List"})[0] == {
        "command": "ls",
        "i": "List",
    }
    closed = tool("bash", "command", True, command="string")
    assert fit(closed, {"command": "ls", "description": "x"}) == ({"command": "ls"}, "")
    assert fit(closed, {"command": "ls", "rm": "x"})[1]
    assert fit(tool("t", "i", i="integer"), {}) == ({}, "")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": 5},
        {"required": 5},
        {"type": 5},
        {"type": [[1]]},
        {"pattern": "("},
        {"$ref": "#/no"},
        {"$schema": ["no"], "$id": 5},
        {"enum": [0] * 100_000},
    ],
)
def test_a_schema_that_is_none_is_the_clients_business(schema: dict[str, Any]) -> None:
    for name in ("t", "write"):
        assert fit(ToolSpec(name, "", schema), {"a": 1}) == ({"a": 1}, "")


def test_null_for_many_parameters_takes_only_so_many_steps() -> None:
    """All that is looked at for one call shares its steps; a parameter that cannot be judged in
    them is passed on as it is."""
    endless = doubling("allOf", "$dynamicRef")
    names = [f"p{number}" for number in range(1000)]
    parameters = {name: {"$dynamicRef": endless["$dynamicRef"]} for name in names}
    spec = ToolSpec("write", "", {"properties": parameters, "$defs": endless["$defs"]})
    given = dict.fromkeys(names)
    assert fit(spec, given) == (given, "")


def test_null_for_a_parameter_that_is_defined_elsewhere_is_left_out() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}
    assert fit(ToolSpec("t", "", schema), {"a": None}) == ({}, "")


def test_a_schema_is_made_plain_without_losing_its_meaning() -> None:
    schema = {
        "$schema": "x",
        "title": "T",
        "type": "object",
        "additionalProperties": False,
        "required": [],
        "properties": {
            "title": {"type": "string", "title": "Title", "default": "d"},
            "age": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "name": {"type": ["string", "null"]},
            "kind": {"enum": ["title", None], "const": {"title": 1}},
            "list": {"type": "array", "items": [{"title": "x", "type": "integer"}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "$defs": {"title": {"type": "string"}, "default": {}},
    }
    assert plain_schema(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "age": {"type": "integer", "minimum": 1},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "name": {"type": "string"},
            "kind": {"enum": ["title", None], "const": {"title": 1}},
            "list": {"type": "array", "items": [{"type": "integer"}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "$defs": {"title": {"type": "string"}, "default": {}},
    }
    nullable = {"type": ["integer", "null"]}
    strict = {"properties": {"limit": nullable}, "required": ["limit"]}
    assert plain_schema(strict) == strict
    assert plain_schema({"anyOf": 5}) == {"anyOf": 5}
    assert plain_schema(True) is True


def test_a_schema_without_end_is_cut() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}
    assert to_json(plain_schema(deep)).count("items") < 100
    lists: Any = 1
    for _ in range(900):
        lists = [lists]
    assert len(to_json(plain_schema({"enum": [], "x": lists}))) < 300


def test_every_value_has_a_json_text() -> None:
    assert to_json({"a": 2**70, "b": "\ud800"}) == '{"a": 1180591620717411303424, "b": "\\ud800"}'
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidRequest):
        to_json(deep)
