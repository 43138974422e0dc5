"""Real libraries from PyPI, against the gateway with the fake agent: part of `make clients`.

Each does a task with tools as its own guide says, and must get by with one process of the agent.
`CLIENTS_DIR` names the folder whose `python` holds them, apart from the project's environment.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.conftest import Client, FakeAgent

pytest_plugins = ["tests.clients.outside"]

PYTHON = Path(os.environ.get("CLIENTS_DIR", ".clients")).resolve() / "python" / "bin" / "python"
SECONDS = 120.0

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="the libraries are not installed"),
    pytest.mark.timeout(300),
]

# Steps one by one, then two at once; what a second agent would do is to say so.
STEPS = "".join(
    [
        "[[think:Hm.]][[text:Looking. ]][[shell-relay:bash command echo 1]][[think:So.]]",
        "[[shell-announce:bash command echo 2]][[shell-relay:bash command echo 3]]",
    ]
)
TASK = f"{STEPS}[[text:Done.]][[then]][[text:Replayed.]]"
SECOND = "[[shell-relay:bash command echo 4]][[text:Second.]][[then]][[text:Replayed.]]"

PYDANTIC_AI = """
import subprocess
from pydantic_ai import Agent
{models}
agent = Agent({model}, {prompt}="Be brief.")

@agent.tool_plain
def bash(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

first = agent.run_sync(task)
print(first.output)
print(agent.run_sync(second, message_history=first.all_messages()).output)
"""
OPENAI = """
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
provider = OpenAIProvider(base_url=url + "/v1", api_key="-")
"""
ANTHROPIC = """
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
provider = AnthropicProvider(base_url=url, api_key="-")
"""
SMOLAGENTS = """
import subprocess
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

@tool
def bash(command: str) -> str:
    '''Run a command.

    Args:
        command: the command
    '''
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

model = OpenAIServerModel("auto", api_base=url + "/v1", api_key="-")
print(ToolCallingAgent(tools=[bash], model=model, verbosity_level=0, max_steps=6).run(task))
"""
INSTRUCTOR = """
import instructor
from openai import OpenAI
from pydantic import BaseModel, field_validator

class Person(BaseModel):
    age: int

    # No schema tells of it.
    @field_validator("age")
    @classmethod
    def is_grown_up(cls, age):
        assert age >= 18
        return age

client = instructor.from_openai(OpenAI(base_url=url + "/v1", api_key="-"))
messages = [{"role": "user", "content": task}]
print(client.chat.completions.create(
    model="auto", response_model=Person, max_retries=2, messages=messages
).age)
"""


async def run(script: str, client: Client, tmp_path: Path, task: str = TASK) -> list[str]:
    """What a script prints. All that it knows is the address."""
    file = tmp_path / "script.py"
    file.write_text(f"url, task, second = {(client.url(''), task, SECOND)!r}\n{script}")
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, file),
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        cwd=tmp_path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return output.decode().splitlines()


@pytest.mark.parametrize("prompt", ["system_prompt", "instructions"])
@pytest.mark.parametrize(
    ("models", "model"),
    [
        (OPENAI, 'OpenAIChatModel("auto", provider=provider)'),
        (OPENAI, 'OpenAIResponsesModel("auto", provider=provider)'),
        (ANTHROPIC, 'AnthropicModel("auto", provider=provider)'),
    ],
    ids=["chat", "responses", "messages"],
)
async def test_pydantic_ai_takes_one_process_and_goes_on_with_it(
    client: Client, fake: FakeAgent, tmp_path: Path, models: str, model: str, prompt: str
) -> None:
    script = PYDANTIC_AI.format(models=models, model=model, prompt=prompt)
    assert await run(script, client, tmp_path) == ["Done.", "Second."]
    assert ["--resume" in start["argv"] for start in fake.runs()] == [False, True]


async def test_smolagents_takes_one_process(
    client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    final = '[[relay:final_answer {"answer": "Done."}]]'
    task = f"{STEPS}{final}[[then]]{final.replace('Done', 'Replayed')}"
    assert await run(SMOLAGENTS, client, tmp_path, task) == ["Done."]
    assert len(fake.runs()) == 1


async def test_instructor_has_its_complaint_heard_by_the_same_process(
    client: Client, fake: FakeAgent, tmp_path: Path
) -> None:
    task = '[[relay:Person {"age": 7}]][[relay:Person {"age": 70}]][[then]][[text:Replayed.]]'
    assert await run(INSTRUCTOR, client, tmp_path, task) == ["70"]
    assert len(fake.runs()) == 1
