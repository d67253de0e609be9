"""A worker gathers jobs into batches: when they begin, what they ask of the server, and what ends them early."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import Ack, AsyncClient, JobState
from pinlater.model import DequeueRequest
from pinlater_workers import Batch, current
from tests.server.running import RunningServer, running
from tests.workers.apps import worker_batches
from tests.workers.site import WITHIN_S, Site, ending, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("batches")
    with running(folder) as started:
        yield started


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_jobs_run_in_batches_that_are_full_where_there_are_enough(server: RunningServer, pool: Any) -> None:
    async with Site(server.port) as site:
        sizes: list[int] = []
        ran: list[int] = []

        @site.app.job(queue=site.queue, pool=pool, batch=100, wait="5s")
        def index(batch: Batch[int]) -> None:
            sizes.append(len(batch))
            ran.extend(batch.arguments)

        @site.app.job(queue=site.queue, batch=100, wait="5s")
        async def index_async(batch: Batch[int]) -> None:
            sizes.append(len(batch))
            ran.extend(batch.arguments)

        job_type = index_async if pool == "async" else index
        await job_type.enqueue_many_async([(number,) for number in range(1000)])
        async with site.working(pool=pool) as worker:
            await site.all_succeeded(1000)
            await until(lambda: worker.view().unacked == 0)
            assert site.counted(worker, "succeeded")[job_type.name] == 1000
            assert site.counted(worker, "started")[job_type.name] == 1000
        assert sizes == [100] * 10
        assert sorted(ran) == list(range(1000))


async def test_processes_run_batches(server: RunningServer) -> None:
    async with Site(server.port) as site:
        site.queue = worker_batches.QUEUE
        await site.client.create_queue(site.queue)
        site.app = worker_batches.app
        site.app.use(servers=[f"127.0.0.1:{server.port}"])
        descriptors = await worker_batches.index.enqueue_many_async([(number,) for number in range(20)])
        worker = site.worker(pool="process", app_spec="tests.workers.apps.worker_batches:app", concurrency=2)
        run = asyncio.create_task(ending(worker))
        for descriptor in descriptors:
            await site.ended(descriptor)
        worker.stop()
        await run
        infos = [await site.info(descriptor) for descriptor in descriptors]
        assert [info.state for info in infos] == [JobState.FAILED, *[JobState.SUCCEEDED] * 19]
        assert "Fail: not this one" in infos[0].custom_status
        sizes = [int(info.custom_status.split(" of ")[1].split("\n")[0]) for info in infos[1:]]
        assert max(sizes) == 10


async def test_a_job_waits_for_others_for_so_long_and_no_longer(server: RunningServer) -> None:
    async with Site(server.port) as site:
        batches: list[tuple[float, list[int]]] = []

        @site.app.job(queue=site.queue, batch=100, wait="500ms")
        def index(batch: Batch[int]) -> None:
            batches.append((time.monotonic(), batch.arguments))

        async with site.working(concurrency=1):
            began_s = time.monotonic()
            await index.enqueue_async(1)
            await asyncio.sleep(0.1)
            await index.enqueue_async(2)
            await site.all_succeeded(2)
        (at_s, numbers), *more = batches
        assert (numbers, more) == ([1, 2], [])
        assert at_s - began_s >= 0.5


async def test_batches_of_one_type_alone(server: RunningServer) -> None:
    """And single jobs beside them."""
    async with Site(server.port) as site:
        seen: list[tuple[str, int]] = []

        @site.app.job(queue=site.queue, batch=10, wait="100ms")
        def one(batch: Batch[int]) -> None:
            seen.extend((job.context.job, job.arguments % 3) for job in batch)

        @site.app.job(queue=site.queue, batch=10, wait="100ms")
        def other(batch: Batch[int]) -> None:
            seen.extend((job.context.job, job.arguments % 3) for job in batch)

        @site.app.job(queue=site.queue)
        def single(number: int) -> None:
            seen.append((current().job, number % 3))

        for number in range(60):
            await [one, other, single][number % 3].enqueue_async(number)
        async with site.working(concurrency=2):
            await site.all_succeeded(60)
        assert sorted(seen) == [("one", 0)] * 20 + [("other", 1)] * 20 + [("single", 2)] * 20


async def test_a_worker_that_stops_hands_back_whole_what_gathers(server: RunningServer) -> None:
    async with Site(server.port) as site:
        ran: list[int] = []

        @site.app.job(queue=site.queue, batch=100, wait="10m", attempts=3)
        def index(batch: Batch[int]) -> None:
            ran.extend(batch.arguments)

        worker = site.worker()
        run = asyncio.create_task(ending(worker))
        descriptors = await index.enqueue_many_async([(number,) for number in range(5)])

        async def gathered() -> bool:
            return await site.count(JobState.IN_PROGRESS) == 5

        await until(gathered)
        worker.stop()
        await run
        infos = [await site.info(descriptor) for descriptor in descriptors]
        assert [(info.state, info.attempts_remaining) for info in infos] == [(JobState.PENDING, 3)] * 5
        assert ran == []


async def test_claims_of_what_gathers_are_kept_alive(server: RunningServer) -> None:
    async with Site(server.port) as site:
        ran: list[int] = []

        @site.app.job(queue=site.queue, batch=100, wait="8s")
        def index(batch: Batch[int]) -> None:
            ran.extend(job.context.attempt for job in batch)

        async with site.working(lease_s=6.0):
            descriptor = await index.enqueue_async(1)
            info = await site.ended(descriptor)
        assert (info.state, info.crashes) == (JobState.SUCCEEDED, 0)
        assert ran == [1]


async def test_a_job_that_is_lost_while_it_gathers_leaves_its_batch(server: RunningServer) -> None:
    async with Site(server.port) as site:
        ran: list[int] = []

        @site.app.job(queue=site.queue, batch=3, wait="10m")
        def index(batch: Batch[int]) -> None:
            ran.extend(batch.arguments)

        async with site.working(lease_s=9.0) as worker:
            lost = await index.enqueue_async(1)
            await until(lambda: worker.view().at_hand == 1)
            await site.beaten(lost)
            await site.client.ack(site.queue, succeeded=[Ack(lost)])
            await until(lambda: worker.view().at_hand == 0)
            await index.enqueue_many_async([(2,), (3,), (4,)])
            await site.all_succeeded(4)
        assert ran == [2, 3, 4]


async def test_a_job_that_is_lost_in_a_running_batch_is_told_and_its_result_dropped(server: RunningServer) -> None:
    async with Site(server.port) as site:
        told: list[object] = []

        @site.app.job(queue=site.queue, batch=2, wait="10m")
        def index(batch: Batch[int]) -> None:
            first, second = sorted(batch, key=lambda job: job.arguments)
            first.context.wait(WITHIN_S)
            told.extend([first.context.cancel_reason, second.context.cancel_reason, batch.cancelled])

        async with site.working(lease_s=9.0) as worker:
            lost, kept = await index.enqueue_many_async([(1,), (2,)])

            async def began() -> bool:
                return site.counted(worker, "started")["index"] == 2

            await until(began)
            await site.beaten(lost)
            await site.client.ack(site.queue, succeeded=[Ack(lost)])
            assert (await site.ended(kept)).state is JobState.SUCCEEDED
            await until(lambda: site.counted(worker, "dropped_results")["index"] == 1)
            assert site.counted(worker, "succeeded")["index"] == 1
        assert told == ["claim lost", None, False]


async def test_the_time_limit_is_that_of_the_call(server: RunningServer) -> None:
    async with Site(server.port) as site:
        release = threading.Event()

        @site.app.job(queue=site.queue, batch=2, wait="10m", time_limit=0.5, retry="never")
        def index(batch: Batch[int]) -> None:
            batch[0].succeed()
            release.wait(WITHIN_S)

        async with site.working():
            first, second = await index.enqueue_many_async([(1,), (2,)])
            infos = [await site.ended(first), await site.ended(second)]
            release.set()
        assert sorted(info.state.name for info in infos) == ["FAILED", "SUCCEEDED"]
        (failed,) = [info for info in infos if info.state is JobState.FAILED]
        assert "TimeLimitExceeded: it ran longer than 0.5 s" in failed.custom_status


async def test_a_batch_that_finds_no_slot_is_handed_back(server: RunningServer) -> None:
    async with Site(server.port) as site:
        release = threading.Event()
        ran: list[int] = []

        @site.app.job(queue=site.queue)
        def holds() -> None:
            release.wait(WITHIN_S)

        @site.app.job(queue=site.queue, batch=2, wait="300ms", attempts=2)
        def index(batch: Batch[int]) -> None:
            ran.extend(batch.arguments)

        async with site.working(concurrency=1) as worker:
            descriptor = await index.enqueue_async(1)

            async def gathers() -> bool:
                return (await site.info(descriptor)).state is JobState.IN_PROGRESS

            await until(gathers)
            await holds.enqueue_async()

            async def back() -> bool:
                return (await site.info(descriptor)).state is JobState.PENDING

            await until(back)
            assert site.counted(worker, "given_back")["index"] == 1
            assert (await site.info(descriptor)).attempts_remaining == 2
            assert ran == []
            release.set()
            await site.all_succeeded(2)
        assert ran == [1]


async def test_a_queue_of_batches_is_asked_for_as_many_as_its_slots_take(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[DequeueRequest] = []
    dequeue = AsyncClient.dequeue

    async def noting(self: AsyncClient, request: DequeueRequest, **more: Any) -> Any:
        noted.append(request)
        return await dequeue(self, request, **more)

    monkeypatch.setattr(AsyncClient, "dequeue", noting)
    async with Site(server.port) as site:
        ran: list[int] = []

        @site.app.job(queue=site.queue, batch=50, wait="10m")
        def index(batch: Batch[int]) -> None:
            ran.extend(batch.arguments)

        await index.enqueue_many_async([(number,) for number in range(200)])
        async with site.working(concurrency=4):
            await site.all_succeeded(200)
        assert (noted[0].limit, noted[0].prefetch) == (100, 0)
        assert len(ran) == 200


async def test_several_queues_bring_whole_batches_too(server: RunningServer) -> None:
    async with Site(server.port) as site:
        other = f"{site.queue}_other"
        await site.client.create_queue(other)
        sizes: list[int] = []

        @site.app.job(queue=site.queue, batch=50, wait="2s")
        def index(batch: Batch[int]) -> None:
            sizes.append(len(batch))

        @site.app.job(queue=other)
        def single(number: int) -> None: ...

        await index.enqueue_many_async([(number,) for number in range(200)])
        await single.enqueue_many_async([(number,) for number in range(200)])
        async with site.working(queues={site.queue: 1, other: 1}):
            await site.all_succeeded(200)
            await site.all_succeeded(200, other)
        assert sizes == [50] * 4


async def test_a_batch_has_a_slot_beside_many_quick_jobs(server: RunningServer) -> None:
    """A worker whose slots are always taken by jobs that end at once."""
    async with Site(server.port) as site:
        ended: list[str] = []

        @site.app.job(queue=site.queue)
        def quick(number: int) -> None:
            ended.append("quick")

        @site.app.job(queue=site.queue, batch=10, wait="50ms", priority=1)
        def index(batch: Batch[int]) -> None:
            ended.append("batch")

        await quick.enqueue_many_async([(number,) for number in range(3_000)], priority=2)
        async with site.working(concurrency=2) as worker:
            await until(lambda: len(ended) > 300)
            await index.enqueue_async(1)
            await site.all_succeeded(3_001)
            assert site.counted(worker, "given_back")["index"] == 0
        assert ended.count("batch") == 1


async def test_a_value_that_a_batch_returns_is_said_to_be_dropped_once(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, batch=2, wait=0)
        def index(batch: Batch[int]) -> list[int]:
            return batch.arguments

        await index.enqueue_many_async([(number,) for number in range(6)])
        with caplog.at_level("INFO"):
            async with site.working():
                await site.all_succeeded(6)
        said = [record.getMessage() for record in caplog.records if "is dropped" in record.getMessage()]
        assert len(said) == 1
        assert said[0].startswith("job index returned a value of type list")
