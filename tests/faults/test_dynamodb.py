"""A shard in DynamoDB while requests are throttled, slow, or lose their answers; and servers that are killed on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from pinlater.backends.base import AckOutcome, AckRequest, ClaimRequest
from pinlater.backends.dynamodb import DynamodbShard
from pinlater.backends.extended import Offer, OfferOutcome
from pinlater.client.async_client import AsyncClient
from pinlater.errors import OutcomeUnknown, Overloaded, PinLaterError
from pinlater.model import Ack, DequeueRequest, ExtendedJob, Job, JobState
from tests.conformance.subject import START_MS, Subject, key_of
from tests.faults.throttling_relay import ThrottlingRelay
from tests.queues import make_queue
from tests.server.running import running
from tests.stores.places import Places

pytestmark = [pytest.mark.store("dynamodb")]
YEAR_MS = 365 * 24 * 3_600_000


def relayed(url: str, relay: ThrottlingRelay) -> str:
    return f"{url.partition('?')[0]}?endpoint=http://127.0.0.1:{relay.port}&buckets=2"


@pytest.fixture
def place(dynamodb_places: Places) -> str:
    return dynamodb_places.fresh()


@contextlib.contextmanager
def _relay(place: str):  # type: ignore[no-untyped-def]
    port = urlsplit(parse_qs(urlsplit(place).query)["endpoint"][0]).port
    assert port is not None
    with ThrottlingRelay(port) as relay:
        yield relay


@contextlib.asynccontextmanager
async def subject_at(url: str) -> AsyncIterator[Subject]:
    shard = DynamodbShard(url, "1")
    try:
        await shard.open()
        await make_queue(shard, "mail", START_MS)
        yield Subject(shard)
    finally:
        await shard.close()


async def test_a_call_that_is_throttled_again_and_again_is_refused_and_changes_nothing(place: str) -> None:
    with _relay(place) as relay:
        async with subject_at(relayed(place, relay)) as subject:
            descriptor = await subject.job_in(JobState.IN_PROGRESS)
            relay.throttled = 1.0
            calls = [
                subject.job(),
                subject.claim(5),
                subject.succeed(descriptor),
                subject.checkpoint(descriptor),
                subject.expire(),
            ]
            for call in calls:
                with pytest.raises(Overloaded, match="throttle") as refused:
                    await call
                assert refused.value.retryable
                assert refused.value.retry_after_ms
            relay.throttled = 0.0
            assert (await subject.info(descriptor)).state is JobState.IN_PROGRESS
            assert await subject.count(JobState.PENDING) == 0


async def test_now_and_then_a_throttled_request_costs_a_call_nothing_but_time(place: str) -> None:
    with _relay(place) as relay:
        async with subject_at(relayed(place, relay)) as subject:
            relay.throttled = 0.1
            descriptors = [await subject.job(b"%d" % number) for number in range(20)]
            jobs = [job for _ in range(4) for job in await subject.claim(5)]
            assert sorted(job.descriptor for job in jobs) == sorted(descriptors)
            for descriptor in descriptors:
                assert await subject.succeed(descriptor) is AckOutcome.SUCCEEDED
            relay.throttled = 0.0
            assert await subject.count(JobState.SUCCEEDED) == 20
            assert relay.refused.total() > 5


@pytest.mark.parametrize("operation", ["PutItem", "TransactWriteItems"])
async def test_an_enqueue_whose_answer_is_lost_stores_its_jobs_once(place: str, operation: str) -> None:
    with _relay(place) as relay:
        async with subject_at(relayed(place, relay)) as subject:
            await subject.job(b"first")
            relay.lost[operation] = 1
            await subject.enqueue(*[Job(b"x")] * (1 if operation == "PutItem" else 3))
            assert relay.lost[operation] == 0
            assert await subject.count(JobState.PENDING) == (2 if operation == "PutItem" else 4)


async def test_a_claim_and_an_ack_whose_answers_are_lost_count_once(place: str) -> None:
    with _relay(place) as relay:
        async with subject_at(relayed(place, relay)) as subject:
            descriptor = await subject.job(b"x", attempts_allowed=5)
            relay.lost["UpdateItem"] = 1
            job = await subject.claimed()
            assert job.attempts_remaining == 5
            relay.lost["UpdateItem"] = 1
            assert await subject.fail(descriptor, claim_descriptor=job.claim_descriptor) is AckOutcome.RETRIED
            info = await subject.info(descriptor)
            assert (info.state, info.attempts_remaining) == (JobState.PENDING, 4)
            assert relay.lost["UpdateItem"] == 0


async def test_where_no_answer_comes_the_outcome_is_unknown(place: str) -> None:
    with _relay(place) as relay:
        async with subject_at(relayed(place, relay)) as subject:
            await subject.job(b"first")
            relay.lost["PutItem"] = 10
            with pytest.raises(OutcomeUnknown):
                await subject.job(b"x")
            relay.lost.clear()
            assert await subject.count(JobState.PENDING) == 2


async def test_of_more_jobs_than_a_transaction_holds_a_part_may_be_stored_and_the_outcome_says_so(place: str) -> None:
    """Up to 100 all or none are."""
    with _relay(place) as relay:
        async with subject_at(relayed(place, relay)) as subject:
            await subject.job(b"first")
            relay.passed.clear()

            async def throttle_behind_the_first() -> None:
                while not relay.passed["TransactWriteItems"]:
                    await asyncio.sleep(0.001)
                relay.throttled = 1.0

            watching = asyncio.create_task(throttle_behind_the_first())
            with pytest.raises(OutcomeUnknown):
                await subject.enqueue(*[Job(b"x")] * 400)
            await watching
            relay.throttled = 0.0
            assert (await subject.count(JobState.PENDING) - 1) in (100, 200, 300)


async def test_a_delay_of_years_is_kept(place: str) -> None:
    async with subject_at(place) as subject:
        later = await subject.job(b"later", run_after_ms=START_MS + 10 * YEAR_MS)
        (offered,) = await subject.shard.enqueue_extended(
            "mail", [Offer(ExtendedJob(b"key", run_after_ms=START_MS + 5 * YEAR_MS, dedupe_key="k"))], START_MS
        )
        assert offered.outcome is OfferOutcome.STORED
        subject.now_ms = START_MS + 5 * YEAR_MS - 1
        assert await subject.claim(9) == []
        subject.tick(1)
        assert [job.body for job in await subject.claim(9)] == [b"key"]
        subject.now_ms = START_MS + 10 * YEAR_MS - 1
        assert await subject.claim(9) == []
        subject.tick(1)
        assert [job.descriptor for job in await subject.claim(9)] == [later]


async def test_a_shard_whose_requests_are_throttled_stays_healthy_and_loses_nothing(place: str, tmp_path: Path) -> None:
    """Callers are told to come again, other calls go on."""
    with (
        _relay(place) as relay,
        running(tmp_path, "--store", f"1={relayed(place, relay)}", "--processes", "1") as server,
    ):
        async with AsyncClient(f"127.0.0.1:{server.port}", timeout=2.0) as client:
            await client.create_queue("mail")
            answered: set[str] = set()
            refusals: Counter[str] = Counter()
            for number in range(40):
                relay.throttled = 0.9 if 10 <= number < 18 else 0.0
                relay.delay_s = 0.05 if 18 <= number < 28 else 0.0
                try:
                    answered.add(await client.enqueue("mail", Job(b"%d" % number)))
                except PinLaterError as error:
                    refusals[error.reason] += 1
            assert refusals
            assert set(refusals) <= {"OVERLOADED", "OUTCOME_UNKNOWN", "NO_HEALTHY_SHARDS"}
            status = await client.cluster_status()
            assert [shard.state for shard in status.shards] == ["in"]
            found: set[str] = set()
            while jobs := await client.dequeue(DequeueRequest("mail", 50, wait_ms=500)):
                found.update(job.descriptor for job in jobs)
                await client.ack("mail", [Ack(job.descriptor) for job in jobs], [])
    assert answered <= found


async def test_servers_that_claim_at_once_share_no_job_and_find_them_all(place: str) -> None:
    """Two servers, each with a table object of its own; one stops in the middle and its claims expire."""
    first, second = DynamodbShard(place, "1"), DynamodbShard(place, "1")
    await first.open()
    await second.open()
    try:
        await make_queue(first, "mail", START_MS)
        subject = Subject(first)
        descriptors = await subject.enqueue(*[Job(b"x", attempts_allowed=5)] * 60)
        taken: list[str] = []
        for number in range(10):
            request = [ClaimRequest(f"h:1:1:{number}:{each}", 3, (1,), 1_000, 2**20) for each in range(2)]
            answers = await asyncio.gather(
                first.claim("mail", request[:1], START_MS), second.claim("mail", request[1:], START_MS)
            )
            taken += [job.descriptor for ((jobs),) in answers for job in jobs]
        assert sorted(taken) == sorted(descriptors)
        await second.close()
        subject.tick(1_001)
        assert sum(sum(counts) for counts in (await subject.expire(limit=100)).values()) == 60
        again = await subject.claim(100)
        assert sorted(job.descriptor for job in again) == sorted(descriptors)
        acks = [AckRequest(*key_of(each), True) for each in descriptors]
        assert await first.ack("mail", acks, subject.now_ms) == [AckOutcome.SUCCEEDED] * 60
    finally:
        await first.close()
        await second.close()
