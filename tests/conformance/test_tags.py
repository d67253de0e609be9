"""Tags of jobs, and scans by tag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.backends.base import STORED_STATES, DeadLetterTarget, ScanPosition, ScanRequest
from pinlater.backends.extended import HeartbeatRequest
from pinlater.backends.requests import StoredState
from pinlater.model import JobInfo, JobState, OnDuplicate, parse_descriptor
from tests.conformance.bindings import BINDINGS
from tests.conformance.extended_subject import offer, offer_all, offer_of, stop, store
from tests.conformance.subject import START_MS, Subject, key_of
from tests.queues import drop_queue, make_queue

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_tags], indirect=True)

ALL = tuple(StoredState)
LONGEST = "ü" * 32


async def tagged(
    subject: Subject,
    tag: str,
    *,
    states: Sequence[StoredState] = ALL,
    priorities: Sequence[int] = (1, 2, 3),
    future: bool = False,
    limit: int = 100,
    after: ScanPosition | None = None,
    with_body: bool = False,
) -> list[JobInfo]:
    request = ScanRequest(states, priorities, future, limit, after, with_body, tag=tag)
    return await subject.shard.scan(subject.queue, request, subject.now_ms)


async def names(subject: Subject, tag: str, *, future: bool = False) -> list[str]:
    return [info.descriptor for info in await tagged(subject, tag, future=future)]


async def test_tags_are_shown_and_found(subject: Subject) -> None:
    tags = ("tenant:7", LONGEST, "a")
    first = await store(subject, tags=tags)
    plain = await subject.job()
    second = await store(subject, priority=2, tags=("tenant:7",), claim_timeout_ms=500, expires_at_ms=START_MS + 9_000)
    third = await store(subject, tags=("tenant:70", "a\\b"), dedupe_key="d", serialize_key="s", send_id="i")
    assert (await subject.info(first)).tags == [*tags]
    assert (await subject.info(plain)).tags is None
    info = await subject.info(second)
    assert (info.tags, info.claim_timeout_ms, info.expires_at_ms) == (["tenant:7"], 500, START_MS + 9_000)
    info = await subject.info(third)
    assert (info.tags, info.dedupe_key, info.serialize_key) == (["tenant:70", "a\\b"], "d", "s")
    assert await names(subject, "tenant:7") == [second, first]
    assert await names(subject, LONGEST) == await names(subject, "a") == [first]
    assert await names(subject, "a\\b") == await names(subject, "tenant:70") == [third]
    assert await names(subject, "tenant:") == await names(subject, "A") == await names(subject, "tenant:7\\0") == []
    other = await subject.beside("post")
    there = await store(other, tags=("a",))
    assert await names(other, "a") == [there]
    assert await names(subject, "a") == [first]


async def test_a_page_by_tag_has_what_the_request_says(subject: Subject) -> None:
    """The newest first by when they came, whatever their run_after is."""
    made = [
        await store(subject, b"%d" % number, tags=("t",), priority=1 + number % 2, run_after_ms=START_MS - number % 3)
        for number in range(7)
    ]
    await store(subject, tags=("other",))
    later = await store(subject, tags=("t",), run_after_ms=START_MS + 1)
    assert await names(subject, "t") == made[::-1]
    assert await names(subject, "t", future=True) == [later]
    page = await tagged(subject, "t", limit=3, with_body=True)
    assert [info.body for info in page] == [b"6", b"5", b"4"]
    ref = parse_descriptor(page[-1].descriptor)
    assert ref is not None
    rest = await tagged(subject, "t", after=ScanPosition(0, ref.id))
    assert [info.descriptor for info in rest] == made[3::-1]
    rest = await tagged(subject, "t", after=ScanPosition(0, ref.id), priorities=[2])
    assert [info.descriptor for info in rest] == [made[3], made[1]]
    claimed = await subject.claimed()
    in_progress = await tagged(subject, "t", states=STORED_STATES[JobState.IN_PROGRESS], future=False)
    assert [info.descriptor for info in in_progress] == [claimed.descriptor]
    await subject.succeed(claimed.descriptor)
    done = await tagged(subject, "t", states=[StoredState.SUCCEEDED])
    assert [(info.descriptor, info.tags) for info in done] == [(claimed.descriptor, ["t"])]


async def test_a_page_by_tag_goes_past_what_does_not_match(subject: Subject) -> None:
    """However many of the tag that are."""
    first = await store(subject, priority=2, tags=("t",))
    await offer_all(subject, *[offer_of(tags=("t", "u")) for _ in range(2_100)])
    assert [each.descriptor for each in await tagged(subject, "t", priorities=[2])] == [first]
    assert len(await tagged(subject, "u", limit=3_000)) == 2_100


async def test_replace_keeps_the_tags_that_stand(subject: Subject) -> None:
    first = await store(subject, dedupe_key="d", tags=("a",))
    await offer(subject, dedupe_key="d", tags=("b",), on_duplicate=OnDuplicate.REPLACE)
    assert (await subject.info(first)).tags == ["a"]
    assert (await names(subject, "a"), await names(subject, "b")) == ([first], [])


KINDS: list[dict[str, Any]] = [
    {},
    {"dedupe_key": "d"},
    {"serialize_key": "s"},
    {"claim_timeout_ms": 5},
    {"dedupe_key": "w", "dedupe_for_ms": 60_000},
    {"send_id": "i"},
]
"""What a job may have beside its tags."""


async def test_what_is_removed_is_found_by_its_tags_no_more(subject: Subject) -> None:
    """By whatever removes it, and whatever else it has."""
    for kind in KINDS:
        kept = await store(subject, tags=("t", "u"))
        deleted = await store(subject, tags=("t", "u"), **kind)
        assert await names(subject, "u") == [deleted, kept]
        assert await subject.delete_listed(JobState.PENDING, deleted) == 1
        assert await names(subject, "t") == await names(subject, "u") == [kept]
        await subject.cancel(kept)
        assert await names(subject, "t") == await names(subject, "u") == []
    pruned = [await store(subject, tags=("t",), **kind) for kind in KINDS[:-1]]
    for _ in pruned:
        await subject.succeed((await subject.claimed()).descriptor)
    assert await names(subject, "t") == pruned[::-1]
    subject.tick(10)
    assert await subject.prune(succeeded_ttl_ms=5) == {subject.queue: len(pruned)}
    assert await names(subject, "t") == []
    unkept = await store(subject, tags=("t",))
    await subject.claimed()
    await subject.ack_with(unkept, True, keep_succeeded=False)
    assert await names(subject, "t") == []


async def test_a_deleted_queue_leaves_no_tags_to_the_next_of_its_name(subject: Subject) -> None:
    await store(subject, tags=("t",))
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    await make_queue(subject.shard, subject.queue, subject.now_ms)
    assert await names(subject, "t") == []
    again = await store(subject, tags=("t",))
    await subject.prune()
    assert await names(subject, "t") == [again]


async def test_progress_and_a_request_to_stop_leave_the_tags(subject: Subject) -> None:
    for kind in KINDS[:-1]:
        descriptor = await store(subject, tags=("t",), **kind)
        job = await subject.claimed()
        key = key_of(descriptor)
        beat = HeartbeatRequest(*key, job.claim_descriptor, 0.5, "half")
        await subject.shard.heartbeat(subject.queue, [beat], subject.now_ms)
        await subject.fail(descriptor)
        info = await subject.info(descriptor)
        assert (info.tags, info.progress and info.progress.text) == (["t"], "half")
        await subject.claimed()
        await stop(subject, descriptor)
        await subject.fail(descriptor)
        info = await subject.info(descriptor)
        assert (info.cancelled, info.tags) == (True, ["t"])
        await subject.retry_listed(descriptor)
        assert (await subject.info(descriptor)).tags == ["t"]
        assert await names(subject, "t") == [descriptor]
        assert await subject.delete_listed(JobState.PENDING, descriptor) == 1
        assert await names(subject, "t") == []


async def test_letters_and_what_is_sent_back_have_the_tags(subject: Subject) -> None:
    """Those of a letter count, as its keys do not."""
    dead = await subject.beside("letters")
    for kind in KINDS[:-1]:
        descriptor = await store(subject, tags=("t", "u"), **kind)
        await subject.claimed()
        await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
        await subject.dead_letter({subject.queue: DeadLetterTarget("letters", 1)})
        (letter,) = await tagged(dead, "u")
        assert letter.tags == (await subject.info(descriptor)).tags == ["t", "u"]
        (again,) = await dead.replay(letter.descriptor)
        assert again is not None
        info = await subject.info(again)
        assert (info.tags, info.dedupe_key, info.serialize_key) == (
            ["t", "u"],
            kind.get("dedupe_key"),
            kind.get("serialize_key"),
        )
        assert await names(dead, "t") == await names(dead, "u") == []
        assert await names(subject, "t") == [again, descriptor]
        assert await subject.delete_listed(JobState.PENDING, again) == 1
        assert await subject.delete_listed(JobState.FAILED, descriptor) == 1
        assert await names(subject, "t") == []
