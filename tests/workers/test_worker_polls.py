"""A worker takes what it has slots for, when it has them, and asks no more often than it needs to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import AsyncClient, DequeueFromQueuesRequest, DequeueRequest, Job, JobState
from pinlater.data_folder.password import hash_password
from tests.server.running import RunningServer, running
from tests.speed import slower
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


@pytest.fixture
def many_calls(monkeypatch: pytest.MonkeyPatch) -> list[DequeueFromQueuesRequest]:
    """Every dequeue from many queues that is sent."""
    noted: list[DequeueFromQueuesRequest] = []
    dequeue = AsyncClient.dequeue_from_queues

    async def noting(self: AsyncClient, request: DequeueFromQueuesRequest, **more: Any) -> Any:
        noted.append(request)
        return await dequeue(self, request, **more)

    monkeypatch.setattr(AsyncClient, "dequeue_from_queues", noting)
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


async def test_without_prefetch_never_more_jobs_are_claimed_than_there_are_slots(server: RunningServer) -> None:
    async with Site(server.port) as site:
        gate = threading.Semaphore(0)

        @site.app.job(queue=site.queue)
        def waits(number: int) -> None:
            gate.acquire()

        await waits.enqueue_many_async([(number,) for number in range(12)])
        async with site.working(concurrency=3, prefetch_s=0.0) as worker:

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
                assert time.monotonic() - began_s < slower(time.monotonic) * 5
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


async def test_an_idle_worker_of_a_hundred_queues_holds_one_poll(
    server: RunningServer, calls: list[DequeueRequest], many_calls: list[DequeueFromQueuesRequest]
) -> None:
    async with Site(server.port) as site:
        queues = {f"{site.queue}_{number}": number + 1 for number in range(100)}
        await asyncio.gather(*(site.client.create_queue(queue) for queue in queues))
        async with site.working(queues=queues, concurrency=8):
            await until(lambda: len(many_calls) > 1)
            await asyncio.sleep(0.5)
        assert calls == []
        first_look, poll = many_calls
        assert first_look.wait_ms == 0
        assert {share.queue: share.weight for share in poll.queues} == queues
        assert poll.limit == 4
        assert poll.wait_ms > 2_000
        assert poll.confirms_receipt


async def test_slots_that_become_free_while_a_poll_waits_need_no_other_poll(
    server: RunningServer, calls: list[DequeueRequest]
) -> None:
    async with Site(server.port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue)
        def waits(number: int) -> None:
            gate.wait(WITHIN_S)

        await waits.enqueue_many_async([(number,) for number in range(6)])
        async with site.working(concurrency=8, ack_delay_s=0.01) as worker:
            await until(lambda: worker.view().running == 6 and calls[-1].wait_ms)
            before = len(calls)
            gate.set()
            await until(lambda: worker.view().running == 0 and worker.view().unacked == 0)
            assert len(calls) == before
            await waits.enqueue_many_async([(number,) for number in range(20)])
            await site.all_succeeded(26)


async def test_the_acks_of_several_queues_ride_on_one_call(
    server: RunningServer, many_calls: list[DequeueFromQueuesRequest]
) -> None:
    async with Site(server.port) as site:
        other = f"{site.queue}_other"
        await site.client.create_queue(other)

        @site.app.job(queue=site.queue, attempts=1)
        def runs(number: int) -> None:
            if number % 10 == 0:
                raise ValueError("no good")

        await runs.enqueue_many_async([(number,) for number in range(200)])
        await site.client.enqueue(other, [Job(runs.body(number), attempts_allowed=1) for number in range(200)])
        async with site.working(queues={site.queue: 1, other: 1}, concurrency=8, ack_delay_s=1.0) as worker:
            for queue in (site.queue, other):
                await site.all_succeeded(180, queue)
                assert await site.count(JobState.FAILED, queue) == 20
            await until(lambda: worker.view().unacked == 0)
        assert any(len(call.acks) == 2 for call in many_calls)
        assert all(not call.wait_ms for call in many_calls if call.acks)


async def test_a_queue_in_trouble_neither_ends_nor_slows_the_others(
    server: RunningServer, many_calls: list[DequeueFromQueuesRequest], caplog: pytest.LogCaptureFixture
) -> None:
    """One that is not there, and one that is paused: each is said once at its begin and once at its end."""
    async with Site(server.port) as site:
        missing, paused = f"{site.queue}_missing", f"{site.queue}_paused"
        await site.client.create_queue(paused)
        await site.client.update_queue(paused, PASSWORD, set={"paused": "true"})

        @site.app.job(queue=site.queue)
        def quick() -> None:
            pass

        queues = {site.queue: 1, missing: 1, paused: 1}
        with caplog.at_level("INFO", "pinlater_workers"):
            async with site.working(queues=queues) as worker:
                for done in range(20):
                    await quick.enqueue_async()
                    await site.all_succeeded(done + 1)
                await until(lambda: worker.view().queues[missing].state == "not found")
                await until(lambda: worker.view().queues[paused].state == "paused")
                assert worker.view().queues[site.queue].state == "polling"
                before = len(many_calls)
                await asyncio.sleep(0.5)
                assert len(many_calls) <= before + 2
                await site.client.create_queue(missing)
                await site.client.update_queue(paused, PASSWORD, set={"paused": "false"})
                for queue in (missing, paused):
                    await site.client.enqueue(queue, Job(quick.body()))
                    await site.all_succeeded(1, queue)
                await until(lambda: {each.state for each in worker.view().queues.values()} == {"polling"})
        for queue in (missing, paused):
            assert len([text for text in caplog.messages if queue in text]) == 2
        assert not [text for text in caplog.messages if "keeps trying" in text]


async def test_queues_are_created_while_the_others_are_served(server: RunningServer) -> None:
    async with Site(server.port) as site:
        missing = [f"{site.queue}_missing_{number}" for number in range(3)]

        @site.app.job(queue=site.queue)
        def quick() -> None:
            pass

        await quick.enqueue_async()
        async with site.working(queues=dict.fromkeys([site.queue, *missing], 1), create_queues=True):
            await site.all_succeeded(1)

            async def are_there() -> bool:
                return set(missing) <= await site.client.queue_names()

            await until(are_there)
            for queue in missing:
                await site.client.enqueue(queue, Job(quick.body()))
                await site.all_succeeded(1, queue)


async def test_queues_are_created_before_the_others_are_waited_for(server: RunningServer) -> None:
    async with Site(server.port) as site:
        missing = f"{site.queue}_missing"
        queues = dict.fromkeys([site.queue, missing], 1)
        async with site.working(queues=queues, create_queues=True, poll_wait_s=60.0, lease_s=300.0):

            async def is_there() -> bool:
                return missing in await site.client.queue_names()

            await until(is_there)


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
                assert worker.view().since_good_poll_s < slower(time.monotonic) * 5
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
        async with site.working(queues={slow: 9, site.queue: 1}, concurrency=2, poll_wait_s=0.5) as worker:
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

        await runs.enqueue_many_async([("heavy",)] * 4_000)
        await site.client.enqueue(light, [Job(runs.body("light")) for _ in range(1_000)])
        async with site.working(queues={site.queue: 3, light: 1}, concurrency=4):
            await until(lambda: len(order) == 5_000)
        # a quarter by its weight; on a busy machine jobs are handed back, and then it gets less
        assert 300 < order[:3_000].count("light") < 1_200
