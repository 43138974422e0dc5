"""A server from the package index that nobody here wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.bridge.conftest import Bridged, Mcp, call, said


async def test_the_time_server_tells_the_time(mcp: Mcp, bridged: Bridged) -> None:
    program = Path(sys.executable).parent / "mcp-server-time"
    mcp.write("time", {"type": "local", "command": [str(program), "--local-timezone", "UTC"]})
    async with bridged() as client:
        listed = (await client.get("/v1/tools"))[1]["data"]
        assert {tool["name"] for tool in listed} == {"get_current_time", "convert_time"}
        told = json.loads(await said(client, "mcp__time__get_current_time", timezone="Asia/Tokyo"))
        assert told["timezone"] == "Asia/Tokyo"
        _, refused = await call(client, "mcp__time__get_current_time", timezone="Nowhere")
        assert refused["isError"] is True
