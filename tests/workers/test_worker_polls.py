"""A worker takes what it has slots for, when it has them, and asks no more often than it needs to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import AsyncClient, DequeueRequest, Job, JobState
from pinlater.data_folder.password import hash_password
from tests.server.running import RunningServer, running
from tests.workers.site import WITHIN_S, Site, until

PASSWORD = "for tests"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("polls")
    with running(folder, "--admin-password-hash", hash_password(PASSWORD)) as started:
        yield started


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[DequeueRequest]:
    """Every dequeue that is sent, noted on its way."""
    noted: list[DequeueRequest] = []
    dequeue = AsyncClient.dequeue

    async def noting(self: AsyncClient, request: DequeueRequest, **more: Any) -> Any:
        noted.append(request)
        return await dequeue(self, request, **more)

    monkeypatch.setattr(AsyncClient, "dequeue", noting)
    return noted


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_all_jobs_run_and_are_acked(server: RunningServer, pool: str) -> None:
    async with Site(server.port) as site:
        ran: list[int] = []

        @site.app.job(queue=site.queue, pool=pool)  # type: ignore[arg-type]
        def plain(number: int) -> None:
            ran.append(number)

        @site.app.job(queue=site.queue)
        async def coroutine(number: int) -> None:
            ran.append(number)

        await plain.enqueue_many_async([(number,) for number in range(500)])
        await coroutine.enqueue_many_async([(number,) for number in range(500, 1000)])
        async with site.working(concurrency=50, pool=pool) as worker:
            await site.all_succeeded(1000)
            await until(lambda: worker.view().unacked == 0)
        assert sorted(ran) == list(range(1000))
        assert site.counted(worker, "succeeded") == {"plain": 500, "coroutine": 500}


async def test_the_next_dequeue_is_on_its_way_before_the_jobs_of_the_last_begin(server: RunningServer) -> None:
    """So the server works while they run, even while one of them keeps the event loop."""
    async with Site(server.port) as site:
        descriptors: list[str] = []
        seen: list[bool] = []

        def sees_claimed(descriptor: str) -> bool:
            end_s = time.monotonic() + WITHIN_S
            while not (claimed := site.app.client.lookup([descriptor])[descriptor].state is JobState.IN_PROGRESS):
                if time.monotonic() > end_s:
                    break
                time.sleep(0.01)
            return claimed

        @site.app.job(queue=site.queue)
        async def keeps_the_loop(number: int) -> None:
            if number == 0:
                seen.append(sees_claimed(descriptors[1]))

        descriptors += [await keeps_the_loop.enqueue_async(number) for number in range(2)]
        async with site.working(concurrency=2, pool="async"):
            await site.all_succeeded(2)
        assert seen == [True]


async def test_never_more_jobs_are_claimed_than_there_are_slots(server: RunningServer) -> None:
    async with Site(server.port) as site:
        gate = threading.Semaphore(0)

        @site.app.job(queue=site.queue)
        def waits(number: int) -> None:
            gate.acquire()

        await waits.enqueue_many_async([(number,) for number in range(12)])
        async with site.working(concurrency=3) as worker:

            async def are_claimed() -> bool:
                claimed = await site.count(JobState.IN_PROGRESS)
                assert claimed <= 3
                return claimed == 3 == worker.view().running

            for ended in range(0, 12, 3):
                await site.all_succeeded(ended)
                await until(are_claimed)
                assert worker.view().queues[site.queue].state == "full"
                assert worker.view().since_good_poll_s == 0.0
                gate.release(3)
            await site.all_succeeded(12)


async def test_jobs_that_wait_for_each_other_have_a_thread_each(server: RunningServer) -> None:
    async with Site(server.port) as site:
        meeting = threading.Barrier(8)

        @site.app.job(queue=site.queue, attempts=1)
        def meets(number: int) -> None:
            meeting.wait(WITHIN_S)

        await meets.enqueue_many_async([(number,) for number in range(80)])
        async with site.working(concurrency=8):
            await site.all_succeeded(80)


async def test_an_ack_waits_for_nothing_while_a_long_poll_does(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue)
        def quick() -> None:
            pass

        async with site.working(poll_wait_s=60.0) as worker:
            for done in range(3):
                began_s = time.monotonic()
                await quick.enqueue_async()
                await site.all_succeeded(done + 1)
                assert time.monotonic() - began_s < 5
            await until(lambda: worker.view().unacked == 0)


@pytest.mark.parametrize(("told_s", "says"), [(None, False), (20.0, True), (1.0, False)])
async def test_a_worker_waits_for_a_third_of_its_lease_at_most_and_says_so_when_told_otherwise(
    server: RunningServer,
    calls: list[DequeueRequest],
    caplog: pytest.LogCaptureFixture,
    told_s: float | None,
    says: bool,
) -> None:
    async with Site(server.port) as site:
        async with site.working(lease_s=4.5, poll_wait_s=told_s):
            await until(lambda: any(call.wait_ms for call in calls))
        assert {call.wait_ms for call in calls if call.wait_ms} == {1_000 if told_s == 1.0 else 1_500}
        assert all(call.confirms_receipt for call in calls)
    assert ("more than a third of the lease" in caplog.text) is says


async def test_an_idle_worker_waits_instead_of_asking(server: RunningServer, calls: list[DequeueRequest]) -> None:
    async with Site(server.port) as site:
        other = f"{site.queue}_2"
        await site.client.create_queue(other)
        async with site.working(queues={site.queue: 3, other: 1}, concurrency=8):
            await until(lambda: any(call.wait_ms for call in calls))
            await asyncio.sleep(0.5)
        assert len(calls) <= 4
        waiting = {call.queue: call.limit for call in calls if call.wait_ms}
        assert waiting == {site.queue: 6, other: 2}


async def test_a_paused_queue_is_asked_now_and_then_and_goes_on_when_it_may(
    server: RunningServer, calls: list[DequeueRequest], caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue)
        def quick() -> None:
            pass

        await site.client.update_queue(site.queue, PASSWORD, set={"paused": "true"})
        await quick.enqueue_async()
        with caplog.at_level("INFO", "pinlater_workers"):
            async with site.working() as worker:
                await until(lambda: worker.view().queues[site.queue].state == "paused")
                assert "paused" in worker.view().queues[site.queue].trouble
                await asyncio.sleep(0.5)
                assert len(calls) <= 2
                assert worker.view().since_good_poll_s < 5
                await site.client.update_queue(site.queue, PASSWORD, set={"paused": "false"})
                await site.all_succeeded(1)
                assert worker.view().queues[site.queue].state == "polling"
        said = [text for text in caplog.messages if site.queue in text]
        assert ["paused" in text for text in said] == [True, True]


async def test_a_rate_does_not_keep_the_slots_from_other_queues(server: RunningServer) -> None:
    async with Site(server.port) as site:
        slow = f"{site.queue}_slow"
        await site.client.create_queue(slow)
        await site.client.update_queue(slow, PASSWORD, set={"max_jobs_per_second": "1/m"})

        @site.app.job(queue=site.queue)
        def quick() -> None:
            pass

        await site.client.enqueue(slow, [Job(quick.body()) for _ in range(5)])
        async with site.working(queues={slow: 9, site.queue: 1}, concurrency=2) as worker:
            await until(lambda: worker.view().queues[slow].state == "rate limited")
            await quick.enqueue_many_async([()] * 20)
            await site.all_succeeded(20)


async def test_a_busy_queue_does_not_starve_a_light_one(server: RunningServer) -> None:
    async with Site(server.port) as site:
        light = f"{site.queue}_light"
        await site.client.create_queue(light)
        order: list[str] = []

        @site.app.job(queue=site.queue)
        def runs(queue: str) -> None:
            order.append(queue)
            time.sleep(0.001)

        await runs.enqueue_many_async([("heavy",)] * 400)
        await site.client.enqueue(light, [Job(runs.body("light")) for _ in range(100)])
        async with site.working(queues={site.queue: 3, light: 1}, concurrency=4):
            await until(lambda: len(order) == 500)
        last = max(place for place, queue in enumerate(order) if queue == "light")
        assert 250 < last < 480
        assert 25 < order[:200].count("light") < 80
