"""What is known of a version of the CLI outlives the gateway, and is about that version only."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursor_gateway.agents.cursor.version_facts import (
    KnownVersions,
    VersionFacts,
    read_facts,
    write_facts,
)


async def test_what_was_learnt_is_known_after_a_restart(tmp_path: Path) -> None:
    first = KnownVersions(tmp_path)
    await first.recognise("2026.10.01-e373342")
    first.learn(boots_before_prompt=False, cold_start_s=6.5)
    await first.close()
    second = KnownVersions(tmp_path)
    await second.recognise("2026.10.01-e373342")
    assert second.facts == VersionFacts(boots_before_prompt=False, cold_start_s=6.5)


async def test_what_was_seen_before_the_version_was_known_is_kept(tmp_path: Path) -> None:
    write_facts(tmp_path, "1", VersionFacts(cold_start_s=1.0, resume_keeps_history=False))
    known = KnownVersions(tmp_path)
    known.learn(cold_start_s=2.0)
    await known.recognise("1")
    await known.close()
    expected = VersionFacts(cold_start_s=2.0, resume_keeps_history=False)
    assert known.facts == read_facts(tmp_path, "1") == expected


async def test_an_updated_cli_is_another_one(tmp_path: Path) -> None:
    known = KnownVersions(tmp_path)
    await known.recognise("1")
    known.learn(resume_keeps_history=False)
    await known.recognise("2")
    await known.close()
    assert known.facts == VersionFacts()
    assert read_facts(tmp_path, "1").resume_keeps_history is False


async def test_all_that_was_learnt_while_the_file_was_written_is_in_it(tmp_path: Path) -> None:
    known = KnownVersions(tmp_path)
    await known.recognise("1")
    for seconds in range(20):
        known.learn(cold_start_s=float(seconds))
    await known.close()
    assert read_facts(tmp_path, "1").cold_start_s == 19.0


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"cold_start_s": "soon", "calls_at_once": true, "else": 1}'],
)
def test_a_file_that_cannot_be_used_says_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_bytes(content)
    assert read_facts(tmp_path, "1") == VersionFacts()


def test_whole_numbers_are_seconds_too(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_bytes(b'{"cold_start_s": 6}')
    assert read_facts(tmp_path, "1").cold_start_s == 6


def test_a_version_cannot_name_another_place(tmp_path: Path) -> None:
    write_facts(tmp_path / "facts", "../../outside", VersionFacts(calls_at_once=3))
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "facts"]


async def test_that_it_cannot_be_kept_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    known = KnownVersions(tmp_path / "file")
    await known.recognise("1")
    known.learn(calls_at_once=3)
    await known.close()
    assert known.facts.calls_at_once == 3


async def test_what_could_not_be_written_is_written_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "versions"
    folder.write_text("no directory")
    known = KnownVersions(folder)
    await known.recognise("1")
    for seconds in (1.0, 2.0, 3.0):
        known.learn(cold_start_s=seconds)
        await known.close()
    folder.unlink()
    known.learn(cold_start_s=3.0)
    await known.close()
    assert read_facts(folder, "1") == VersionFacts(cold_start_s=3.0)
    assert caplog.text.count("is not kept") == 1
