"""Large answers that nobody reads: bounded, produced as they are taken, and in nobody's way; on real stores."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pinlater.clock import SystemClock
from pinlater.config import StoreConfig
from pinlater.model import JobFilter, JobState
from pinlater.service import ClaimTokens, Service
from pinlater.shard_factory import bare_shard
from pinlater.shards.batching import BatchingShard
from pinlater.shards.handle import ShardHandle
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from pinlater.wire.codec import decode_reply
from pinlater.wire.convert import dequeued_from_wire
from pinlater.wire.methods import LOOKUP
from tests.server.running import Plain
from tests.server.serving import Served, serving
from tests.server.unread import BODY_BYTES, dequeues, large_jobs, lookups, non_readers

MB = 1_000_000


@pytest.fixture(params=["sqlite", "redis", "mysql", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    fresh: str = request.getfixturevalue(f"{request.param}_places").fresh()
    return fresh


@contextlib.asynccontextmanager
async def served_by(url: str, **limits: int) -> AsyncIterator[Served]:
    clock = SystemClock()
    members = ShardSet([ShardHandle(BatchingShard(ResilientShard(bare_shard(StoreConfig("s1", url)))), clock)], clock)
    service = Service(Router(members), clock, ClaimTokens("here", 1, clock.now_ms()))
    await service.open()
    try:
        async with serving(service, **limits) as served:
            yield served
    finally:
        await service.close()


async def work(served: Served, cycles: int) -> int:
    """Store and take so many small jobs, one after the other; the most bytes that the server held meanwhile."""
    plain = await Plain.to(served.port)
    await plain.create_queue("small")
    most = 0
    for _ in range(cycles):
        descriptors = await plain.enqueue("small", b"x")
        assert list(await plain.dequeue("small")) == descriptors
        most = max(most, served.server.buffered_bytes)
    await plain.close()
    return most


async def test_lookups_that_nobody_reads_hold_no_more_than_their_address_may(url: str) -> None:
    async with served_by(url, max_peer_answers_bytes=30 * MB) as served:
        plain = await Plain.to(served.port)
        descriptors = await large_jobs(plain, "large", 10)
        async with non_readers(served.port, 10, lookups(descriptors, 5)):
            await served.until(lambda: served.server.buffered_bytes > 10 * MB)
            assert await work(served, 100) < 31 * MB
        await served.until(lambda: served.server.buffered_bytes == 0)
        await plain.close()


async def test_answers_of_one_connection_are_produced_as_they_are_taken(url: str) -> None:
    async with served_by(url, max_connection_answers_bytes=18 * MB) as served:
        plain = await Plain.to(served.port)
        descriptors = await large_jobs(plain, "large", 10)
        raw = await served.connect()
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        raw.send(lookups(descriptors, 6))
        await served.until(lambda: served.server.buffered_bytes > 9 * MB)
        assert await work(served, 100) < 21 * MB
        raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for seqid in range(1, 7):
            reply = decode_reply(await raw.frame())
            infos = LOOKUP.result(reply.success)
            assert reply.seqid == seqid
            assert [len(infos[each].body or b"") for each in descriptors] == [BODY_BYTES] * 10
        await plain.close()


async def test_a_large_answer_waits_for_none_that_stands_behind_it(url: str) -> None:
    async with served_by(url, max_connection_answers_bytes=8 * MB) as served:
        plain = await Plain.to(served.port)
        descriptors = await large_jobs(plain, "large", 10)
        small = await plain.enqueue("large", b"x")
        raw = await served.connect()
        raw.send(lookups(descriptors, 2) + lookups(small, 1))
        for jobs in (10, 10, 1):
            reply = decode_reply(await asyncio.wait_for(raw.frame(), 60))
            assert reply.exception is None
            infos = LOOKUP.result(reply.success)
            assert len(infos) == jobs
        await served.until(lambda: served.server.buffered_bytes == 0)
        await plain.close()


async def test_jobs_that_nobody_takes_go_back(url: str) -> None:
    async with served_by(url, max_peer_answers_bytes=20 * MB, max_buffered_bytes=40 * MB) as served:
        plain = await Plain.to(served.port)
        await large_jobs(plain, "large", 60)
        async with non_readers(served.port, 2, dequeues("large", 10, 8)):
            await served.until(lambda: served.server.counters["answers_over_peer"] > 0)
            assert await work(served, 50) <= 40 * MB

        async def pending() -> int:
            return await served.service.count(JobFilter("large", JobState.PENDING), allow_partial=False)

        async with asyncio.timeout(60):  # what was written already, to the kernel too, cannot be taken back
            while await pending() < 25:
                await asyncio.sleep(0.05)
        await plain.close()


async def test_a_dequeue_of_large_jobs_brings_as_many_as_fit_an_answer(url: str) -> None:
    async with served_by(url) as served:
        plain = await Plain.to(served.port)
        descriptors = await large_jobs(plain, "large", 20)
        raw = await served.connect()
        raw.send(dequeues("large", 12, 1))
        jobs = dequeued_from_wire(decode_reply(await raw.frame()).success)
        assert [job.descriptor for job in jobs] == descriptors[:12]
        await plain.close()
