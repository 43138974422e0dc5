"""Chat completions over a real socket, with a real agent process behind it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import EITHER_AGENT, Client, FakeAgent, Start, text_of

pytestmark = EITHER_AGENT

NOTES = "`notes.txt`"
PARAGRAPHS = "In a.txt.\n\nIt has 3 lines."
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


async def test_a_stream_has_the_frames_that_clients_need(client: Client, fake: FakeAgent) -> None:
    frames = await client.frames(
        "[[think:Hmm.]][[text:Hello world]]", stream_options={"include_usage": True}
    )
    *chunks, usage, done = frames
    assert done == "[DONE]"
    assert {frame["id"] for frame in frames[:-1]} == {chunks[0]["id"]}
    assert {frame["created"] for frame in frames[:-1]} == {chunks[0]["created"]}
    assert {frame["object"] for frame in frames[:-1]} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hmm."},
        {"content": "Hello world"},
        {},
    ]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, None, "stop"]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] > 0
    # ACP has no counts.
    assert ("estimated" in usage["usage"]) == (fake.kind == "acp")


async def test_without_include_usage_there_is_no_usage_frame(client: Client) -> None:
    frames = await client.frames("[[text:Hi]]")
    assert all(frame == "[DONE]" or frame["choices"] for frame in frames)


async def test_a_plain_answer_is_the_fold_of_the_stream(client: Client) -> None:
    prompt = "[[think:Hmm.]][[text:Hello ]][[text:world]]"
    answer = await client.answer(prompt)
    frames = await client.frames(prompt)
    message = answer["choices"][0]["message"]
    assert answer["object"] == "chat.completion"
    assert message["content"] == text_of(frames) == "Hello world"
    assert message["reasoning_content"] == text_of(frames, "reasoning_content") == "Hmm."
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("[[text:ha]][[text:ha]][[text:ha]]", "hahaha"),
        ("[[text:Wait.]][[query:webFetch]][[text: Done.]]", "Wait. Done."),
        ("[[text:One]][[text: two]][[retry]][[text: three]]", "One two three"),
        ("[[text:A]][[tool:read]][[text:A]][[query:webSearch]][[text:A]][[retry]]", "A\n\nAA"),
        ("[[text:In a.txt.]][[tool:read]][[text:It has 3 ]][[text:lines.]]", PARAGRAPHS),
        ("[[text:A]][[tool:read]][[think:Hm.]][[tool:grep]][[text:\nB]]", "A\nB"),
        ("[[tool:read]][[text:A]][[tool:read]]", "A"),
        ("[[text:a]][[text: ]][[text:\n]][[text:  ]][[text:b]]", "a \n  b"),
        ("[[cut:\U0001f469‍\U0001f469 ok]]", "\U0001f469‍\U0001f469 ok"),
        (
            "[[bytewise:Grüße 日本語 \U0001f600\u2028\u0085 end]]",
            "Grüße 日本語 \U0001f600\u2028\u0085 end",
        ),
        ("[[noise:T: hello]][[noise:]][[text:fine]][[noise:{broken]]", "fine"),
        ("[[text:x]][[line:16000000]][[text:y]]", "x\n\ny"),
    ],
)
async def test_every_word_arrives_once(client: Client, prompt: str, expected: str) -> None:
    assert await client.text(prompt) == expected
    assert await client.content(prompt) == expected


@pytest.mark.agents("cli")
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (
            "[[play:partial_tools]]",
            f"I'll read {NOTES}, then count its lines.\n\n{NOTES} has 3 lines.",
        ),
    ],
)
async def test_every_word_of_the_clis_stream_arrives_once(
    client: Client, prompt: str, expected: str
) -> None:
    assert await client.text(prompt) == expected
    assert await client.content(prompt) == expected


async def test_usage_that_the_agent_does_not_give_is_estimated_and_says_so(client: Client) -> None:
    answer = await client.answer("[[no-usage]][[text:twelve chars]]")
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["usage"]["estimated"] is True


@pytest.mark.agents("cli")
async def test_cached_tokens_are_part_of_the_prompt_tokens(client: Client) -> None:
    usage = (await client.answer("[[play:partial_simple]]"))["usage"]
    assert usage["prompt_tokens"] == 8830 + 44800
    assert usage["prompt_tokens_details"] == {"cached_tokens": 44800}


async def test_max_tokens_cuts_the_answer_and_stops_the_agent(
    client: Client, fake: FakeAgent
) -> None:
    frames = await client.frames("[[text:12345678]][[text:more]][[hang]]", max_tokens=2)
    assert text_of(frames) == "12345678"
    assert frames[-2]["choices"][0]["finish_reason"] == "length"


async def test_a_cut_answer_counts_what_was_delivered(client: Client) -> None:
    usage = (await client.answer("[[text:12345678 and much more]]", max_tokens=2))["usage"]
    assert usage["completion_tokens"] == 2


async def test_max_completion_tokens_wins_over_max_tokens(client: Client) -> None:
    body = {"max_tokens": 1, "max_completion_tokens": 2}
    assert await client.content("[[text:123456789]]", **body) == "12345678"


async def test_a_stop_sequence_cuts_the_answer_even_across_deltas(client: Client) -> None:
    answer = await client.answer("[[text:one ST]][[text:OP two]][[hang]]", stop=["STOP"])
    assert answer["choices"][0]["message"]["content"] == "one "
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert await client.text("[[text:one ST]][[text:AY]]", stop="STOP") == "one STAY"


async def test_json_output_is_taken_out_of_its_fence(client: Client) -> None:
    prompt = '[[text:```json\n{"a": 1}\n```]]'
    assert await client.content(prompt, response_format={"type": "json_object"}) == '{"a": 1}'


async def test_json_that_does_not_fit_its_schema_is_corrected_once(
    client: Client, fake: FakeAgent
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    frames = await client.frames('[[nth:{"a": "one"}|{"a": 1}]]', response_format=wanted)
    assert text_of(frames) == '{"a": 1}'
    first, second = fake.runs()
    assert '"required"' in first["prompt"]
    assert "'one' is not of type 'integer'" in second["prompt"]


async def test_json_that_never_fits_is_a_clear_error(client: Client) -> None:
    status, error = await client.error(
        "[[nth:no|still no]]", response_format={"type": "json_object"}, stream=True
    )
    assert status == 422
    assert error["code"] == "output_invalid"


@pytest.mark.agents("cli")
async def test_images_become_files_that_the_prompt_names(client: Client, fake: FakeAgent) -> None:
    parts = [
        {"type": "text", "text": "Compare"},
        {"type": "image_url", "image_url": {"url": data_url(PNG)}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    ]
    await client.answer([{"role": "user", "content": parts}])
    (run,) = fake.runs()
    assert run["files"] == [".cursor", "image-1.png"]
    assert "image-1.png" in run["prompt"]
    assert "https://example.com/cat.png" in run["prompt"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (data_url(b"not an image"), "messages[0].content[1]"),
        ("data:image/png;base64,%%%", "messages[0].content[1]"),
        ("file:///etc/passwd", "messages[0].content[1]"),
        (data_url(PNG + b"\0" * 21 * 1024 * 1024), "larger than 20 MB"),
    ],
)
async def test_an_image_that_is_none_is_refused_by_its_place(
    client: Client, fake: FakeAgent, url: str, message: str
) -> None:
    parts = [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": url}}]
    status, error = await client.error([{"role": "user", "content": parts}])
    assert (status, error["code"]) == (400, "invalid_image")
    assert message in error["message"]
    assert fake.runs() == []


async def test_every_role_and_every_form_of_content_is_taken(
    client: Client, fake: FakeAgent
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Rule one."},
        {"role": "developer", "content": [{"type": "text", "text": "Rule two."}]},
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x"}]},
        {"role": "user", "content": "List."},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Hm"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "[[text:ok]]"},
    ]
    assert await client.content(messages) == "ok"
    prompt = fake.runs()[0]["prompt"]
    for expected in ("Rule one.", "Rule two.", "<system-reminder>x", '<tool_result id="c1">'):
        assert expected in prompt


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
async def test_the_v1_prefix_is_optional(client: Client, path: str) -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "[[text:hi]]"}]}
    async with client.session.post(client.url(path), json=body) as response:
        assert (await response.json())["choices"][0]["message"]["content"] == "hi"


async def test_fields_that_cannot_be_honoured_are_ignored(client: Client) -> None:
    extra = json.loads(
        '{"store":false,"temperature":1,"top_p":0.5,"reasoning_effort":"high","seed":1,'
        '"parallel_tool_calls":true,"prompt_cache_key":"k","metadata":{},"tool_choice":"auto",'
        '"tools":[{"type":"web_search"}],"user":"me","nonsense":[1]}'
    )
    assert await client.content("[[text:ok]]", **extra) == "ok"


async def test_a_long_prompt_arrives_whole(client: Client, fake: FakeAgent) -> None:
    prompt = "x" * 5_000_000 + "\n[[text:ok]]"
    assert await client.content(prompt) == "ok"
    assert fake.runs()[0]["prompt"] == prompt


@pytest.mark.agents("cli")
async def test_the_agent_is_called_as_the_contract_says(client: Client, fake: FakeAgent) -> None:
    await client.answer("[[text:ok]]", model="composer-2.5")
    (run,) = fake.runs()
    workspace = run["argv"][run["argv"].index("--workspace") + 1]
    assert run["argv"] == [
        *("--print", "--output-format", "stream-json", "--stream-partial-output", "--trust"),
        *("--workspace", workspace, "--model", "composer-2.5", "--mode", "ask"),
    ]
    assert run["cwd"] == workspace
    assert run["files"] == [".cursor"]


async def test_an_empty_answer_is_an_answer(client: Client) -> None:
    assert await client.content("[[init]]") == ""


@pytest.mark.agents("cli")
async def test_a_workspace_is_used_where_the_user_named_one(
    start: Start, fake: FakeAgent, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    parts = [{"type": "image_url", "image_url": {"url": data_url(PNG)}}]
    async with start(workspace=str(project), agent_mode="agent") as client:
        await client.answer([{"role": "user", "content": parts}])
    (run,) = fake.runs()
    assert run["cwd"] == str(project)
    assert "--mode" not in run["argv"]
    assert "--add-dir" in run["argv"]
    assert list(project.iterdir()) == []
