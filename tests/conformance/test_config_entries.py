"""Configuration entries: the highest version of a name is true, in whatever order they reach a shard."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import permutations

import pytest

from pinlater.backends.base import ConfigEntry, Shard
from pinlater.errors import QueueNotFound
from pinlater.model import Job, JobState
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.subject import START_MS, Subject, new_name
from tests.queues import EVERYTHING, names_of, record_of

NOW = START_MS


def version(number: int) -> str:
    return f"{START_MS * 1000 + 1_000 + number:016d}-0000000{number % 10}"


def history(queue: str) -> list[ConfigEntry]:
    """Made, changed, deleted, made anew."""
    return [
        ConfigEntry(queue, version(1), "[1]"),
        ConfigEntry(queue, version(2), "[2]"),
        ConfigEntry(queue, version(3), "{}", version(3)),
        ConfigEntry(queue, version(4), "[4]", version(3)),
    ]


async def put(shard: Shard, *records: ConfigEntry) -> list[bool]:
    return await shard.put_config(records, NOW)


async def pages_since(shard: Shard, since: int, limit: int) -> tuple[int, list[list[ConfigEntry]]]:
    """All that came after a revision, page by page, and the revision to go on from."""
    pages: list[list[ConfigEntry]] = []
    while page := await shard.list_config(since, limit):
        if not page.entries:
            return since, pages
        assert page.revision > since
        since = page.revision
        pages.append(page.entries)
    raise AssertionError("no last page")


async def test_entries_in_any_order_come_to_the_same_end(shard: Shard) -> None:
    for number, order in enumerate(permutations(history("x"))):
        queue = f"order_{number}"
        for record in order:
            here = await record_of(shard, queue)
            (taken,) = await put(shard, record._replace(name=queue))
            assert taken is (here is None or record.version > here.version)
            if taken and record.version < version(3):
                await shard.enqueue(queue, [Job(b"old")], NOW)
        assert await record_of(shard, queue) == history(queue)[-1]
        assert await Subject(shard, queue).count(JobState.PENDING) == 0


async def test_entries_of_one_call_are_taken_in_order_and_answered_in_place(shard: Shard) -> None:
    first, second, deleted, again = history("mail")
    assert await put(shard, first, deleted, second, ConfigEntry("other", version(1)), again, first) == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert await record_of(shard, "mail") == again
    assert await names_of(shard) == {"mail", "other"}


async def test_what_is_not_newer_changes_nothing(subject: Subject) -> None:
    before = await record_of(subject.shard, subject.queue)
    assert before is not None
    descriptor = await subject.job()
    revision, _ = await pages_since(subject.shard, 0, EVERYTHING)
    older = "0" * 15 + "1-00000000"
    stale = [
        before._replace(text="[1]"),
        ConfigEntry(subject.queue, older),
        ConfigEntry(subject.queue, older, "{}", older),
    ]
    assert await put(subject.shard, *stale) == [False] * 3
    assert await record_of(subject.shard, subject.queue) == before
    assert await pages_since(subject.shard, revision, 10) == (revision, [])
    assert await subject.find(descriptor) is not None


async def test_versions_are_compared_as_texts_to_their_last_digit(shard: Shard) -> None:
    base = version(1)[:-8]
    assert await put(shard, ConfigEntry("mail", base + "0000000a", "[1]")) == [True]
    assert await put(shard, ConfigEntry("mail", base + "00000009", "[2]")) == [False]
    assert await put(shard, ConfigEntry("mail", base + "0000000b", "[3]")) == [True]
    assert (await record_of(shard, "mail") or ConfigEntry("", "")).text == "[3]"


async def test_a_deleted_queue_leaves_a_tombstone_that_older_entries_do_not_undo(shard: Shard) -> None:
    first, second, deleted, again = history("mail")
    assert await put(shard, first, deleted) == [True, True]
    mark = await record_of(shard, "mail")
    assert mark == deleted
    assert mark.is_deleted
    assert await put(shard, second) == [False]
    with pytest.raises(QueueNotFound):
        await shard.enqueue("mail", [Job(b"")], NOW)
    assert await put(shard, again) == [True]
    assert await shard.enqueue("mail", [Job(b"")], NOW)


async def test_a_tombstone_of_a_queue_that_never_was_here_makes_none(shard: Shard) -> None:
    assert await put(shard, history("mail")[2]) == [True]
    assert await names_of(shard) == set()
    with pytest.raises(QueueNotFound):
        await shard.enqueue("mail", [Job(b"")], NOW)


async def test_a_queue_made_anew_after_a_deletion_that_was_missed_here_loses_its_old_jobs(shard: Shard) -> None:
    first, _, _, again = history("mail")
    await put(shard, first)
    subject = Subject(shard)
    descriptors = {state: await subject.job_in(state) for state in reversed(JobState)}
    await subject.quota(3, 1)
    assert await put(shard, again) == [True]
    for state, descriptor in descriptors.items():
        assert await subject.find(descriptor) is None
        assert await subject.count(state) == 0
    assert await subject.claim(9) == []
    assert await subject.quota() == (0, 0, 0)


async def test_a_queue_that_was_never_deleted_keeps_its_jobs_through_every_change(shard: Shard) -> None:
    first, second, _, _ = history("mail")
    await put(shard, first)
    subject = Subject(shard)
    descriptors = {state: await subject.job_in(state) for state in reversed(JobState)}
    await subject.quota(3, 1)
    before = {state: await subject.info(descriptor) for state, descriptor in descriptors.items()}
    assert await put(shard, second) == [True]
    assert {state: await subject.info(descriptor) for state, descriptor in descriptors.items()} == before
    assert await subject.quota() == (3, 1, 1)


async def test_a_deletion_that_is_known_takes_no_jobs_a_second_time(shard: Shard) -> None:
    *_, deleted, again = history("mail")
    await put(shard, deleted, again)
    descriptor = await Subject(shard).job()
    assert await put(shard, again._replace(version=version(5), text="[5]")) == [True]
    assert await Subject(shard).find(descriptor) is not None


async def test_an_entry_with_an_at_sign_is_no_queue(shard: Shard) -> None:
    name = new_name("@defaults")
    assert await put(shard, ConfigEntry(name, version(1), '{"set": {}}')) == [True]
    assert await put(shard, ConfigEntry(name, version(2), "[2]"), ConfigEntry(name, version(1), "[1]")) == [True, False]
    assert await record_of(shard, name) == ConfigEntry(name, version(2), "[2]")
    with pytest.raises(QueueNotFound):
        await shard.enqueue(name, [Job(b"")], NOW)


@pytest.mark.parametrize("text", ["", "ü🦆\0'\"\\%", "x" * 60_000], ids=["empty", "strange", "long"])
async def test_the_text_of_an_entry_comes_back_as_it_was_given(shard: Shard, text: str) -> None:
    record = ConfigEntry("mail", version(1), text)
    assert await put(shard, record) == [True]
    assert await record_of(shard, "mail") == record


async def test_pages_show_what_came_in_the_order_in_which_it_came(shard: Shard) -> None:
    since, _ = await pages_since(shard, 0, EVERYTHING)
    records = [ConfigEntry(f"q{number}", version(9 - number)) for number in range(7)]
    for record in records:
        await put(shard, record)
    revision, pages = await pages_since(shard, since, 3)
    assert pages == [records[:3], records[3:6], records[6:]]
    assert await pages_since(shard, revision, 3) == (revision, [])


async def test_an_entry_that_is_replaced_comes_again_as_the_last(shard: Shard) -> None:
    since, _ = await pages_since(shard, 0, EVERYTHING)
    one, two = ConfigEntry("one", version(1)), ConfigEntry("two", version(1))
    await put(shard, one, two)
    middle, _ = await pages_since(shard, since, 10)
    newer = one._replace(version=version(2))
    await put(shard, newer)
    assert (await pages_since(shard, middle, 10))[1] == [[newer]]
    assert (await pages_since(shard, since, 1))[1] == [[two], [newer]]


async def test_old_tombstones_are_removed_without_being_counted_and_nothing_else_is(subject: Subject) -> None:
    old, young, live = "old", "young", "live"
    await put(
        subject.shard,
        ConfigEntry(old, version(1), "{}", version(1)),
        ConfigEntry(young, version(5), "{}", version(5)),
        ConfigEntry(live, version(1)),
    )
    assert await subject.prune(tombstones_before=version(5)) == {}
    assert await record_of(subject.shard, old) is None
    assert await record_of(subject.shard, young) is not None
    assert await names_of(subject.shard) == {subject.queue, live}
    assert await subject.prune() == {}
    assert await record_of(subject.shard, young) is not None


async def test_of_many_versions_put_at_once_the_highest_stays(crowd: Crowd) -> None:
    records = [ConfigEntry("fresh", version(number), f"[{number}]") for number in range(1, 10)]
    calls = [
        partial(crowd[number % len(crowd)].shard.put_config, [record], NOW) for number, record in enumerate(records)
    ]
    answers = await at_once(*reversed(calls))
    assert answers[0] == [True]
    assert await record_of(crowd[0].shard, "fresh") == records[-1]


async def test_who_polls_by_revision_misses_nothing_that_is_put_meanwhile(crowd: Crowd) -> None:
    shard, seen = crowd[0].shard, dict[str, ConfigEntry]()
    since, _ = await pages_since(shard, 0, EVERYTHING)
    writing = asyncio.ensure_future(at_once(*[partial(put_some, subject.shard, n) for n, subject in enumerate(crowd)]))
    while not writing.done():
        since = await poll(shard, since, seen)
    await writing
    await poll(shard, since, seen)
    here = {name: await record_of(shard, name) for name in seen}
    assert seen == here
    assert len(seen) == 10 * len(crowd) + 1


async def put_some(shard: Shard, writer: int) -> None:
    """Records of this writer's own, and changes to one that all writers change."""
    for step in range(10):
        shared = ConfigEntry("shared", f"{START_MS * 1000 + step:016d}-{writer:08x}", f"[{writer}, {step}]")
        await put(shard, ConfigEntry(f"w{writer}_{step}", version(1)), shared)


async def poll(shard: Shard, since: int, seen: dict[str, ConfigEntry]) -> int:
    since, pages = await pages_since(shard, since, 4)
    for page in pages:
        seen.update({record.name: record for record in page})
    return since
