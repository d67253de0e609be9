"""Jobs at hand: fetched ahead of the slots, begun in order, and handed back where no slot becomes free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import AsyncClient, DequeuedJob, DequeueRequest, JobState
from pinlater.data_folder.password import hash_password
from pinlater.model import CancelOutcome
from pinlater_workers import App
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker import Worker
from tests.server.running import RunningServer, running
from tests.workers.site import WITHIN_S, Site, until

PASSWORD = "for tests"
LONG_S = 1.0
"""A wait at hand that is long enough to look at it."""
KNOWN = 600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("at_hand")
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


class Gate:
    """Jobs of one type go through at once until it is closed; then they wait in their slots."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.began: list[int] = []
        self.open = threading.Event()
        self.open.set()

        @site.app.job(queue=site.queue, name="gated")
        def gated(number: int) -> None:
            self.began.append(number)
            self.open.wait(WITHIN_S)

        self.job = gated

    async def enqueue(self, count: int) -> list[str]:
        return await self.job.enqueue_many_async([(number,) for number in range(count)])

    async def known_for_quick(self) -> None:
        """By so many that went through."""
        await self.enqueue(KNOWN)
        await self._site.all_succeeded(KNOWN)
        self.open.clear()

    async def in_progress(self) -> int:
        return await self._site.count(JobState.IN_PROGRESS)


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_quick_jobs_come_many_at_a_time_and_each_runs_once(
    server: RunningServer, calls: list[DequeueRequest], pool: str
) -> None:
    async with Site(server.port) as site:
        ran: list[int] = []

        @site.app.job(queue=site.queue)
        def plain(number: int) -> None:
            ran.append(number)

        @site.app.job(queue=site.queue)
        async def coroutine(number: int) -> None:
            ran.append(number)

        job = plain if pool == "thread" else coroutine
        await job.enqueue_many_async([(number,) for number in range(1500)])
        async with site.working(concurrency=2) as worker:
            await site.all_succeeded(1500)
            await until(lambda: worker.view().unacked == 0)
            assert site.counted(worker, "started").total() == site.counted(worker, "succeeded").total() == 1500
        assert sorted(ran) == list(range(1500))
        assert any(call.prefetch for call in calls)
        assert len(calls) < 700


async def test_a_slow_job_among_quick_ones_delays_none_of_them(server: RunningServer) -> None:
    async with Site(server.port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue)
        def runs(number: int) -> None:
            if number % 400 == 399:
                gate.wait(WITHIN_S)

        await runs.enqueue_many_async([(number,) for number in range(1200)])
        async with site.working(concurrency=4) as worker:
            await site.all_succeeded(1197)
            assert worker.view().running == 3
            gate.set()
            await site.all_succeeded(1200)


async def test_what_finds_no_slot_is_handed_back_and_an_idle_worker_takes_it(server: RunningServer) -> None:
    async with Site(server.port) as site:
        gate, taken = Gate(site), list[int]()
        idle = App(servers=[f"127.0.0.1:{server.port}"])

        @idle.job(queue=site.queue, name="gated")
        def takes(number: int) -> None:
            taken.append(number)

        async with site.working(concurrency=2, prefetch_s=LONG_S) as worker:
            await gate.known_for_quick()
            descriptors = await gate.enqueue(60)

            async def are_at_hand() -> bool:
                return await gate.in_progress() > worker.view().running == 2

            await until(are_at_hand)

            async def are_back() -> bool:
                return await gate.in_progress() == 2

            await until(are_back)
            assert site.counted(worker, "given_back")["gated"] >= 1
            infos = await site.client.lookup(descriptors)
            assert {info.attempts_remaining for info in infos.values()} == {infos[descriptors[0]].attempts_allowed}
            settings = WorkerSettings(queues={site.queue: 1}, concurrency=2)
            other = Worker(idle, settings, "tests.workers.site:no_app", WorkerMetrics())
            run = asyncio.create_task(other.run())
            await site.all_succeeded(KNOWN + 58)
            other.stop()
            await asyncio.wait_for(run, WITHIN_S)
            await idle.close_async()
            gate.open.set()
            await site.all_succeeded(KNOWN + 60)
        assert len(taken) == 58
        assert len(gate.began) == KNOWN + 2


async def test_jobs_that_are_all_with_the_pool_are_handed_back_too(server: RunningServer) -> None:
    """None waits at hand beside them, and none was there before: they come to a worker at rest, more than its slots."""
    async with Site(server.port) as site:
        gate = Gate(site)
        async with site.working(concurrency=4):
            await gate.known_for_quick()
            await gate.enqueue(12)
            await until(lambda: len(gate.began) >= KNOWN + 4)

            async def only_those_that_began() -> bool:
                return await gate.in_progress() == 4

            await until(only_those_that_began)
            assert len(gate.began) == KNOWN + 4
            gate.open.set()
            await site.all_succeeded(KNOWN + 12)
        assert len(gate.began) == KNOWN + 12


async def test_a_stop_hands_back_what_has_not_begun_whole(server: RunningServer) -> None:
    """Without an attempt spent, and at its place in the queue."""
    async with Site(server.port) as site:
        gate = Gate(site)
        worker = site.worker(concurrency=2, prefetch_s=LONG_S)
        run = asyncio.create_task(worker.run())
        await gate.known_for_quick()
        descriptors = await gate.enqueue(60)
        before = await site.client.lookup(descriptors)

        async def are_at_hand() -> bool:
            return await gate.in_progress() > worker.view().running == 2

        await until(are_at_hand)
        worker.stop()

        async def are_back() -> bool:
            return await gate.in_progress() == 2

        await until(are_back)
        gate.open.set()
        await asyncio.wait_for(run, WITHIN_S)
        after = await site.client.lookup(descriptors)
        pending = {name for name, info in after.items() if info.state is JobState.PENDING}
        assert len(pending) == 58
        for name in pending:
            assert after[name].attempts_remaining == before[name].attempts_remaining
            assert after[name].run_after_ms == before[name].run_after_ms
        assert len(gate.began) == KNOWN + 2


async def test_a_limited_queue_is_never_fetched_ahead(server: RunningServer, calls: list[DequeueRequest]) -> None:
    async with Site(server.port) as site:
        await site.client.update_queue(site.queue, PASSWORD, set={"max_in_progress": "1000"})
        gate = Gate(site)
        async with site.working(concurrency=2, prefetch_s=LONG_S) as worker:
            await gate.known_for_quick()
            await gate.enqueue(60)
            await until(lambda: worker.view().running == 2)
            for _ in range(10):
                assert await gate.in_progress() <= 2
                await asyncio.sleep(0.02)
            gate.open.set()
            await site.all_succeeded(KNOWN + 60)
        assert any(call.prefetch for call in calls)


async def test_jobs_with_a_single_attempt_are_never_fetched_ahead(
    server: RunningServer, calls: list[DequeueRequest]
) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, attempts=1)
        def quick(number: int) -> None:
            pass

        await quick.enqueue_many_async([(number,) for number in range(500)])
        async with site.working(concurrency=2):
            await site.all_succeeded(500)
        assert not any(call.prefetch for call in calls)


def test_a_job_counts_from_its_begin() -> None:
    job = DequeuedJob("q:s1:p1:1790000000000000", b"", 1, 3, 3, 0, 0)
    running = RunningJob(job, "q", None, began_s=10.0, until_s=70.0, deadline_ms=60_000, ahead=True)
    running.begin(10.5)
    assert (running.began_s, running.until_s, running.deadline_ms) == (10.5, 70.5, 60_500)
    assert not running.ahead


async def test_a_job_at_hand_that_is_cancelled_ends_without_having_begun(server: RunningServer) -> None:
    async with Site(server.port) as site:
        gate = Gate(site)
        async with site.working(concurrency=2, prefetch_s=LONG_S, lease_s=3.0) as worker:
            await gate.known_for_quick()
            descriptors = await gate.enqueue(60)

            async def at_hand() -> list[int]:
                if worker.view().running != 2 or len(gate.began) != KNOWN + 2:
                    return []
                infos = await site.client.lookup(descriptors)
                claimed = [n for n, each in enumerate(descriptors) if infos[each].state is JobState.IN_PROGRESS]
                return [number for number in claimed if number not in gate.began[KNOWN:]]

            async def is_asked() -> bool:
                for number in (await at_hand())[-1:]:
                    asked = await site.client.cancel(site.queue, [descriptors[number]], running=True)
                    if asked[descriptors[number]] is CancelOutcome.REQUESTED:
                        chosen.append(number)
                return bool(chosen)

            chosen: list[int] = []
            await until(is_asked)
            info = await site.ended(descriptors[chosen[0]])
            assert (info.state, info.cancelled, info.cancel_requested_by) == (JobState.FAILED, True, site.client.source)
            gate.open.set()
            await site.all_succeeded(KNOWN + 59)
            assert chosen[0] not in gate.began[KNOWN:]
