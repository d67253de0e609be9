"""Notes: what servers tell each other, compared and swapped, until it expires."""

from __future__ import annotations

from functools import partial

import pytest

from pinlater.backends.base import KvEntry, Shard
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.subject import START_MS, new_name

NOW = START_MS
LATER = NOW + 1_000


@pytest.fixture
def kind() -> str:
    """Notes stay in a store from test to test."""
    return new_name("kind")


async def test_an_entry_is_read_as_it_was_written(shard: Shard, kind: str) -> None:
    assert await shard.kv_put(kind, "a/1", b"\0\xff", LATER, NOW) == 1
    assert await shard.kv_put(kind, "b", b"", LATER + 1, NOW) == 1
    assert await shard.kv_list(kind, NOW) == {"a/1": KvEntry(b"\0\xff", 1, LATER), "b": KvEntry(b"", 1, LATER + 1)}


async def test_a_namespace_without_entries_is_empty(shard: Shard, kind: str) -> None:
    assert await shard.kv_list(kind, NOW) == {}


async def test_each_write_is_a_version_more(shard: Shard, kind: str) -> None:
    for number in (1, 2, 3):
        assert await shard.kv_put(kind, "a", b"%d" % number, LATER + number, NOW) == number
        assert await shard.kv_list(kind, NOW) == {"a": KvEntry(b"%d" % number, number, LATER + number)}


async def test_kinds_and_names_are_apart(shard: Shard, kind: str) -> None:
    other = new_name("kind")
    await shard.kv_put(kind, "a", b"1", LATER, NOW)
    assert await shard.kv_put(other, "a", b"2", LATER, NOW) == 1
    assert await shard.kv_put(kind, "A", b"3", LATER, NOW) == 1
    assert {name: note.body for name, note in (await shard.kv_list(kind, NOW)).items()} == {"a": b"1", "A": b"3"}
    assert set(await shard.kv_list(other, NOW)) == {"a"}


async def test_a_write_that_expects_another_version_changes_nothing(shard: Shard, kind: str) -> None:
    assert await shard.kv_put(kind, "a", b"x", LATER, NOW, expected_version=1) == 0
    assert await shard.kv_list(kind, NOW) == {}
    assert await shard.kv_put(kind, "a", b"1", LATER, NOW, expected_version=0) == 1
    for wrong in (0, 2):
        assert await shard.kv_put(kind, "a", b"x", LATER + 9, NOW, expected_version=wrong) == 0
    assert await shard.kv_list(kind, NOW) == {"a": KvEntry(b"1", 1, LATER)}
    assert await shard.kv_put(kind, "a", b"2", LATER, NOW, expected_version=1) == 2


async def test_an_entry_is_there_until_it_expires_and_then_counts_as_none(shard: Shard, kind: str) -> None:
    await shard.kv_put(kind, "a", b"1", LATER, NOW)
    await shard.kv_put(kind, "a", b"2", LATER, NOW)
    assert set(await shard.kv_list(kind, LATER - 1)) == {"a"}
    assert await shard.kv_list(kind, LATER) == {}
    assert await shard.kv_put(kind, "a", b"3", LATER + 10, LATER, expected_version=2) == 0
    assert await shard.kv_put(kind, "a", b"3", LATER + 10, LATER, expected_version=0) == 1
    assert await shard.kv_list(kind, LATER) == {"a": KvEntry(b"3", 1, LATER + 10)}


async def test_a_write_keeps_an_entry_from_expiring(shard: Shard, kind: str) -> None:
    await shard.kv_put(kind, "a", b"1", LATER, NOW)
    await shard.kv_put(kind, "a", b"1", LATER + 10, NOW)
    assert await shard.kv_list(kind, LATER) == {"a": KvEntry(b"1", 2, LATER + 10)}


@pytest.mark.parametrize("before_ms", [0, 1])
async def test_an_entry_written_with_a_time_that_is_over_is_removed(shard: Shard, kind: str, before_ms: int) -> None:
    await shard.kv_put(kind, "a", b"1", LATER, NOW)
    assert await shard.kv_put(kind, "a", b"", NOW - before_ms, NOW, expected_version=7) == 0
    assert await shard.kv_put(kind, "a", b"", NOW - before_ms, NOW, expected_version=1) == 2
    assert await shard.kv_list(kind, NOW - 10) == {}
    assert await shard.kv_put(kind, "a", b"2", LATER, NOW, expected_version=0) == 1


async def test_beyond_the_number_to_keep_the_first_to_expire_go(shard: Shard, kind: str) -> None:
    for number in (3, 1, 4, 2):
        await shard.kv_put(kind, f"n{number}", b"", LATER + number, NOW)
    await shard.kv_put(kind, "n9", b"", LATER + 9, NOW, keep=3)
    assert set(await shard.kv_list(kind, NOW)) == {"n3", "n4", "n9"}


async def test_entries_that_expired_are_not_kept_instead_of_those_that_live(shard: Shard, kind: str) -> None:
    for number in range(5):
        await shard.kv_put(kind, f"old{number}", b"", LATER, NOW)
    for number in range(3):
        await shard.kv_put(kind, f"new{number}", b"", LATER + 9, LATER, keep=3)
    assert set(await shard.kv_list(kind, LATER)) == {"new0", "new1", "new2"}


async def test_a_hundred_entries_of_ten_kilobytes_are_read_whole(shard: Shard, kind: str) -> None:
    for number in range(100):
        await shard.kv_put(kind, f"n{number}", b"%d" % number * 5_000, LATER, NOW)
    notes = await shard.kv_list(kind, NOW)
    assert {name: note.body for name, note in notes.items()} == {f"n{n}": b"%d" % n * 5_000 for n in range(100)}


async def test_of_many_that_expect_the_same_version_exactly_one_wins(crowd: Crowd, kind: str) -> None:
    for version in range(5):
        bodies = [b"%d %d" % (version, place) for place in range(len(crowd))]
        answers = await at_once(
            *[
                partial(subject.shard.kv_put, kind, "a", body, LATER, NOW, expected_version=version)
                for subject, body in zip(crowd, bodies, strict=True)
            ]
        )
        assert sorted(answers) == [0] * (len(crowd) - 1) + [version + 1]
        winner = bodies[answers.index(version + 1)]
        assert await crowd[0].shard.kv_list(kind, NOW) == {"a": KvEntry(winner, version + 1, LATER)}


async def test_writes_at_once_that_expect_nothing_are_all_counted(crowd: Crowd, kind: str) -> None:
    calls = [partial(subject.shard.kv_put, kind, "a", b"", LATER, NOW) for subject in crowd for _ in range(3)]
    assert sorted(await at_once(*calls)) == list(range(1, len(calls) + 1))
