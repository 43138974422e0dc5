"""A client with tools: it asks, executes what it is told to, and asks again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.conftest import Client


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


BASH = tool("bash", command={"type": "string"})
READ = tool("read", path={"type": "string"})


@dataclass(slots=True)
class Dialogue:
    client: Client
    tools: list[dict[str, Any]] = field(default_factory=lambda: [BASH, READ])
    messages: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    async def say(self, text: str) -> dict[str, Any]:
        self.messages.append({"role": "user", "content": text})
        return await self.send()

    async def bring(self, *results: str) -> dict[str, Any]:
        """The results of the last calls, in their order."""
        for call, result in zip(self.calls, results, strict=False):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return await self.send()

    async def send(self) -> dict[str, Any]:
        """The answer's message, which also becomes part of the history."""
        answer = await self.client.answer(list(self.messages), tools=self.tools, **self.options)
        assert "choices" in answer, answer
        message = dict(answer["choices"][0]["message"])
        self.messages.append(message)
        return message

    @property
    def calls(self) -> list[dict[str, Any]]:
        said = [message for message in self.messages if message["role"] == "assistant"]
        return list(said[-1].get("tool_calls") or []) if said else []

    @property
    def asked(self) -> list[tuple[str, Any]]:
        functions = [call["function"] for call in self.calls]
        return [(each["name"], json.loads(each["arguments"])) for each in functions]
