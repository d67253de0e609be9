"""Acks that ride with a claim, through the batches and the bounds of a shard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pinlater.backends.base import NO_RULES, AckOutcome, AckRequest, ClaimRequest
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import (
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    QueueNotFound,
    ShardConnectionFailed,
    StoreConflict,
)
from pinlater.metrics import Metrics
from pinlater.model import (
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Job,
    JobState,
    QueueAcks,
    QueueShare,
    parse_descriptor,
)
from pinlater.shards.batching import BatchingShard
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.resilience import ResilientShard
from tests.queues import make_queue
from tests.unit.breaking import Breaking, HeldClock, settled
from tests.unit.stand import acks, stand

NOW_MS = 1_790_000_000_000


class Short(ShardDecorator):
    """A store whose bodies are so large that no call looks at more than one request."""

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        return await self.inner.claim(queue, requests[:1], now_ms, enforce_quota=enforce_quota)

    async def ack_and_claim(self, queue: str, acks: Any, requests: Any, *args: Any, **kwargs: Any) -> Any:
        return await self.inner.ack_and_claim(queue, acks, requests[:1], *args, **kwargs)


@asynccontextmanager
async def chain(
    *, short: bool = False, metrics: Metrics | None = None, clock: HeldClock | None = None
) -> AsyncIterator[tuple[BatchingShard, Breaking]]:
    store = Breaking(Short(SqliteShard("sqlite://", "1")) if short else SqliteShard("sqlite://", "1"))
    shard = BatchingShard(ResilientShard(store, clock=clock, metrics=metrics))
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    try:
        yield shard, store
    finally:
        store.heal()
        await shard.close()


def claim_of(number: int, limit: int = 1) -> ClaimRequest:
    return ClaimRequest(f"h:1:1:{number}:me", limit, (1, 2, 3), 60_000, 2**20)


async def held(shard: BatchingShard, jobs: int, ready: int) -> list[AckRequest]:
    """Acks of so many jobs under claims, while so many others are ready."""
    descriptors = await shard.enqueue("mail", [Job(b"held")] * jobs, NOW_MS)
    await shard.claim("mail", [claim_of(99, jobs)], NOW_MS)
    if ready:
        await shard.enqueue("mail", [Job(b"%d" % number) for number in range(ready)], NOW_MS)
    return [AckRequest(ref.priority, ref.id, True) for ref in map(parse_descriptor, descriptors) if ref]


async def begun(shard: BatchingShard, acks: Sequence[AckRequest]) -> list[asyncio.Task[Any]]:
    """A call for each ack, with a claim, each come after the one before."""
    tasks = []
    for number, ack in enumerate(acks):
        asked = shard.ack_and_claim("mail", [ack], [claim_of(number)], NOW_MS)
        tasks.append(asyncio.create_task(asked))
        await settled()
    return tasks


async def in_state(shard: BatchingShard, state: JobState) -> int:
    return await shard.count("mail", state, (1,), False, NOW_MS + 1)


def bodies(answer: tuple[list[AckOutcome], list[list[DequeuedJob]]]) -> list[bytes]:
    return [job.body for jobs in answer[1] for job in jobs]


async def test_what_comes_meanwhile_leaves_as_one_call_with_all_its_acks_and_then_all_its_claims() -> None:
    async with chain() as (shard, store):
        acks = await held(shard, 3, ready=2)
        gate = store.hold("ack_and_claim")
        tasks = await begun(shard, acks)
        gate.set()
        answers = await asyncio.gather(*tasks)
        assert [answer[0] for answer in answers] == [[AckOutcome.SUCCEEDED]] * 3
        assert [bodies(answer) for answer in answers] == [[b"0"], [b"1"], []]
        assert answers[1][1][0][0].claim_descriptor == "h:1:1:1:me"
        assert [(len(args[1]), len(args[2])) for args in store.sent["ack_and_claim"]] == [(1, 1), (2, 2)]
        assert store.begun["claim"] == 1, "that of the jobs that are acked"


async def test_other_rules_and_plain_claims_are_not_joined_with_it() -> None:
    async with chain() as (shard, store):
        acks = await held(shard, 3, ready=0)
        store.hold("ack_and_claim")
        await begun(shard, acks[:1])
        rules = NO_RULES.__class__(keep_succeeded=False)
        other = asyncio.create_task(shard.ack_and_claim("mail", acks[1:2], [claim_of(1)], NOW_MS, rules))
        capped = shard.ack_and_claim("mail", acks[2:], [claim_of(2)], NOW_MS, enforce_quota=True)
        third = asyncio.create_task(capped)
        await settled()
        assert store.begun["ack_and_claim"] == 3
        store.heal()
        assert (await other)[0] == (await third)[0] == [AckOutcome.SUCCEEDED]


async def test_a_caller_that_left_gets_its_acks_carried_out_and_claims_nothing() -> None:
    async with chain() as (shard, store):
        acks = await held(shard, 3, ready=2)
        gate = store.hold("ack_and_claim")
        tasks = await begun(shard, acks)
        tasks[1].cancel()
        await settled()
        gate.set()
        first, _, third = await asyncio.gather(*tasks, return_exceptions=True)
        assert (bodies(first), bodies(third)) == ([b"0"], [b"1"])  # type: ignore[arg-type]
        assert [(len(args[1]), len(args[2])) for args in store.sent["ack_and_claim"]] == [(1, 1), (2, 1)]
        assert await in_state(shard, JobState.SUCCEEDED) == 3


async def test_a_batch_whose_callers_all_left_is_an_ack() -> None:
    async with chain() as (shard, store):
        acks = await held(shard, 2, ready=2)
        gate = store.hold("ack_and_claim")
        tasks = await begun(shard, acks)
        tasks[1].cancel()
        await settled()
        gate.set()
        await tasks[0]
        await shard.drain()
        assert (store.begun["ack_and_claim"], store.begun["ack"]) == (1, 1)
        assert await in_state(shard, JobState.SUCCEEDED) == 2
        assert await in_state(shard, JobState.PENDING) == 1


@pytest.mark.parametrize("caller", [0, 1])
async def test_what_was_claimed_for_a_caller_that_left_meanwhile_goes_back_and_its_acks_stay(caller: int) -> None:
    async with chain() as (shard, store):
        acks = await held(shard, 2, ready=2)
        gate, answered = store.hold("ack_and_claim"), store.hold_answer("ack_and_claim")
        tasks = await begun(shard, acks)
        gate.set()
        if caller == 1:
            answered.set()
            await tasks[0]
            answered = store.hold_answer("ack_and_claim")
            await store.until_begun("ack_and_claim", 2)
        await store.until_quiet()
        tasks[caller].cancel()
        answered.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.until_begun("requeue")
        await shard.drain()
        assert await in_state(shard, JobState.SUCCEEDED) == 2
        assert (await in_state(shard, JobState.PENDING), await in_state(shard, JobState.IN_PROGRESS)) == (1, 1)


async def test_requests_that_large_bodies_left_out_ask_again_and_no_ack_is_sent_twice() -> None:
    async with chain(short=True) as (shard, store):
        acks = await held(shard, 4, ready=4)
        gate = store.hold("ack_and_claim")
        tasks = await begun(shard, acks)
        gate.set()
        answers = await asyncio.gather(*tasks)
        assert sorted(body for answer in answers for body in bodies(answer)) == [b"0", b"1", b"2", b"3"]
        assert [answer[0] for answer in answers] == [[AckOutcome.SUCCEEDED]] * 4
        assert sum(len(args[1]) for args in store.sent["ack_and_claim"]) == 4


async def test_a_claim_that_fails_behind_its_acks_hands_out_nothing_and_tells_their_outcomes() -> None:
    async with chain(short=True) as (shard, store):
        acks = await held(shard, 3, ready=3)
        gate = store.hold("ack_and_claim")
        tasks = await begun(shard, acks)
        store.failures["claim"] = [NothingStored("no")]
        gate.set()
        answers = await asyncio.gather(*tasks)
        assert [answer[0] for answer in answers] == [[AckOutcome.SUCCEEDED]] * 3
        assert [bodies(answer) for answer in answers] == [[b"0"], [b"1"], []]
        assert await in_state(shard, JobState.PENDING) == 1


async def test_where_nothing_happened_each_caller_is_sent_alone_and_after_an_unknown_outcome_none_is() -> None:
    async with chain() as (shard, store):
        acks = await held(shard, 6, ready=0)
        for error, calls, unknown in ((NothingStored("no"), 4, 0), (OutcomeUnknown("reset"), 2, 2)):
            before = store.begun["ack_and_claim"]
            gate = store.hold("ack_and_claim")
            tasks = await begun(shard, acks[:3])
            store.failures["ack_and_claim"] = [error]
            gate.set()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(each, OutcomeUnknown) for each in outcomes) == unknown
            assert store.begun["ack_and_claim"] - before == calls
        with pytest.raises(QueueNotFound):
            await shard.ack_and_claim("nowhere", acks[:1], [claim_of(1)], NOW_MS)


async def test_where_the_time_is_uncertain_these_are_two_calls_and_a_second_try_of_the_claim_acks_nothing() -> None:
    clock = HeldClock(NOW_MS)
    async with chain(clock=clock) as (shard, store):
        acks = await held(shard, 1, ready=1)
        clock.uncertainty_ms = 500
        store.failures["claim"] = [StoreConflict("deadlock")]
        outcomes, ((job,),) = await shard.ack_and_claim("mail", acks, [claim_of(1)], NOW_MS)
        assert (outcomes, job.body) == ([AckOutcome.SUCCEEDED], b"0")
        assert (store.begun["ack_and_claim"], store.begun["ack"], store.begun["claim"]) == (0, 1, 3)
        assert store.sent["ack"][0][2] == NOW_MS + 500


async def test_acks_and_claimed_jobs_are_counted_as_those_of_the_two_calls() -> None:
    metrics = Metrics()
    async with chain(metrics=metrics) as (shard, _):
        acks = await held(shard, 2, ready=1)
        before = dict(metrics.snapshot())
        await shard.ack_and_claim("mail", acks, [claim_of(1, 5)], NOW_MS)
        counts = dict(metrics.snapshot())
        assert sum(counts["shard_call_seconds", "1", "ack_and_claim"][:-1]) == 1
        assert counts["shard_batch_jobs", "1", "ack"][-1] == 2
        assert counts["shard_batch_jobs", "1", "claim"][-1] - before["shard_batch_jobs", "1", "claim"][-1] == 1


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ([None, NothingStored("full")], "SHARD_CONNECTION_FAILED"),
        ([NothingStored("full"), None], "SHARD_CONNECTION_FAILED"),
        ([NothingStored("full"), OutcomeUnknown("gone")], "OUTCOME_UNKNOWN"),
        ([NothingStored("full"), NothingStored("full")], "NOTHING_STORED"),
    ],
)
async def test_acks_of_one_queue_that_fail_do_not_say_that_nothing_was_stored_where_those_of_another_were(
    failures: list[PinLaterError | None], reason: str
) -> None:
    async with stand() as at:
        await at.service.create_queue("other")
        riding = []
        for queue in ("mail", "other"):
            await at.service.enqueue(queue, [Job(b"x")])
            (job,) = await at.service.dequeue(DequeueRequest(queue, 1), context=None)
            riding.append(QueueAcks(queue, acks([job])))
        at.stores[0].failures["ack"] = list(failures)
        with pytest.raises(ShardConnectionFailed) as refused:
            await at.service.dequeue_from_queues(
                DequeueFromQueuesRequest([QueueShare("mail")], 1, riding), context=None
            )
        assert (refused.value.reason, refused.value.acks_applied) == (reason, False)
