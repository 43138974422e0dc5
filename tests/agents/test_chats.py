"""What proves that a chat is there, and what shows that its history was not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cursor_gateway.agents.cursor.chats import Chats, StoredChat, StoreState, least_tokens
from cursor_gateway.agents.cursor.version_facts import KnownVersions
from cursor_gateway.scratch import Scratch
from cursor_gateway.workspaces import Workspace, Workspaces


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    scratch = Scratch()
    yield Workspaces(scratch, "", ()).take(None)
    asyncio.run(scratch.remove())


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        (None, StoreState(4096, 1), True),
        (None, StoreState(0, 1), False),
        (None, StoreState(0, 1, 4096, 1), True),
        (StoreState(4096, 1), StoreState(8192, 2), True),
        # A short turn has room in a page that is there.
        (StoreState(4096, 1), StoreState(4096, 2), True),
        (StoreState(4096, 1), StoreState(4096, 1), False),
        (StoreState(4096, 1), StoreState(4096, 1, 500, 2), True),
        (StoreState(4096, 1, 9000, 2), StoreState(8192, 3), True),
        # Begun anew under the same id.
        (StoreState(90_000, 1), StoreState(4096, 2), False),
    ],
)
def test_a_store_has_grown_if_a_turn_may_have_been_added(
    before: StoreState | None, after: StoreState, grown: bool
) -> None:
    assert after.has_grown_from(before) is grown


@pytest.mark.parametrize(
    ("then", "steps", "now", "fact"),
    [
        (20_000, 1, 21_000, True),
        (20_000, 1, 15_001, True),
        # Cursor's own prompt alone: a client's system prompt and tools were not read.
        (24_000, 1, 15_800, False),
        (60_000, 3, 10_001, True),
        (60_000, 3, 9_999, False),
        (20_000, 1, None, None),  # the CLI counts nothing
        (900, 1, 10, None),  # too few to tell
        (None, 1, 10, None),  # not counted the turn before
        (180_000, 1, 30_000, None),  # the CLI may have made room in the context
    ],
)
async def test_tokens_tell_whether_the_history_was_read(
    tmp_path: Path,
    workspace: Workspace,
    then: int | None,
    steps: int,
    now: int | None,
    fact: bool | None,
) -> None:
    known = KnownVersions(tmp_path)
    chats = Chats({"HOME": str(tmp_path)}, known, is_wanted=True, sees_stores=True)
    chats.judge(StoredChat("s", workspace, least_tokens=least_tokens(then, steps)), now)
    assert known.facts.resume_keeps_history is fact
    assert chats.may_resume is (fact is not False)


async def test_what_was_on_its_way_does_not_make_a_forgetful_cli_trusted_again(
    tmp_path: Path, workspace: Workspace
) -> None:
    known = KnownVersions(tmp_path)
    chats = Chats({"HOME": str(tmp_path)}, known, is_wanted=True, sees_stores=True)
    chat = StoredChat("s", workspace, least_tokens=15_000)
    chats.judge(chat, 100)
    chats.judge(chat, 20_000)
    assert not chats.may_resume
