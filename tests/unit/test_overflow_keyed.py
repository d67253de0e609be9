"""Jobs with keys and the overflow shard: kept by their dedupe key alone, moved once, else refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.errors import HomeOut, NoHealthyShards
from pinlater.model import EnqueuedJobs, EnqueueOutcome, ExtendedJob, JobState, KeyRef, OnDuplicate
from pinlater.overflow.descriptors import overflow_of
from tests.unit.overflow_stand import ME, Process, process

HOUR_MS = 3_600_000


async def enqueue(it: Process, *jobs: ExtendedJob) -> EnqueuedJobs:
    answer = await it.api.enqueue("mail", jobs, context=ME)
    assert isinstance(answer, EnqueuedJobs)
    return answer


async def moved_to(it: Process, descriptor: str) -> str | None:
    return (await it.kept.lookup([descriptor]))[descriptor].moved_to


async def test_a_job_with_a_dedupe_key_is_kept_once_and_moves_with_all_it_has(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        job = ExtendedJob(
            b"a",
            dedupe_key="k",
            dedupe_for_ms=HOUR_MS,
            claim_timeout_ms=7_000,
            expires_at_ms=it.clock.now_ms() + HOUR_MS,
            tags=("tenant:7", "b"),
        )
        (kept,) = await enqueue(it, job)
        assert overflow_of(kept) is not None
        again = await enqueue(it, ExtendedJob(b"b", dedupe_key="k"))
        assert (list(again), again.outcomes) == ([kept], [EnqueueOutcome.KEPT])
        await it.find_shards()
        await it.overflow.move()
        found = await it.api.lookup([], queue="mail", keys=[KeyRef("k")], include_body=True)
        ((descriptor, info),) = found.items()
        assert overflow_of(descriptor) is None
        assert await moved_to(it, kept) == descriptor
        assert (info.body, info.dedupe_key, info.claim_timeout_ms, info.expires_at_ms) == (
            b"a",
            "k",
            7_000,
            job.expires_at_ms,
        )
        assert info.tags == ["tenant:7", "b"]
        after = await enqueue(it, ExtendedJob(b"c", dedupe_key="k"))
        assert list(after) == [descriptor]


async def test_a_duplicate_ends_with_the_name_of_the_job_that_stands(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        (stands,) = await enqueue(it, ExtendedJob(b"first", dedupe_key="k"))
        it.lose_shards()
        (kept,) = await enqueue(it, ExtendedJob(b"second", dedupe_key="k"))
        assert kept != stands
        await it.find_shards()
        await it.overflow.move()
        assert await moved_to(it, kept) == stands
        assert [job.body for job in await it.dequeue()] == [b"first"]
        assert await it.kept.store.count("mail", JobState.PENDING, (1, 2, 3), False, it.clock.now_ms()) == 0


@pytest.mark.parametrize(
    "job",
    [
        ExtendedJob(b"", serialize_key="s"),
        ExtendedJob(b"", dedupe_key="d", serialize_key="s"),
        ExtendedJob(b"", dedupe_key="d", on_duplicate=OnDuplicate.REJECT),
        ExtendedJob(b"", dedupe_key="d", on_duplicate=OnDuplicate.REPLACE),
        ExtendedJob(b"", send_id="i"),
    ],
)
async def test_what_a_copy_elsewhere_cannot_promise_is_refused(tmp_path: Path, job: ExtendedJob) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        with pytest.raises((HomeOut, NoHealthyShards)) as refused:
            await it.api.enqueue("mail", [job], context=ME)
        assert refused.value.retryable
        await it.find_shards()
        assert await it.dequeue() == []


async def test_a_send_id_beside_a_dedupe_key_keeps_nothing_away(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        (kept,) = await enqueue(it, ExtendedJob(b"a", dedupe_key="k", send_id="i"))
        again = await enqueue(it, ExtendedJob(b"a", dedupe_key="k", send_id="i"))
        assert (list(again), again.outcomes) == ([kept], [EnqueueOutcome.KEPT])


async def test_an_expiry_alone_lives_anywhere(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        (kept,) = await enqueue(it, ExtendedJob(b"x", expires_at_ms=it.clock.now_ms() + HOUR_MS))
        assert overflow_of(kept) is not None
        await it.find_shards()
        await it.overflow.move()
        assert [job.body for job in await it.dequeue()] == [b"x"]
