"""A web page, a form, a rebound name, a wrong key, a path outside: all stay outside."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.settings import SettingsError, load
from tests.conftest import Client, FakeAgent, Start

KEY = "gw-canary-key"


async def post(client: Client, body: Any = None, **headers: str) -> tuple[int, Any]:
    sent = body if body is not None else {"model": "auto", "messages": [{"role": "user"}]}
    url = client.url("/v1/chat/completions")
    headers = {"Content-Type": "application/json"} | headers
    async with client.session.post(url, data=json.dumps(sent), headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:32124",
        "127.0.0.1.evil.com",
        "192.168.1.5",
        "a@127.0.0.1",
        "",
        "[::1",
        "a]b",
    ],
)
async def test_a_rebound_name_is_refused(client: Client, fake: FakeAgent, host: str) -> None:
    status, body = await post(client, Host=host)
    assert (status, body["error"]["code"]) == (403, "host_not_allowed")
    assert fake.runs() == []


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:5", "127.9.9.9", "[::1]:8"]
)
async def test_loopback_by_any_name_is_let_in(client: Client, host: str) -> None:
    assert (await post(client, Host=host))[0] == 200


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "https://evil.example",
            "null",
            "http://localhost.evil.example",
            "file://",
            "http://[::1",
        ),
        *(
            "chrome-extension://x",
            "http://localhost:3000 http://evil.example",
            "http://localhost/x",
        ),
    ],
)
async def test_a_foreign_page_is_refused(client: Client, fake: FakeAgent, origin: str) -> None:
    status, body = await post(client, Origin=origin)
    assert (status, body["error"]["code"]) == (403, "origin_not_allowed")
    async with client.session.options(
        client.url("/v1/chat/completions"), headers={"Origin": origin}
    ) as preflight:
        assert preflight.status == 403
        assert "Access-Control-Allow-Origin" not in preflight.headers
    assert fake.runs() == []


async def test_a_local_page_and_a_configured_one_may_use_it(start: Start) -> None:
    async with start(cors_origins="https://chat.example.com/") as client:
        for origin in ("http://localhost:5173", "http://127.0.0.1", "https://chat.example.com"):
            url = client.url("/v1/chat/completions")
            asked = {
                "Origin": origin,
                "Access-Control-Request-Headers": "authorization,content-type",
            }
            async with client.session.options(url, headers=asked) as preflight:
                assert preflight.status == 204
                assert preflight.headers["Access-Control-Allow-Origin"] == origin
                assert "authorization" in preflight.headers["Access-Control-Allow-Headers"]
            assert (await post(client, Origin=origin))[0] == 200


async def test_other_names_can_be_allowed(start: Start) -> None:
    async with start(allowed_hosts="gateway.lan") as client:
        assert (await post(client, Host="gateway.lan:1"))[0] == 200
        assert (await post(client, Host="other.lan"))[0] == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_form_cannot_post(client: Client, fake: FakeAgent, kind: str) -> None:
    status, body = await post(client, **{"Content-Type": kind})
    assert (status, body["error"]["code"]) == (415, "unsupported_media_type")
    assert fake.runs() == []


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.x+json"])
async def test_json_by_its_other_names_is_json(client: Client, kind: str) -> None:
    assert (await post(client, **{"Content-Type": kind}))[0] == 200


async def test_the_key_is_asked_for_in_both_styles(start: Start, fake: FakeAgent) -> None:
    async with start(api_key=KEY) as client:
        for wrong in (
            {},
            {"x-api-key": "no"},
            {"Authorization": "Bearer no"},
            {"Authorization": KEY},
        ):
            status, body = await post(client, **wrong)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert (await client.get("/v1/models"))[0] == 401
        assert fake.runs() == []
        assert (await post(client, **{"x-api-key": KEY}))[0] == 200
        assert (await post(client, Authorization=f"bearer {KEY}"))[0] == 200
    assert KEY not in json.dumps(fake.runs())


async def test_without_the_key_health_says_only_how_it_is(start: Start) -> None:
    async with start(api_key=KEY) as client:
        _, state = await client.get("/health")
        assert state.keys() == {"status", "version", "auth", "mcp"}
        _, state = await client.get("/health", **{"x-api-key": KEY})
        assert "agent" in state


def test_a_bind_beyond_loopback_needs_a_key() -> None:
    with pytest.raises(SettingsError, match="needs a key"):
        load({"host": "0.0.0.0"}, {})
    assert load({"host": "0.0.0.0", "api_key": "k"}, {}).settings.api_key == "k"
    assert load({"host": "::1"}, {}).settings.host == "::1"


async def test_beyond_loopback_addresses_will_do_but_names_will_not(start: Start) -> None:
    async with start(host="0.0.0.0", api_key=KEY) as client:
        client.server._settings.host  # noqa: B018
        url = f"http://127.0.0.1:{client.server.port}/v1/models"
        for host, status in (("192.168.1.5", 200), ("evil.example", 403)):
            headers = {"Host": host, "x-api-key": KEY}
            async with client.session.get(url, headers=headers) as response:
                assert response.status == status


async def test_a_body_over_the_limit_is_a_413(start: Start) -> None:
    async with start(max_body_mb=1) as client:
        status, error = await client.error("x" * 1_100_000)
        assert (status, error["code"]) == (413, "body_too_large")
        assert await client.content("[[text:still here]]") == "still here"


async def test_every_answer_has_a_request_id(client: Client) -> None:
    for method, path in (("GET", "/health"), ("GET", "/nothing"), ("DELETE", "/v1/models")):
        async with client.session.request(method, client.url(path)) as response:
            assert response.headers["X-Request-Id"]
    async with client.chat("[[text:x]]", stream=True) as response:
        assert response.headers["X-Request-Id"]
    async with client.chat("[[text:x]]", headers={"X-Request-Id": "mine-1"}) as response:
        assert response.headers["X-Request-Id"] == "mine-1"
    async with client.chat("[[text:x]]", headers={"X-Request-Id": "a b"}) as response:
        assert response.headers["X-Request-Id"] != "a b"


async def test_unknown_paths_and_methods_are_told_in_the_clients_own_shape(client: Client) -> None:
    async with client.session.post(client.url("/v1/embeddings"), json={}) as response:
        body = await response.json()
        assert (response.status, body["error"]["code"]) == (404, "route_not_found")
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/models"):
        assert path in body["error"]["message"]
    async with client.session.get(client.url("/v1/chat/completions")) as response:
        assert response.status == 405
        assert (await response.json())["error"]["code"] == "method_not_allowed"


async def test_a_workspace_is_chosen_only_below_an_allowed_root(
    start: Start, fake: FakeAgent, tmp_path: Path
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "project").mkdir(parents=True)
    outside.mkdir()
    (root / "escape").symlink_to(outside)
    (root / "file").write_text("")
    refused = (
        outside, f"{root}/../outside", f"{root}/escape", f"{root}/missing", f"{root}/file",
        "root/project", "",
    )  # fmt: skip
    async with start() as client:
        status, error = await client.error("x", headers={"X-Cursor-Workspace": str(root)})
        assert (status, error["code"]) == (403, "workspace_not_allowed")
    async with start(workspace_roots=str(root)) as client:
        for path in refused:
            status, _ = await client.error("x", headers={"X-Cursor-Workspace": str(path)})
            assert status == 403, path
        assert fake.runs() == []
        for path in (root, root / "project"):
            headers = {"X-Cursor-Workspace": str(path)}
            assert await client.content("[[text:ok]]", headers=headers) == "ok"
            assert fake.runs()[-1]["cwd"] == str(path)


async def test_secrets_and_prompts_stay_out_of_logs_and_errors(
    start: Start, fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fake.env["CURSOR_API_KEY"] = "crsr_canary_key"
    seen: list[Any] = []
    async with start(api_key=KEY, debug=True, timing=True) as client:
        client.headers = {"x-api-key": KEY}
        for steps in (
            "[[text:ok]]",
            "[[exit:1]]",
            "[[stderr:bad key crsr_canary_key and gw-canary-key]][[exit:1]]",
            "[[init]][[half-line]]",
        ):
            seen.append(await client.answer(f"prompt-canary {steps}"))
            seen.append(await client.frames(f"prompt-canary {steps}") if "ok" in steps else "")
        seen.append(await client.get("/health"))
    for canary in ("crsr_canary_key", KEY, "prompt-canary"):
        assert canary not in caplog.text
        said = [entry for entry in seen if "choices" not in str(entry)]
        assert canary not in str(said)
    assert KEY not in str([call["env"] for call in fake.calls()])


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 9000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer gw-canary-key\x01\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"hello",
    ],
)
async def test_what_is_not_even_http_is_answered_in_shape_and_not_quoted(
    start: Start, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with start(api_key=KEY) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
        writer.write(request_bytes + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 " in head.split(b"\r\n")[0]
    assert b"x-request-id" in head.lower()
    assert json.loads(body)["error"]["code"] == "invalid_value"
    assert KEY not in caplog.text and KEY.encode() not in answer


async def test_a_program_without_a_host_header_is_let_in(client: Client) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
    writer.write(b"GET /health HTTP/1.0\r\n\r\n")
    assert b"X-Request-I" in await reader.read()
    writer.close()
